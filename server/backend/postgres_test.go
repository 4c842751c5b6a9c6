package backend_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/goleak"

	"sluice/server/backend"
	"sluice/server/wire"
)

// cluster is the directory of the tests' own Postgres: its socket is in it. Empty: there are no server binaries here.
var cluster string

// TestMain runs the tests against a Postgres of their own, and fails if they leave goroutines behind.
func TestMain(m *testing.M) {
	stop, err := start()
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		stop()
		os.Exit(code)
	}))
}

// start makes a cluster and starts it as an unprivileged user.
func start() (stop func(), err error) {
	bins, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(bins) == 0 {
		return func() {}, nil
	}
	bin := filepath.Dir(bins[len(bins)-1])
	dir, err := os.MkdirTemp("", "backend")
	if err != nil {
		return nil, err
	}
	owner, err := unprivileged(dir)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	if err := command(owner, dir, filepath.Join(bin, "initdb"), "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"); err != nil {
		return nil, err
	}
	ctl := filepath.Join(bin, "pg_ctl")
	options := fmt.Sprintf("-c listen_addresses='' -c unix_socket_directories='%s' -c fsync=off", dir)
	if err := command(owner, dir, ctl, "-D", data, "-o", options, "-l", filepath.Join(dir, "log"), "-w", "start"); err != nil {
		return nil, err
	}
	cluster = dir
	return func() {
		command(owner, dir, ctl, "-D", data, "-m", "immediate", "-w", "stop")
		os.RemoveAll(dir)
	}, nil
}

// unprivileged is the account to run Postgres with, which refuses root; dir becomes its own.
func unprivileged(dir string) (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	name := "nobody"
	if _, err := user.Lookup("postgres"); err == nil {
		name = "postgres"
	}
	u, err := user.Lookup(name)
	if err != nil {
		return nil, err
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, os.Chown(dir, uid, gid)
}

func command(owner *syscall.Credential, dir, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: owner}
	log, err := os.CreateTemp(dir, "out")
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log // a file, not a pipe: the server keeps it open
	if err := cmd.Run(); err != nil {
		text, _ := os.ReadFile(log.Name())
		return fmt.Errorf("run %s: %w\n%s", name, err, text)
	}
	return nil
}

// connect is a fresh backend.
func connect(t testing.TB, hooks backend.Hooks) *backend.Conn {
	if cluster == "" {
		t.Skip("no Postgres server binaries")
	}
	ctx := context.Background()
	conn, err := pgconn.Connect(ctx, fmt.Sprintf("host=%s user=postgres dbname=postgres application_name=test", cluster))
	if err != nil {
		t.Fatal(err)
	}
	h, err := conn.Hijack()
	if err != nil {
		t.Fatal(err)
	}
	be := backend.New(h.Conn, backend.Options{
		Key: wire.Cancel{PID: h.PID, Secret: h.SecretKey},
		Dial: func(ctx context.Context) (net.Conn, error) {
			return h.Config.DialFunc(ctx, "unix", filepath.Join(cluster, ".s.PGSQL.5432"))
		},
		Hooks: hooks,
	})
	t.Cleanup(func() { be.Close() })
	return be
}
