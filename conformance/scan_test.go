package conformance_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"sluice/conformance/harness"
)

// TestScanLane asks every construct on the scan lane's verified list of Postgres and of that lane: over rows in memory, over files, over
// files with deleted rows and columns that came later.
func TestScanLane(t *testing.T) {
	pair := harness.NewPair(t)
	if !pair.Got.Sluice {
		t.Skip("there is no scan lane in Postgres")
	}
	both(t, pair, statements(t, "testdata/scan/schema.sql")...)
	both(t, pair, "set sluice.lane = 'scan'")
	ask := func(when string) {
		t.Run(when, func(t *testing.T) {
			for _, s := range statements(t, "testdata/scan/ask.sql") {
				if when != inTransaction || !strings.HasPrefix(s, "-- fails") {
					both(t, pair, s)
				}
			}
		})
	}
	ask("in memory")
	flush(t, pair)
	ask("in files")
	both(t, pair, "delete from s where id = 6", "update s set t = 'more' where id = 7", "insert into r (id, n) values (6, 1.25)", "alter table s add column z int default 5",
		"alter table r rename column t to t2", "alter table r rename column t2 to t")
	ask("changed")
	both(t, pair, "select z, sum(z) from s group by z", "begin", "insert into s (id, n) values (8, 3)", "delete from s where id = 1")
	ask(inTransaction)
	both(t, pair, "rollback")
	flush(t, pair)
	ask("flushed again")
}

const inTransaction = "in a transaction"

func flush(t *testing.T, pair *harness.Pair) {
	t.Helper()
	if err := pair.Got.Flush(); err != nil {
		t.Fatal(err)
	}
}

// TestScanLaneExtended binds parameters and takes results in binary.
//
// claims: B39
func TestScanLaneExtended(t *testing.T) {
	pair := harness.NewPair(t)
	if !pair.Got.Sluice {
		t.Skip("there is no scan lane in Postgres")
	}
	both(t, pair, statements(t, "testdata/scan/schema.sql")...)
	said := map[string]string{}
	sides(t, pair, func(ctx context.Context, conn *pgx.Conn) error {
		var b strings.Builder
		if _, err := conn.Exec(ctx, "set sluice.lane = 'scan'"); err != nil {
			return err
		}
		for _, q := range []struct {
			sql  string
			args []any
		}{
			{"select id, i2, i4, i8, n, f4, f8, t, v, c, b, d, ts, tz, tm, u, y from s where id >= $1 order by id", []any{1}},
			{"select c, sum(n), avg(n), count(*), sum(i4) from s where t <> $1 and d > $2::date and n < $3 group by c order by c", []any{"one", "1000-01-01", "1000.5"}},
			{"select id from s where b = $1 and i8 > $2 and c = $3 order by id limit $4", []any{true, int64(5), "ab", 1}},
			{"select n / 7 from s where u = $1 order by id", []any{"00000000-0000-0000-0000-000000000001"}},
			{"select count(*) from s where v like $1", []any{"%o%"}},
		} {
			rows, err := conn.Query(ctx, q.sql, q.args...)
			if err != nil {
				return err
			}
			for rows.Next() {
				fmt.Fprintf(&b, "%x\n", rows.RawValues())
			}
			if rows.Err() != nil {
				return fmt.Errorf("%s: %w", q.sql, rows.Err())
			}
			fmt.Fprintln(&b, rows.CommandTag())
		}
		said[conn.Config().ConnString()] = b.String()
		return nil
	})
	if want, got := said[pair.Ref.DSN], said[pair.Got.DSN]; want != got || want == "" {
		t.Errorf("postgres\n%s\nsluice\n%s", want, got)
	}
}

// TestScanLaneOfLargeTables leaves the choice to the gateway: tables beyond the exact lane's limit are read in the scan lane where a statement
// is proven for it, stopped by cancel and timeout, and refused elsewhere.
func TestScanLaneOfLargeTables(t *testing.T) {
	g := harness.StartGateway(t, harness.Options{Args: []string{"--exact-limit", "1000"}})
	s, err := harness.Dial(g.DSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	expect := func(sql, want string) {
		t.Helper()
		r, err := s.Query(sql)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(r.Lines(true), "\n"); !strings.Contains(got, want) {
			t.Errorf("%s\ngot\n%s\nwant\n%s", sql, got, want)
		}
	}
	expect("create table big (id int primary key, n numeric(10,2), t text)", "CREATE TABLE")
	expect("insert into big select i, i / 4.0, 'row ' || i from generate_series(1, 5000) i", "INSERT 0 5000")
	expect("select count(*), sum(n), avg(n), max(t) from big where id > 10", `"4990" "3125611.25" "626.3750000000000000" "row 999"`)
	expect("select t from big where id = 77", `"row 77"`)
	expect("select count(*) from big where lower(t) = 'row 7'", "0A000")
	expect("create table few (id int)", "CREATE TABLE")
	expect("insert into few values (7), (8)", "INSERT 0 2")
	expect("create materialized view chosen as select id from few", "SELECT 2")
	expect("select count(*), sum(b.n) from big b join chosen c on c.id = b.id where b.n > 0", `"2" "3.75"`)
	expect("refresh materialized view chosen with no data", "REFRESH")
	expect("select count(*), sum(b.n) from big b join chosen c on c.id = b.id where b.n > 0", "0A000")
	expect("select * from chosen", "55000")
	endless := "select count(*) from big a, big b, big c where a.id + b.id + c.id < 0"
	expect("begin", "BEGIN")
	expect("delete from big where id = 78", "DELETE 1")
	expect("select count(*) from big", `"4999"`)
	expect("set local statement_timeout = '300ms'", "SET")
	expect(endless, "57014")
	expect("rollback", "ROLLBACK")
	expect("select count(*) from big", `"5000"`)
	var done atomic.Bool
	canceled := make(chan bool)
	go func() { // a request that comes before the query runs is ignored
		canceled <- harness.Poll(harness.Patience, func() bool { return done.Load() || s.Cancel() != nil })
	}()
	expect(endless, "canceling statement due to user request")
	done.Store(true)
	<-canceled
	expect("set sluice.lane = 'exact'", "SET")
	expect("select count(*) from big", "0A000")
	expect("set sluice.lane = 'scan'", "SET")
	expect("select lower(t) from big", "not for the scan lane: function lower")
	expect("reset sluice.lane", "RESET")
	expect("select count(*) from big", `"5000"`)
	expect("update big set t = upper(t) where lower(t) = 'row 3'", "SET sluice.exact_limit")
	expect("set sluice.exact_limit = 5000", "SET")
	expect("update big set t = upper(t) where lower(t) = 'row 3'", "UPDATE 1")
	expect("set sluice.exact_limit = 'many'", "SET")
	expect("update big set t = lower(t) where n < 3", `22023 "invalid value for parameter \"sluice.exact_limit\": \"many\""`)
	expect("reset sluice.exact_limit", "RESET")
	expect("update big set t = lower(t) where lower(t) = 'row 3'", "0A000")
}

// TestLargeChanges changes a table that is too large to be copied by conditions that a reader can look at, in files and in memory, in and
// after a transaction, and compares the table with that of a Postgres which was told the same.
func TestLargeChanges(t *testing.T) {
	pair := harness.NewPair(t)
	ref, got := pair.Ref.Session("changes"), pair.Got.Session("changes")
	for _, q := range []string{
		"create table big (id int primary key, n numeric(10,2), t text, d date)",
		"insert into big select i, i / 4.0, 'row ' || i, date '2024-01-01' + i % 100 from generate_series(1, 3000) i",
		"set sluice.exact_limit = 900",
		"update big set t = t || '' where n between 700 and 720", // while there are no files
		"flush",
		"reset sluice.exact_limit",
		"insert into big select i, i / 4.0, 'row ' || i, null from generate_series(3001, 4000) i",
		"set sluice.exact_limit = 900",
		"update big set t = upper(t) where n between 10 and 30 and length(t) > 2",
		"delete from big where d >= '2024-04-01' returning id",
		"delete from big where id % 2 = 0 and d is null and id > 3500",
		"begin",
		"update big set n = -n where id > 3900 or id < 50",
		"delete from big where n < 0 and id < 20",
		"savepoint s",
		"delete from big where n < 0",
		"rollback to s",
		"select id, lower(t) from big where n < 0 and id < 40 order by id",
		"commit",
		"flush",
		"update big set d = d + 1, t = t || '!' where t like 'ROW 1%'",
		"delete from big where id in (1, 2, 3000) or n > 990",
		"update big set id = id + 10000 where n > 980",
		"reset sluice.exact_limit",
	} {
		if q == "flush" {
			if err := pair.Got.Flush(); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if diff, err := harness.Same(ref, got, harness.Statement{SQL: q}); err != nil || diff != "" {
			t.Errorf("%s\n%v\n%s", q, err, diff)
		}
	}
	if diff, err := pair.SameState(); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}
