package harness

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Options of a gateway under test.
type Options struct {
	Args []string // after serve and the addresses
	Env  []string // NAME=value
	// Database is the name of the lake's, lake if it is empty.
	Database string
	// Checked asks for a build in which broken invariants panic and points can kill (tag invariants).
	Checked bool
}

// Gateway is the program under test with a data directory of its own.
type Gateway struct {
	bin    string
	dir    string // removed at the end; holds data and log
	listen int
	http   int
	opts   Options

	cmd  *exec.Cmd
	gone chan struct{}
	log  *os.File
}

var built, checked struct {
	sync.Once
	path string
	err  error
}

// errNoGateway says that cmd/sluice is not written yet.
var errNoGateway = errors.New("the gateway is not built yet: no cmd/sluice and no SLUICE_BIN")

// Binary is the program under test: SLUICE_BIN, or cmd/sluice built once into bin/sluice.
func Binary() (string, error) {
	built.Do(func() { built.path, built.err = build("sluice", "duckdb_arrow") })
	return built.path, built.err
}

// CheckedBinary is the program as a checked build: SLUICE_BIN if that is given, which then has to be one.
func CheckedBinary() (string, error) {
	checked.Do(func() { checked.path, checked.err = build("sluice-checked", "duckdb_arrow,invariants") })
	return checked.path, checked.err
}

func build(name, tags string) (string, error) {
	if p := os.Getenv("SLUICE_BIN"); p != "" {
		return p, nil
	}
	root, err := Root()
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(root, "cmd", "sluice", "main.go")); err != nil {
		return "", errNoGateway
	}
	if err := os.MkdirAll(filepath.Join(root, "bin"), 0o755); err != nil {
		return "", err
	}
	target := filepath.Join(root, "bin", name)
	fresh := fmt.Sprintf("%s.%d", target, os.Getpid()) // two test packages may build at once
	cmd := exec.Command("go", "build", "-p", "1", "-tags", tags, "-o", fresh, "./cmd/sluice")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build ./cmd/sluice: %w\n%s", err, out)
	}
	return target, os.Rename(fresh, target)
}

// RequireGateway skips the test until there is a gateway to test.
func RequireGateway(t testing.TB) string {
	t.Helper()
	bin, err := Binary()
	if errors.Is(err, errNoGateway) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

// StartGateway starts a gateway on an empty data directory for this test alone and ends it with the test.
func StartGateway(t testing.TB, opts Options) *Gateway {
	t.Helper()
	bin := RequireGateway(t)
	if opts.Checked {
		var err error
		if bin, err = CheckedBinary(); err != nil {
			t.Fatal(err)
		}
	}
	g, err := newGateway(bin, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of the gateway's log:\n%s", g.LogTail(40))
		}
		g.End()
	})
	return g
}

// NewGateway starts a gateway outside of a test; the caller ends it with End.
func NewGateway(opts Options) (*Gateway, error) {
	bin, err := Binary()
	if err != nil {
		return nil, err
	}
	return newGateway(bin, opts)
}

func newGateway(bin string, opts Options) (*Gateway, error) {
	g := &Gateway{bin: bin, opts: opts}
	var err error
	if g.dir, err = os.MkdirTemp("", "sluice-gateway-"); err != nil {
		return nil, err
	}
	// The embedded Postgres runs under another account and has to reach its folder.
	if err := os.Chmod(g.dir, 0o755); err != nil {
		return nil, err
	}
	if g.log, err = os.OpenFile(filepath.Join(g.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o644); err != nil {
		return nil, err
	}
	if g.listen, err = FreePort(); err != nil {
		return nil, err
	}
	if g.http, err = FreePort(); err != nil {
		return nil, err
	}
	if err := g.Start(); err != nil {
		err = fmt.Errorf("%w\n%s", err, g.LogTail(40))
		g.End()
		return nil, err
	}
	return g, nil
}

// DSN is how a client reaches the lake.
func (g *Gateway) DSN() string {
	return fmt.Sprintf("postgres://lake@127.0.0.1:%d/%s?sslmode=disable", g.listen, cmp.Or(g.opts.Database, "lake"))
}

// HTTP is the base address of the REST catalog, /healthz and /metrics.
func (g *Gateway) HTTP() string { return fmt.Sprintf("http://127.0.0.1:%d", g.http) }

// Data is the data directory.
func (g *Gateway) Data() string { return filepath.Join(g.dir, "data") }

// Pid is the process id of the program.
func (g *Gateway) Pid() int { return g.cmd.Process.Pid }

// Start runs the program on the data directory and waits until it is ready.
func (g *Gateway) Start() error {
	args := append([]string{
		"serve", "--listen", "127.0.0.1:" + strconv.Itoa(g.listen),
		"--http", "127.0.0.1:" + strconv.Itoa(g.http), "--data", g.Data(),
	}, g.opts.Args...)
	if g.opts.Database != "" {
		args = append(args, "--database", g.opts.Database)
	}
	g.cmd = exec.Command(g.bin, args...)
	g.cmd.Env = append(os.Environ(), g.opts.Env...)
	g.cmd.Stdout, g.cmd.Stderr = g.log, g.log
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := g.cmd.Start(); err != nil {
		return err
	}
	gone := make(chan struct{})
	g.gone = gone
	cmd := g.cmd
	go func() { _ = cmd.Wait(); close(gone) }()
	if !Poll(90*time.Second, func() bool { return g.Healthy() || !g.Alive() }) {
		return fmt.Errorf("the gateway was not ready within 90 s")
	}
	if !g.Alive() {
		return fmt.Errorf("the gateway ended at start: %s", g.cmd.ProcessState)
	}
	return nil
}

// Healthy says whether /healthz answers 200, which means the gateway accepts queries.
func (g *Gateway) Healthy() bool {
	client := http.Client{Timeout: 2 * time.Second}
	resp, err := client.Get(g.HTTP() + "/healthz")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// Alive says whether the process runs.
func (g *Gateway) Alive() bool {
	if g.gone == nil {
		return false
	}
	select {
	case <-g.gone:
		return false
	default:
		return true
	}
}

// Kill is SIGKILL: nothing is written any more from here on. The embedded Postgres lives on.
func (g *Gateway) Kill() {
	_ = g.cmd.Process.Kill()
	<-g.gone
}

// Gone waits until the program has ended by itself.
func (g *Gateway) Gone(timeout time.Duration) bool {
	select {
	case <-g.gone:
		return true
	case <-time.After(timeout):
		return false
	}
}

// Stop is SIGTERM: the gateway drains and ends, with status 0.
func (g *Gateway) Stop() error {
	_ = g.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-g.gone:
	case <-time.After(60 * time.Second):
		g.Kill()
		return fmt.Errorf("the gateway did not end within 60 s of SIGTERM")
	}
	if code := g.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("the gateway ended with status %d", code)
	}
	return nil
}

// Run runs a subcommand of the program and returns what it printed.
func (g *Gateway) Run(args ...string) (string, error) {
	out, err := exec.Command(g.bin, args...).CombinedOutput()
	return string(out), err
}

// Knows says whether the program has a subcommand, by the list it prints for --help.
func (g *Gateway) Knows(command string) bool {
	out, _ := g.Run("--help")
	for _, line := range strings.Split(out, "\n") {
		if f := strings.Fields(line); len(f) > 0 && (f[0] == command || len(f) > 1 && f[0] == "sluice" && f[1] == command) {
			return true
		}
	}
	return false
}

// LogTail is the end of the log.
func (g *Gateway) LogTail(lines int) string {
	all, err := os.ReadFile(filepath.Join(g.dir, "log"))
	if err != nil {
		return err.Error()
	}
	l := strings.Split(strings.TrimRight(string(all), "\n"), "\n")
	return strings.Join(l[max(0, len(l)-lines):], "\n")
}

// End stops everything this gateway started and removes its files.
func (g *Gateway) End() {
	if g.Alive() {
		_ = g.Stop()
	}
	g.endPostgres()
	if g.log != nil {
		_ = g.log.Close()
	}
	_ = os.RemoveAll(g.dir)
}

// endPostgres ends an embedded Postgres that a killed gateway left. It is found only by the postmaster.pid
// below our own data directory, and only believed if the process works in that very folder.
func (g *Gateway) endPostgres() {
	_ = filepath.WalkDir(g.Data(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() != "postmaster.pid" {
			return nil
		}
		pid, ok := postmaster(path)
		if !ok {
			return nil
		}
		_ = syscall.Kill(pid, syscall.SIGINT)
		if !Poll(20*time.Second, func() bool { _, ok := postmaster(path); return !ok }) {
			_ = syscall.Kill(pid, syscall.SIGQUIT)
			Poll(20*time.Second, func() bool { _, ok := postmaster(path); return !ok })
		}
		return nil
	})
}

// postmaster reads a postmaster.pid and says whether its process is alive and works in the file's folder.
func postmaster(path string) (int, bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	first, _, _ := bytes.Cut(text, []byte("\n"))
	pid, err := strconv.Atoi(string(bytes.TrimSpace(first)))
	if err != nil || pid <= 1 {
		return 0, false
	}
	cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	if err != nil {
		return 0, false
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	return pid, err == nil && cwd == dir
}
