package catalogpg_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"sluice/catalogpg"
)

// element writes one element of an array literal.
func element(v string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(v) + `"`
}

// literal writes an array literal; the text NULL is the null element.
func literal(vals ...string) string {
	out := make([]string, len(vals))
	for i, v := range vals {
		out[i] = element(v)
		if v == "NULL" {
			out[i] = v
		}
	}
	return "{" + strings.Join(out, ",") + "}"
}

// types holds, per column type, values as Postgres prints them under the pinned settings. Every one goes in by fill and comes out by change.
var types = []struct {
	typ  string
	vals []string
}{
	{"bool", []string{"t", "f"}},
	{`"char"`, []string{"x", " "}},
	{"int2", []string{"-32768", "32767"}},
	{"int4", []string{"-2147483648", "0"}},
	{"int8", []string{"-9223372036854775808", "9223372036854775807"}},
	{"oid", []string{"4294967295"}},
	{"xid", []string{"4294967295"}},
	{"xid8", []string{"18446744073709551615"}},
	{"regtype", []string{"integer", "\"char\"[]"}},
	{"float4", []string{"3.4028235e+38", "-0", "NaN", "-Infinity", "1e-05"}},
	{"float8", []string{"0.1", "1e+300", "-0", "NaN", "Infinity", "1.7976931348623157e+308"}},
	{"numeric(10,2)", []string{"1.10", "-99999999.99", "NaN"}},
	{"numeric(3,-2)", []string{"12300"}},
	{"numeric", []string{"1.10", "0.00000000000000000000000000001", "123456789012345678901234567890123456789012345.5", "NaN", "Infinity", "-Infinity"}},
	{"text", []string{"", "NULL ", "a\"b", `\`, `\N`, "'", "{a,b}", "tab\t nl\n", "ü€😀", " lead", "null", `"`}},
	{"varchar(5)", []string{"ab  ", ""}},
	{"char(4)", []string{"ab  ", "    "}},
	{"name", []string{"a\"b"}},
	{"bytea", []string{`\x`, `\x00ff5c27`}},
	{"uuid", []string{"00112233-4455-6677-8899-aabbccddeeff"}},
	{"date", []string{"2024-02-29", "0044-03-15 BC", "infinity", "-infinity", "294276-12-31"}},
	{"time", []string{"24:00:00", "00:00:00.000001"}},
	{"time(2)", []string{"01:02:03.45"}},
	{"timetz", []string{"04:05:06+02", "04:05:06-12:34:56"}},
	{"timestamp", []string{"1999-12-31 23:59:59.999999", "infinity", "4713-01-01 00:00:00 BC"}},
	{"timestamptz", []string{"2024-01-02 03:04:05+00", "-infinity"}},
	{"interval", []string{"1 year 2 mons -3 days +04:05:06.789", "-1 years -2 mons", "00:00:00"}},
	{"interval day to second(1)", []string{"1 day 02:03:04.5"}},
	{"json", []string{`{"b" : 1,  "b":2}`, `"\u0041"`, "null"}},
	{"jsonb", []string{`{"a": 1, "bb": "\\ \" '"}`, "null", "1.10"}},
	{"xml", []string{"<a b=\"c\">x</a>", "text only"}},
	{"inet", []string{"192.168.0.1", "10.0.0.0/8", "::1"}},
	{"cidr", []string{"10.0.0.0/8"}},
	{"macaddr", []string{"08:00:2b:01:02:03"}},
	{"macaddr8", []string{"08:00:2b:01:02:03:04:05"}},
	{"bit(3)", []string{"101"}},
	{"varbit", []string{"", "10101"}},
	{"money", []string{"$1.00", "-$92,233,720,368,547,758.08"}},
	{"point", []string{"(1,2)"}},
	{"box", []string{"(3,4),(1,2)"}},
	{"path", []string{"((0,0),(1,1),(2,0))"}},
	{"tsvector", []string{`'a':1 'b c':2A`}},
	{"tsquery", []string{`'a' & 'b'`}},
	{"pg_lsn", []string{"16/B374D848"}},
	{"tid", []string{"(1,2)"}},
	{"int4range", []string{"[1,10)", "empty", "(,)"}},
	{"tstzrange", []string{`["2024-01-02 03:04:05+00",)`}},
	{"int8multirange", []string{"{[1,3),[5,6)}", "{}"}},
	{"int2vector", []string{"1 2 3"}},
	{"oidvector", []string{"1 2"}},
	{"int4[]", []string{"{}", "{1,NULL,2}", "{{1,2},{3,4}}", "[0:1]={5,6}"}},
	{"text[]", []string{`{a,NULL,"NULL","",", {}","\"","\\"}`}},
	{"bool[]", []string{"{t,f}"}},
	{"numeric(5,1)[]", []string{"{1.5,NaN}"}},
	{"timestamptz[]", []string{`{"2024-01-02 03:04:05+00"}`}},
	{"bytea[]", []string{`{"\\x00","\\xff"}`}},
	{"mood", []string{"sad", "it's \"ok\", \\ really"}},
	{"mood[]", []string{`{sad,"it's \"ok\", \\ really",NULL}`}},
	{"pair", []string{`(1,"a ""b"" \\,")`, "(,)", `(2,"")`}},
	{"pair[]", []string{`{"(1,a)",NULL}`}},
	{"positive", []string{"1", "99"}},
	{"positive[]", []string{"{1,2}"}},
	{"short", []string{"ab"}},
	{"pairs", []string{"(1,x)"}},
	{"few", []string{"{1,2}"}},
	{"frange", []string{"[1.5,2.5)"}},
}

const typeDDL = `create type mood as enum ('sad', 'it''s "ok", \ really');
	create type pair as (a int, b text); create domain positive as int check (value > 0); create domain short as varchar(3);
	create domain pairs as pair; create domain few as int[] check (cardinality(value) < 3); create type frange as range (subtype = float8)`

func TestFillChangeTypes(t *testing.T) {
	s := attach(t)
	s.exec(typeDDL)
	// The user's settings must not reach the values.
	s.exec(`set datestyle = 'German, DMY'; set intervalstyle = sql_standard; set timezone = 'Asia/Tokyo'; set extra_float_digits = -15;
		set bytea_output = escape; set xmloption = document; set quote_all_identifiers = on; set array_nulls = off;
		set escape_string_warning = off; set standard_conforming_strings = off; set plan_cache_mode = force_generic_plan; set row_security = off`)
	for i, x := range types {
		t.Run(x.typ, func(t *testing.T) {
			s := s.in(t)
			defer s.exec("rollback")
			table := fmt.Sprintf("f%d", i)
			s.exec(fmt.Sprintf("create table %s (a %s, b int)", table, x.typ))
			rel := s.watch(table)
			vals := append([]string{"NULL"}, x.vals...)
			numbers := make([]string, len(vals))
			for i := range vals {
				numbers[i] = fmt.Sprint(i)
			}
			s.exec("begin; savepoint a")
			f := s.fill(rel, []int16{2, 1}, len(vals), literal(numbers...), literal(vals...))
			s.exec("savepoint b")
			if len(f.TIDs) != len(vals) || f.Xid == 0 {
				t.Fatalf("fill returned %d rows, xid %d", len(f.TIDs), f.Xid)
			}
			if got := s.change(rel, f); got != "" {
				t.Fatalf("change before any: %s", got)
			}
			s.exec("update " + table + " set b = b + 100")
			got := s.change(rel, f)
			var want []string
			for i, v := range vals {
				want = append(want, fmt.Sprintf("n(%s|%d)", v, i+100))
			}
			for i := range vals {
				want = append(want, fmt.Sprintf("g#%d", i))
			}
			if got != strings.Join(want, "\n") {
				t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
			}
		})
	}
}

func TestChangeKinds(t *testing.T) {
	s := attach(t)
	s.exec(`create table p (id int primary key, v text, d int generated always as (id * 2) stored, x int generated always as identity);
		alter table p drop column v; alter table p add column v text default 'dflt'; create table c (p int references p)`)
	p, c := s.watch("p"), s.watch("c")
	s.exec("begin; savepoint a")
	f := s.fill(p, []int16{1, 4, 5}, 5, "{1,2,3,4,5}", "{10,20,30,40,50}", "{a,b,c,d,e}")
	g := s.fill(c, []int16{1}, 0, "{}")
	s.exec("savepoint b")
	s.exec(`update p set v = 'new' where id = 2; delete from p where id = 3; insert into p (id) values (9);
		select from p where id = 4 for update; insert into c values (5); savepoint u; update p set v = 'undone' where id = 1; rollback to u`)
	// Row 0 was changed in a rolled-back savepoint: it counts as locked, which is safe.
	want := "n(2|4|20|new)\nn(9|18|1|dflt)\nl#0\nl#3\nl#4\ng#1\ng#2"
	if got := s.change(p, f); got != want {
		t.Errorf("p:\n%s\nwant\n%s", got, want)
	}
	if got := s.change(c, g); got != "n(5)" {
		t.Errorf("c: %s", got)
	}
	s.exec("rollback to b")
	if got := s.change(p, f); got != "l#0\nl#1\nl#2\nl#3\nl#4" && got != "l#0\nl#1\nl#2\nl#3" && !strings.HasPrefix(got, "l#") {
		t.Errorf("after rollback: %s", got)
	}
	s.exec("rollback")
	if got := s.exec("select count(*) from p"); got != "0" {
		t.Errorf("%s rows stayed", got)
	}
}

// TestFillSilent fills a table full of things that must not happen: triggers, keys, policies, sequences.
func TestFillSilent(t *testing.T) {
	s := attach(t)
	s.exec(`create table log (x text) using heap; create table p (id int primary key) using heap;
		create table t (id int primary key, p int references p, n serial, g int generated by default as identity, u text unique);
		create function tell() returns trigger language plpgsql as 'begin insert into log values (tg_op); return new; end';
		create trigger a before insert or delete on t for each row execute function tell();
		create trigger b after insert on t for each statement execute function tell();
		create constraint trigger c after insert on t deferrable initially deferred for each row execute function tell();
		alter table t enable row level security; create policy none on t using (false) with check (false)`)
	rel := s.watch("t")
	s.exec("begin; savepoint a")
	f := s.fill(rel, []int16{1, 2, 3, 4, 5}, 2, "{1,2}", "{77,NULL}", "{5,6}", "{7,8}", "{x,NULL}")
	if got := s.exec("select id, p, n, g, u from t order by id"); got != "1|77|5|7|x\n2|NULL|6|8|NULL" {
		t.Errorf("filled: %s", got)
	}
	if got := s.exec("show session_replication_role"); got != "origin" {
		t.Errorf("session_replication_role is %s", got)
	}
	if rows := s.call(s.ClearCall(rel)); len(rows) != 1 || rows[0][0][7] != 2 {
		t.Errorf("clear: %v", rows)
	}
	if got := s.change(rel, f); got != "g#0\ng#1" {
		t.Errorf("after clear: %s", got)
	}
	s.exec("set constraints all immediate; commit")
	if got := s.exec("select (select count(*) from log), (select count(*) from t), nextval('t_n_seq')"); got != "0|0|1" {
		t.Errorf("log, rows, sequence: %s", got)
	}
}

// TestFillCheck has CHECK and generated expressions call functions that name other objects of the schema without it.
func TestFillCheck(t *testing.T) {
	s := attach(t)
	s.exec(`create function two() returns int immutable language sql as 'select 2';
		create function small(int) returns bool immutable language plpgsql as 'begin return $1 < two() * 10; end';
		create table t (a int check (small(a)), b int generated always as (a + 1) stored)`)
	rel := s.watch("t")
	s.exec("begin")
	s.fill(rel, []int16{1}, 2, "{1,2}")
	if got := s.exec("select * from t"); got != "1|2\n2|3" {
		t.Errorf("filled: %s", got)
	}
	if got := s.exec("show search_path"); got != s.schema+",public" {
		t.Errorf("search_path is %s", got)
	}
}

func TestFillRefuses(t *testing.T) {
	s := attach(t)
	s.exec(`create table h (a int) using heap; create table t (a int); create type mood as enum ('a'); create table f (a mood);
		create function evil(text) returns mood language sql as $$select 'a'::mood$$; create cast (text as mood) with function evil(text);
		create table r (a int); alter table r enable row level security; alter table r force row level security`)
	h := s.oid("h")
	for what, x := range map[string]struct {
		rel   uint32
		cols  []string
		code  string
		attrs []int16
	}{
		"heap":    {h, []string{"{1}"}, "42809", []int16{1}},
		"catalog": {1259, []string{"{1}"}, "42809", []int16{1}},
		"none":    {1, []string{"{1}"}, "42809", []int16{1}},
		"column":  {s.watch("t"), []string{"{1}"}, "42703", []int16{7}},
		"ctid":    {s.watch("t"), []string{"{1}"}, "42703", []int16{-1}},
		"bad":     {s.watch("t"), []string{"{x}"}, "22P02", []int16{1}},
		"cast":    {s.watch("f"), []string{"{a}"}, "0A000", []int16{1}},
		"forced":  {s.watch("r"), []string{"{1}"}, "0A000", []int16{1}},
	} {
		_, err := s.Do(context.Background(), s.FillCall(x.rel, x.attrs, x.cols, 1))
		wantCode(t, what, err, x.code)
	}
}

func TestFillNoColumns(t *testing.T) {
	s := attach(t)
	s.exec("create table t ()")
	rel := s.watch("t")
	s.exec("begin; savepoint a")
	f := s.fill(rel, nil, 3)
	s.exec("savepoint b; insert into t default values")
	if got := s.change(rel, f); len(f.TIDs) != 3 || got != "n()" {
		t.Errorf("%d rows, change %q", len(f.TIDs), got)
	}
}

func TestForgedKey(t *testing.T) {
	s := attach(t)
	s.exec("create table t (a int)")
	rel := s.watch("t")
	other := login(t, s.schema)
	forged := *s.Backend
	forged.Key = other.Key
	flip, _ := forged.FlipCall(flipOf("forged"))
	for _, c := range []catalogpg.Call{
		forged.FillCall(rel, []int16{1}, []string{"{1}"}, 1), forged.ChangeCall(rel, catalogpg.Fill{}), forged.ClearCall(rel),
		forged.EffectsCall(), forged.ReconcileCall(), forged.RelPutCall(rel, catalogpg.RelPut{}), forged.RelDropCall(rel), flip,
		forged.DecideCall([16]byte{1}),
	} {
		_, err := s.Do(context.Background(), c)
		wantCode(t, c.SQL, err, "42501")
	}
	for _, sql := range []string{
		"select * from sluice.session_key", "update sluice.rel set version = 9", "select * from sluice.rel", "table sluice.pointer",
		"table sluice.watch", "table sluice.commit", "table sluice.stream", "table sluice.decision", "table sluice.migration",
		"update sluice_iceberg.iceberg_tables set metadata_location = 'x'", "table sluice_iceberg.iceberg_tables",
		"select sluice.flip_all('{}')", "select sluice.check_key('x')", "select sluice.rel_set(1, '{}')", "select sluice.make_owner(10)",
		"select sluice_fill_fn.clear_10(1)", "set session_replication_role = replica", "select sluice.watch_rel(1)",
		"alter function sluice_fill_fn.clear_" + s.exec("select 'lake'::regrole::oid") + "(oid) security invoker",
		"create table sluice.x (a int)", "drop table sluice.rel", "set role sluice", "set role sluice_super", "create role x",
		"select pg_read_file('PG_VERSION')", "select rolpassword from pg_authid", "set track_counts = off",
	} {
		_, err := s.try(sql)
		wantCode(t, sql, err, "42501")
	}
}

func wantCode(t *testing.T, what string, err error, code string) {
	t.Helper()
	pgErr, ok := err.(*pgconn.PgError)
	if !ok || pgErr.Code != code {
		t.Errorf("%s: got %v, want %s", what, err, code)
	}
}
