package catalogpg_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/catalogpg"
)

func start(t *testing.T, dir string) *catalogpg.Embedded {
	t.Helper()
	e, err := catalogpg.StartEmbedded(t.Context(), dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestEmbedded is the life of one cluster: made, stopped, started, left behind by a killed gateway, adopted, stale, stuck.
func TestEmbedded(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30)) // longer than a socket path may be
	ctx := context.Background()
	e := start(t, dir)
	t.Cleanup(func() { e.Remove(ctx) })
	c := open(t, e)
	c.Close()
	first := e.PID()
	if err := e.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if syscall.Kill(first, 0) == nil {
		t.Fatalf("postmaster %d lives after Stop", first)
	}

	// The second start makes nothing anew. The limit is the promise; a loaded machine gets ten times that.
	began := time.Now()
	e = start(t, dir)
	if d := time.Since(began); d > 15*time.Second {
		t.Errorf("second start took %v", d)
	}
	if _, err := catalogpg.StartEmbedded(ctx, dir, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "another gateway") {
		t.Errorf("two gateways on one cluster: %v", err)
	}
	if err := e.Stop(ctx); err != nil {
		t.Fatal(err)
	}

	pid := killedGateway(t, dir)
	e = start(t, dir)
	if e.PID() != pid || !e.Adopted() {
		t.Errorf("postmaster %d was left behind, got %d", pid, e.PID())
	}
	open(t, e).Close()

	// Stopped by a signal, it does not answer.
	e.Abandon()
	defer catalogpg.SetAnswerLimit(time.Second)()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	e = start(t, dir)
	if e.PID() == pid || e.Adopted() {
		t.Errorf("stuck postmaster %d was not replaced", pid)
	}
	if err := e.Stop(ctx); err != nil {
		t.Fatal(err)
	}

	// A pid file of a crashed machine whose pid now belongs to somebody else: that one must not be touched.
	stranger := exec.Command("sleep", "1000")
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	defer stranger.Wait()
	defer stranger.Process.Kill()
	stale := fmt.Sprintf("%d\n%s\n1\n5432\n%s\n\n", stranger.Process.Pid, e.Cluster(), e.Socket())
	if err := os.WriteFile(filepath.Join(e.Cluster(), "postmaster.pid"), []byte(stale), 0o600); err != nil {
		t.Fatal(err)
	}
	e = start(t, dir)
	if e.Adopted() || syscall.Kill(stranger.Process.Pid, 0) != nil {
		t.Errorf("adopted %d, the stranger is %d", e.PID(), stranger.Process.Pid)
	}
	open(t, e).Close()
}

func open(t *testing.T, e *catalogpg.Embedded) *catalogpg.Catalog {
	t.Helper()
	c, err := catalogpg.Open(t.Context(), catalogpg.Config{Embedded: e})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// killedGateway starts the cluster from another process, kills that with SIGKILL and returns the postmaster's pid.
func killedGateway(t *testing.T, dir string) int {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), "CATALOGPG_GATEWAY="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatalf("gateway says %q", line)
	}
	if err := syscall.Kill(cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	return pid
}

// gateway is the process that killedGateway kills.
func gateway(dir string) int {
	e, err := catalogpg.StartEmbedded(context.Background(), dir, slog.New(slog.DiscardHandler))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(e.PID())
	select {}
}

func TestEmbeddedPrivate(t *testing.T) {
	for _, p := range []string{cluster.Socket(), cluster.Cluster()} {
		st, err := os.Stat(p)
		if err != nil || st.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", p, st.Mode(), err)
		}
		if uid := st.Sys().(*syscall.Stat_t).Uid; uid == 0 {
			t.Errorf("%s belongs to root", p)
		}
	}
	if n := len(cluster.Socket()) + len("/.s.PGSQL.5432"); n > 107 {
		t.Errorf("socket path has %d bytes", n)
	}
	for name, want := range map[string]string{"listen_addresses": "", "max_prepared_transactions": "64", "max_connections": "300",
		"max_worker_processes": "0", "log_parameter_max_length": "0", "password_encryption": "scram-sha-256", "data_checksums": "on"} {
		if got := control(t, "select current_setting($1)", name); got != want {
			t.Errorf("%s = %s", name, got)
		}
	}
}

// TestEmbeddedErrors: each is one line that says what to do.
func TestEmbeddedErrors(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	t.Setenv("SLUICE_PG_BIN", "/nowhere")
	if _, err := catalogpg.StartEmbedded(t.Context(), t.TempDir(), log); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "SLUICE_PG_BIN") {
		t.Errorf("no binaries: %v", err)
	}
	t.Setenv("SLUICE_PG_BIN", "")
	foreign := t.TempDir()
	if err := os.Chown(foreign, 12345, 12345); err != nil {
		t.Skip("needs root")
	}
	if _, err := catalogpg.StartEmbedded(t.Context(), foreign, log); err == nil || !strings.Contains(err.Error(), "belongs to another user") {
		t.Errorf("foreign folder: %v", err)
	}
}
