package conformance_test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// more writes what holds several statements together, or several tables: deferred checks, materialized views, swaps of names, larger queries.
func (g *generator) more() string {
	switch g.IntN(14) {
	case 10:
		return g.userTypes()
	case 11:
		return g.temporary()
	case 12, 13:
		return g.several()
	case 0, 1:
		return g.deferring()
	case 2:
		return pick(g, "refresh materialized view mv", "refresh materialized view mv", "refresh materialized view concurrently mv", "select * from mv", "select k2.x, n, v from k2 join mv using (x) where "+g.where("k2", "k2"))
	case 3:
		return g.swap()
	case 4:
		return g.nested()
	case 5:
		return g.copyBroken()
	case 6:
		return pick(g, "truncate gi, u restart identity cascade", "truncate df", "truncate par, kv restart identity cascade", "truncate ty", "truncate me", "truncate k2 cascade", "truncate k1")
	}
	return g.report()
}

// deferring writes the child of two deferrable keys, its parents, and when they are checked.
func (g *generator) deferring() string {
	return pick(g,
		fmt.Sprintf("insert into df (id, dp, dk) values (%s, %s, %s) on conflict do nothing", g.key(), g.key(), pick(g, "null", g.key())),
		fmt.Sprintf("update df set dp = %s where id < %s", pick(g, g.key(), "dp + 1", "null"), g.key()),
		fmt.Sprintf("update par set id = id + %d where id = %s", 40+g.IntN(9), g.key()),
		fmt.Sprintf("delete from par where id = %s", g.key()),
		fmt.Sprintf("insert into par select d.dp, 0 from df d where d.dp is not null and not exists (select from par where par.id = d.dp) on conflict do nothing"),
		"set constraints all deferred", "set constraints all immediate", "set constraints df_dk_fkey deferred", "set constraints df_dp_fkey immediate")
}

// swap puts a copy in the place of a table, in a transaction of its own or in the open one.
func (g *generator) swap() string {
	table := pick(g, "kv", "h", "ht", "k2")
	g.names++
	made, gone := fmt.Sprintf("made%d", g.names), fmt.Sprintf("made%dold", g.names)
	steps := []string{fmt.Sprintf("create table %s (like %s including all)%s", made, table, map[bool]string{true: " using heap"}[table == "ht"]),
		fmt.Sprintf("insert into %s select * from %s where %s", made, table, g.where(table, "")),
		fmt.Sprintf("alter table %s rename to %s", table, gone), fmt.Sprintf("alter table %s rename to %s", made, table)}
	if g.status == 'I' && g.chance(70) {
		steps = append(append([]string{"begin"}, steps...), pick(g, "commit", "commit", "rollback"))
	}
	g.queue = append(steps[1:], fmt.Sprintf("drop table if exists %s cascade", gone))
	return steps[0]
}

// nested opens savepoints around what fails and around a cursor.
func (g *generator) nested() string {
	if g.status != 'T' {
		return pick(g, "begin", "begin isolation level repeatable read", "begin isolation level serializable, read write, not deferrable")
	}
	g.names++
	n := g.names
	cur, table := fmt.Sprintf("c%d", n), pick(g, "kv", "ty", "gi", "me", "tr")
	g.queue = []string{fmt.Sprintf("declare %s %scursor for select * from %s order by 1, 2", cur, pick(g, "", "scroll ", "no scroll "), table), "fetch 2 from " + cur,
		fmt.Sprintf("savepoint b%d", n), fmt.Sprintf("delete from %s where %s", table, g.where(table, "")), "fetch 1 from " + cur,
		pick(g, fmt.Sprintf("rollback to b%d", n), fmt.Sprintf("release b%d", n), fmt.Sprintf("rollback to a%d", n)), pick(g, "fetch all from "+cur, "move all in "+cur, "close "+cur)}
	return fmt.Sprintf("savepoint a%d", n)
}

// copyBroken is a COPY whose data are wrong somewhere, or that the client breaks off.
func (g *generator) copyBroken() string {
	row := func() string {
		return fmt.Sprintf("%d\t%d\ts\t%d\t1.5\t2024-01-01\n", 40+g.IntN(60), g.IntN(50), g.IntN(50))
	}
	good := row() + row()
	return pick(g,
		"copy kv from stdin"+copyData+good+pick(g, "99\tx\ts\n", "99\n", "99\t1\t\\N\t1\t1\t2024-01-01\n", "99\t1\ts\t1\t1\t2024-02-31\n", row()+"\\.\n", "99\t1\ts\t1\t1\tinfinity\textra\n"),
		"copy kv from stdin"+copyFail+good,
		"copy ty (id, n, t, ba) from stdin with (format csv)"+copyData+fmt.Sprintf("00000000-0000-0000-0000-0000000000%d,%d,\"a\nb\",\\x00ff\n", 40+g.IntN(60), g.IntN(1000))+pick(g, "", "nouuid,1,,\n", "00000000-0000-0000-0000-000000000001,1e999999,,\n", "\"open"),
		"copy df from stdin"+copyData+fmt.Sprintf("%d\t%s\t\\N\t1\n", 40+g.IntN(60), g.key()),
		"copy gi (a, m) from stdin (format csv, delimiter ';', quote '$', null '-')"+copyData+pick(g, "", "1;$ok$\n", "-;sad\n5;mad\n"),
		"copy par from stdin (format binary)"+copyData+"PGCOPY\n\xff\r\n\x00"+strings.Repeat("\x00", 8)+fmt.Sprintf("\x00\x02\x00\x00\x00\x04\x00\x00\x00%c\xff\xff\xff\xff", 40+g.IntN(60))+pick(g, "\xff\xff", "", "\x00\x01"),
		"copy nowhere from stdin"+copyData+good)
}

// userTypes changes types and sequences under tables that use them.
func (g *generator) userTypes() string {
	g.names++
	if g.chance(25) {
		g.queue = []string{"select nextval('sq'), currval('sq')", fmt.Sprintf("alter sequence sq increment %d", 1+g.IntN(4)), "select nextval('sq')"}
		return fmt.Sprintf("select setval('sq', %d)", 1+g.IntN(1000))
	}
	return pick(g, fmt.Sprintf("alter type mood add value if not exists 'calm' %s 'ok'", pick(g, "before", "after")), "alter domain small add constraint s_low check (value > -8)", "alter domain small drop constraint if exists s_low",
		"alter domain small set default 7", "alter domain small drop default", "alter table u alter m set default 'ok'", "alter table gi alter id restart with 500", "alter table gi alter a set statistics 50",
		"alter table ty alter n type numeric(30,10)", "alter table ty alter n type numeric", "alter table ty alter vc type varchar(9)", "alter table ty alter vc type varchar(5)", "alter table ty alter i2 type int", "alter table ty alter i2 type smallint",
		"alter table ty add constraint ty_i check (i2 <> 7)", "alter table ty drop constraint if exists ty_i", "alter table df alter constraint df_dk_fkey deferrable initially deferred", "alter table df alter constraint df_dk_fkey deferrable initially immediate")
}

// temporary makes and uses tables of the session alone beside the lake's.
func (g *generator) temporary() string {
	return pick(g, "create temp table tmp as select id, a from kv where "+g.where("kv", ""), "create temp table tmp (id int primary key, a int) on commit drop", "insert into tmp select id, v from par on conflict do nothing",
		"select kv.id, tmp.a from kv join tmp using (id)", "update kv set a = tmp.a from tmp where tmp.id = kv.id", "insert into kv (id, s) select id, 'tmp' from tmp on conflict (id) do update set s = excluded.s",
		"delete from tmp where id in (select id from kv)", "drop table tmp", "discard temp")
}

// several is a string of statements: one implicit transaction, unless a block is open or one of them says otherwise.
func (g *generator) several() string {
	var all []string
	for len(all) < 2+g.IntN(2) {
		one := pick(g, g.insert, g.update, g.delete, g.query, g.upsert)()
		if g.queue = nil; !strings.Contains(one, " me ") && !strings.Contains(one, "setval") {
			all = append(all, one)
		}
	}
	if g.chance(15) {
		all = append(all[:1], append([]string{pick(g, "commit", "begin", "rollback", "savepoint x")}, all[1:]...)...)
	}
	return severalMark + strings.Join(all, "; ")
}

// severalMark begins a string of several statements: it has to be a simple query.
const severalMark = "/* several */ "

// report reads more than one table, or one in more than one way.
func (g *generator) report() string {
	w := func(table, alias string) string { return g.where(table, alias) }
	return pick(g,
		"select id, a, lag(a) over w, sum(a) over (w rows between 1 preceding and current row), ntile(3) over w from kv window w as (order by id) order by id",
		"select x, y, v, first_value(v) over (partition by x order by y), dense_rank() over (order by x) from k2 where "+w("k2", "")+" order by x, y",
		"select a, count(*) filter (where "+w("gi", "")+"), array_agg(id order by id), mode() within group (order by t) from gi group by rollup (a) order by a",
		"select k1.id, l.n, l.s from k1 left join lateral (select count(*) as n, sum(q) as s from c where c.p = k1.id) l on true where "+w("k1", "k1"),
		"with recursive t(id, up) as (select id, dp from df where "+w("df", "")+" union select d.id, d.dp from df d join t on d.id = t.up) select id, up from t order by 1, 2",
		"select distinct on (a) a, id, s from kv where "+w("kv", "")+" order by a, id",
		"select id, a from me where "+w("me", "")+" order by a nulls first, id fetch first 3 rows with ties",
		"select jsonb_agg(to_jsonb(ty) order by id) from ty where "+w("ty", ""),
		"select id, n * 2, n / 3, round(n, 2), tz at time zone 'UTC', ts + interval '1 day', upper(t), ta || 'z', encode(ba, 'hex'), f8 + 1, justify_interval(iv), i2::int + 1, vc || ch from ty where "+w("ty", ""),
		"select extract(year from tz), date_trunc('month', ts), j -> 'a', j ->> 0, j @> '{\"n\": 1}', cardinality(ta), length(ba), ch = 'a' from ty where "+w("ty", ""),
		"select t, n from ty where n = any (array[1, 1.10, 'NaN']) or t like 'a%' or j ? 'n'",
		"(select id from me except all select id from kv) union all (select id from kv intersect select id from me) order by 1",
		"select g, (select count(*) from par where id <= g), exists (select from fk where ca = g) from generate_series(0, 40, 8) g order by g",
		"select t.id, u.* from tr t cross join lateral unnest(array[t.v, t.id]) with ordinality u(e, n) where "+w("tr", "t")+" order by 1, 3",
		"select m, count(*), max(s), string_agg(distinct b, '|' order by b) from u where "+w("u", "")+" group by m having count(*) > 0 order by m",
		"copy (select id, n, tz, ts, t, ta, ba, d.f8, iv, i2, vc, ch from ty d where "+w("ty", "d")+" order by id) to stdout (format binary)",
		"select par.id, count(fk.id), bool_or(df.id is null) from par left join fk on fk.na = par.id full join df on df.dp = par.id group by par.id order by 1",
		"values (1, 'a'), (2, (select max(s) from kv)), (3, null) order by 1 desc",
		"select (select row(id, v) from par order by id limit 1), (select array(select id from tr order by id)), coalesce((select min(n) from me), -1)",
		"update me set n = s.total from (select a, sum(m) as total from kv group by a having sum(m) < 1000) s where s.a = me.a and "+w("me", "me"),
		"delete from gi using u where u.id = gi.id and "+w("u", "u"),
		"insert into me (id, a) select id, max(a) from kv where "+w("kv", "")+" group by id on conflict (id) do update set a = excluded.a",
		"insert into ty (id, n, t) select ('00000000-0000-0000-0000-0000000000' || lpad(id::text, 2, '0'))::uuid, n, s from kv where id between 10 and 99 order by id on conflict do nothing",
	)
}

// bindData stands between a statement and its parameters, as JSON; copyFail between a COPY and data that the client breaks off.
const (
	bindData = ";\nbind "
	copyFail = ";\nfail "
)

var plainLiteral = regexp.MustCompile(`([=(,] ?|between |and )('(?:[^']|'')*'|-?\d+)([,) ]|$)`)

// bound moves plain literals of a statement into parameters; what they are then inferred to be is Postgres' affair.
func (g *generator) bound(text string) string {
	if word, _, _ := strings.Cut(text, " "); strings.Contains(text, "\n") || word != "insert" && word != "update" && word != "delete" && word != "select" {
		return text
	}
	var params []string
	text, order, ordered := strings.Cut(text, " order by ") // numbers behind it are columns
	text = plainLiteral.ReplaceAllStringFunc(text, func(m string) string {
		if !g.chance(60) {
			return m
		}
		p := plainLiteral.FindStringSubmatch(m)
		v := strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(p[2], "'"), "'"), "''", "'")
		if n, err := strconv.ParseInt(p[2], 10, 32); err == nil && g.chance(30) {
			v = fmt.Sprintf("%s%08x", binaryMark, uint32(n))
		}
		params = append(params, v)
		return fmt.Sprintf("%s$%d%s", p[1], len(params), p[3])
	})
	if ordered {
		text += " order by " + order
	}
	if len(params) == 0 {
		return text
	}
	return text + bindData + encodeParams(params)
}

// binaryMark begins the hexadecimal digits of a parameter that is bound in binary format.
const binaryMark = "binary:"

func encodeParams(params []string) string {
	b, _ := json.Marshal(params) // strings only
	return string(b)
}

// decodeParams is what encodeParams was given, without the marks.
func decodeParams(text string) (params []*string, formats []int16) {
	var all []string
	_ = json.Unmarshal([]byte(text), &all)
	for _, v := range all {
		digits, binary := strings.CutPrefix(v, binaryMark)
		if b, err := hex.DecodeString(digits); binary && err == nil {
			v = string(b)
		}
		params, formats = append(params, &v), append(formats, map[bool]int16{true: 1}[binary])
	}
	return params, formats
}
