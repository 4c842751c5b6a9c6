package conformance_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// A generator writes random statements over six tables whose answers do not depend on the order in which a
// server happens to visit rows: no LIMIT without a total order, no key shift that may collide half-way, no two
// source rows for one target. Domains are small, so that keys meet, constraints break and filters match.
type generator struct {
	*rand.Rand
	columns map[string][]column // as they are now, read from the reference
	made    int                 // statements so far
	names   int                 // added columns and savepoints so far
	saves   []string            // savepoints of the open transaction
	status  byte
	pending string // to be said next
}

type column struct{ name, kind string }

// randomSchema makes the tables: keyed, keyed by two columns with a UNIQUE, keyless, a child, one without anything that keeps statements out
// of the fast lane, and one of defaults.
var randomSchema = []string{
	`create table k1 (id int primary key, a int, b text default 'dflt', n numeric(10,2), d date, f bool, constraint a_small check (a < 90))`,
	`create table k2 (x int, y text, v bigint not null default 7, w text unique, j jsonb, primary key (x, y))`,
	`create table h (a int, b text, at timestamptz, l int[])`,
	`create table c (id int primary key, p int references k1 (id) on delete cascade, q int)`,
	`create table kv (id int primary key, a integer, s text not null, m bigint, n numeric(10,2), d date)`,
	`create table r (id bigserial primary key, a integer default 5, b text not null default 'it''s', d date default current_date, n numeric(10,2) default 1.5)`,
}

var randomTables = []string{"k1", "k2", "h", "c", "kv", "r"}

func newGenerator(seed uint64) *generator {
	return &generator{Rand: rand.New(rand.NewPCG(seed, 1)), columns: map[string][]column{}, status: 'I'}
}

func pick[T any](g *generator, of ...T) T { return of[g.IntN(len(of))] }

// chance is true in percent of 100 cases.
func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

// next writes one statement.
func (g *generator) next() string {
	said := g.pending
	g.pending = ""
	if g.status == 'E' {
		said = g.leaveError()
		g.pending = ""
		return said
	}
	if said != "" {
		return said
	}
	if g.made++; g.made%tidyEvery == 0 {
		return g.trim()
	}
	switch n := g.IntN(100); {
	case n < 26:
		return g.insert()
	case n < 36:
		return g.upsert()
	case n < 48:
		return g.update()
	case n < 55:
		return g.delete()
	case n < 58:
		return g.merge()
	case n < 66:
		return g.byKey()
	case n < 81:
		return g.query()
	case n < 94:
		return g.transaction()
	case n < 98:
		return g.alter()
	default:
		return pick(g, "truncate h", "truncate k2", "truncate c", "truncate kv", "truncate r", "truncate k1 cascade", "delete from h")
	}
}

// tidyEvery is how often the tables are cut back to the small key domain: copying them into themselves grows them.
const tidyEvery = 25

// trim cuts one table back.
func (g *generator) trim() string {
	return pick(g, "delete from k1 where id >= 40", "delete from k2 where x >= 40", "delete from c where id >= 40", "delete from kv where id >= 40", "delete from r where id >= 40", "delete from h where a is null or a > 20")
}

func (g *generator) leaveError() string {
	if len(g.saves) > 0 && g.chance(60) {
		return g.rollbackTo()
	}
	return pick(g, "rollback", "rollback", "commit", "select 1", g.insert())
}

func (g *generator) rollbackTo() string {
	i := g.IntN(len(g.saves))
	name := g.saves[i]
	g.saves = g.saves[:i+1]
	return "rollback to " + name
}

func (g *generator) transaction() string {
	if g.status == 'I' {
		g.saves = nil
		return pick(g, "begin", "begin", "begin isolation level repeatable read")
	}
	switch n := g.IntN(10); {
	case n < 3:
		return "commit"
	case n < 5:
		return "rollback"
	case n < 7 && len(g.saves) > 0:
		return g.rollbackTo()
	case n == 7 && len(g.saves) > 0:
		i := g.IntN(len(g.saves))
		name := g.saves[i]
		g.saves = g.saves[:i]
		return "release " + name
	}
	g.names++
	g.saves = append(g.saves, fmt.Sprintf("s%d", g.names))
	return "savepoint " + g.saves[len(g.saves)-1]
}

// key is a value of the small key domain.
func (g *generator) key() string { return fmt.Sprint(g.IntN(40)) }

// value is a literal of a column type.
func (g *generator) value(kind string) string {
	if g.chance(12) {
		return "null"
	}
	switch kind {
	case "integer":
		return fmt.Sprint(g.IntN(110) - 10)
	case "bigint":
		return pick(g, fmt.Sprint(g.IntN(50)), "9223372036854775807", "-5000000000")
	case "numeric(10,2)":
		return pick(g, fmt.Sprintf("%d.%02d", g.IntN(100)-50, g.IntN(100)), "0", "99999999.99", "1.005", "'NaN'", "100000000")
	case "date":
		return pick(g, fmt.Sprintf("date '2024-01-01' + %d", g.IntN(60)), "'infinity'", "'1999-12-31'")
	case "boolean":
		return pick(g, "true", "false")
	case "timestamp with time zone":
		return pick(g, fmt.Sprintf("timestamptz '2024-01-01 00:00:00+00' + %d * interval '7 hours'", g.IntN(50)), "'2024-06-01 12:00:00.123456+02'")
	case "jsonb":
		return pick(g, `'{"a": 1}'`, `'[1, "x", null]'`, `'"s"'`, fmt.Sprintf(`'{"n": %d}'`, g.IntN(5)))
	case "integer[]":
		return pick(g, "'{1,2,NULL}'", "'{}'", fmt.Sprintf("array[%d,%d]", g.IntN(5), g.IntN(5)))
	}
	return pick(g, "'a'", "'b'", "'ab'", "''", "' x'", "'A'", "'ünï'", "'it''s'", "'NULL'", fmt.Sprintf("'t%d'", g.IntN(12)))
}

// keyColumns are never written at random but from the key domain.
var keyColumns = map[string][]string{"k1": {"id"}, "k2": {"x", "y"}, "c": {"id"}, "kv": {"id"}, "r": {"id"}, "h": nil}

func (g *generator) isKey(table, name string) bool {
	for _, k := range keyColumns[table] {
		if k == name {
			return true
		}
	}
	return false
}

// cell is a value for a column of a new row.
func (g *generator) cell(table string, c column) string {
	switch {
	case table == "k2" && c.name == "y":
		return pick(g, "'p'", "'q'", "'r'")
	case table == "k2" && c.name == "w" && g.chance(60):
		return "null"
	case table == "r" && g.isKey(table, c.name) && g.chance(30):
		return "default"
	case g.isKey(table, c.name) || c.name == "p":
		return g.key()
	case g.chance(8):
		return "default"
	}
	return g.value(c.kind)
}

// target chooses a table and the columns a new row names: all, or a subset with the keys.
func (g *generator) target() (table string, cols []column) {
	table = pick(g, randomTables...)
	for _, c := range g.columns[table] {
		if g.isKey(table, c.name) && (table != "r" || g.chance(40)) || !g.isKey(table, c.name) && g.chance(85) {
			cols = append(cols, c)
		}
	}
	return table, cols
}

func names(cols []column) string {
	var out []string
	for _, c := range cols {
		out = append(out, c.name)
	}
	return strings.Join(out, ", ")
}

func (g *generator) rows(table string, cols []column, n int) string {
	var rows []string
	for range n {
		var cells []string
		for _, c := range cols {
			cells = append(cells, g.cell(table, c))
		}
		rows = append(rows, "("+strings.Join(cells, ", ")+")")
	}
	return strings.Join(rows, ", ")
}

func (g *generator) insert() string {
	table, cols := g.target()
	if len(cols) == 0 {
		return g.drawn(table, "insert into "+table+" default values"+g.returning(table))
	}
	if g.chance(20) {
		return g.insertSelect()
	}
	n := pick(g, 1, 1, 1, 2, 5)
	return g.drawn(table, fmt.Sprintf("insert into %s (%s) values %s%s", table, names(cols), g.rows(table, cols, n), g.returning(table)))
}

// drawn sets the sequence of a table before a statement that draws from it: the gateway may have left a gap, which is allowed.
func (g *generator) drawn(table, statement string) string {
	if table != "r" {
		return statement
	}
	g.pending = statement
	return fmt.Sprintf("select setval('r_id_seq', %d)", 1000+20*g.made)
}

// insertSelect copies rows between tables; keys move by an offset that keeps them distinct.
func (g *generator) insertSelect() string {
	off := pick(g, 0, 100, 200, 1000)
	return pick(g,
		fmt.Sprintf("insert into h (a, b) select a, b from k1 where %s", g.alone("k1")),
		fmt.Sprintf("insert into k1 (id, a) select id + %d, a from k1 where %s", off+100, g.where("k1", "")),
		fmt.Sprintf("insert into k2 (x, y) select id + %d, 'from k1' from k1", off),
		fmt.Sprintf("insert into c (id, p, q) select id + %d, id, a from k1 where %s", off, g.where("k1", "")),
		"insert into h (a, b) select distinct a, b from h where a < 5",
		fmt.Sprintf("insert into k1 (id, a) select g + %d, g from generate_series(1, 20) g", off),
	)
}

// returning sometimes asks for the written rows.
func (g *generator) returning(table string) string {
	if !g.chance(25) {
		return ""
	}
	if len(g.columns[table]) == 0 {
		return " returning *"
	}
	return " returning " + pick(g, "*", pick(g, g.columns[table]...).name, "1 as one, "+pick(g, g.columns[table]...).name)
}

func (g *generator) upsert() string {
	table, cols := g.target()
	if table == "h" || len(cols) == 0 {
		return g.insert()
	}
	s := fmt.Sprintf("insert into %s (%s) values %s on conflict ", table, names(cols), g.rows(table, cols, pick(g, 1, 1, 2, 4)))
	if g.chance(35) {
		return g.drawn(table, s+pick(g, "", "("+strings.Join(keyColumns[table], ", ")+") ")+"do nothing"+g.returning(table))
	}
	if table == "k2" && g.chance(20) {
		return s + "(w) do update set v = excluded.v"
	}
	set := g.set(table, true)
	if set == "" {
		return g.drawn(table, s+"do nothing")
	}
	s += "(" + strings.Join(keyColumns[table], ", ") + ") do update set " + set
	if g.chance(25) {
		s += fmt.Sprintf(" where %s.%s is not null", table, pick(g, g.columns[table]...).name)
	}
	return g.drawn(table, s+g.returning(table))
}

// set assigns one to three columns that are no keys.
func (g *generator) set(table string, excluded bool) string {
	var out []string
	for _, c := range g.columns[table] {
		if g.isKey(table, c.name) || len(out) > 2 || !g.chance(40) {
			continue
		}
		out = append(out, c.name+" = "+g.assigned(table, c, excluded))
	}
	return strings.Join(out, ", ")
}

func (g *generator) assigned(table string, c column, excluded bool) string {
	switch {
	case excluded && g.chance(60):
		return "excluded." + c.name
	case c.name == "p":
		return g.key()
	case g.chance(6):
		return "default"
	case c.kind == "integer" && g.chance(50):
		return fmt.Sprintf("%s.%s + %d", table, c.name, g.IntN(20)-8)
	case c.kind == "text" && c.name != "w" && g.chance(30):
		return fmt.Sprintf("left(%s.%s || 'z', 6)", table, c.name)
	}
	return g.value(c.kind)
}

// where is a condition on a table (or its alias).
func (g *generator) where(table, alias string) string {
	dot := alias
	if dot != "" {
		dot += "."
	}
	if k := keyColumns[table]; len(k) > 0 && g.chance(45) {
		return dot + k[0] + pick(g, " = "+g.key(), " < "+g.key(), " in ("+g.key()+", "+g.key()+")", " between 5 and "+g.key())
	}
	if len(g.columns[table]) == 0 || g.chance(10) {
		return pick(g, "true", "false")
	}
	c := pick(g, g.columns[table]...)
	if g.chance(15) {
		return dot + c.name + pick(g, " is null", " is not null")
	}
	v := g.value(c.kind)
	switch {
	case c.kind == "jsonb" || c.kind == "integer[]" || c.kind == "boolean":
		return dot + c.name + pick(g, " = ", " <> ") + v
	}
	return dot + c.name + pick(g, " = ", " < ", " >= ", " <> ", " is distinct from ") + v
}

// alone is a whole condition of a statement on one table. It may fail, which depends on the plan where there are other conditions: who
// looks at which row first is Postgres' choice.
func (g *generator) alone(table string) string {
	for _, c := range g.columns[table] {
		if c.kind == "integer" && g.chance(4) {
			return fmt.Sprintf("10 / nullif(%s, %d) < 3", c.name, g.IntN(5))
		}
	}
	return g.where(table, "")
}

func (g *generator) update() string {
	table := pick(g, randomTables...)
	if k := keyColumns[table]; len(k) > 0 && g.chance(20) {
		return fmt.Sprintf("update %s set %s = %s where %s = %s%s", table, k[0],
			pick(g, g.key(), k[0]+" + 500"), k[0], g.key(), g.returning(table))
	}
	if g.chance(12) {
		return fmt.Sprintf("update c set q = k1.a from k1 where k1.id = c.p and %s", g.where("k1", "k1"))
	}
	set := g.set(table, false)
	if set == "" {
		return g.query()
	}
	return fmt.Sprintf("update %s set %s where %s%s", table, set, g.alone(table), g.returning(table))
}

// byKey changes or reads single rows of the tables without constraints.
func (g *generator) byKey() string {
	table := pick(g, "kv", "kv", "r")
	where := "id = " + g.key()
	if g.chance(30) {
		where = fmt.Sprintf("id in (%s, %s)", g.key(), g.key())
	}
	set := g.set(table, false)
	switch {
	case g.chance(10):
		return "select * from " + table + " where " + where
	case set == "" || g.chance(20):
		return "delete from " + table + " where " + where + g.returning(table)
	}
	return fmt.Sprintf("update %s set %s where %s%s", table, set, where, g.returning(table))
}

func (g *generator) delete() string {
	if g.chance(12) {
		return pick(g, "delete from c using k1 where k1.id = c.p and "+g.where("k1", "k1"),
			"delete from h where a in (select id from k1)", "delete from k1 where not exists (select from c where c.p = k1.id) and id > 100")
	}
	table := pick(g, randomTables...)
	return fmt.Sprintf("delete from %s where %s%s", table, g.alone(table), g.returning(table))
}

func (g *generator) merge() string {
	return pick(g,
		fmt.Sprintf("merge into k1 using (select distinct x from k2 where %s) s on k1.id = s.x when matched then update set a = s.x when not matched then insert (id, b) values (s.x, 'merged')", g.where("k2", "")),
		fmt.Sprintf("merge into k1 using (values (%s, 1), (100 + %s, 2)) s(id, v) on k1.id = s.id when matched and s.v = 1 then delete when matched then update set a = s.v when not matched then insert (id, a) values (s.id, s.v)", g.key(), g.key()),
		fmt.Sprintf("merge into c using k1 on c.id = k1.id when matched and k1.a > %d then update set q = k1.a when matched then do nothing when not matched and k1.id < 20 then insert values (k1.id, k1.id, 0)", g.IntN(60)),
	)
}

func (g *generator) query() string {
	table := pick(g, randomTables...)
	switch g.IntN(11) {
	case 0:
		return fmt.Sprintf("select * from %s where %s", table, g.alone(table))
	case 1:
		return fmt.Sprintf("select id, a, b from k1 where %s order by id limit %d offset %d", g.where("k1", ""), g.IntN(8), g.IntN(3))
	case 2:
		return fmt.Sprintf("select a, count(*), min(b), max(b) from h where %s group by a", g.where("h", ""))
	case 3:
		return fmt.Sprintf("select k1.id, c.id, q from k1 %s join c on c.p = k1.id where %s", pick(g, "", "left", "full"), g.where("k1", "k1"))
	case 4:
		return "select count(*), sum(a), avg(a), max(n), min(d), bool_or(f) from k1 where " + g.alone("k1")
	case 5:
		return fmt.Sprintf("select x, y, v from k2 where x in (select id from k1 where %s) order by x, y", g.where("k1", ""))
	case 6:
		return "select id from k1 where exists (select from k2 where k2.x = k1.id and " + g.where("k2", "k2") + ")"
	case 7:
		return pick(g, "select id, sum(a) over (order by id), rank() over (order by a, id) from k1 order by id",
			"with x as (select id, a from k1 union all select id, q from c) select id, count(*), sum(a) from x group by id having count(*) > 1",
			"select coalesce(b, '?') as b, string_agg(a::text, ',' order by a, b) from h group by 1",
			"select f, d, count(*) from k1 group by grouping sets ((f), (d), ())",
			"select distinct b from h union select b from k1 except select y from k2")
	case 8:
		return fmt.Sprintf("select b, length(b), upper(b), a * 2, -n, n / 3, d + 1, f from k1 where %s", g.alone("k1"))
	case 9:
		return fmt.Sprintf("select * from %s where %s and (%s or %s)", table, g.where(table, ""), g.where(table, ""), g.where(table, ""))
	}
	return "select " + pick(g, "a / (a - 5)", "n::int", "b || a", "case when f then a else -a end", "j -> 'a'", "10 / a") + " from " + pick(g, "k1", "k1", "k2", "h")
}

func (g *generator) alter() string {
	table := pick(g, randomTables...)
	var extra []column
	for _, c := range g.columns[table] {
		if strings.HasPrefix(c.name, "e") {
			extra = append(extra, c)
		}
	}
	if len(extra) == 0 || len(extra) < 3 && g.chance(50) {
		g.names++
		kind := pick(g, "integer", "text", "bigint", "date", "numeric(10,2)", "jsonb")
		s := fmt.Sprintf("alter table %s add column e%d %s", table, g.names, kind)
		if g.chance(40) {
			v := g.value(kind)
			s += " default " + v
			if v != "null" && g.chance(30) {
				s += " not null"
			}
		}
		return s
	}
	c := pick(g, extra...)
	g.names++
	return fmt.Sprintf("alter table %s %s", table, pick(g, "drop column "+c.name, fmt.Sprintf("rename column %s to e%d", c.name, g.names),
		"alter column "+c.name+" set default "+g.value(c.kind), "alter column "+c.name+" drop default", "alter column "+c.name+" set not null", "alter column "+c.name+" drop not null"))
}
