package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"sluice/conformance/harness"
)

// pgbenchRun is one call of pgbench: prepared statements, parameters as text, one thread.
type pgbenchRun struct {
	script  string
	clients int
	length  time.Duration // 0: one transaction for each client
	vars    []string
}

// pgbenchResult is what it did.
type pgbenchResult struct {
	transactions int64
	perClient    []int64
	latencies    []time.Duration
	wall         time.Duration // without the time to connect
}

// pgbench runs to the end. A failed transaction is an error.
func (t table) pgbench(ctx context.Context, r pgbenchRun) (pgbenchResult, error) {
	dir, err := os.MkdirTemp(filepath.Dir(t.server.dir), "pgbench-")
	if err != nil {
		return pgbenchResult{}, err
	}
	defer os.RemoveAll(dir)
	script := filepath.Join(dir, "script")
	if err := os.WriteFile(script, []byte(r.script), 0o600); err != nil {
		return pgbenchResult{}, err
	}
	args := []string{"-h", "127.0.0.1", "-p", strconv.Itoa(t.server.port), "-U", "lake", "-n", "-M", "prepared", "-j", "1",
		"-c", strconv.Itoa(r.clients), "-f", script, "-l", "--log-prefix=" + filepath.Join(dir, "log")}
	if r.length > 0 {
		args = append(args, "-T", strconv.Itoa(int(math.Ceil(r.length.Seconds()))))
	} else {
		args = append(args, "-t", "1")
	}
	for _, v := range r.vars {
		args = append(args, "-D", v)
	}
	out, err := client(ctx, "pgbench", append(args, "lake")...)
	if err != nil {
		return pgbenchResult{}, err
	}
	return readPgbench(out, dir, r.clients)
}

var (
	pgbenchDone   = regexp.MustCompile(`number of transactions actually processed: (\d+)`)
	pgbenchFailed = regexp.MustCompile(`number of failed transactions: (\d+)`)
	pgbenchRate   = regexp.MustCompile(`tps = ([0-9.]+) \(without`)
)

// readPgbench takes the summary and the log of all transactions, which must agree.
func readPgbench(out, dir string, clients int) (r pgbenchResult, err error) {
	number := func(re *regexp.Regexp) float64 {
		m := re.FindStringSubmatch(out)
		if m == nil {
			err = fmt.Errorf("pgbench did not say %s", re)
			return 0
		}
		f, _ := strconv.ParseFloat(m[1], 64)
		return f
	}
	r.transactions = int64(number(pgbenchDone))
	failed, rate := number(pgbenchFailed), number(pgbenchRate)
	if err != nil {
		return r, err
	}
	if failed > 0 || rate == 0 {
		return r, fmt.Errorf("pgbench: %.0f transactions failed, %d done", failed, r.transactions)
	}
	r.wall = time.Duration(float64(r.transactions) / rate * float64(time.Second))
	r.perClient = make([]int64, clients)
	logs, err := filepath.Glob(filepath.Join(dir, "log.*"))
	if err != nil {
		return r, err
	}
	for _, log := range logs {
		if err := r.readLog(log); err != nil {
			return r, err
		}
	}
	if int64(len(r.latencies)) != r.transactions {
		return r, fmt.Errorf("pgbench: %d transactions in the log, %d in the summary", len(r.latencies), r.transactions)
	}
	return r, nil
}

// readLog reads lines of: client, transaction, microseconds, script, two parts of the time of day.
func (r *pgbenchResult) readLog(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 3 {
			return fmt.Errorf("pgbench log: %q", line)
		}
		client, err := strconv.Atoi(f[0])
		micros, err2 := strconv.ParseInt(f[2], 10, 64)
		if err := errors.Join(err, err2); err != nil || client >= len(r.perClient) {
			return fmt.Errorf("pgbench log: %q", line)
		}
		r.perClient[client]++
		r.latencies = append(r.latencies, time.Duration(micros)*time.Microsecond)
	}
	return nil
}

// client runs pgbench or psql and returns what it printed.
func client(ctx context.Context, name string, args ...string) (string, error) {
	path := name
	if bin, err := harness.ServerBinaries(); err == nil {
		if p, err := exec.LookPath(filepath.Join(bin, name)); err == nil {
			path = p
		}
	}
	var out, failure bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdout, cmd.Stderr = &out, &failure
	cmd.Env = append(os.Environ(), "PGSSLMODE=disable", "PGOPTIONS=", "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", name, errors.Join(ctx.Err(), err), firstLines(failure.String(), 3))
	}
	return out.String(), nil
}

func firstLines(s string, n int) string {
	l := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(l[:min(n, len(l))], "; ")
}

// clientSpan separates the ids of two pgbench clients.
const clientSpan = 1_000_000_000

const constantText, constantTime = "customer-000123456", "2026-01-02 03:04:05.678901+00"

// insertLoad inserts rows through pgbench. Client c writes the ids c*clientSpan+1, +2, …
type insertLoad struct {
	table
	definition     string
	clients        int
	perTransaction int
	want           content
}

func (l *insertLoad) ready(ctx context.Context) error {
	l.want = content{}
	return l.recreate(ctx, l.definition)
}

func (l *insertLoad) script() string {
	row := fmt.Sprintf("\\set seq :seq + 1\n\\set id :client_id * %d + :seq\n\\set n :seq %% 100000\ninsert into %s values (:id, :n, :s, :ts);\n",
		clientSpan, l.name)
	if l.perTransaction == 1 {
		return row
	}
	return "\\startpipeline\n" + strings.Repeat(row, l.perTransaction) + "\\endpipeline\n"
}

// work runs pgbench twice: once for one transaction of each client, whose cost (connecting, preparing) is taken out of
// the cost of the second.
func (l *insertLoad) work(ctx context.Context, m *meter) error {
	run := func(length time.Duration, first int) (pgbenchResult, time.Duration, error) {
		var r pgbenchResult
		cpu, err := m.cpu(func() (err error) {
			r, err = l.pgbench(ctx, pgbenchRun{script: l.script(), clients: l.clients, length: length,
				vars: []string{"seq=" + strconv.Itoa(first), "s=" + constantText, "ts=" + constantTime}})
			return err
		})
		l.expect(r, int64(first))
		return r, cpu, err
	}
	warm, warmCPU, err := run(0, 0)
	if err != nil {
		return err
	}
	r, cpu, err := run(m.length, l.perTransaction)
	if err != nil {
		return err
	}
	m.outcome.Rows = r.transactions * int64(l.perTransaction)
	m.outcome.Wall = r.wall
	m.outcome.CPU = withoutStart(cpu, warmCPU, r.transactions, warm.transactions)
	m.latencies(r.latencies)
	return nil
}

// withoutStart takes the cost of connecting, which warm paid alone, out of the cost of a run. A run that hardly got
// beyond its start keeps it: the difference would be noise.
func withoutStart(cpu, warmCPU time.Duration, done, warm int64) time.Duration {
	if done < 10*warm || cpu < warmCPU {
		return cpu
	}
	return time.Duration(float64(cpu-warmCPU) * float64(done) / float64(done-warm))
}

// expect adds what a run has inserted: every client counted on from first.
func (l *insertLoad) expect(r pgbenchResult, first int64) {
	for c, transactions := range r.perClient {
		for k := range transactions * int64(l.perTransaction) {
			seq := first + k + 1
			l.want.sumID += int64(c)*clientSpan + seq
			l.want.sumN += seq % 100000
			l.want.rows++
		}
	}
}

func (l *insertLoad) verify(ctx context.Context) error {
	w := l.want
	return l.holds(ctx, fmt.Sprintf("%d|%d|%d|%d|%d|%s|%s|%s|%s", w.rows, w.rows, w.sumID, w.sumN, w.rows*int64(len(constantText)),
		constantText, constantText, constantTime, constantTime))
}

// pointLoad reads single rows by key.
type pointLoad struct {
	table
	clients int
	filled  bool
}

func (l *pointLoad) ready(ctx context.Context) error {
	if l.filled {
		return nil
	}
	l.filled = true
	return l.fill(ctx)
}

// work lets pgbench check that each answer has exactly one row: \gset fails otherwise.
func (l *pointLoad) work(ctx context.Context, m *meter) error {
	script := fmt.Sprintf("\\set id random(0, %d)\nselect id, n, s, ts from %s where id = :id \\gset\n", l.size.Keys-1, l.name)
	run := func(length time.Duration) (r pgbenchResult, cpu time.Duration, err error) {
		cpu, err = m.cpu(func() (err error) {
			r, err = l.pgbench(ctx, pgbenchRun{script: script, clients: l.clients, length: length})
			return err
		})
		return r, cpu, err
	}
	warm, warmCPU, err := run(0)
	if err != nil {
		return err
	}
	r, cpu, err := run(m.length)
	if err != nil {
		return err
	}
	m.outcome.Rows, m.outcome.Wall = r.transactions, r.wall
	m.outcome.CPU = withoutStart(cpu, warmCPU, r.transactions, warm.transactions)
	m.latencies(r.latencies)
	return nil
}

// verify reads some rows and compares all four columns, and one key that is not there.
func (l *pointLoad) verify(ctx context.Context) error {
	conn, err := l.server.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(context.Background())
	for range 100 {
		want := rowAt(rand.Int64N(l.size.Keys))
		got := row{h: want.h}
		var s string
		var at time.Time
		if err := conn.QueryRow(ctx, "select id, n, s, ts from "+l.name+" where id = $1", want.id).Scan(&got.id, &got.n, &s, &at); err != nil {
			return fmt.Errorf("verify key %d: %w", want.id, err)
		}
		if got.at = at.UnixMicro(); got != want || s != want.text() {
			return fmt.Errorf("verify: key %d has %v %q, not %v %q", want.id, got, s, want, want.text())
		}
	}
	var n int64
	if err := conn.QueryRow(ctx, "select count(*) from "+l.name+" where id = $1", l.size.Keys).Scan(&n); err != nil || n != 0 {
		return fmt.Errorf("verify: key %d: %d rows, %v", l.size.Keys, n, err)
	}
	return nil
}
