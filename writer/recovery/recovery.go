// Package recovery is the way from what is stored to a running store: where the catalog says each table stands, the files that
// its metadata lists, and the log from there on.
//
// It owns the order of these steps and nothing else; each is the ordinary code of its package. Start with Load, then Replay.
// The result is a function of catalog rows and objects alone: no clock, no randomness, no listing; running it twice gives the
// same. It never changes the catalog or an object.
package recovery

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"sluice/writer/catalog"
	"sluice/writer/datafile"
	"sluice/writer/objstore"
	"sluice/writer/realtime"
	"sluice/writer/table"
	"sluice/writer/wal"
	"sluice/writer/window"
)

// Table is what a table is and where it stands.
type Table struct {
	Def *realtime.Def
	At  catalog.Table
}

// Snapshots lists the live files behind a pointer.
type Snapshots func(ctx context.Context, def *realtime.Def, p table.Pointer) ([]*realtime.File, error)

// Load makes the flushed state of one table: files, row maps, keys.
func Load(ctx context.Context, objects objstore.Store, list Snapshots, t Table) (realtime.Seed, error) {
	seed := realtime.Seed{Def: t.Def, NextRow: t.At.NextRow}
	maps, err := realtime.DecodeRowMaps(t.At.RowMap)
	if err != nil {
		return seed, fmt.Errorf("load table %d: %w", t.Def.ID, err)
	}
	seed.Maps = maps
	if t.At.Pointer.Location != "" {
		if seed.Files, err = list(ctx, t.Def, t.At.Pointer); err != nil {
			return seed, fmt.Errorf("load table %d: %w", t.Def.ID, err)
		}
	}
	if err := loadKeys(ctx, objects, &seed); err != nil {
		return seed, fmt.Errorf("load keys of table %d: %w", t.Def.ID, err)
	}
	return seed, nil
}

func loadKeys(ctx context.Context, objects objstore.Store, seed *realtime.Seed) error {
	for range seed.Def.Uniques {
		seed.Uniques = append(seed.Uniques, realtime.NewUnique())
	}
	if len(seed.Uniques) == 0 {
		return nil
	}
	for _, f := range seed.Files {
		if err := loadFile(ctx, objects, seed, f); err != nil {
			return fmt.Errorf("read %s: %w", f.Location, err)
		}
	}
	return nil
}

func loadFile(ctx context.Context, objects objstore.Store, seed *realtime.Seed, f *realtime.File) error {
	file := datafile.File{Location: f.Location, Rows: int64(f.Rows), Size: f.Bytes}
	cols := keyColumns(seed.Def)
	for c, err := range datafile.Read(ctx, objects, file, seed.Def.Schema, datafile.ReadOptions{Columns: cols}) {
		if err != nil {
			return err
		}
		b := spread(c.Rows, seed.Def.Schema, cols)
		for u := range seed.Uniques {
			putKeys(seed.Uniques[u], realtime.KeysOf(&seed.Def.Uniques[u], b), f, c.First)
		}
	}
	return nil
}

// keyColumns is what the keys of a table need; nil is all columns.
func keyColumns(def *realtime.Def) []int {
	var cols []int
	for i := range def.Uniques {
		if def.Uniques[i].Columns == nil {
			return nil
		}
		cols = append(cols, def.Uniques[i].Columns...)
	}
	slices.Sort(cols)
	return slices.Compact(cols)
}

// spread puts the columns that were read where the whole schema has them; the others are nil.
func spread(b *table.Batch, s *table.Schema, cols []int) *table.Batch {
	if cols == nil {
		return b
	}
	out := &table.Batch{Schema: s, Rows: b.Rows, Cols: make([]*table.Vec, len(s.Columns))}
	for i, c := range cols {
		out.Cols[c] = b.Cols[i]
	}
	return out
}

func putKeys(u *realtime.Unique, keys realtime.Keys, f *realtime.File, first uint64) {
	for i := range keys.Len() {
		row := first + uint64(i)
		if key, ok := keys.At(i); ok && (f.Deleted == nil || !f.Deleted.Contains(uint32(row))) {
			u.Put(key, !keys.Loose(), table.Ref{File: f.ID, Row: row})
		}
	}
}

// Log is the part of the log that is read.
type Log interface {
	Replay(ctx context.Context, from table.Position, schemas wal.Schemas, fn func(*wal.Txn) error) error
}

// Replayed is where a replay ended.
type Replayed struct {
	Last  table.Position        // position of the last frame
	Rows  map[table.ID]uint64   // next tail row number
	Ready []*wal.Txn            // behind a transaction that is not decided yet, in order; the first is that one
	Wrote map[table.ID]struct{} // tables that the replayed frames name
}

// replay is a replay under way.
type replay struct {
	ctx     context.Context
	catalog catalog.Catalog
	store   *realtime.Store
	windows *window.Windows
	out     *Replayed
	queue   []*wal.Txn
	fate    map[table.Position]bool
}

// Replay applies the frames behind the store's position. A prepared transaction holds up what is behind it until its Resolved
// frame or, at the end of the log, the catalog's decision; one that is still undecided there (PREPARE TRANSACTION) goes on
// holding it up in the running writer. windows gets the answers of what is committed.
func Replay(ctx context.Context, log Log, store *realtime.Store, windows *window.Windows, cat catalog.Catalog) (*Replayed, error) {
	from := store.Visible()
	windows.ReplayedFrom(from)
	r := &replay{ctx: ctx, catalog: cat, store: store, windows: windows, fate: map[table.Position]bool{},
		out: &Replayed{Last: from, Rows: map[table.ID]uint64{}, Wrote: map[table.ID]struct{}{}}}
	view := store.View()
	for _, id := range view.Tables() {
		tv, _ := view.Table(id)
		r.out.Rows[id] = tv.NextRow
	}
	if err := log.Replay(ctx, from+1, schemas(view), r.frame); err != nil {
		return nil, fmt.Errorf("replay log from %d: %w", from+1, err)
	}
	return r.out, r.rest()
}

// schemas finds the one schema that frames may have: a change of a table flushes it first, so older ones are not replayed.
func schemas(view realtime.View) wal.Schemas {
	return func(id table.ID, schema int) (*table.Schema, error) {
		tv, ok := view.Table(id)
		if !ok {
			return nil, nil
		}
		if tv.Def.Schema.ID != schema {
			return nil, fmt.Errorf("table %d has schema %d, the log schema %d", id, tv.Def.Schema.ID, schema)
		}
		return tv.Def.Schema, nil
	}
}

func (r *replay) frame(t *wal.Txn) error {
	r.out.Last = t.Position
	if t.Kind == wal.Resolved {
		r.fate[t.Resolves] = t.Committed
	}
	for i := range t.Tables {
		op := &t.Tables[i]
		r.out.Wrote[op.Table] = struct{}{}
		if op.Rows != nil {
			r.out.Rows[op.Table] = max(r.out.Rows[op.Table], op.First+uint64(op.Rows.Rows))
		}
	}
	r.queue = append(r.queue, t)
	return r.drain(false)
}

// drain applies the front of the queue. ask: the log has ended, so the catalog says what nobody else will.
func (r *replay) drain(ask bool) error {
	for len(r.queue) > 0 {
		t := r.queue[0]
		committed, known := r.fate[t.Position]
		if t.Kind == wal.Prepared && !known {
			if !ask {
				return nil
			}
			var err error
			if committed, err = r.catalog.Decision(r.ctx, t.ID); err != nil {
				return fmt.Errorf("ask for transaction %x at %d: %w", t.ID, t.Position, err)
			}
		}
		if t.Kind == wal.Commit || committed {
			r.windows.Put(answer(t))
		}
		r.store.Apply(realtime.Commit{Position: t.Position, Ops: Ops(t, t.Kind == wal.Commit || committed)})
		r.queue = r.queue[1:]
	}
	return nil
}

// answer is a committed transaction's. One without an identity is noted too: its commit may have had an unknown outcome.
func answer(t *wal.Txn) *catalog.Result {
	if r := window.Of(t); r != nil {
		return r
	}
	return &catalog.Result{Writer: window.Replayed, Sequence: int64(t.Position), ID: t.ID, Position: t.Position, Time: t.Time}
}

func (r *replay) rest() error {
	err := r.drain(true)
	if errors.Is(err, catalog.ErrPending) {
		r.out.Ready, err = r.queue, nil
	}
	return err
}

// Ops is what a frame does to the store if it is committed.
func Ops(t *wal.Txn, committed bool) []realtime.Op {
	if t.Kind == wal.Resolved || !committed {
		return nil
	}
	ops := make([]realtime.Op, len(t.Tables))
	for i := range t.Tables {
		o := &t.Tables[i]
		ops[i] = realtime.Op{Table: o.Table, Truncate: o.Truncate, Deletes: o.Deletes, First: o.First, Rows: o.Rows}
	}
	return ops
}
