package conformance_test

import (
	"strings"
	"testing"

	"sluice/conformance/harness"
)

// TestTypeChange changes types of columns: where Iceberg promotes the old type and no value changes, the data files stay as they are, for a
// table of any size; elsewhere all rows are written anew in the same flip. No row is lost, and new values fit.
//
// claims: M57
func TestTypeChange(t *testing.T) {
	g := harness.StartGateway(t, harness.Options{Args: []string{"--exact-limit", "200", "--flush-age", "1h"}})
	s := dial(t, g.DSN())
	t.Cleanup(s.Close)
	ask := func(q string) string {
		t.Helper()
		return strings.Join(exec(t, s, q).Lines(true), "\n")
	}
	for _, c := range []struct {
		name, table string // its columns behind id
		rows        string
		alter       string
		keeps       bool
		after       string // statements that the old type would refuse
	}{
		{"int to bigint", "v int", "1000", "alter column v type bigint", true, "insert into t values (0, 5000000000)"},
		{"smallint to int", "v smallint", "1000", "alter column v type int", true, "insert into t values (0, 70000)"},
		{"smallint to bigint, key", "v smallint unique", "1000", "alter column v type bigint, alter column id type bigint", true, "insert into t values (5000000000, 5000000000)"},
		{"real to double", "v real", "1000", "alter column v type double precision", true, "insert into t values (0, 1e300)"},
		{"numeric, larger precision", "v numeric(8,2)", "1000", "alter column v type numeric(20,2)", true, "insert into t values (0, 123456789012345.67)"},
		{"checked int to bigint", "v int check (v > -1)", "100", "alter column v type bigint", true, "insert into t values (0, 5000000000)"},
		{"referenced int to bigint", "v int, up int references t", "100", "alter column id type bigint", true, "insert into t values (5000000000, 1)"},
		{"int to bigint, computed", "v int", "100", "alter column v type bigint using v + 1", false, "insert into t values (0, 5000000000)"},
		{"int to text", "v int", "100", "alter column v type text", false, "insert into t values (0, 'text')"},
		{"numeric, larger scale", "v numeric(8,2)", "100", "alter column v type numeric(10,4)", false, "insert into t values (0, 0.1234)"},
		{"bigint to int", "v bigint", "100", "alter column v type int", false, "insert into t values (0, 2147483647)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			exec(t, s, "create table t (id int primary key, "+c.table+")")
			defer exec(t, s, "drop table t")
			exec(t, s, "insert into t select i, i from generate_series(1, "+c.rows+"/2) i")
			exec(t, s, "select sluice.flush()")
			exec(t, s, "insert into t select i, i from generate_series("+c.rows+"/2 + 1, "+c.rows+") i")
			exec(t, s, "select sluice.flush()")
			const files, sum = "select location from sluice.files where name = 't' order by 1", "select count(*) from t where id > 0"
			before, n := ask(files), ask(sum)
			exec(t, s, "alter table t "+c.alter)
			if kept := ask(files) == before; kept != c.keeps {
				t.Errorf("files kept: %t\n%s\nthen\n%s", kept, before, ask(files))
			}
			if got := ask(sum); got != n {
				t.Errorf("rows: %s, then %s", n, got)
			}
			exec(t, s, c.after)
			exec(t, s, "update t set v = v where id = 7")
			exec(t, s, "select sluice.flush()")
			if got := ask("select v from t where id = 7"); !strings.Contains(got, `"7`) && c.name != "int to bigint, computed" {
				t.Errorf("row 7 has %s", got)
			}
		})
	}
	exec(t, s, "create table t (id int primary key, v int)")
	exec(t, s, "insert into t select i, i from generate_series(1, 1000) i")
	if r, err := s.Query("alter table t alter column v type text"); err != nil || r.Code() != "0A000" {
		t.Errorf("a table over the limit that has to be written anew: %v %v", r.Err(), err)
	}
}
