package conformance_test

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"sluice/conformance/harness"
)

var (
	bigRows   = flag.Int("big-rows", 1_200_000, "rows of the big transaction")
	bigWidth  = flag.Int("big-width", 40, "bytes of each of its rows, about")
	bigMemory = flag.String("big-memory", "64MB", "--memory of its gateway")
)

// TestBigTransaction copies many rows into a table with a key in one transaction, several times the memory that the gateway may use, and
// looks at what that takes: with the flags' defaults the memory does not hold the keys of a transaction (64 bytes each). A key that exists at the very end of a COPY is found, wherever its row is.
//
// claims: M52 P57
func TestBigTransaction(t *testing.T) {
	b := newBig(t)
	n := *bigRows
	b.run("begin")
	b.copy(0, n)
	b.beside()
	b.run("savepoint s")
	for _, twice := range []int{0, n - 1, -1} {
		if err := b.copyThen(n, n+min(n/10, 10_000), twice); sqlState(err) != "23505" {
			t.Errorf("key %d again at the end of a COPY: %v", twice, err)
		}
		b.run("rollback to s")
	}
	b.run("commit")
	b.check(n)
	b.g.Kill()
	if n <= 1_000_000 { // it keeps all keys in memory
		fsck(t, b.g)
	}
	if err := b.g.Start(); err != nil {
		t.Fatal(err)
	}
	b.connect()
	b.check(n)
}

// TestBigSavepoint: what was done since a savepoint leaves nothing, neither memory nor files.
func TestBigSavepoint(t *testing.T) {
	b := newBig(t)
	b.width = 300
	before := b.files()
	const n = 300_000
	b.run("begin")
	b.copy(0, n/2)
	held, files := metric(t, b.g, "sluice_transaction_bytes"), b.files()
	b.run("savepoint s")
	b.copy(n/2, n)
	during := b.files()
	b.run("rollback to s")
	if now := metric(t, b.g, "sluice_transaction_bytes"); now > held*5/4 {
		t.Errorf("the transaction holds %.0f bytes after ROLLBACK TO, before the savepoint %.0f", now, held)
	}
	// Rows from before the savepoint may be in files with some from behind it.
	if now := b.files(); 3*(now-files) > during-files || files == before {
		t.Errorf("%d files after ROLLBACK TO, %d just before it, %d before the savepoint, %d before the transaction", now, during, files, before)
	}
	b.copy(n/2, n)
	b.run("commit")
	b.check(n)
}

// bigPoints is where the gateway dies while it ends a transaction with rows in files. The flip decides.
var bigPoints = []string{
	"bulk: keys in files", "bulk: rows in files", "ddl: frame prepared", "ddl: metadata staged", "ddl: committed", "ddl: published",
}

// TestBigTransactionKilled kills the gateway with SIGKILL at each named point of such a transaction: all of it is there after the next start,
// or nothing, its keys are free or taken, and no file is left that nobody needs.
//
// claims: M52 P58
func TestBigTransactionKilled(t *testing.T) {
	const n = 60_000
	file := filepath.Join(t.TempDir(), "point")
	g := harness.StartGateway(t, harness.Options{Checked: true, Env: []string{"SLUICE_KILL_FILE=" + file},
		Args: []string{"--memory", "32MB", "--compact-age", "-1s", "--flush-age", "1h"}})
	b := &big{t: t, g: g, width: 300, limit: 1 << 40}
	b.connect()
	rows := 1
	b.run("create table big (id bigint primary key, v text not null)")
	b.run("insert into big values (-1, 'there')")
	for i, point := range bigPoints {
		b.run(fmt.Sprintf("insert into big values (%d, 'tail')", -2-i))
		rows++
		b.run("begin")
		if err := os.WriteFile(file, []byte(point), 0o644); err != nil {
			t.Fatal(err)
		}
		err := b.feed(i*n, i*n+n)
		if err == nil {
			_, err = b.c.Exec(t.Context(), "commit").ReadAll()
		}
		if err == nil || !g.Gone(harness.Patience) {
			t.Fatalf("%s: the gateway did not die: %v", point, err)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		fsck(t, g)
		if err := g.Start(); err != nil {
			t.Fatal(err)
		}
		b.connect()
		committed := i >= slices.Index(bigPoints, "ddl: committed")
		if committed {
			rows += n
		}
		if got := b.run("select count(*) from big")[0][0]; string(got) != strconv.Itoa(rows) {
			t.Errorf("%s: %s rows, want %d", point, got, rows)
		}
		b.run("begin")
		_, err = b.c.Exec(t.Context(), fmt.Sprintf("insert into big values (%d, 'again')", i*n+n-1)).ReadAll()
		if taken := sqlState(err) == "23505"; taken != committed {
			t.Errorf("%s: a key of the transaction again: %v", point, err)
		}
		b.run("rollback")
		if left, err := filepath.Glob(filepath.Join(g.Data(), "keys", "*")); err != nil || len(left) > 0 {
			t.Errorf("%s: files of keys are left: %v %v", point, left, err)
		}
	}
	b.run("select sluice.flush()")
	if !harness.Poll(harness.Patience, func() bool {
		return strconv.Itoa(b.files()) == string(b.run("select count(*) from sluice.files where name = 'big'")[0][0])
	}) {
		t.Errorf("%d files, the table has %s", b.files(), b.run("select count(*) from sluice.files")[0][0])
	}
	if err := g.Stop(); err != nil {
		t.Error(err)
	}
	fsck(t, g)
}

// newBig is a gateway with a table that has one row.
func newBig(t *testing.T) *big {
	g := harness.StartGateway(t, harness.Options{Args: []string{"--memory", *bigMemory, "--compact-age", "-1s"}})
	b := &big{t: t, g: g, width: *bigWidth, limit: budget(t, *bigMemory)}
	b.connect()
	b.run("create table big (id bigint primary key, v text not null)")
	b.run("insert into big values (-1, 'there')")
	b.run("select sluice.flush()")
	return b
}

// big is a transaction under way.
type big struct {
	t     *testing.T
	g     *harness.Gateway
	c     *pgconn.PgConn
	width int   // bytes of a row, about
	limit int64 // bytes of resident memory
}

// budget is what the gateway's process may have: a fifth over its memory, and 256 MB.
func budget(t *testing.T, memory string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(strings.TrimRight(memory, "MGB"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	n <<= 20
	if strings.HasSuffix(memory, "GB") {
		n <<= 10
	}
	return n + n/5 + 256<<20
}

func (b *big) run(sql string) (rows [][][]byte) {
	b.t.Helper()
	begin := time.Now()
	results, err := b.c.Exec(b.t.Context(), sql).ReadAll()
	if err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
	b.weigh(sql, begin)
	return results[0].Rows
}

func (b *big) copy(from, to int) {
	b.t.Helper()
	if err := b.copyThen(from, to); err != nil {
		b.t.Fatal(err)
	}
}

// copyThen copies the rows [from, to), then those of some keys.
func (b *big) copyThen(from, to int, keys ...int) error {
	b.t.Helper()
	begin := time.Now()
	err := b.feed(from, to, keys...)
	b.weigh(fmt.Sprintf("copy of rows %d to %d", from, to), begin)
	return err
}

func (b *big) feed(from, to int, keys ...int) error {
	_, err := b.c.CopyFrom(b.t.Context(), &bigInput{width: b.width, at: from, end: to, more: keys}, "copy big from stdin")
	return err
}

// weigh says what the gateway has held at most so far.
func (b *big) weigh(step string, begin time.Time) {
	b.t.Helper()
	peak := vital(b.t, b.g.Pid(), "VmHWM")
	b.t.Logf("%s: %v, peak %d MB, now %d MB, %.1f bytes for each of %d rows", step, time.Since(begin).Round(time.Millisecond), peak>>20,
		vital(b.t, b.g.Pid(), "VmRSS")>>20, float64(peak)/float64(*bigRows), *bigRows)
	if peak > b.limit {
		b.t.Errorf("%s: the gateway has held %d MB, the limit is %d MB", step, peak>>20, b.limit>>20)
	}
}

// files is how many data files there are.
func (b *big) files() (n int) {
	err := filepath.WalkDir(filepath.Join(b.g.Data(), "warehouse"), func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".parquet") {
			n++
		}
		if errors.Is(err, fs.ErrNotExist) { // a flush came in between
			return nil
		}
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}

// connect makes the connection, also to a gateway that was started again.
func (b *big) connect() {
	b.t.Helper()
	var err error
	if b.c, err = pgconn.Connect(b.t.Context(), b.g.DSN()); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { b.c.Close(b.t.Context()) })
}

// beside is another client while the transaction is open: its keys are locked, others are free.
func (b *big) beside() {
	b.t.Helper()
	c, err := pgconn.Connect(b.t.Context(), b.g.DSN())
	if err != nil {
		b.t.Fatal(err)
	}
	defer c.Close(b.t.Context())
	for key, want := range map[int]string{0: "55P03", *bigRows - 1: "55P03", -1: "23505", -7: ""} {
		sql := fmt.Sprintf("set lock_timeout = '50ms'; begin; insert into big values (%d, ''); rollback", key)
		if _, err := c.Exec(b.t.Context(), sql).ReadAll(); sqlState(err) != want {
			b.t.Errorf("key %d in another transaction: %v, want %q", key, err, want)
		}
		if _, err := c.Exec(b.t.Context(), "rollback").ReadAll(); err != nil {
			b.t.Fatal(err)
		}
	}
}

// check looks at the rows of a committed transaction.
func (b *big) check(n int) {
	b.t.Helper()
	row := b.run("select count(*), sum(id), min(id), max(id) from big")[0]
	want := fmt.Sprint(n+1, " ", n*(n-1)/2-1, " -1 ", n-1)
	if got := fmt.Sprintf("%s %s %s %s", row[0], row[1], row[2], row[3]); got != want {
		b.t.Errorf("count, sum, min, max: %s, want %s", got, want)
	}
	for _, k := range []int{0, n / 2, n - 1} {
		if got := b.run(fmt.Sprintf("select length(v) from big where id = %d", k)); len(got) != 1 {
			b.t.Errorf("key %d: %d rows", k, len(got))
		}
		if _, err := b.c.Exec(b.t.Context(), fmt.Sprintf("insert into big values (%d, '')", k)).ReadAll(); sqlState(err) != "23505" {
			b.t.Errorf("key %d again: %v", k, err)
		}
	}
}

func sqlState(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// vital is a line of /proc/PID/status, in bytes.
func vital(t *testing.T, pid int, name string) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skip(err) // not Linux
	}
	_, rest, _ := strings.Cut(string(status), name+":")
	var kB int64
	if _, err := fmt.Sscan(rest, &kB); err != nil {
		t.Fatal(err)
	}
	return kB << 10
}

// bigInput makes the rows of a COPY as they are read; their text does not repeat.
type bigInput struct {
	width   int
	at, end int
	more    []int
	rest    []byte
	line    []byte
}

func (in *bigInput) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if len(in.rest) == 0 && !in.next() {
			if n == 0 {
				return 0, io.EOF
			}
			return n, nil
		}
		k := copy(p[n:], in.rest)
		in.rest = in.rest[k:]
		n += k
	}
	return n, nil
}

func (in *bigInput) next() bool {
	key := in.at
	switch {
	case in.at < in.end:
		in.at++
	case len(in.more) > 0:
		key, in.more = in.more[0], in.more[1:]
	default:
		return false
	}
	in.line = append(strconv.AppendInt(in.line[:0], int64(key), 10), '\t')
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-"
	rng := rand.NewPCG(uint64(key), 1)
	for len(in.line) < in.width {
		for x, i := rng.Uint64(), 0; i < 10; i++ {
			in.line = append(in.line, letters[x&63])
			x >>= 6
		}
	}
	in.line = append(in.line, '\n')
	in.rest = in.line
	return true
}
