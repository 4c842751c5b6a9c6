package writer

import (
	"math"
	"slices"
	"sort"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"sluice/writer/realtime"
	"sluice/writer/table"
	"sluice/writer/wal"
)

// An open transaction's effects are a list of events (undo). The number of events so far is the transaction's own time: a view
// remembers it and sees exactly what was there, and a savepoint is one.

// event is one effect and what takes it back.
type event struct {
	kind  eventKind
	table *ownTable
	n     int // eventRows: rows before; eventKill, eventDelete: index
	undo  func()
}

type eventKind uint8

const (
	eventRows   eventKind = iota // own rows from n on were inserted
	eventKill                    // own row n died
	eventCut                     // all own rows died
	eventDelete                  // gone[n] was added
	eventOther                   // undo knows
	eventTouch                   // the table was first written to; alone it is nothing to commit
)

// gone is a row of the shared state that the transaction deleted.
type gone struct {
	ref   table.Ref // newest name when it was deleted
	time  int
	newer int // own row that is its newer version, + 1; 0 is none
}

// birth says that there were rows own rows after the event at time.
type birth struct{ time, rows int }

// ownTable is what a transaction did to one table.
type ownTable struct {
	id     table.ID
	def    *Def         // schema of rows, constraints of keys
	spills []*spill     // rows below base, in files
	base   int          // number of the first row in memory
	rows   *table.Batch // inserted, dead ones too; from base on
	bytes  int64        // of rows
	dead   deaths       // of own rows
	born   []birth      // one per insert that was not rolled back
	gone   []gone
	// goneAt finds entries of gone by name. The names are those of generation; sync renames.
	goneAt     map[table.Ref]int
	generation uint64
	newer      map[int]int  // own rows that an update replaced: by which own row
	keys       []ownKeys    // per constraint
	noted      int          // rows below may be in files of keys
	truncated  int          // time + 1 of the first TRUNCATE
	fresh      bool         // the table was created by this transaction
	result     wal.TableOps // at the end: what remains
}

func newOwnTable(id table.ID, def *Def, generation uint64) *ownTable {
	o := &ownTable{id: id, def: def, rows: table.NewBatch(def.Schema), generation: generation}
	o.resetKeys()
	return o
}

// insert appends rows, whose keys are found already, and returns the number of the first.
func (o *ownTable) insert(b *table.Batch, keys []realtime.Keys, time int) int {
	first := o.count()
	o.rows.AppendRange(b, 0, b.Rows)
	for u := range keys {
		o.keys[u].Append(&keys[u])
		o.keys[u].loose = o.keys[u].loose || keys[u].Loose()
	}
	o.born = append(o.born, birth{time, o.count()})
	return first
}

// count is the number of own rows, dead ones too.
func (o *ownTable) count() int { return o.base + o.rows.Rows }

// died is the time of a row's death + 1: 0 is alive, rolledBack was never.
func (o *ownTable) died(row int) int32 { return o.dead.at(row) }

// revert takes one event back.
func (e *event) revert() {
	o := e.table
	switch e.kind {
	case eventRows:
		// Those behind are of later events, and were taken back with them.
		last := len(o.born) - 1
		o.unkey(e.n, o.born[last].rows)
		o.dead.void(e.n, o.born[last].rows)
		o.born = o.born[:last]
	case eventKill:
		o.dead.revive(e.n)
		delete(o.newer, e.n)
	case eventCut:
		o.dead.uncut()
	case eventDelete:
		delete(o.goneAt, o.gone[e.n].ref)
		o.gone = o.gone[:e.n]
	case eventOther, eventTouch:
		e.undo()
	}
}

// sync renames what was deleted before a flush.
func (o *ownTable) sync(w *Writer) {
	g := w.store.Generation()
	if g == o.generation {
		return
	}
	clear(o.goneAt)
	for i := range o.gone {
		o.gone[i].ref, _ = w.store.Current(o.id, o.gone[i].ref)
		o.goneAt[o.gone[i].ref] = i
	}
	o.generation = g
}

// deleted reports whether the row, called by its newest name, was deleted by the transaction before time.
func (o *ownTable) deleted(ref table.Ref, time int) bool {
	i, ok := o.goneAt[ref]
	return ok && o.gone[i].time < time
}

// rowsAt is how many own rows there were at time.
func (o *ownTable) rowsAt(time int) int {
	i := sort.Search(len(o.born), func(i int) bool { return o.born[i].time >= time })
	if i == 0 {
		return 0
	}
	return o.born[i-1].rows
}

// live lists the own rows [begin, end) that are alive at time, counted from begin; nil is all of them.
func (o *ownTable) live(begin, end, time int) []int32 {
	n := max(end-begin, 0)
	if !o.dead.any(begin, n) {
		return nil
	}
	sel := make([]int32, 0, n)
	for i := range n {
		if d := int(o.died(begin + i)); d == 0 || d > time {
			sel = append(sel, int32(i))
		}
	}
	if len(sel) == n {
		return nil
	}
	return sel
}

// written is the rows in memory to commit: those that live, in order; nil if there are none.
func (o *ownTable) written() *table.Batch {
	sel := o.live(o.base, o.count(), math.MaxInt)
	switch {
	case sel == nil && o.rows.Rows > 0:
		return o.rows
	case len(sel) == 0: // nil, too: there is no row
		return nil
	}
	b := table.NewBatch(o.rows.Schema)
	for at := 0; at < len(sel); {
		stop := at + 1
		for stop < len(sel) && sel[stop] == sel[stop-1]+1 {
			stop++
		}
		b.AppendRange(o.rows, int(sel[at]), int(sel[stop-1])+1)
		at = stop
	}
	return b
}

// link says that the rows called names, of which those of the shared state are the last in gone, have own rows from first on as
// newer versions, as far as there are any.
func (o *ownTable) link(names []table.Ref, first, rows int) {
	shared := 0
	for _, ref := range names {
		if ref.File != table.Own {
			shared++
		}
	}
	at := len(o.gone) - shared
	for i, ref := range names {
		if i < rows && ref.File == table.Own {
			if o.newer == nil {
				o.newer = map[int]int{}
			}
			o.newer[int(ref.Row)] = first + i
		} else if i < rows {
			o.gone[at].newer = first + i + 1
		}
		if ref.File != table.Own {
			at++
		}
	}
}

// What versions says of a row instead of its newer version's place.
const (
	noVersion   = 0  // it was deleted
	lostVersion = -1 // it was updated, and the newer version deleted
)

// versions is, per row of gone, the place + 1 among the written rows of the version that is left of it; nil if nothing was updated.
// If there are spills the place is the own row's number.
func (o *ownTable) versions() []int {
	if !slices.ContainsFunc(o.gone, func(g gone) bool { return g.newer > 0 }) || o.truncated != 0 {
		return nil
	}
	var sel []int32
	if o.base == 0 {
		sel = o.live(0, o.count(), math.MaxInt)
	}
	places := make([]int, len(o.gone))
	for i, g := range o.gone {
		if g.newer == 0 {
			continue
		}
		places[i] = lostVersion
		if row, ok := o.last(g.newer - 1); ok {
			places[i] = place(sel, row) + 1
		}
	}
	return places
}

// last is the live row at the end of a chain of updates.
func (o *ownTable) last(row int) (int, bool) {
	for o.died(row) != 0 {
		next, ok := o.newer[row]
		if !ok {
			return 0, false
		}
		row = next
	}
	return row, true
}

// place is where row is in sel; nil is all rows.
func place(sel []int32, row int) int {
	if sel == nil {
		return row
	}
	i, _ := slices.BinarySearch(sel, int32(row))
	return i
}

// hidden is the rows of the shared state that a view does not see because its own transaction deleted them.
type hidden map[table.FileID]*roaring64.Bitmap

func (h hidden) add(ref table.Ref) {
	if h[ref.File] == nil {
		h[ref.File] = roaring64.New()
	}
	h[ref.File].Add(ref.Row)
}

// without is sel (nil: all n rows) without the hidden rows of one file; row i is number first+i.
func (h hidden) without(file table.FileID, first uint64, n int, sel []int32) []int32 {
	bm := h[file]
	if bm == nil || n == 0 {
		return sel
	}
	it := bm.Iterator()
	it.AdvanceIfNeeded(first)
	if !it.HasNext() || it.PeekNext() >= first+uint64(n) {
		return sel
	}
	if sel == nil {
		sel = all(n)
	}
	return slices.DeleteFunc(slices.Clone(sel), func(i int32) bool { return bm.Contains(first + uint64(i)) })
}

func all(n int) []int32 {
	sel := make([]int32, n)
	for i := range sel {
		sel[i] = int32(i)
	}
	return sel
}
