package catalogpg_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sluice/catalogpg"
)

func itoa(n uint32) string { return fmt.Sprint(n) }

// candidates lists what reconcile finds: name, what the lake makes of it, sorted.
func (s *session) candidates() string {
	s.t.Helper()
	var lines []string
	for _, row := range s.call(s.ReconcileCall()) {
		c, err := catalogpg.DecodeCandidate(row)
		if err != nil {
			s.t.Fatal(err)
		}
		switch {
		case c.State == nil:
			lines = append(lines, "drop")
		case c.Known:
			lines = append(lines, s.describe("known", c.State))
		default:
			lines = append(lines, s.describe("new", c.State))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "; ")
}

func (s *session) describe(what string, r *catalogpg.Rel) string {
	cols := make([]string, len(r.Columns))
	for i, a := range r.Columns {
		cols[i] = fmt.Sprintf("%d %s %s", a.Num, a.Name, a.TypeName)
	}
	name := strings.ReplaceAll(r.Namespace, s.schema, "S") + "." + r.Name
	return fmt.Sprintf("%s %s %s %s(%s)", what, r.RelKind, r.AM, name, strings.Join(cols, ", "))
}

const reconcileDDL = `create table t (id int primary key, v text); create table u (a int); create table p (a int) ; create table c () inherits (p);
	create view vu as select * from u; create schema other_S; create table other_S.o (a int); create type comp as (x int); create table ty of comp`

// Each row of the table in lanes.md section 4.
var reconcileCases = []struct{ name, sql, want string }{
	{"create", "create table n (a int)", "new r lake S.n(1 a integer)"},
	{"heap", "create table n (a int) using heap", "new r heap S.n(1 a integer)"},
	{"temp", "create temp table n (a int) on commit drop", ""},
	{"like", "create table n (like u)", "new r lake S.n(1 a integer)"},
	{"ctas", "create table n as select 1 as x", "new r lake S.n(1 x integer)"},
	{"select into", "select 1::int8 as x into n", "new r lake S.n(1 x bigint)"},
	{"in do", "do $$begin create table n (a int); end$$", "new r lake S.n(1 a integer)"},
	{"schema with elements", "create schema S_new create table n (a int) create view w as select * from n",
		"new r lake S_new.n(1 a integer); new v  S_new.w(1 a integer)"},
	{"of type", "create table n of comp", "new r lake S.n(1 x integer)"},
	{"matview", "create materialized view n as select 1 as x", "new m lake S.n(1 x integer)"},
	{"view", "create view n as select 1 as x", "new v  S.n(1 x integer)"},
	{"sequence", "create sequence n", ""},
	{"add column", "alter table u add b numeric(10,2)[] not null", "known r lake S.u(1 a integer, 2 b numeric(10,2)[])"},
	{"drop column", "alter table t drop v", "known r lake S.t(1 id integer)"},
	{"many actions", "alter table t add x int, alter v type varchar(9), drop id", "known r lake S.t(2 v character varying(9), 3 x integer)"},
	{"default", "alter table u alter a set default 3", "known r lake S.u(1 a integer)"},
	{"identity", "alter table t alter id add generated always as identity", "known r lake S.t(1 id integer, 2 v text)"},
	{"rename column", "alter table u rename a to b", "known r lake S.u(1 b integer)"},
	{"rename", "alter table t rename to n", "known r lake S.n(1 id integer, 2 v text)"},
	{"swap", "alter table t rename to t_old; create table t (z int); alter table t_old rename to t_bak",
		"known r lake S.t_bak(1 id integer, 2 v text); new r lake S.t(1 z integer)"},
	{"set schema", "alter table t set schema other_S", "known r lake other_S.t(1 id integer, 2 v text)"},
	{"drop", "drop table t", "drop"},
	{"drop cascade", "drop table u cascade", "drop; drop"},
	{"drop and create", "drop table t; create table t (a int)", "drop; new r lake S.t(1 a integer)"},
	{"drop schema", "drop schema other_S cascade", "drop"},
	{"drop new", "create table n (a int); drop table n", ""},
	{"truncate", "truncate u", "known r lake S.u(1 a integer)"},
	{"parent", "alter table p add b int", "known r lake S.c(1 a integer, 2 b integer); known r lake S.p(1 a integer, 2 b integer)"},
	{"typed", "alter type comp add attribute y int cascade", "known r lake S.ty(1 x integer, 2 y integer)"},
	{"savepoint", "savepoint a; create table n (a int); release a", "new r lake S.n(1 a integer)"},
	{"rollback to", "savepoint a; create table n (a int); rollback to a", ""},
	{"handler", "do $$begin create table n (a int); raise exception 'x'; exception when others then null; end$$", ""},
	{"unlogged", "alter table u set unlogged", "known r lake S.u(1 a integer)"},
	{"partition", "create table n (a int) partition by list (a); create table n1 partition of n for values in (1)",
		"new p  S.n(1 a integer); new r lake S.n1(1 a integer)"},
	{"comment", "comment on table u is 'x'", "known r lake S.u(1 a integer)"},
	{"index", "create index on u (a)", "known r lake S.u(1 a integer)"},
	{"check", "alter table u add check (a > 0)", "known r lake S.u(1 a integer)"},
	{"access method", "alter table u set access method heap", "known r heap S.u(1 a integer)"},
	{"trigger", "create trigger x before update on u for each row execute function suppress_redundant_updates_trigger()",
		"known r lake S.u(1 a integer)"},
	{"lock", "lock table u", ""},
	{"lock in a transaction that writes", "lock table u; create sequence n", "known r lake S.u(1 a integer)"},
	{"rename schema", "alter schema other_S rename to S_x", "known r lake S_x.o(1 a integer)"},
	{"grant", "grant select on u to public", ""},
	{"select", "select * from t", ""},
	{"insert", "insert into t values (1)", ""},
	{"temp dml", "create temp table x (a int) on commit drop; insert into x values (1)", ""},
}

func TestReconcile(t *testing.T) {
	s := attach(t)
	s.exec(strings.ReplaceAll(reconcileDDL, "other_S", "other_"+s.schema))
	t.Cleanup(func() { login(t, s.schema).exec("drop schema other_" + s.schema + " cascade") })
	for _, n := range []string{"t", "u", "p", "c", "other_" + s.schema + ".o", "ty"} {
		s.watch(n)
	}
	s.call(s.RelPutCall(s.oid("vu"), catalogpg.RelPut{Kind: "view"}))
	for _, c := range reconcileCases {
		t.Run(c.name, func(t *testing.T) {
			s := s.in(t)
			s.exec("begin")
			defer s.exec("rollback")
			sql := strings.NewReplacer("other_S", "other_"+s.schema, "S_", s.schema+"_").Replace(c.sql)
			s.exec(sql)
			for range 2 {
				if got := s.candidates(); got != c.want {
					t.Errorf("got  %s\nwant %s", got, c.want)
				}
			}
		})
	}
}

// TestReconcileOtherBackends: what other backends lock or commit is none of ours.
func TestReconcileOtherBackends(t *testing.T) {
	s := attach(t)
	other := login(t, s.schema)
	other.exec("begin; create table n (a int)")
	s.exec("begin; create table mine (a int)")
	if got := s.candidates(); got != "new r lake S.mine(1 a integer)" {
		t.Errorf("got %s", got)
	}
	s.exec("rollback")
}

// TestRelState checks the parts of the description that reconcile's diff and the planner build on.
func TestRelState(t *testing.T) {
	s := attach(t)
	s.exec(`create domain d as numeric(10,2) check (value > 0);
		create table ref (id int primary key);
		create table t (id int generated always as identity primary key, n d not null, a varchar(5)[], r int references ref on delete cascade,
			g int generated always as (id + 1) stored, s text collate "C" default 'x', unique nulls not distinct (n, s), check (r > 0));
		alter table t add m timestamptz default '2024-01-01 00:00:00+02', add ma int[] default '{1,2}';
		create unique index part on t (lower(s)) include (r) where r > 1;
		create trigger trg before insert on t for each row execute function suppress_redundant_updates_trigger()`)
	s.try("create trigger trg before update on t for each row execute function suppress_redundant_updates_trigger()")
	rel := s.watch("t")
	r, err := cat.Describe(t.Context(), rel)
	if err != nil {
		t.Fatal(err)
	}
	if r.Lake == nil || r.Lake.Kind != "lake" || r.Lake.Name != "t" || r.Filenode == 0 || r.OwnerName != "lake" || r.AM != "lake" {
		t.Errorf("relation: %+v, lake %+v", r, r.Lake)
	}
	n, a := r.Attr(2), r.Attr(3)
	if n.TypeKind != "d" || n.Base != 1700 || n.BaseTypmod != (10<<16|2)+4 || !n.NotNull || !strings.HasSuffix(n.TypeName, ".d") {
		t.Errorf("domain column: %+v", n)
	}
	if a.Base != 1015 || a.Elem != 1043 || a.Typmod != 9 || r.Attr(1).Identity != "a" || r.Attr(5).Generated != "s" || *r.Attr(5).Default != "(id + 1)" {
		t.Errorf("columns: %+v", r.Columns)
	}
	if m, ma := r.Attr(7), r.Attr(8); !m.HasMissing || *m.Missing != "2023-12-31 22:00:00+00" || *ma.Missing != "{1,2}" || r.Attr(6).Missing != nil {
		t.Errorf("missing: %v %v", m.Missing, ma.Missing)
	}
	byName := map[string]catalogpg.Index{}
	for _, i := range r.Indexes {
		byName[i.Name] = i
	}
	if i := byName["t_pkey"]; !i.Primary || !i.Unique || !i.Valid || !i.Immediate || !slices.Equal(i.Attnums, []int16{1}) || !i.DefaultOps {
		t.Errorf("primary key: %+v", i)
	}
	if i := byName["t_n_s_key"]; !i.NullsNotDistinct || !slices.Equal(i.Attnums, []int16{2, 6}) {
		t.Errorf("unique: %+v", i)
	}
	if i := byName["part"]; i.Attnums[0] != 0 || i.Expressions != "lower(s)" || i.Predicate != "(r > 1)" || !slices.Equal(i.Include, []int16{4}) {
		t.Errorf("partial: %+v", i)
	}
	var fk, check bool
	for _, k := range r.Constraints {
		fk = fk || k.Type == "f" && k.OnDelete == "c" && k.Ref == s.oid("ref") && slices.Equal(k.RefAttnums, []int16{1})
		check = check || k.Type == "c" && k.Validated && strings.Contains(k.Def, "r > 0")
	}
	if !fk || !check || len(r.Triggers) != 1 {
		t.Errorf("constraints: %+v, triggers %v", r.Constraints, r.Triggers)
	}
	if rels, err := cat.Rels(t.Context()); err != nil || !slices.ContainsFunc(rels, func(x *catalogpg.Rel) bool { return x.OID == rel }) {
		t.Errorf("rels: %v, %v", rels, err)
	}
}

// TestRelPut: what is recorded commits and rolls back with the DDL, and keeps what a put leaves out.
func TestRelPut(t *testing.T) {
	s := attach(t)
	s.exec("begin; create table t (a int)")
	rel := s.oid("t")
	initial := "7"
	s.call(s.RelPutCall(rel, catalogpg.RelPut{Kind: "lake", Version: 1, LastFieldID: 5, Options: map[string]string{"format": "iceberg"},
		Fields: []catalogpg.Field{{Attnum: 1, ID: 1, ElemID: 2, ExactID: 3, Initial: &initial}}}))
	if r, err := cat.Describe(t.Context(), rel); err != nil || r != nil {
		t.Errorf("seen before commit: %v, %v", r, err)
	}
	s.exec("commit")
	s.call(s.RelPutCall(rel, catalogpg.RelPut{Version: 2}))
	r, err := cat.Describe(t.Context(), rel)
	if err != nil || r.Lake.Version != 2 || r.Lake.LastFieldID != 5 || r.Lake.Options["format"] != "iceberg" || *r.Lake.Fields[0].Initial != "7" {
		t.Errorf("recorded: %+v, %v", r.Lake, err)
	}
	s.exec("begin; drop table t")
	s.call(s.RelDropCall(rel))
	s.exec("rollback")
	if r, err := cat.Describe(t.Context(), rel); err != nil || r.Lake == nil {
		t.Errorf("rolled-back drop: %v, %v", r, err)
	}
	s.exec("begin; drop table t")
	if got := s.candidates(); got != "drop" {
		t.Errorf("candidates: %s", got)
	}
	s.call(s.RelDropCall(rel))
	if got := s.candidates(); got != "" {
		t.Errorf("candidates after: %s", got)
	}
	s.exec("commit")
}
