package conformance_test

import (
	"context"
	"encoding/csv"
	"flag"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"sluice/conformance/harness"
)

var tpchScale = flag.String("tpch", "", "run TPC-H at this scale, for example 0.1")

// vegaVersion is the version realinput/install.sh pins.
const vegaVersion = "3.2.1"

// TestRealInput loads CSV files nobody here made through psql, a driver's batches and single rows, corrects,
// deletes and moves rows, and compares every table row by row with a Postgres that was fed the same.
func TestRealInput(t *testing.T) {
	pair := harness.NewPair(t)
	install(t, "vega")
	csvDir := filepath.Join(".cache", "vega-"+vegaVersion, "data")
	both(t, pair, statements(t, "testdata/vega/schema.sql")...)
	for table, file := range map[string]string{
		"airports": "airports.csv", "flights": "flights-airport.csv", "birdstrikes": "birdstrikes.csv", "zipcodes": "zipcodes.csv", "disasters": "disasters.csv",
	} {
		psqlCopy(t, pair, table, filepath.Join(csvDir, file))
	}
	sides(t, pair, func(ctx context.Context, conn *pgx.Conn) error {
		return insertBatch(ctx, conn, readCSV(t, filepath.Join(csvDir, "seattle-weather.csv")))
	})
	sides(t, pair, func(ctx context.Context, conn *pgx.Conn) error {
		return insertSingle(ctx, conn, readCSV(t, filepath.Join(csvDir, "stocks.csv")))
	})
	sides(t, pair, func(ctx context.Context, conn *pgx.Conn) error {
		return insertStrings(ctx, conn, readCSV(t, filepath.Join(csvDir, "gapminder-health-income.csv")))
	})
	same(t, pair, "loaded")
	for _, step := range []struct{ name, file string }{
		{"corrected", "testdata/vega/correct.sql"}, {"moved", "testdata/vega/move.sql"},
	} {
		both(t, pair, statements(t, step.file)...)
		same(t, pair, step.name)
		if err := pair.Got.Flush(); err != nil {
			t.Fatal(err)
		}
		same(t, pair, step.name+" and flushed")
	}
	both(t, pair, statements(t, "testdata/vega/ask.sql")...)
	checkDeletions(t, pair.Got)
	enginesAgree(t, pair)
	compactAll(t, pair.Got)
	same(t, pair, "compacted")
	enginesAgree(t, pair)
}

// compactAll merges the files of all tables: none has deleted rows any more.
func compactAll(t *testing.T, got *harness.Side) {
	t.Helper()
	if !got.Sluice {
		return
	}
	r, err := got.Control().Query("select format('%I.%I', namespace, name) from sluice.tables")
	if err != nil || r.Err() != nil {
		t.Fatal(err, r.Err())
	}
	for _, row := range r.Rows() {
		r, err := got.Control().Query("select * from sluice.compact('" + *row[0] + "')")
		if err != nil || r.Err() != nil {
			t.Fatal(err, r.Err())
		}
		t.Logf("%s: %s files became %s", *row[0], *r.Rows()[0][0], *r.Rows()[0][1])
	}
	r, err = got.Control().Query("select coalesce(sum(deleted_rows), 0) from sluice.files where deleted_rows >= 0.3 * rows")
	if err != nil || r.Err() != nil || *r.Rows()[0][0] != "0" {
		t.Errorf("after compaction there are dead rows: %v %v", err, r)
	}
}

// checkDeletions: engines can show that they read deletion vectors only if files have some.
func checkDeletions(t *testing.T, got *harness.Side) {
	t.Helper()
	if !got.Sluice {
		return
	}
	r, err := got.Control().Query("select count(*) > 0 from sluice.files where deleted_rows > 0")
	if err != nil || r.Err() != nil || *r.Rows()[0][0] != "t" {
		t.Errorf("no file has deleted rows: %v %v", err, r.Err())
	}
}

// TestTPCH loads TPC-H and asks its 22 queries.
func TestTPCH(t *testing.T) {
	if *tpchScale == "" {
		t.Skip("give -tpch 0.1 to run TPC-H")
	}
	pair := harness.NewPair(t)
	install(t, "tpch", *tpchScale)
	both(t, pair, statements(t, "testdata/tpch/schema.sql")...)
	for _, table := range []string{"region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem"} {
		psqlCopy(t, pair, table, filepath.Join(".cache", "tpch-"+*tpchScale, table+".csv"))
	}
	if err := pair.Got.Flush(); err != nil {
		t.Fatal(err)
	}
	both(t, pair, "create index on lineitem (l_partkey, l_suppkey)")
	mustAnalyze(t, pair)
	both(t, pair, "copy (select * from lineitem order by l_orderkey, l_linenumber) to stdout",
		"copy (select * from orders order by o_orderkey) to stdout", "copy (select * from partsupp order by ps_partkey, ps_suppkey) to stdout")
	askTPCH(t, pair)
	enginesAgree(t, pair)
}

// mustAnalyze lets the reference plan its queries well: without statistics some of them take minutes there.
func mustAnalyze(t *testing.T, pair *harness.Pair) {
	t.Helper()
	if r, err := pair.Ref.Control().Query("analyze"); err != nil || r.Err() != nil {
		t.Fatalf("analyze: %v %v", err, r.Err())
	}
}

// install fetches real input; without a registry the test is skipped, not failed.
func install(t *testing.T, args ...string) {
	t.Helper()
	if out, err := osexec.Command("realinput/install.sh", args...).CombinedOutput(); err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		t.Skipf("real input %v cannot be installed: %v: %s", args, err, lines[len(lines)-1])
	}
}

// statements reads a file of statements, each ended by ; at a line's end.
func statements(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, s := range strings.Split(string(text), ";\n") {
		if s = strings.TrimSpace(s); s != "" {
			out = append(out, s)
		}
	}
	return out
}

// both runs statements on both sides and compares the answers. A statement that Postgres itself refuses is a
// mistake of the test, unless it begins with the comment "-- fails".
func both(t *testing.T, pair *harness.Pair, sqls ...string) {
	t.Helper()
	for _, sql := range sqls {
		st := harness.Statement{SQL: sql}
		want, have, err := harness.Both(pair.Ref.Session("a"), pair.Got.Session("a"), st)
		if err != nil {
			t.Fatalf("%s\n%v", sql, err)
		}
		if want.Err() != nil != strings.HasPrefix(sql, "-- fails") {
			t.Errorf("%s\nthe test is wrong: Postgres says %v", sql, want.Err())
		}
		if diff := st.Compare(want, have); diff != "" {
			t.Errorf("%s\n%s", sql, cut(diff))
		}
	}
}

// cut keeps a large difference readable.
func cut(diff string) string {
	if len(diff) > 4000 {
		return diff[:4000] + "\n… and more"
	}
	return diff
}

func same(t *testing.T, pair *harness.Pair, when string) {
	t.Helper()
	diff, err := pair.SameState()
	if err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	if diff != "" {
		t.Fatalf("%s: the tables differ:\n%s", when, cut(diff))
	}
}

// psqlCopy loads a CSV file with psql's \copy on both sides; psql says the same to both.
func psqlCopy(t *testing.T, pair *harness.Pair, table, file string) {
	t.Helper()
	psql, err := osexec.LookPath("psql")
	if err != nil {
		t.Skip("psql is not installed")
	}
	var said [2]string
	for i, dsn := range []string{pair.Ref.DSN, pair.Got.DSN} {
		cmd := osexec.Command(psql, "-X", "-v", "ON_ERROR_STOP=1", "-d", dsn, "-c", fmt.Sprintf(`\copy %s from '%s' csv header`, table, file))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("psql %s: %v\n%s", table, err, out)
		}
		said[i] = string(out)
	}
	if said[0] != said[1] {
		t.Errorf("\\copy %s: postgres says %q, sluice says %q", table, said[0], said[1])
	}
}

// sides does the same work with the driver on both sides.
func sides(t *testing.T, pair *harness.Pair, work func(context.Context, *pgx.Conn) error) {
	t.Helper()
	for _, side := range []*harness.Side{pair.Ref, pair.Got} {
		ctx, cancel := context.WithTimeout(context.Background(), harness.Patience*4)
		conn, err := pgx.Connect(ctx, side.DSN)
		if err == nil {
			err = work(ctx, conn)
			_ = conn.Close(ctx)
		}
		cancel()
		if err != nil {
			t.Fatalf("%s: %v", side.Name, err)
		}
	}
}

func readCSV(t *testing.T, path string) [][]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return rows[1:]
}

// insertBatch sends rows as pipelined batches of 500 INSERTs, each batch one transaction.
func insertBatch(ctx context.Context, conn *pgx.Conn, rows [][]string) error {
	for len(rows) > 0 {
		n := min(500, len(rows))
		batch := &pgx.Batch{}
		for _, r := range rows[:n] {
			batch.Queue("insert into weather values ($1::text::date, $2::text::numeric, $3::text::numeric, $4::text::numeric, $5::text::numeric, $6)", r[0], r[1], r[2], r[3], r[4], r[5])
		}
		if err := conn.SendBatch(ctx, batch).Close(); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// insertSingle sends every row as its own transaction and checks the command tag.
func insertSingle(ctx context.Context, conn *pgx.Conn, rows [][]string) error {
	for _, r := range rows {
		tag, err := conn.Exec(ctx, "insert into stocks (date, symbol, price) values (to_date($2, 'Mon DD YYYY'), $1, $3::text::numeric)", r[0], r[1], r[2])
		if err != nil {
			return err
		}
		if tag.String() != "INSERT 0 1" {
			return fmt.Errorf("tag %s", tag)
		}
	}
	return nil
}

// insertStrings uses the simple protocol, values inside the text, as older programs do.
func insertStrings(ctx context.Context, conn *pgx.Conn, rows [][]string) error {
	for _, r := range rows {
		for i := range r {
			r[i] = "'" + strings.ReplaceAll(r[i], "'", "''") + "'"
		}
		if _, err := conn.Exec(ctx, "insert into health values ("+strings.Join(r, ", ")+")", pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
	}
	return nil
}
