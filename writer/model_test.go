package writer_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/writer"
	"sluice/writer/format/iceberg"
	"sluice/writer/lock"
	"sluice/writer/table"
)

var (
	modelSeed  = flag.Uint64("model.seed", 0, "run only this seed of the model test")
	modelSeeds = flag.Uint64("model.seeds", 16, "seeds of the model test")
	modelSteps = flag.Int("model.steps", 300, "steps of each seed")
)

// TestModel does random things in several transactions and compares every answer with a model that keeps maps. A restart
// abandons whatever is open, as a crash does. One table's keys share three hashes, so that its look-ups go through its rows: the
// index makes them fast, not right.
//
// claims: H25
func TestModel(t *testing.T) {
	if *modelSeed != 0 {
		runModel(t, *modelSeed)
		return
	}
	for seed := uint64(1); seed <= *modelSeeds; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { runModel(t, seed) })
	}
}

// content is the rows of a table: v, which is never the same twice, and k; "NULL" is a key too.
type content map[string]string

type modelTable struct {
	id    table.ID
	keyed bool
	rows  content // committed
}

// modelTxn is one open transaction in both worlds.
type modelTxn struct {
	tx       *writer.Txn
	level    writer.Isolation
	snapshot map[table.ID]content // RepeatableRead: at the first statement
	own      map[table.ID]content
	gone     map[table.ID]map[string]bool
	wiped    map[table.ID]bool
	points   []modelPoint
	kept     *writer.View
	keptRows content
	keptID   table.ID
	ddl      bool
}

type modelPoint struct {
	sp    writer.Savepoint
	own   map[table.ID]content
	gone  map[table.ID]map[string]bool
	wiped map[table.ID]bool
}

type model struct {
	*world
	r      *rand.Rand
	tables []*modelTable
	txns   []*modelTxn
	serial int
	trace  []string
}

func runModel(t *testing.T, seed uint64) {
	m := &model{world: newWorld(t), r: rand.New(rand.NewPCG(seed, 1))}
	if seed%2 == 0 {
		m.opts.Format = iceberg.Open(m.objects, iceberg.Options{Now: time.Now})
	}
	if seed%4 < 2 {
		m.opts.SpillBytes = 1 // every insert but the first of a table writes the rows before it, and their keys, to files
		m.opts.Locks.SpillKeys = 1
	}
	m.open()
	for i := range 3 {
		keyed := i != 2
		d := kv(table.ID(i+1), fmt.Sprintf("t%d", i+1), keyed)
		if i == 1 {
			d.Uniques[0].Hash = badHash
		}
		m.create(d)
		m.tables = append(m.tables, &modelTable{id: d.ID, keyed: keyed, rows: content{}})
	}
	defer func() {
		if t.Failed() {
			t.Logf("seed %d, last steps:\n%s", seed, strings.Join(m.trace[max(0, len(m.trace)-60):], "\n"))
		}
	}()
	for range *modelSteps {
		m.step()
		if t.Failed() {
			return
		}
	}
	_, err := m.w.Flush(t.Context())
	m.must(err)
	m.fsck()
}

func (m *model) note(format string, args ...any) {
	m.trace = append(m.trace, fmt.Sprintf(format, args...))
}

func (m *model) step() {
	switch n := m.r.IntN(100); {
	case n < 3:
		m.note("restart")
		m.txns = nil
		m.close()
		m.open()
		m.compareCommitted()
	case n < 9:
		pos, err := m.w.Flush(context.Background())
		m.note("flush: %d %v", pos, err)
		m.must(err)
		m.compareCommitted()
	case n < 12:
		t := m.tables[m.r.IntN(len(m.tables))]
		done, err := m.w.Compact(context.Background(), t.id)
		m.note("compact %d: %+v %v", t.id, done, err)
		m.must(err)
		m.compareCommitted()
	case len(m.txns) == 0 || n < 19 && len(m.txns) < 4:
		m.begin()
	default:
		m.inTxn(m.txns[m.r.IntN(len(m.txns))])
	}
}

func (m *model) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Errorf("unexpected: %v", err)
	}
}

func (m *model) begin() {
	level := writer.Isolation(m.r.IntN(2))
	tx := m.w.Begin(writer.TxnOptions{Isolation: level})
	tx.SetWait(lock.Wait{Policy: lock.NoWait})
	m.txns = append(m.txns, &modelTxn{tx: tx, level: level, own: map[table.ID]content{}, gone: map[table.ID]map[string]bool{}, wiped: map[table.ID]bool{}})
	m.note("begin %p %d", tx, level)
}

// visible is what a statement of x sees.
func (m *model) visible(x *modelTxn, t *modelTable) content {
	if x.level != writer.ReadCommitted && x.snapshot == nil {
		x.snapshot = map[table.ID]content{}
		for _, t := range m.tables {
			x.snapshot[t.id] = maps.Clone(t.rows)
		}
	}
	base := t.rows
	if x.snapshot != nil {
		base = x.snapshot[t.id]
	}
	see := content{}
	for v, k := range base {
		if !x.gone[t.id][v] && !x.wiped[t.id] {
			see[v] = k
		}
	}
	maps.Copy(see, x.own[t.id])
	return see
}

func (m *model) read(v *writer.View, id table.ID) (content, map[string]table.Ref) {
	list, err := scan(v, id)
	m.must(err)
	got, refs := content{}, map[string]table.Ref{}
	for _, n := range list {
		f := strings.Fields(n.text)
		if _, dup := got[f[1]]; dup {
			m.t.Errorf("I10: table %d has row %s twice", id, f[1])
		}
		got[f[1]], refs[f[1]] = f[0], n.ref
	}
	return got, refs
}

func (m *model) compare(what string, got, want content) {
	m.t.Helper()
	if !maps.Equal(got, want) {
		m.t.Errorf("%s:\n got %v\nwant %v", what, got, want)
	}
}

func (m *model) compareCommitted() {
	m.t.Helper()
	tx := m.w.Begin(writer.TxnOptions{})
	defer tx.Rollback()
	v := tx.Statement()
	for _, t := range m.tables {
		got, _ := m.read(v, t.id)
		m.compare(fmt.Sprintf("table %d, committed", t.id), got, t.rows)
	}
}

func (m *model) inTxn(x *modelTxn) {
	t := m.tables[m.r.IntN(len(m.tables))]
	switch n := m.r.IntN(100); {
	case n < 30:
		m.insert(x, t)
	case n < 45:
		m.change(x, t, false)
	case n < 60:
		m.change(x, t, true)
	case n < 62:
		m.truncate(x, t)
	case n < 68:
		x.points = append(x.points, modelPoint{x.tx.Savepoint(), cloneAll(x.own), cloneAll(x.gone), maps.Clone(x.wiped)})
		m.note("savepoint %p", x.tx)
	case n < 73 && len(x.points) > 0:
		m.rollbackTo(x)
	case n < 75 && len(x.points) > 0:
		i := m.r.IntN(len(x.points))
		x.tx.Release(x.points[i].sp)
		x.points = x.points[:i]
		m.note("release %p", x.tx)
	case n < 79:
		m.keep(x, t)
	case n < 86:
		m.look(x, t)
	case n < 88:
		m.addColumn(x, t)
	default:
		m.end(x)
	}
}

func cloneAll[K comparable, V ~map[A]B, A comparable, B any](m map[K]V) map[K]V {
	c := maps.Clone(m)
	for k := range c {
		c[k] = maps.Clone(c[k])
	}
	return c
}

func (m *model) rollbackTo(x *modelTxn) {
	i := m.r.IntN(len(x.points))
	p := x.points[i]
	x.tx.RollbackTo(p.sp)
	x.own, x.gone, x.wiped = cloneAll(p.own), cloneAll(p.gone), maps.Clone(p.wiped)
	x.points = x.points[:i+1]
	x.kept = nil
	m.note("rollback %p to %d", x.tx, i)
}

// taken is whether a key is in use as far as an insert of x is concerned.
func (m *model) taken(x *modelTxn, t *modelTable, k string, without map[string]bool) bool {
	for v, have := range x.own[t.id] {
		if have == k && !without[v] {
			return true
		}
	}
	for v, have := range t.rows {
		if have == k && !x.gone[t.id][v] && !x.wiped[t.id] && !without[v] {
			return true
		}
	}
	return false
}

// fresh makes rows to insert: a batch, the rows, and whether they conflict.
func (m *model) fresh(x *modelTxn, t *modelTable, n int, without map[string]bool) (*table.Batch, content, bool) {
	m.visible(x, t) // takes the snapshot
	def, _ := x.tx.Statement().Table(t.id)
	add := content{}
	var list []any
	conflict := false
	for range n {
		m.serial++
		v, k := fmt.Sprintf("v%d", m.serial), m.r.IntN(14)
		text := fmt.Sprint(k)
		if list = append(list, k, v); k == 13 {
			list[len(list)-2], text = nil, "NULL"
		}
		if t.keyed && text != "NULL" {
			conflict = conflict || m.taken(x, t, text, without)
			for _, have := range add {
				conflict = conflict || have == text
			}
		}
		add[v] = text
	}
	return rows(def.Schema, list...), add, conflict
}

// settled tells whether the outcome of a write is that the model does not change, and checks that it had to be.
func (m *model) settled(x *modelTxn, err error, conflict, moved bool) bool {
	var unique *writer.UniqueConflict
	var gone *writer.RowMoved
	switch {
	case errors.Is(err, lock.ErrNotAvailable):
	case errors.Is(err, writer.ErrMemory) && m.opts.SpillBytes > 0: // a schema change of a table with rows in files
	case errors.Is(err, writer.ErrSchemaChanged) && x.level != writer.ReadCommitted: // the snapshot is older than the schema
	case errors.As(err, &gone):
		if !moved {
			m.t.Errorf("row moved without reason: %v", err)
		}
	case errors.As(err, &unique):
		if !conflict {
			m.t.Errorf("conflict without reason: %v", err)
		}
	case err != nil:
		m.t.Errorf("unexpected: %v", err)
	case conflict || moved:
		m.t.Errorf("should have failed: conflict %v moved %v", conflict, moved)
	default:
		return false
	}
	return true
}

func (m *model) insert(x *modelTxn, t *modelTable) {
	b, add, conflict := m.fresh(x, t, 1+m.r.IntN(3), nil)
	_, err := x.tx.Insert(context.Background(), t.id, b)
	m.note("insert %p %d %v: %v", x.tx, t.id, add, err)
	if !m.settled(x, err, conflict, false) {
		m.put(x, t, add)
	}
}

func (m *model) put(x *modelTxn, t *modelTable, add content) {
	if x.own[t.id] == nil {
		x.own[t.id] = content{}
	}
	maps.Copy(x.own[t.id], add)
}

// change deletes or updates some rows that a statement of x sees.
func (m *model) change(x *modelTxn, t *modelTable, update bool) {
	want := m.visible(x, t)
	got, names := m.read(x.tx.Statement(), t.id)
	if m.compare(fmt.Sprintf("table %d in %p", t.id, x.tx), got, want); len(want) == 0 {
		return
	}
	all := slices.Sorted(maps.Keys(want))
	m.r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	pick := all[:1+m.r.IntN(min(3, len(all)))]
	var refs []table.Ref
	moved := false
	without := map[string]bool{}
	for _, v := range pick {
		refs = append(refs, names[v])
		_, committed := t.rows[v]
		_, own := x.own[t.id][v]
		moved = moved || !committed && !own
		without[v] = true
	}
	switch m.r.IntN(6) { // names change between looking and deleting
	case 0:
		_, err := m.w.Flush(context.Background())
		m.must(err)
	case 1:
		_, err := m.w.Compact(context.Background(), t.id)
		m.must(err)
	}
	var err error
	var add content
	conflict := false
	if update {
		var b *table.Batch
		b, add, conflict = m.fresh(x, t, len(pick), without)
		_, err = x.tx.Update(context.Background(), t.id, refs, b, lock.ForNoKeyUpdate)
		conflict = conflict && !moved
	} else {
		err = x.tx.Delete(context.Background(), t.id, refs, lock.ForUpdate)
	}
	m.note("change %p %d %v -> %v: %v", x.tx, t.id, pick, add, err)
	if m.settled(x, err, conflict, moved) {
		return
	}
	for _, v := range pick {
		if _, own := x.own[t.id][v]; own {
			delete(x.own[t.id], v)
			continue
		}
		if x.gone[t.id] == nil {
			x.gone[t.id] = map[string]bool{}
		}
		x.gone[t.id][v] = true
	}
	m.put(x, t, add)
}

func (m *model) truncate(x *modelTxn, t *modelTable) {
	err := x.tx.Truncate(context.Background(), t.id)
	m.note("truncate %p %d: %v", x.tx, t.id, err)
	if m.settled(x, err, false, false) {
		return
	}
	delete(x.own, t.id)
	x.wiped[t.id] = true
}

// keep remembers a view, and looks at the one it kept before.
func (m *model) keep(x *modelTxn, t *modelTable) {
	if x.kept != nil {
		got, _ := m.read(x.kept, x.keptID)
		m.compare(fmt.Sprintf("table %d in a view kept by %p", x.keptID, x.tx), got, x.keptRows)
	}
	x.kept, x.keptID, x.keptRows = x.tx.Statement(), t.id, m.visible(x, t)
	m.note("keep %p %d", x.tx, t.id)
}

// look finds rows by key.
func (m *model) look(x *modelTxn, t *modelTable) {
	v := x.tx.Statement()
	see := m.visible(x, t)
	if def, _ := v.Table(t.id); t.keyed {
		for k := range 13 {
			r, ok, err := v.ByKey(context.Background(), t.id, def.Uniques[0].ID, keyOf(int64(k)))
			m.must(err)
			got := ""
			if ok {
				got = string(r.Batch.Cols[1].Bytes(0))
			}
			// As in Postgres a snapshot may show two: one that others deleted since, and the transaction's own new one.
			var want []string
			for v, have := range see {
				if have == fmt.Sprint(k) {
					want = append(want, v)
				}
			}
			if ok != (len(want) > 0) || ok && !slices.Contains(want, got) {
				m.t.Errorf("table %d key %d in %p: got %q, want %q", t.id, k, x.tx, got, want)
			}
		}
	}
	m.note("look %p %d", x.tx, t.id)
}

func (m *model) addColumn(x *modelTxn, t *modelTable) {
	if x.ddl || x.level != writer.ReadCommitted {
		return
	}
	d := m.defs[t.id]
	schema := *d.Schema
	schema.ID++
	schema.Columns = append(slices.Clip(schema.Columns), table.Column{Name: fmt.Sprintf("c%d", schema.ID), FieldID: len(schema.Columns) + 1,
		Type: table.Type{Kind: table.String}})
	d.Schema = &schema
	err := x.tx.Define(context.Background(), writer.TableChange{Kind: writer.Alter, Def: d})
	m.note("add column %p %d: %v", x.tx, t.id, err)
	if m.settled(x, err, false, false) {
		return
	}
	if x.kept, x.points = nil, nil; m.r.IntN(2) == 0 {
		m.insert(x, t)
	}
	yes := m.r.IntN(4) > 0
	if yes {
		m.must(m.commitDDL(x.tx, d))
		m.apply(x)
	} else {
		x.tx.Rollback()
	}
	m.note("commit ddl %p: %v", x.tx, yes)
	m.forget(x)
	m.compareCommitted()
}

func (m *model) end(x *modelTxn) {
	how := m.r.IntN(8)
	m.note("end %p %d", x.tx, how)
	switch how {
	case 0:
		x.tx.Rollback()
	case 1, 2:
		yes := how == 1
		_, err := x.tx.Prepare(context.Background())
		if errors.Is(err, writer.ErrMemory) && m.opts.SpillBytes > 0 {
			x.tx.Rollback()
			m.forget(x)
			return
		}
		m.must(err)
		if m.r.IntN(3) == 0 { // a crash before anybody tells the writer
			m.catalog.Decide(x.tx.ID(), yes)
			m.txns = nil
			m.close()
			m.open()
		} else {
			m.must(x.tx.Resolve(context.Background(), yes))
		}
		if yes {
			m.apply(x)
		}
	default:
		_, err := x.tx.Commit(context.Background(), writer.CommitOptions{WaitFlip: how == 3})
		m.must(err)
		m.apply(x)
	}
	m.forget(x)
	m.compareCommitted()
}

func (m *model) apply(x *modelTxn) {
	for _, t := range m.tables {
		if x.wiped[t.id] {
			t.rows = content{}
		}
		for v := range x.gone[t.id] {
			delete(t.rows, v)
		}
		maps.Copy(t.rows, x.own[t.id])
	}
}

func (m *model) forget(x *modelTxn) {
	m.txns = slices.DeleteFunc(m.txns, func(y *modelTxn) bool { return y == x })
}
