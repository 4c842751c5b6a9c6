package reader

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/apache/arrow-go/v18/arrow"

	"sluice/server/scan"
	"sluice/writer/datafile"
	"sluice/writer/objstore"
	"sluice/writer/table"
)

// The test program is its own child: the pool starts it with the argument reader.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "reader" {
		if err := Main(context.Background(), os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func newPool(t *testing.T, o Options) *Pool {
	t.Helper()
	o.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	p := NewPool(o)
	t.Cleanup(p.Close)
	return p
}

// ask runs a request and prints the result, a line a row.
func ask(ctx context.Context, p *Pool, r *scan.Request) (string, error) {
	var b strings.Builder
	err := p.Query(ctx, r, func(rec arrow.RecordBatch) error {
		for i := range int(rec.NumRows()) {
			for c := range int(rec.NumCols()) {
				fmt.Fprint(&b, rec.Column(c).ValueStr(i), "|")
			}
			b.WriteByte('\n')
		}
		return nil
	})
	return b.String(), err
}

func want(t *testing.T, p *Pool, r *scan.Request, expected string) {
	t.Helper()
	got, err := ask(t.Context(), p, r)
	if err != nil {
		t.Fatal(err)
	}
	if got != expected {
		t.Errorf("got\n%swant\n%s", got, expected)
	}
}

func code(err error) string {
	var e *scan.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return fmt.Sprint(err)
}

func TestWithoutTables(t *testing.T) {
	p := newPool(t, Options{})
	want(t, p, &scan.Request{SQL: "SELECT 1, CAST('1.50' AS DECIMAL(5,2)), 'é'"}, "1|1.5|é|\n")
	for text, c := range map[string]string{
		"SELECT CAST(2147483647 AS INTEGER) + CAST(1 AS INTEGER)": "22003",
		"SELECT sluice_div('1', 0, '0', 0, 20)":                   "22012",
		"SELECT (SELECT unnest([1, 2]))":                          "21000",
		"SELECT nothing":                                          scan.Unfit,
	} {
		if _, err := ask(t.Context(), p, &scan.Request{SQL: text}); code(err) != c {
			t.Errorf("%s: %v, want %s", text, err, c)
		}
	}
	if n := len(p.idle); n != 1 {
		t.Errorf("%d idle children: failed queries should not cost theirs", n)
	}
}

// TestLiveRows reads a file with deleted rows and an older schema, one without, and rows in memory.
func TestLiveRows(t *testing.T) {
	dir := t.TempDir()
	store, err := objstore.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	older := &table.Schema{ID: 1, Columns: []table.Column{{Name: "Name", FieldID: 2, Type: table.Type{Kind: table.String}},
		{Name: "name", FieldID: 1, Type: table.Type{Kind: table.Int32}}}}
	now := &table.Schema{ID: 2, Columns: []table.Column{{Name: "id", FieldID: 1, Type: table.Type{Kind: table.Int64}},
		{Name: "label", FieldID: 2, Type: table.Type{Kind: table.String}}, {Name: "extra", FieldID: 3, Type: table.DecimalType(9, 2)}}}
	a := table.NewBatch(older)
	for i := range 5 {
		a.Cols[0].AppendString(fmt.Sprint("a", i))
		a.Cols[1].AppendInt32(int32(i))
	}
	a.Rows = 5
	b, tail := table.NewBatch(now), table.NewBatch(now)
	for i, rows := range []*table.Batch{b, tail} {
		rows.Cols[0].AppendInt64(int64(10 * (i + 1)))
		rows.Cols[1].AppendNull()
		rows.Cols[2].AppendInt64(150)
		rows.Rows = 1
	}
	initial := "7.00"
	in := scan.Table{Name: "b1", Columns: []scan.Column{{Name: "c1", FieldID: 1, Type: "BIGINT"}, {Name: "c2", FieldID: 2, Type: "VARCHAR"},
		{Name: "c3", FieldID: 3, Type: "DECIMAL(9,2)", Initial: &initial}}, Rows: []arrow.RecordBatch{datafile.ToArrow(tail, nil)}}
	for i, rows := range []*table.Batch{a, b} {
		location := objstore.Join(store.Root(), fmt.Sprint(i, ".parquet"))
		f, err := datafile.Write(t.Context(), store, location, rows.Schema, datafile.All(rows), datafile.WriteOptions{})
		if err != nil {
			t.Fatal(err)
		}
		in.Files = append(in.Files, scan.File{Path: strings.TrimPrefix(location, "file://"), Rows: uint64(f.Rows)})
	}
	in.Files[0].Dead = roaring.BitmapOf(0, 3)
	p := newPool(t, Options{Roots: []string{dir}})
	rows := "1|a1|7|\n2|a2|7|\n4|a4|7|\n10|(null)|1.5|\n20|(null)|1.5|\n"
	want(t, p, &scan.Request{SQL: `SELECT * FROM "b1" ORDER BY 1`, Tables: []scan.Table{in}}, rows)
	want(t, p, &scan.Request{SQL: `SELECT count(*) FROM "b1" x, "b1" y`, Tables: []scan.Table{in}}, "25|\n")
	in.Columns[1].ExactID = 2
	if _, err := ask(t.Context(), p, &scan.Request{SQL: `SELECT 1 FROM "b1"`, Tables: []scan.Table{in}}); !errors.Is(err, scan.ErrExact) && code(err) != scan.Unfit {
		t.Errorf("exact values: %v", err)
	}
}

// TestNoWayOut tries to reach a file that was not named.
func TestNoWayOut(t *testing.T) {
	dir, secret := t.TempDir(), filepath.Join(t.TempDir(), "secret.csv")
	if err := os.WriteFile(secret, []byte("a\n1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	p := newPool(t, Options{Roots: []string{dir}})
	for _, text := range []string{
		"SELECT * FROM read_csv('" + secret + "')", "SELECT * FROM '" + secret + "'", "SELECT * FROM read_text('/etc/passwd')",
		"SELECT * FROM glob('/*')", "COPY (SELECT 1) TO '" + dir + "/out.csv'", "INSTALL httpfs", "LOAD httpfs", "ATTACH '" + dir + "/x.db'",
		"SET memory_limit = '100GB'", "SET allowed_paths = ['" + secret + "']", "SELECT * FROM read_parquet('" + secret + "')",
	} {
		if got, err := ask(t.Context(), p, &scan.Request{SQL: text}); err == nil {
			t.Errorf("%s: %s", text, got)
		}
	}
}

// endless is a query that takes for ever and gives nothing.
const endless = "SELECT count(*) FROM range(1000000000) a, range(1000000000) b WHERE a.range + b.range = -1"

// TestDeadline kills a query at its deadline and answers the next one.
func TestDeadline(t *testing.T) {
	p := newPool(t, Options{Children: 1})
	want(t, p, &scan.Request{SQL: "SELECT 1"}, "1|\n")
	c := p.idle[0]
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := ask(ctx, p, &scan.Request{SQL: endless}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("at its deadline: %v", err)
	}
	gone(t, c)
	want(t, p, &scan.Request{SQL: "SELECT 2"}, "2|\n")
}

// TestDeath kills a child from outside: one query fails.
func TestDeath(t *testing.T) {
	p := newPool(t, Options{Children: 1})
	want(t, p, &scan.Request{SQL: "SELECT 1"}, "1|\n")
	c := p.idle[0]
	if err := syscall.Kill(c.cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(t.Context(), p, &scan.Request{SQL: endless}); code(err) != "58030" {
		t.Fatalf("a dead child: %v", err)
	}
	gone(t, c)
	want(t, p, &scan.Request{SQL: "SELECT 2"}, "2|\n")
}

// TestMemory asks for more than a child may have: past DuckDB's own limit, and past the limit of the process, which DuckDB's does not cover.
func TestMemory(t *testing.T) {
	p := newPool(t, Options{Children: 1, Memory: 256 << 20})
	for _, text := range []string{
		"SELECT length(max(x)) FROM (SELECT list(range) AS x FROM range(50000000))",
		"SELECT length(repeat('a', 2000000000))",
	} {
		if _, err := ask(t.Context(), p, &scan.Request{SQL: text}); code(err) != "53200" {
			t.Errorf("%s: %v", text, err)
		}
	}
	want(t, p, &scan.Request{SQL: "SELECT 2"}, "2|\n")
}

// TestOrphan closes a child's standard input, as the gateway's death does, while it works.
func TestOrphan(t *testing.T) {
	p := newPool(t, Options{Children: 1})
	want(t, p, &scan.Request{SQL: "SELECT 1"}, "1|\n")
	c := p.idle[0]
	if err := errors.Join(writeRequest(c.w, &scan.Request{SQL: endless}), c.w.Flush(), c.in.Close()); err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Wait(); err != nil {
		t.Errorf("orphan: %v", err)
	}
	gone(t, c)
}

// gone checks that a child was waited for and is no more.
func gone(t *testing.T, c *child) {
	t.Helper()
	if c.cmd.ProcessState == nil || syscall.Kill(c.cmd.Process.Pid, 0) == nil {
		t.Errorf("child %d is left over", c.cmd.Process.Pid)
	}
}

// TestClose leaves nothing.
func TestClose(t *testing.T) {
	p := newPool(t, Options{})
	want(t, p, &scan.Request{SQL: "SELECT 1"}, "1|\n")
	c := p.idle[0]
	p.Close()
	gone(t, c)
	if _, err := ask(t.Context(), p, &scan.Request{SQL: "SELECT 1"}); !errors.Is(err, errClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestDivide compares with what Postgres 15 prints.
func TestDivide(t *testing.T) {
	for _, c := range []struct {
		x, y string
		q    string
	}{
		{"1", "3", "0.33333333333333333333"}, {"10", "3", "3.3333333333333333"}, {"2", "3", "0.66666666666666666667"}, {"1", "1", "1.00000000000000000000"},
		{"10000", "3", "3333.3333333333333333"}, {"100000", "3", "33333.333333333333"}, {"-7", "2", "-3.5000000000000000"}, {"0", "5", "0.00000000000000000000"},
		{"1.50", "0.0007", "2142.8571428571428571"}, {"123456.78", "2", "61728.390000000000"}, {"1.000000000000000000000001", "1", "1.000000000000000000000001"},
		{"99999999", "0.0001", "999999990000.00000000"}, {"-1", "8", "-0.12500000000000000000"},
	} {
		scale := func(s string) int32 { _, f, _ := strings.Cut(s, "."); return int32(len(f)) }
		x, y, err := operands([]driver.Value{c.x, scale(c.x), c.y, scale(c.y)})
		if err != nil {
			t.Fatal(err)
		}
		q, err := divide(x, y)
		if err != nil || q.String() != c.q {
			t.Errorf("%s / %s = %s, %v, want %s", c.x, c.y, q, err, c.q)
		}
	}
}
