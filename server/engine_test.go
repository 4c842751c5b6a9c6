package server_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sync/errgroup"
)

var (
	engineSeed  = flag.Uint64("seed", 0, "seed of the random merges; 0 takes the clock and prints it")
	engineSteps = flag.Int("steps", 60, "statements for each table with a merge engine")
)

// The columns of a merged table: id int primary key, v int, a bigint, b text, d bool, c numeric.
var (
	mergedColumns = []string{"id", "v", "a", "b", "d", "c"}
	mergedTypes   = []string{"int4", "int4", "int8", "text", "bool", "numeric"}
)

// cells is a row; nil is NULL.
type cells [6]any

// fold says what an engine makes of a row and one that comes. named is the columns of the statement.
type foldFunc func(old, proposed cells, named []int) cells

func perColumn(funcs ...func(o, n any) any) foldFunc {
	return func(old, proposed cells, _ []int) (out cells) {
		out[0] = old[0]
		for i, f := range funcs {
			out[i+1] = f(old[i+1], proposed[i+1])
		}
		return out
	}
}

// some makes a function of two values one that ignores NULLs.
func some(f func(o, n any) any) func(o, n any) any {
	return func(o, n any) any {
		switch {
		case o == nil:
			return n
		case n == nil:
			return o
		}
		return f(o, n)
	}
}

var (
	sum     = some(func(o, n any) any { return o.(int) + n.(int) })
	product = some(func(o, n any) any { return o.(int) * n.(int) })
	highest = some(func(o, n any) any { return max(o.(int), n.(int)) })
	lowest  = some(func(o, n any) any { return min(o.(int), n.(int)) })
	greater = some(func(o, n any) any { return max(o.(string), n.(string)) })
	list    = some(func(o, n any) any { return o.(string) + "," + n.(string) })
	all     = some(func(o, n any) any { return o.(bool) && n.(bool) })
	either  = some(func(o, n any) any { return o.(bool) || n.(bool) })
	newest  = some(func(o, n any) any { return n })
	oldest  = some(func(o, n any) any { return o })
	last    = func(o, n any) any { return n }
	first   = func(o, n any) any { return o }
)

var engines = []struct {
	name, options string
	fold          foldFunc
}{
	{"deduplicate", "merge_engine = 'deduplicate'", func(_, n cells, _ []int) cells { return n }},
	{"first_row", "merge_engine = 'first-row'", func(o, _ cells, _ []int) cells { return o }},
	{"versioned", "merge_engine = 'versioned(v)'", func(o, n cells, _ []int) cells {
		if n[1] == nil || o[1] != nil && n[1].(int) < o[1].(int) {
			return o
		}
		return n
	}},
	{"versioned_numeric", "merge_engine = 'versioned(c)'", func(o, n cells, _ []int) cells {
		if n[5] == nil || o[5] != nil && n[5].(int) < o[5].(int) {
			return o
		}
		return n
	}},
	{"partial_update", "merge_engine = 'partial-update'", func(o, n cells, named []int) cells {
		for _, i := range named {
			o[i] = n[i]
		}
		return o
	}},
	{"aggregation", "merge_engine = 'aggregation', fields = 'v:max, a:sum, b:listagg, d:bool_and'", perColumn(highest, sum, list, all, newest)},
	{"aggregation_more", "merge_engine = 'aggregation', fields = 'v:min, a:product, b:first_value, d:bool_or, c:last_value'", perColumn(lowest, product, first, either, last)},
	{"aggregation_postgres", "merge_engine = 'aggregation', fields = 'v:first_non_null_value, a:last_non_null_value, b:max, d:last_value, c:sum'", perColumn(oldest, newest, greater, last, sum)},
}

// TestMergeEngines plays random statements through every lane and protocol into tables with merge engines, and compares what RETURNING says
// and what the tables hold with a fold in Go: over flushes, compactions, rollbacks and a restart. Rows with one key in one statement are merged in
// order.
//
// claims: M43 M46 M48 H40
func TestMergeEngines(t *testing.T) {
	seed := *engineSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-seed %d -steps %d", seed, *engineSteps)
	g := start(t)
	players := make([]*merger, len(engines))
	for i, e := range engines {
		players[i] = &merger{t: t, rnd: rand.New(rand.NewPCG(seed, uint64(i))), table: "m_" + e.name, fold: e.fold, partial: e.name == "partial_update", rows: map[int]cells{}}
		players[i].connect(g)
		players[i].c.exec("create table " + players[i].table + " (id int primary key, v int, a bigint, b text, d bool, c numeric) with (" + e.options + ")")
	}
	for half := range 2 {
		for _, m := range players {
			for range *engineSteps / 2 {
				m.step()
			}
			m.compare()
		}
		must(t, g.stop())
		if g = start(t); half == 0 {
			for _, m := range players {
				m.connect(g)
				m.compare()
			}
		}
	}
	c := g.as(t, "lake")
	for _, m := range players {
		c.exec("drop table " + m.table)
	}
	must(t, g.stop())
}

// TestConcurrentMerges: what sessions add at the same time in different lanes is all there: no merge is lost, none is done twice.
//
// claims: M43
func TestConcurrentMerges(t *testing.T) {
	g := start(t)
	defer func() { must(t, g.stop()) }()
	c := g.as(t, "lake")
	c.exec("create table s (id int primary key, n bigint) with (merge_engine = 'aggregation', fields = 'n:sum')")
	inserts := []string{"insert into s values (1, 1)", "insert into s select 1, 1", "insert into s values (abs(-1), 1)", "insert into s select g, 1 from generate_series(1, 3) g",
		"insert into s values (1, 1), (2, 1), (3, 1)", "insert into s values (1, 1) returning n + 0"}
	var work errgroup.Group
	for range 4 {
		one := g.as(t, "lake")
		work.Go(func() error {
			for i := range 10 * len(inserts) {
				if _, err := one.Exec(context.Background(), inserts[i%len(inserts)]); err != nil {
					return fmt.Errorf("%s: %w", inserts[i%len(inserts)], err)
				}
			}
			return one.Close(context.Background())
		})
	}
	must(t, work.Wait())
	c.want("1:240,2:80,3:80", "select string_agg(id || ':' || n, ',' order by id) from s")
	c.exec("drop table s")
}

// merger plays statements into one table and into a map.
type merger struct {
	t       *testing.T
	rnd     *rand.Rand
	c       client
	table   string
	fold    foldFunc
	partial bool
	rows    map[int]cells
}

func (m *merger) connect(g *gateway) { m.c = g.as(m.t, "lake") }

func (m *merger) step() {
	m.c.exec("set sluice.lane = " + []string{"auto", "exact"}[m.rnd.IntN(2)])
	switch m.rnd.IntN(12) {
	case 0:
		m.c.exec("select sluice.flush()")
	case 1:
		m.c.exec("select sluice.flush()")
		m.c.exec("select sluice.compact('" + m.table + "')")
	case 2:
		id := m.rnd.IntN(8)
		m.c.exec(fmt.Sprintf("delete from %s where id = %d", m.table, id))
		delete(m.rows, id)
	case 3:
		was := m.copyRows()
		m.c.exec("begin")
		m.c.exec("savepoint s")
		m.write()
		m.c.exec("rollback to s")
		m.rows = was
		m.write()
		m.c.exec("commit")
	case 4:
		m.c.exec("begin isolation level repeatable read")
		m.write()
		m.write()
		m.c.exec("commit")
	default:
		m.write()
	}
}

func (m *merger) copyRows() map[int]cells {
	out := map[int]cells{}
	for id, row := range m.rows {
		out[id] = row
	}
	return out
}

// write brings some rows in one of the ways there are.
func (m *merger) write() {
	named := []int{0, 1, 2, 3, 4, 5}
	if m.partial {
		named = named[:1]
		for i := 1; i < len(mergedColumns); i++ {
			if m.rnd.IntN(2) == 0 {
				named = append(named, i)
			}
		}
	}
	rows := make([]cells, 1+m.rnd.IntN(5))
	for i := range rows {
		for _, col := range named {
			rows[i][col] = m.value(col)
		}
	}
	now := make([]string, len(rows))
	for i, row := range rows {
		id := row[0].(int)
		if old, ok := m.rows[id]; ok {
			row = m.fold(old, row, named)
		}
		m.rows[id] = row
		now[i] = row.String()
	}
	m.send(named, rows, now)
}

func (m *merger) value(col int) any {
	if col > 0 && m.rnd.IntN(4) == 0 {
		return nil
	}
	switch mergedColumns[col] {
	case "id":
		return m.rnd.IntN(8)
	case "b":
		return string(rune('a' + m.rnd.IntN(5)))
	case "d":
		return m.rnd.IntN(2) == 0
	case "a":
		return m.rnd.IntN(3) - 1
	}
	return m.rnd.IntN(6)
}

func (m *merger) send(named []int, rows []cells, now []string) {
	names := make([]string, len(named))
	for i, col := range named {
		names[i] = mergedColumns[col]
	}
	into := fmt.Sprintf("insert into %s (%s) ", m.table, strings.Join(names, ", "))
	literals := "values " + literals(named, rows)
	const returning = " returning id, v, a, b, d, c"
	switch m.rnd.IntN(6) {
	case 4:
		m.arrays(into, named, rows, now)
	case 0:
		m.tag(len(rows), into+literals, pgx.QueryExecModeSimpleProtocol)
	case 1:
		m.returns(now, into+literals+returning)
	case 2:
		if query := into + "select * from (" + typed(named, literals) + ") x"; m.rnd.IntN(2) == 0 {
			m.tag(len(rows), query)
		} else {
			m.returns(now, query+returning)
		}
	case 3:
		m.parameters(into, named, rows, now)
	default:
		m.copyIn(named, rows)
	}
}

// typed makes literals a query with the types of the columns.
func typed(named []int, literals string) string {
	cols := make([]string, len(named))
	for i, col := range named {
		cols[i] = fmt.Sprintf("column%d::%s", i+1, mergedTypes[col])
	}
	return "select " + strings.Join(cols, ", ") + " from (" + literals + ") y"
}

func (m *merger) tag(rows int, sql string, args ...any) {
	m.t.Helper()
	tag, err := m.c.Exec(context.Background(), sql, args...)
	if want := fmt.Sprintf("INSERT 0 %d", rows); err != nil || tag.String() != want {
		m.t.Fatalf("%s: got %q, %v, want %s", sql, tag, err, want)
	}
}

func (m *merger) returns(now []string, sql string, args ...any) {
	m.t.Helper()
	q, err := m.c.Query(context.Background(), sql, args...)
	must(m.t, err)
	got, err := pgx.CollectRows(q, scanCells)
	if err != nil || q.CommandTag().String() != fmt.Sprintf("INSERT 0 %d", len(now)) || !slices.Equal(got, now) {
		m.t.Fatalf("%s: got %v, %v, %s, want %v", sql, got, err, q.CommandTag(), now)
	}
}

func (m *merger) parameters(into string, named []int, rows []cells, now []string) {
	m.t.Helper()
	var args []any
	var lists []string
	for _, row := range rows {
		var one []string
		for _, col := range named {
			args = append(args, row[col])
			one = append(one, fmt.Sprintf("$%d", len(args)))
		}
		lists = append(lists, "("+strings.Join(one, ", ")+")")
	}
	m.returns(now, into+"values "+strings.Join(lists, ", ")+" returning id, v, a, b, d, c", args...)
}

// arrays sends the rows as arrays, one for each column.
func (m *merger) arrays(into string, named []int, rows []cells, now []string) {
	m.t.Helper()
	var args []any
	var casts []string
	for _, col := range named {
		list := make([]string, len(rows))
		for i, row := range rows {
			if list[i] = "NULL"; row[col] != nil {
				list[i] = fmt.Sprint(row[col])
			}
		}
		args = append(args, "{"+strings.Join(list, ",")+"}")
		casts = append(casts, fmt.Sprintf("unnest($%d::%s[])", len(args), mergedTypes[col]))
	}
	m.returns(now, into+"select "+strings.Join(casts, ", ")+" returning id, v, a, b, d, c", append([]any{pgx.QueryExecModeExec}, args...)...)
}

func (m *merger) copyIn(named []int, rows []cells) {
	m.t.Helper()
	names := make([]string, len(named))
	for i, col := range named {
		names[i] = mergedColumns[col]
	}
	var text strings.Builder
	for _, row := range rows {
		for i, col := range named {
			if i > 0 {
				text.WriteByte('\t')
			}
			if row[col] == nil {
				text.WriteString(`\N`)
			} else {
				fmt.Fprint(&text, row[col])
			}
		}
		text.WriteByte('\n')
	}
	tag, err := m.c.PgConn().CopyFrom(context.Background(), strings.NewReader(text.String()), fmt.Sprintf("copy %s (%s) from stdin", m.table, strings.Join(names, ", ")))
	if err != nil || tag.RowsAffected() != int64(len(rows)) {
		m.t.Fatalf("copy %s %q: got %q, %v", m.table, text.String(), tag, err)
	}
}

func literals(named []int, rows []cells) string {
	var lists []string
	for _, row := range rows {
		var one []string
		for _, col := range named {
			switch x := row[col].(type) {
			case nil:
				one = append(one, "null")
			case string:
				one = append(one, "'"+x+"'")
			default:
				one = append(one, fmt.Sprint(x))
			}
		}
		lists = append(lists, "("+strings.Join(one, ", ")+")")
	}
	return strings.Join(lists, ", ")
}

func (c cells) String() string { return fmt.Sprint(c[:]...) }

func scanCells(row pgx.CollectableRow) (string, error) {
	var id int
	var v, a *int
	var b *string
	var d *bool
	var n *int
	if err := row.Scan(&id, &v, &a, &b, &d, &n); err != nil {
		return "", err
	}
	return cells{id, orNil(v), orNil(a), orNil(b), orNil(d), orNil(n)}.String(), nil
}

func orNil[T any](p *T) any {
	if p == nil {
		return nil
	}
	return *p
}

func (m *merger) compare() {
	m.t.Helper()
	q, err := m.c.Query(context.Background(), "select id, v, a, b, d, c from "+m.table+" order by id")
	must(m.t, err)
	got, err := pgx.CollectRows(q, scanCells)
	must(m.t, err)
	var want []string
	for id := range 8 {
		if row, ok := m.rows[id]; ok {
			want = append(want, row.String())
		}
	}
	if !slices.Equal(got, want) {
		m.t.Fatalf("%s: got\n%s\nwant\n%s", m.table, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// says wants a statement to fail with this SQLSTATE and message.
func (c client) says(want, sql string, args ...any) {
	c.t.Helper()
	_, err := c.Exec(context.Background(), sql, args...)
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code+" "+pg.Message != want {
		c.t.Errorf("%s: got %v, want %s", sql, err, want)
	}
}
