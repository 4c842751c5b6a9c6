// Package oracle starts a private Postgres for tests that compare with the real one.
package oracle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
)

// Cluster is a running Postgres that listens on a Unix socket in its own folder.
type Cluster struct {
	dir  string
	bin  string
	cred *syscall.Credential
}

// Start makes a cluster (UTF8, C collation) in a new temporary folder and starts it.
func Start() (*Cluster, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	c := &Cluster{bin: bin}
	if os.Getuid() == 0 { // Postgres refuses root
		if c.cred, err = unprivileged("postgres"); err != nil {
			return nil, err
		}
	}
	if c.dir, err = os.MkdirTemp("", "sluice-oracle-"); err != nil {
		return nil, err
	}
	if err := c.launch(); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func (c *Cluster) launch() error {
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

func (c *Cluster) data() string { return filepath.Join(c.dir, "data") }

// run runs one of Postgres' programs as an unprivileged user. Its output goes to a file, not a pipe, since the server
// started by pg_ctl inherits it.
func (c *Cluster) run(name string, args ...string) error {
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

// Stop stops the server and removes its folder.
func (c *Cluster) Stop() error {
	err := c.run("pg_ctl", "-D", c.data(), "-m", "immediate", "-w", "stop")
	if _, statErr := os.Stat(filepath.Join(c.data(), "postmaster.pid")); statErr != nil {
		err = nil
	}
	return errors.Join(err, os.RemoveAll(c.dir))
}

// Connect opens a connection as superuser.
func (c *Cluster) Connect(ctx context.Context) (*pgconn.PgConn, error) {
	return pgconn.Connect(ctx, "host="+c.dir+" user=oracle dbname=postgres")
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
