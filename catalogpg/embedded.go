package catalogpg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// SuperUser is the superuser of an embedded cluster. Only the control connection is logged in as it.
const SuperUser = "sluice_super"

var (
	// startLimit bounds a start. Crash recovery of a small cluster takes seconds; the limit is for one that hangs.
	startLimit = 5 * time.Minute
	// answerLimit is how long a postmaster that was left behind may take to answer before it is ended.
	answerLimit = 10 * time.Second
	// pollEvery is the pause between connection tries: small against a start (300 ms), large against a try (1 ms).
	pollEvery = 15 * time.Millisecond
)

// Embedded is a private Postgres cluster that runs as a child process and outlives this process if that is killed.
type Embedded struct {
	dir    string // data directory, absolute
	socket string // directory of the Unix socket
	as     account
	log    *slog.Logger
	lock   *os.File  // flock: one gateway per cluster
	child  *exec.Cmd // nil if the postmaster was adopted
	pid    int       // of the postmaster
}

// StartEmbedded brings up the cluster in dir, which it makes if there is none. A postmaster that a killed gateway left behind is adopted.
func StartEmbedded(ctx context.Context, dir string, log *slog.Logger) (*Embedded, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	as, err := serverAccount()
	if err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	e := &Embedded{dir: dir, as: as, log: log}
	if err := e.open(); err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	if err := e.up(ctx); err != nil {
		os.Remove(e.socket)
		e.lock.Close()
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	return e, nil
}

// open makes the two directories and takes the lock.
func (e *Embedded) open() (err error) {
	if err := e.as.makeDir(e.dir); err != nil {
		return err
	}
	if e.socket, err = e.as.socketDir(e.dir); err != nil {
		return err
	}
	if err := e.as.makeDir(e.socket); err != nil {
		return err
	}
	e.lock, err = lockDir(e.dir)
	return err
}

func (e *Embedded) up(ctx context.Context) error {
	if e.adopt(ctx) {
		return nil
	}
	bin, err := findBinaries(ctx, e.dir)
	if err != nil {
		return err
	}
	if err := e.initdb(ctx, bin); err != nil {
		return err
	}
	if err := writeConf(e.cluster(), e.socket, bin.major, e.as); err != nil {
		return err
	}
	return e.launch(ctx, bin)
}

func (e *Embedded) cluster() string { return filepath.Join(e.dir, "pg") }
func (e *Embedded) logPath() string { return filepath.Join(e.dir, "postgres.log") }

// initdb makes the cluster in a folder of another name and renames it: a half-made cluster is never started.
func (e *Embedded) initdb(ctx context.Context, bin binaries) error {
	if _, err := os.Stat(filepath.Join(e.cluster(), "PG_VERSION")); err == nil {
		return nil
	}
	part := e.cluster() + ".part"
	if err := os.RemoveAll(part); err != nil {
		return fmt.Errorf("clear half-made cluster: %w", err)
	}
	if err := e.as.makeDir(part); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, bin.path("initdb"), "-U", SuperUser, "-E", "UTF8", "--locale=C", "--data-checksums", "--auth=trust",
		"--no-instructions")
	name, opened, err := e.as.run(cmd, part)
	if err != nil {
		return err
	}
	defer opened.Close() // on nil it does nothing
	cmd.Args = append(cmd.Args, "-D", name)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, lastLine(out))
	}
	return os.Rename(part, e.cluster())
}

// launch starts the postmaster in a session of its own, so that neither a signal to our terminal nor our death ends it.
func (e *Embedded) launch(ctx context.Context, bin binaries) error {
	out, err := os.OpenFile(e.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open postgres log: %w", err)
	}
	defer out.Close()
	mark, err := out.Seek(0, 2)
	if err != nil {
		return fmt.Errorf("open postgres log: %w", err)
	}
	// Not CommandContext: the cluster must outlive ctx.
	e.child = exec.Command(bin.path("postgres"))
	e.child.Stdout, e.child.Stderr = out, out
	name, opened, err := e.as.run(e.child, e.cluster())
	if err != nil {
		return err
	}
	defer opened.Close() // on nil it does nothing
	e.child.Args = append(e.child.Args, "-D", name)
	e.child.SysProcAttr.Setsid = true
	if err := e.child.Start(); err != nil {
		return fmt.Errorf("run postgres: %w", err)
	}
	e.pid = e.child.Process.Pid
	if err := e.wait(ctx); err != nil {
		e.end(syscall.SIGQUIT)
		return fmt.Errorf("%w%s", err, logSince(e.logPath(), mark))
	}
	return nil
}

// wait returns when the cluster answers, its process has ended, or ctx is over.
func (e *Embedded) wait(ctx context.Context) error {
	for {
		err := e.ping(ctx)
		if err == nil {
			return nil
		}
		if e.gone() {
			return errors.New("postgres ended while starting")
		}
		if !pause(ctx, pollEvery) {
			return fmt.Errorf("postgres does not answer: %w", err)
		}
	}
}

// ping asks the server on our socket which cluster it serves.
func (e *Embedded) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	c, err := pgconn.Connect(ctx, e.connString("postgres"))
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	if _, err := os.Stat("/proc/self/cwd"); err == nil {
		if !sameFile(fmt.Sprintf("/proc/%d/cwd", c.PID()), e.cluster()) {
			return fmt.Errorf("the server on %s serves another cluster", e.socket)
		}
		return nil
	}
	r := c.ExecParams(ctx, "show data_directory", nil, nil, nil, nil).Read()
	if r.Err != nil {
		return r.Err
	}
	if got := string(r.Rows[0][0]); !sameFile(got, e.cluster()) {
		return fmt.Errorf("the server on %s serves %s", e.socket, got)
	}
	return nil
}

func (e *Embedded) connString(database string) string {
	return fmt.Sprintf("host=%s port=5432 user=%s database=%s sslmode=disable connect_timeout=30", e.socket, SuperUser, database)
}

// Run returns when ctx is over, or with an error when the postmaster has ended.
func (e *Embedded) Run(ctx context.Context) error {
	for pause(ctx, time.Second) {
		if e.gone() {
			return fmt.Errorf("run postgres: it has ended, see %s", e.logPath())
		}
	}
	return nil
}

// Stop ends the cluster: sessions are cut off, and what was committed is on disk (fast shutdown). It returns when the process is gone.
func (e *Embedded) Stop(ctx context.Context) error {
	defer e.lock.Close()
	defer os.Remove(e.socket) // unless it is not empty
	if err := e.signal(syscall.SIGINT); err != nil {
		return nil
	}
	for !e.gone() {
		if !pause(ctx, pollEvery) {
			return fmt.Errorf("stop postgres: %w", ctx.Err())
		}
	}
	return nil
}

// Leave gives the cluster up without stopping it; the next StartEmbedded adopts it.
func (e *Embedded) Leave() error { return e.lock.Close() }

// pause waits; false if ctx is over.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// Remove stops the cluster and removes it, data and all. It is for clusters of tests.
func (e *Embedded) Remove(ctx context.Context) error {
	return errors.Join(e.Stop(ctx), os.RemoveAll(e.cluster()), os.RemoveAll(e.socket))
}
