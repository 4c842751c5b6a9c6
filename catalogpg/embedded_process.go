package catalogpg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// adopt takes over a postmaster that runs on our cluster and answers. One that does not answer is ended; files that a crash left are cleared.
func (e *Embedded) adopt(ctx context.Context) bool {
	pid, socket, ok := readPidFile(e.cluster())
	if !ok {
		return false
	}
	e.pid = pid
	if !e.ours() {
		// The pid was given to another process after a crash. Postgres might take that one for a postmaster.
		e.log.Info("removing stale postmaster.pid", "pid", pid)
		e.clear()
		return false
	}
	if socket == e.socket && e.answers(ctx) {
		e.log.Info("adopted running postgres", "pid", pid)
		return true
	}
	e.log.Warn("ending postgres that does not answer", "pid", pid)
	e.end(syscall.SIGQUIT)
	if e.gone() {
		// Killed, it left its file; as a zombie that nobody reaps it would still pass for alive.
		e.clear()
	}
	return false
}

// clear removes what a postmaster that is gone left behind: its pid is in two files, and Postgres trusts both.
func (e *Embedded) clear() {
	for _, p := range []string{filepath.Join(e.cluster(), "postmaster.pid"), filepath.Join(e.socket, ".s.PGSQL.5432.lock"),
		filepath.Join(e.socket, ".s.PGSQL.5432")} {
		os.Remove(p)
	}
}

// answers gives a postmaster that may be recovering its time.
func (e *Embedded) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	return e.wait(ctx) == nil
}

// end stops the postmaster the hard way, in two steps. Its children notice and follow; while one of them lives, no new server can start.
func (e *Embedded) end(first syscall.Signal) {
	for _, s := range []syscall.Signal{first, syscall.SIGKILL} {
		if e.signal(s) != nil {
			break
		}
		waitFor(answerLimit/2, e.gone)
	}
	waitFor(answerLimit, func() bool { return !busy(e.cluster()) })
}

func waitFor(limit time.Duration, done func() bool) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for !done() && pause(ctx, pollEvery) {
	}
}

// busy reports whether any process works in dir.
func busy(dir string) bool {
	cwds, _ := filepath.Glob("/proc/[0-9]*/cwd")
	return slices.ContainsFunc(cwds, func(p string) bool { return sameFile(p, dir) })
}

// signal sends s to the postmaster, after making sure that the pid is still its.
func (e *Embedded) signal(s syscall.Signal) error {
	if e.gone() || !e.ours() {
		return os.ErrProcessDone
	}
	return syscall.Kill(e.pid, s)
}

// gone reports whether the postmaster has ended. A child of ours is reaped on the way; without that it would look alive for ever.
func (e *Embedded) gone() bool {
	if e.child != nil {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(e.pid, &status, syscall.WNOHANG, nil)
		return pid == e.pid || errors.Is(err, syscall.ECHILD)
	}
	return errors.Is(syscall.Kill(e.pid, 0), syscall.ESRCH) || !e.ours()
}

// ours reports whether the process pid is a postmaster of our cluster: every Postgres process stays in its data directory. Where there is
// no /proc, the pid file is all there is.
func (e *Embedded) ours() bool {
	if e.child != nil || sameFile(fmt.Sprintf("/proc/%d/cwd", e.pid), e.cluster()) {
		return true
	}
	_, err := os.Stat("/proc/self/cwd")
	return err != nil && syscall.Kill(e.pid, 0) == nil
}

// readPidFile reads postmaster.pid: line 1 is the pid, line 5 the socket directory.
func readPidFile(cluster string) (pid int, socket string, ok bool) {
	b, err := os.ReadFile(filepath.Join(cluster, "postmaster.pid"))
	if err != nil {
		return 0, "", false
	}
	lines := strings.Split(string(b), "\n")
	pid, err = strconv.Atoi(strings.TrimSpace(lines[0]))
	if len(lines) > 4 {
		socket = strings.TrimSpace(lines[4])
	}
	return pid, socket, err == nil && pid > 0
}

// lockDir makes sure that one gateway at a time owns the cluster. The lock falls with the process, however that ends.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "postgres.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: another gateway runs on it: %w", dir, err)
	}
	return f, nil
}

func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}

// logSince is what Postgres said since mark, as one line: the reason why it did not start.
func logSince(path string, mark int64) string {
	b, err := os.ReadFile(path)
	if err != nil || int64(len(b)) <= mark {
		return ""
	}
	for line := range bytes.Lines(b[mark:]) {
		if bytes.Contains(line, []byte("FATAL:")) {
			return ": " + strings.TrimSpace(string(line))
		}
	}
	return ": " + lastLine(b[mark:])
}
