package conformance_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// wide writes what is rarer: upserts on other constraints, data-modifying CTEs, MERGE, COPY, DDL beside columns, locks, cursors, functions.
func (g *generator) wide() string {
	switch g.IntN(14) {
	case 0, 1:
		return g.modifyingCTE()
	case 2:
		return g.mergeAll()
	case 3, 4:
		return g.copyFrom()
	case 5:
		return g.copyTo()
	case 6:
		return g.madeTable()
	case 7:
		return pick(g, "truncate kv, r restart identity", "truncate u restart identity", "truncate par cascade", "truncate par", "truncate fk, par", "truncate tr, audit continue identity", "truncate c, k1")
	case 8:
		return g.constraint()
	case 9:
		return g.rowLock()
	case 10:
		return g.cursorStep()
	case 11:
		return pick(g, fmt.Sprintf("select bump(%s, %d)", g.key(), g.IntN(9)), "select spread()", fmt.Sprintf("select id, bump(id, 1) from kv where id < %d", g.IntN(3)),
			fmt.Sprintf("do $$ begin update kv set m = coalesce(m, 0) + 1 where id = %s; insert into par values (%s, 1); exception when unique_violation then update par set v = v + 1 where id < 5; end $$", g.key(), g.key()))
	case 12:
		return g.viewStatement()
	}
	u := []column{}
	for _, c := range g.columns["u"] {
		if c.name != "id" || g.chance(40) {
			u = append(u, c)
		}
	}
	if len(u) == 0 {
		return g.insert()
	}
	return g.drawn("u", g.upsertUnique(u))
}

// upsertUnique meets the other unique constraints of u, by their columns or names, or all of them.
func (g *generator) upsertUnique(cols []column) string {
	s := fmt.Sprintf("insert into u (%s) values %s on conflict ", names(cols), g.rows("u", cols, pick(g, 1, 1, 1, 3)))
	if g.chance(30) {
		return s + pick(g, "", "(w) ", "(a, b) ", "on constraint u_ab ", "on constraint u_pkey ") + "do nothing" + g.returning("u")
	}
	s += pick(g, "(w)", "(a, b)", "on constraint u_ab", "on constraint u_w", "(id)", "(b, a)") + " do update set " +
		pick(g, "s = excluded.s", "m = excluded.m, s = u.s + 1", "a = excluded.a, w = excluded.w", "b = left(coalesce(u.b, '') || excluded.b, 6)", "w = u.w + 1", "(a, s) = (excluded.a, 3)")
	return s + pick(g, "", "", " where u.a is distinct from excluded.a", " where u.s < 40", " where excluded.m is not null") + g.returning("u")
}

func (g *generator) modifyingCTE() string {
	k := g.key()
	return pick(g,
		fmt.Sprintf("with moved as (delete from kv where id = %s returning *) insert into h (a, b) select a, s from moved returning *", k),
		fmt.Sprintf("with up as (update k1 set f = not f where %s returning id, a) select count(*), sum(a) from up", g.where("k1", "")),
		fmt.Sprintf("with i as (insert into par values (%s, 1), (%d, 2) on conflict do nothing returning id) insert into fk (id, ca) select id + 20, id from i", k, 40+g.IntN(20)),
		fmt.Sprintf("with a as (insert into h (a, b) values (1, 'cte') returning a), b as (update tr set v = v + 1 where id < %s returning id) select (select count(*) from a), (select count(*) from b), (select count(*) from h) >= 0", k),
		fmt.Sprintf("with d as (delete from tr where v > %d returning id, v) insert into audit select 'cte', id, v from d", g.IntN(100)),
		fmt.Sprintf("with recursive n(i) as (select 1 union all select i + 1 from n where i < 5) insert into kv (id, a, s) select i + %d, i, 'n' from n on conflict (id) do update set a = excluded.a", g.IntN(40)),
		fmt.Sprintf("with x as materialized (select id, v from par where %s) update fk set sn = x.id from x where x.id = fk.ca returning fk.id, x.v", g.where("par", "")),
	)
}

func (g *generator) mergeAll() string {
	return pick(g,
		fmt.Sprintf("merge into par using (values (%s, 1), (50 + %s, 2)) s(id, v) on par.id = s.id when matched and par.v > 50 then delete when matched then update set v = coalesce(par.v, 0) + s.v when not matched and s.v = 2 then insert values (s.id, s.v) when not matched then do nothing", g.key(), g.key()),
		fmt.Sprintf("merge into tr t using (select id, a from kv where %s) s on t.id = s.id when matched and s.a is null then do nothing when matched then update set v = s.a, note = default when not matched then insert (id, v) values (s.id, s.a)", g.where("kv", "")),
		fmt.Sprintf("merge into ht using kv on ht.id = kv.id when matched then update set a = kv.a when not matched and kv.id < %s then insert values (kv.id, kv.a, kv.s)", g.key()),
		fmt.Sprintf("merge into kv using ht on ht.id = kv.id when matched and kv.a < 10 then delete when matched then update set m = ht.a when not matched then insert (id, s) values (ht.id, coalesce(ht.b, 'ht'))"),
		fmt.Sprintf("merge into u using (select %s as id, 'ok'::mood as m) s on u.id = s.id when matched then update set m = s.m, w = default when not matched then insert (id, m, w) overriding system value values (s.id, s.m, s.id)", g.key()),
	)
}

// copyData stands between a COPY FROM STDIN and its data in a statement; see splitCopy.
const copyData = ";\n"

func (g *generator) copyFrom() string {
	n := 1 + g.IntN(4)
	lines := func(f func() string) string {
		var rows []string
		for range n {
			rows = append(rows, f())
		}
		return strings.Join(rows, "\n") + "\n"
	}
	num := func() string { return pick(g, g.key(), g.key(), "\\N", "x") }
	return pick(g,
		"copy par from stdin"+copyData+lines(func() string { return g.key() + "\t" + num() }),
		"copy kv (id, s, a) from stdin with (format csv, null 'nil')"+copyData+lines(func() string {
			return fmt.Sprintf("%d,%s,%s", 40+g.IntN(60), pick(g, "a", `"q ""x"", y"`, "ü", ""), pick(g, "7", "nil", "-3"))
		}),
		"copy tr from stdin (delimiter '|', header)"+copyData+"id|v|note\n"+lines(func() string { return fmt.Sprintf("%d|%s|\\N", 40+g.IntN(60), pick(g, "1", "13", "\\N")) }),
		"copy h (b, a) from stdin (format csv, force_null (b), quote '''', escape '\\', header match)"+copyData+"b,a\n"+lines(func() string { return pick(g, "'',1", "'it\\'s',2", "x,", "' ',3") }),
		"copy fk (id, ca) from stdin where id > 45"+copyData+lines(func() string { return fmt.Sprintf("%d\t%s", 40+g.IntN(20), g.key()) }),
		"copy u (id, m, s, w) from stdin (format csv)"+copyData+lines(func() string {
			return fmt.Sprintf("%d,%s,%d,%d", 40+g.IntN(90), pick(g, "ok", "happy", "mad"), g.IntN(95), g.IntN(400))
		}),
		"copy ht from stdin"+copyData+lines(func() string { return fmt.Sprintf("%d\t1\tcopied", 40+g.IntN(90)) }),
		"copy vk from stdin"+copyData+lines(func() string { return fmt.Sprintf("%d\t%d\tview", 40+g.IntN(90), g.IntN(70)) }),
	)
}

func (g *generator) copyTo() string {
	return pick(g, "copy (select * from kv order by id) to stdout", "copy (select id, a, b from k1 order by id) to stdout with (format csv, header, force_quote (b))",
		"copy (select x, y, j from k2 order by x, y) to stdout (delimiter '|', null 'NIL')", "copy (delete from audit where was is null returning op) to stdout",
		"copy (select id, m, g from u order by id) to stdout (format csv)", "copy vk to stdout", "copy (select 1 from nowhere) to stdout")
}

// madeTable makes and drops tables, by query and by hand.
func (g *generator) madeTable() string {
	for _, name := range slices.Sorted(maps.Keys(g.columns)) { // in one order: a seed says all
		if strings.HasPrefix(name, "made") && g.chance(50) {
			return pick(g, "drop table "+name, "alter table "+name+" rename to "+name+"x", "insert into "+name+" select * from "+name, "select * from "+name, "drop table "+name)
		}
	}
	g.names++
	name := fmt.Sprintf("made%d", g.names)
	return pick(g, "create table "+name+" as select id, a, d from k1 where "+g.where("k1", ""), "select a, b into "+name+" from h where "+g.where("h", ""),
		"create table "+name+" as select id, v from par with no data", "create table "+name+" (like kv including all)", "create table "+name+" as table audit",
		"create table "+name+" (id int primary key references par, v int check (v > 0) default 1)")
}

// constraint adds and drops constraints, defaults and types, of filled tables too.
func (g *generator) constraint() string {
	return pick(g, "alter table kv add constraint kv_c check (a < 95)", "alter table kv drop constraint if exists kv_c", "alter table par add constraint par_v unique (v)",
		"alter table par drop constraint if exists par_v", "create unique index ht_a on h (a, b)", "drop index if exists ht_a",
		"alter table kv alter column a type bigint using a * 2", "alter table kv alter column a type integer", "alter table par alter v set not null", "alter table par alter v drop not null",
		"comment on column kv.a is 'noted'", "create index on kv (a)", "alter table fk add constraint fk_na2 foreign key (na) references kv", "alter table fk drop constraint if exists fk_na2",
		"alter table tr disable trigger note", "alter table tr enable trigger note", "alter table u alter w type bigint", "alter table u alter w type int")
}

func (g *generator) rowLock() string {
	if g.status != 'T' || g.chance(60) {
		return fmt.Sprintf("select id from %s where %s order by id for %s", pick(g, "kv", "par", "tr"), pick(g, "id < "+g.key(), "id = "+g.key()), pick(g, "update", "no key update", "share", "key share", "update nowait", "update skip locked"))
	}
	return "lock table " + pick(g, "kv", "par, fk", "k1", "ht", "vk") + " in " + pick(g, "share", "row exclusive", "access exclusive", "access share") + " mode" + pick(g, "", " nowait")
}

func (g *generator) cursorStep() string {
	switch {
	case g.status != 'T':
		return "declare cur cursor for select 1"
	case !g.cursor:
		g.cursor = true
		return "declare cur " + pick(g, "", "scroll ") + "cursor for select id, a from " + pick(g, "kv", "k1", "ht") + " order by id"
	case g.chance(20):
		g.cursor = false
		return "close cur"
	}
	return pick(g, "fetch 3 from cur", "fetch cur", "move 2 in cur", "fetch all cur")
}

// viewStatement writes through the view, which checks what it is given.
func (g *generator) viewStatement() string {
	k := g.key()
	return pick(g, fmt.Sprintf("insert into vk (id, a) values (%s, %d)", k, g.IntN(70)), fmt.Sprintf("update vk set a = a + %d where id = %s returning *", g.IntN(60), k),
		"delete from vk where id = "+k, fmt.Sprintf("update vk set b = 'v' where a < %d", g.IntN(50)), "select count(*), max(a) from vk where "+g.where("vk", ""),
		fmt.Sprintf("insert into vk values (%s, 1, 'up') on conflict (id) do update set b = excluded.b", k))
}
