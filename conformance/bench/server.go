package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/conformance/harness"
)

// server is one of the two sides: a program on a folder of its own.
type server struct {
	name    string
	gateway bool
	dir     string // holds its files and its log
	bin     string // the gateway, or the folder of Postgres' programs
	account *syscall.Credential
	port    int
	cmd     *exec.Cmd
	gone    chan struct{} // closed when the program has ended
	catalog int           // pid of the gateway's Postgres, 0 if there is none
}

// newPostgres makes a cluster with default durability and starts it.
func newPostgres(ctx context.Context, name, parent string) (*server, error) {
	bin, err := harness.ServerBinaries()
	if err != nil {
		return nil, err
	}
	s := &server{name: name, bin: bin, dir: filepath.Join(parent, name)}
	if err := os.Mkdir(s.dir, 0o755); err != nil {
		return nil, err
	}
	if s.account, err = harness.ServerAccount(s.dir); err != nil {
		return nil, err
	}
	initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "-D", s.files(), "-E", "UTF8", "--locale=C", "-U", "postgres", "-A", "trust")
	initdb.SysProcAttr, initdb.Dir = &syscall.SysProcAttr{Credential: s.account}, s.dir
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	if err := s.start(ctx); err != nil {
		s.stop()
		return nil, err
	}
	for _, q := range []string{"create role lake login", "create database lake owner lake"} {
		if err := s.execute(ctx, "postgres", "postgres", q); err != nil {
			s.stop()
			return nil, err
		}
	}
	return s, nil
}

// newGateway starts the program under test on an empty folder.
func newGateway(ctx context.Context, parent string) (*server, error) {
	bin, err := harness.Binary()
	if err != nil {
		return nil, err
	}
	s := &server{name: "sluice", gateway: true, bin: bin, dir: filepath.Join(parent, "sluice")}
	if err := os.Mkdir(s.dir, 0o755); err != nil {
		return nil, err
	}
	if err := s.start(ctx); err != nil {
		s.stop()
		return nil, fmt.Errorf("%w\n%s", err, s.logTail(15))
	}
	return s, nil
}

func (s *server) files() string { return filepath.Join(s.dir, "files") }

func (s *server) dsn(role, database string) string {
	return fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s?sslmode=disable&timezone=UTC", role, s.port, database)
}

// start runs the program and waits until it answers.
func (s *server) start(ctx context.Context) error {
	var err error
	if s.port, err = harness.FreePort(); err != nil {
		return err
	}
	ready := s.answers
	if s.gateway {
		ready, err = s.gatewayCommand()
	} else {
		s.postgresCommand()
	}
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if s.gone, err = spawn(s.cmd); err != nil {
		return err
	}
	harness.Poll(90*time.Second, func() bool { return !s.alive() || ctx.Err() != nil || ready() })
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !s.alive() {
		return fmt.Errorf("%s ended at start: %s", s.name, s.cmd.ProcessState)
	}
	if !ready() {
		return fmt.Errorf("%s was not ready within 90 s", s.name)
	}
	s.catalog = s.postmaster()
	return nil
}

// spawn starts a program that ends with this one, and tells when it has ended. The kernel binds that to the thread that
// started it, so that thread stays until then.
func spawn(cmd *exec.Cmd) (gone chan struct{}, err error) {
	gone = make(chan struct{})
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
			close(gone)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return gone, nil
}

// postgresCommand leaves everything that makes a commit durable at its default.
func (s *server) postgresCommand() {
	s.cmd = exec.Command(filepath.Join(s.bin, "postgres"), "-D", s.files(), "-p", strconv.Itoa(s.port), "-k", s.dir,
		"-c", "listen_addresses=127.0.0.1", "-c", "shared_buffers=1GB", "-c", "max_wal_size=4GB", "-c", "timezone=UTC")
	s.cmd.Dir = s.dir
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.account, Pdeathsig: syscall.SIGQUIT}
}

func (s *server) gatewayCommand() (ready func() bool, err error) {
	web, err := harness.FreePort()
	if err != nil {
		return nil, err
	}
	host := "127.0.0.1:"
	s.cmd = exec.Command(s.bin, "serve", "--listen", host+strconv.Itoa(s.port), "--http", host+strconv.Itoa(web), "--data", s.files())
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	client := http.Client{Timeout: 2 * time.Second}
	return func() bool {
		resp, err := client.Get("http://" + host + strconv.Itoa(web) + "/healthz")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}, nil
}

func (s *server) answers() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return s.execute(ctx, "postgres", "postgres", "select 1") == nil
}

func (s *server) alive() bool {
	if s.gone == nil {
		return false
	}
	select {
	case <-s.gone:
		return false
	default:
		return true
	}
}

// stop ends the program and, should it have left its catalog behind, that too.
func (s *server) stop() {
	if s.alive() {
		sig := syscall.SIGINT // Postgres: fast shutdown
		if s.gateway {
			sig = syscall.SIGTERM
		}
		_ = s.cmd.Process.Signal(sig)
		select {
		case <-s.gone:
		case <-time.After(45 * time.Second):
			_ = s.cmd.Process.Kill()
			<-s.gone
		}
	}
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT} {
		pid := s.postmaster()
		if pid == 0 {
			return
		}
		_ = syscall.Kill(pid, sig)
		harness.Poll(20*time.Second, func() bool { return s.postmaster() == 0 })
	}
}

// restart replaces the server by an empty one.
func (s *server) restart(ctx context.Context) (*server, error) {
	s.stop()
	if err := os.RemoveAll(s.dir); err != nil {
		return nil, err
	}
	parent := filepath.Dir(s.dir)
	if s.gateway {
		return newGateway(ctx, parent)
	}
	return newPostgres(ctx, s.name, parent)
}

// tree reads the processes of this server now.
func (s *server) tree() tree { return readTree(s.cmd.Process.Pid, s.catalog) }

// execute runs statements on a connection of their own.
func (s *server) execute(ctx context.Context, role, database string, statements ...string) error {
	conn, err := pgx.Connect(ctx, s.dsn(role, database))
	if err != nil {
		return err
	}
	defer conn.Close(context.Background())
	for _, q := range statements {
		if _, err := conn.PgConn().Exec(ctx, q).ReadAll(); err != nil {
			return fmt.Errorf("%s: %w", q, err)
		}
	}
	return nil
}

// run executes statements as the user of the benchmark.
func (s *server) run(ctx context.Context, statements ...string) error {
	return s.execute(ctx, "lake", "lake", statements...)
}

func (s *server) connect(ctx context.Context) (*pgx.Conn, error) {
	return pgx.Connect(ctx, s.dsn("lake", "lake"))
}

// ask is the first row of an answer as text, columns joined by a bar.
func (s *server) ask(ctx context.Context, query string) (string, error) {
	conn, err := s.connect(ctx)
	if err != nil {
		return "", err
	}
	defer conn.Close(context.Background())
	results, err := conn.PgConn().Exec(ctx, query).ReadAll()
	if err != nil {
		return "", fmt.Errorf("%s: %w", query, err)
	}
	if len(results) != 1 || len(results[0].Rows) != 1 {
		return "", fmt.Errorf("%s: not one row", query)
	}
	return string(bytes.Join(results[0].Rows[0], []byte("|"))), nil
}

func (s *server) logTail(lines int) string {
	text, err := os.ReadFile(filepath.Join(s.dir, "log"))
	if err != nil {
		return ""
	}
	l := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(l[max(0, len(l)-lines):], "\n")
}

var errFound = errors.New("found")

// postmaster is the pid of the Postgres that works in this server's folder below its own top, 0 if none does.
func (s *server) postmaster() int {
	if !s.gateway {
		return 0
	}
	found := 0
	_ = filepath.WalkDir(s.files(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "postmaster.pid" {
			return nil
		}
		if found = pidOf(path); found != 0 {
			return errFound
		}
		return nil
	})
	return found
}

// pidOf believes a postmaster.pid only if its process works in that very folder.
func pidOf(path string) int {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	first, _, _ := bytes.Cut(text, []byte("\n"))
	pid, err := strconv.Atoi(string(bytes.TrimSpace(first)))
	if err != nil || pid <= 1 {
		return 0
	}
	cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	dir, err2 := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil || err2 != nil || cwd != dir {
		return 0
	}
	return pid
}
