package harness

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"sort"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// Cluster is a real Postgres server of our own: default durability, C collation, UTF8, loopback only.
// Its role lake is what the gateway's user is: owner of its databases, not a superuser.
type Cluster struct {
	dir  string
	bin  string
	cred *syscall.Credential
	port int
	cmd  *exec.Cmd
	gone chan struct{} // closed when the server has exited
	log  *os.File
}

func reference(t testing.TB) *Cluster {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.cluster == nil {
		shared.cluster = mustStart(t)
	}
	return shared.cluster
}

func mustStart(t testing.TB) *Cluster {
	t.Helper()
	c, err := StartCluster()
	if err != nil {
		t.Fatalf("start Postgres: %v", err)
	}
	return c
}

// DSN names one database of the cluster.
func (c *Cluster) DSN(role, database string) string {
	return fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s?sslmode=disable", role, c.port, database)
}

// StartCluster makes a data directory, starts the server on it and waits until it accepts queries.
func StartCluster() (*Cluster, error) {
	bin, err := ServerBinaries()
	if err != nil {
		return nil, err
	}
	c := &Cluster{}
	if c.dir, err = os.MkdirTemp("", "sluice-postgres-"); err != nil {
		return nil, err
	}
	if err := c.start(bin); err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

func (c *Cluster) start(bin string) error {
	cred, err := ServerAccount(c.dir)
	if err != nil {
		return err
	}
	data := filepath.Join(c.dir, "pg")
	initdb := exec.Command(filepath.Join(bin, "initdb"), "-D", data, "-E", "UTF8", "--locale=C", "-U", "postgres", "-A", "trust", "-N")
	initdb.SysProcAttr, initdb.Dir = &syscall.SysProcAttr{Credential: cred}, c.dir
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	if c.log, err = os.Create(filepath.Join(c.dir, "log")); err != nil {
		return err
	}
	if c.port, err = FreePort(); err != nil {
		return err
	}
	c.bin, c.cred = bin, cred
	if err := c.Start(); err != nil {
		return err
	}
	return c.prepare()
}

// Start runs the server on its data directory and waits until it accepts queries.
func (c *Cluster) Start() error {
	data := filepath.Join(c.dir, "pg")
	c.cmd = exec.Command(filepath.Join(c.bin, "postgres"), "-D", data, "-p", strconv.Itoa(c.port), "-k", c.dir,
		"-c", "listen_addresses=127.0.0.1", "-c", "timezone=UTC", "-c", "log_timezone=UTC", "-c", "max_prepared_transactions=64",
		"-c", "deadlock_timeout=300ms", "-c", "max_connections=100", "-c", "lc_messages=C")
	// The server ends with the test process even if that is killed.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c.cred, Pdeathsig: syscall.SIGQUIT}
	c.cmd.Dir, c.cmd.Stdout, c.cmd.Stderr = c.dir, c.log, c.log
	if err := c.cmd.Start(); err != nil {
		return err
	}
	c.gone = make(chan struct{})
	cmd, gone := c.cmd, c.gone
	go func() { _ = cmd.Wait(); close(gone) }()
	up := false
	if !Poll(30*time.Second, func() bool {
		s, err := Dial(c.DSN("postgres", "postgres"))
		if up = err == nil; up {
			s.Close()
		}
		return up || c.exited()
	}) || !up {
		log, _ := os.ReadFile(c.log.Name())
		return fmt.Errorf("server did not come up: %s", bytes.TrimSpace(log))
	}
	return nil
}

// Kill ends the server at once; it repairs itself at the next Start.
func (c *Cluster) Kill() {
	_ = c.cmd.Process.Signal(syscall.SIGQUIT)
	<-c.gone
}

// prepare makes the role lake and its database.
func (c *Cluster) prepare() error {
	admin, err := Dial(c.DSN("postgres", "postgres"))
	if err != nil {
		return err
	}
	defer admin.Close()
	for _, q := range []string{"create role lake login createrole createdb", "create database lake owner lake"} {
		if r, err := admin.Query(q); err != nil || r.Err() != nil {
			return fmt.Errorf("%s: %v %v", q, err, r.Err())
		}
	}
	return nil
}

func (c *Cluster) exited() bool {
	select {
	case <-c.gone:
		return true
	default:
		return false
	}
}

// Stop ends the server and removes its files.
func (c *Cluster) Stop() {
	if c.cmd != nil && c.cmd.Process != nil && c.gone != nil {
		_ = c.cmd.Process.Signal(syscall.SIGINT) // fast shutdown
		select {
		case <-c.gone:
		case <-time.After(20 * time.Second):
			_ = c.cmd.Process.Signal(syscall.SIGQUIT)
			<-c.gone
		}
	}
	if c.log != nil {
		_ = c.log.Close()
	}
	_ = os.RemoveAll(c.dir)
}

// ServerAccount hands dir to the account Postgres runs under: it refuses to run as root.
func ServerAccount(dir string) (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("running as root needs the account postgres: %w", err)
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return nil, err
	}
	if err := os.Chown(dir, uid, gid); err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// ServerBinaries is the folder of initdb and postgres: SLUICE_PG_BIN, Debian's layout (Postgres 15 first,
// the version answers are compared with), or what pg_config says.
func ServerBinaries() (string, error) {
	candidates := []string{os.Getenv("SLUICE_PG_BIN"), "/usr/lib/postgresql/15/bin"}
	others, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	sort.Strings(others)
	candidates = append(candidates, others...)
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		candidates = append(candidates, string(bytes.TrimSpace(out)))
	}
	for _, dir := range candidates {
		if dir == "" {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, "initdb")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("no Postgres server binaries: install postgresql-15 or set SLUICE_PG_BIN")
}

// FreePort asks the system for a loopback port nobody listens on.
func FreePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
