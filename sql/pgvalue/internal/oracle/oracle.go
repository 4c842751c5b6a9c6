// Package oracle gives the tests of package pgvalue and those below it a private Postgres to compare with, and a seed.
package oracle

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Seed is where the random values of a test begin. Main puts the time in place of 0.
var Seed = flag.Uint64("seed", 0, "seed of the random values; 0 takes the time")

// shared is the server of all tests of the process.
var shared struct {
	*cluster
	err error
}

// Main runs the tests of a package beside a server. With -short there is none and tests that want it are skipped.
func Main(m *testing.M) {
	flag.Parse()
	if *Seed == 0 {
		*Seed = uint64(time.Now().UnixNano())
	}
	if !testing.Short() {
		shared.cluster, shared.err = start()
	}
	code := m.Run()
	if shared.cluster != nil {
		if err := shared.stop(); err != nil {
			fmt.Fprintln(os.Stderr, "oracle:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// Connect opens a connection as superuser, which ends with the test.
func Connect(t testing.TB) *pgconn.PgConn {
	t.Helper()
	if testing.Short() {
		t.Skip("no oracle in -short mode")
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	conn, err := pgconn.Connect(t.Context(), "host="+shared.dir+" user=oracle dbname=postgres")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// Exec runs statements that must succeed and returns the rows of the last one, as text.
func Exec(t testing.TB, conn *pgconn.PgConn, sql string) [][][]byte {
	t.Helper()
	results, err := conn.Exec(t.Context(), sql).ReadAll()
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	if len(results) == 0 {
		return nil
	}
	return results[len(results)-1].Rows
}

// cluster is a running Postgres that listens on a Unix socket in its own folder.
type cluster struct {
	dir  string
	bin  string
	cred *syscall.Credential
}

// start makes a cluster (UTF8, C collation) in a new temporary folder and starts it.
func start() (*cluster, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	c := &cluster{bin: bin}
	if os.Getuid() == 0 { // Postgres refuses root
		if c.cred, err = unprivileged("postgres"); err != nil {
			return nil, err
		}
	}
	if c.dir, err = os.MkdirTemp("", "sluice-oracle-"); err != nil {
		return nil, err
	}
	if err := c.launch(); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

func (c *cluster) launch() error {
	if c.cred != nil {
		if err := os.Chown(c.dir, int(c.cred.Uid), int(c.cred.Gid)); err != nil {
			return err
		}
	}
	if err := c.run("initdb", "-D", c.data(), "-U", "oracle", "-E", "UTF8", "--locale=C", "-A", "trust", "-N"); err != nil {
		return err
	}
	options := "-c listen_addresses= -c fsync=off -c timezone=UTC -c unix_socket_directories=" + c.dir
	return c.run("pg_ctl", "-D", c.data(), "-w", "-o", options, "-l", filepath.Join(c.dir, "log"), "start")
}

func (c *cluster) data() string { return filepath.Join(c.dir, "data") }

// run runs one of Postgres' programs as an unprivileged user. Its output goes to a file, not a pipe, since the server
// started by pg_ctl inherits it.
func (c *cluster) run(name string, args ...string) error {
	out, err := os.Create(filepath.Join(c.dir, name+".out"))
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(filepath.Join(c.bin, name), args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = c.dir, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c.cred}
	if err := cmd.Run(); err != nil {
		text, _ := os.ReadFile(out.Name())
		return fmt.Errorf("%s: %w\n%s", name, err, text)
	}
	return nil
}

// stop stops the server and removes its folder.
func (c *cluster) stop() error {
	err := c.run("pg_ctl", "-D", c.data(), "-m", "immediate", "-w", "stop")
	if _, statErr := os.Stat(filepath.Join(c.data(), "postmaster.pid")); statErr != nil {
		err = nil
	}
	return errors.Join(err, os.RemoveAll(c.dir))
}

// binaries is the folder of initdb and pg_ctl.
func binaries() (string, error) {
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		if dir := strings.TrimSpace(string(out)); isFile(filepath.Join(dir, "initdb")) {
			return dir, nil
		}
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		return "", errors.New("no Postgres server programs: neither pg_config --bindir nor /usr/lib/postgresql/*/bin has initdb")
	}
	return filepath.Dir(found[0]), nil
}

func isFile(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

func unprivileged(name string) (*syscall.Credential, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("tests run as root need the user %q to start Postgres: %w", name, err)
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}
