package writer

import (
	"context"
	"fmt"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"sluice/writer/catalog"
	"sluice/writer/commit"
	"sluice/writer/datafile"
	"sluice/writer/flush"
	"sluice/writer/format"
	"sluice/writer/realtime"
	"sluice/writer/table"
)

// Another engine's commit moves a pointer without a word to the gateway. The gateway finds that when a flip of its own meets a conflict, or at a
// start, and follows: rows of files that are gone are looked for in the files that are new, by row id, by key, or in tables without keys by
// their content (rows that are equal in all columns are indistinguishable, so any one is right). What was found is a move of rows, as
// in a compaction, and is made known by a flip that moves no pointer. Names that writers, locks and the log hold follow the map; a row that the
// other engine deleted is in none, and a pending delete of it is done. A crash before the flip: the next start begins with the files
// that the catalog knows of the gateway, replays the log on them, and follows then.

// reload looks again where tables stand, after somebody else moved one. The caller has the turn.
func (w *Writer) reload(ctx context.Context) error {
	state, err := w.opts.Catalog.Load(ctx)
	if err != nil {
		return fmt.Errorf("load catalog: %w", err)
	}
	w.committer.Load(state.Tables)
	return w.adoptAll(ctx, state.Tables)
}

// catchUp is reload for those who do not have the turn.
func (w *Writer) catchUp(ctx context.Context) error {
	release, err := w.takeTurn(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err := w.settle(ctx); err != nil {
		return err
	}
	return w.reload(ctx)
}

func (w *Writer) adoptAll(ctx context.Context, tables []catalog.Table) error {
	for i := range tables {
		if err := w.adopt(ctx, &tables[i]); err != nil {
			return fmt.Errorf("follow another writer's commit on table %d: %w", tables[i].ID, err)
		}
	}
	return nil
}

// adopt brings the store to a pointer that somebody else has set.
func (w *Writer) adopt(ctx context.Context, t *catalog.Table) error {
	tv, ok := w.store.View().Table(t.ID)
	if !ok || t.Pointer.Location == "" {
		return nil
	}
	head, err := w.opts.Format.Head(ctx, t.Pointer)
	if err != nil || head.ID == t.Snapshot {
		return err
	}
	a := &adoption{w: w, tv: tv, byID: map[int64]table.Ref{}, byText: map[string][]table.Ref{}, keys: map[table.Ref][]rowKey{}, used: map[table.Ref]bool{},
		moved: realtime.Flushed{Table: t.ID, NextRow: tv.NextRow, Map: &realtime.RowMap{}, Deleted: map[table.FileID]*roaring.Bitmap{}}}
	if err := a.compare(ctx, t); err != nil {
		return err
	}
	pos := w.Progress()
	edit := &commit.Edit{Def: tv.Def, Rows: &flush.Table{Def: tv.Def, Map: a.moved.Map, NextRow: tv.NextRow}, Moved: true,
		Maps: tv.MapsFor(a.moved.Map, w.needed(pos))}
	f, err := w.committer.Stage(ctx, w.unique(), pos, []*commit.Edit{edit})
	if err != nil {
		return err
	}
	w.opts.Log.Info("another writer's commit", "table", t.ID, "snapshot", head.ID, "moved", len(a.used), "added", len(a.fresh))
	return w.flip(ctx, &attempt{tables: []realtime.Flushed{a.moved}, position: pos, flip: f, index: a.index})
}

// adoption is the comparison of a table's files with those of another writer's snapshot.
type adoption struct {
	w      *Writer
	tv     realtime.TableView
	moved  realtime.Flushed
	byID   map[int64]table.Ref    // rows of files that are gone, by row id
	byText map[string][]table.Ref // and by key or content
	keys   map[table.Ref][]rowKey // and their keys
	used   map[table.Ref]bool     // of them, those that were found
	fresh  []freshKey
}

// rowKey is the hash of a row's key under one constraint.
type rowKey struct {
	hash        uint64
	null, exact bool
}

// freshKey is a key that the other writer gave a row, one that he added or one that had another key before.
type freshKey struct {
	rowKey
	unique int
	ref    table.Ref
	old    rowKey // null: it had none
	from   table.Ref
}

func (a *adoption) compare(ctx context.Context, t *catalog.Table) error {
	old, err := a.w.opts.Format.SnapshotAt(ctx, t.Pointer, t.Snapshot)
	if err != nil {
		a.w.opts.Log.Warn("row ids before another writer's commit are gone", "table", t.ID, "error", err) // rows are found by key or content
	}
	now, err := a.w.opts.Format.Snapshot(ctx, t.Pointer)
	if err != nil {
		return err
	}
	there := map[table.FileID]bool{}
	for i := range now.Files {
		if there[now.Files[i].ID] {
			return fmt.Errorf("two files have id %d", now.Files[i].ID)
		}
		there[now.Files[i].ID] = true
	}
	for _, have := range a.tv.Files {
		if there[have.ID] {
			continue
		}
		f := &format.File{ID: have.ID, File: fileOf(have), Deleted: have.Deleted}
		if i := slices.IndexFunc(old.Files, func(o format.File) bool { return o.ID == have.ID }); i >= 0 {
			f = &old.Files[i]
		}
		a.moved.Removed = append(a.moved.Removed, f.ID)
		a.moved.Map.Moved = append(a.moved.Map.Moved, f.ID)
		if err := a.read(ctx, &old, f, a.lose); err != nil {
			return err
		}
	}
	for i := range now.Files {
		f := &now.Files[i]
		if a.tv.File(f.ID) != nil {
			a.moved.Deleted[f.ID] = f.Deleted
			continue
		}
		a.moved.Files = append(a.moved.Files, &realtime.File{ID: f.ID, Location: f.File.Location, Rows: uint64(f.File.Rows), Bytes: f.File.Size, Deleted: f.Deleted})
		if err := a.read(ctx, &now, f, a.find); err != nil {
			return err
		}
	}
	a.moved.Map.Sort()
	return nil
}

// read calls fn with the live rows of a file: its name, its number in the table or nil, and where it is.
func (a *adoption) read(ctx context.Context, s *format.Snapshot, f *format.File, fn func(ref table.Ref, id *int64, b *table.Batch, i int)) error {
	schema := *a.tv.Def.Schema
	n := len(schema.Columns)
	schema.Columns = append(schema.Columns[:n:n], s.Lineage...)
	for c, err := range datafile.Read(ctx, a.w.opts.Objects, f.File, &schema, datafile.ReadOptions{}) {
		if err != nil {
			return err
		}
		rows := &table.Batch{Schema: a.tv.Def.Schema, Rows: c.Rows.Rows, Cols: c.Rows.Cols[:n]}
		for i := range c.Rows.Rows {
			row := c.First + uint64(i)
			if f.Deleted != nil && f.Deleted.Contains(uint32(row)) {
				continue
			}
			var id *int64
			if f.FirstRow != nil {
				x := *f.FirstRow + int64(row)
				if len(s.Lineage) > 0 && !c.Rows.Cols[n].IsNull(i) {
					x = c.Rows.Cols[n].Int64(i)
				}
				id = &x
			}
			fn(table.Ref{File: f.ID, Row: row}, id, rows, i)
		}
	}
	return nil
}

// lose notes a row of a file that is gone.
func (a *adoption) lose(ref table.Ref, id *int64, b *table.Batch, i int) {
	if id != nil {
		a.byID[*id] = ref
	}
	text := a.text(b, i)
	a.byText[text] = append(a.byText[text], ref)
	a.keys[ref] = a.keysOf(b, i)
}

// find looks for a row of a new file among those of files that are gone.
func (a *adoption) find(ref table.Ref, id *int64, b *table.Batch, i int) {
	from, found := table.Ref{}, false
	if id != nil {
		from, found = a.byID[*id]
		found = found && !a.used[from]
	}
	if !found {
		list := a.byText[a.text(b, i)]
		if k := slices.IndexFunc(list, func(r table.Ref) bool { return !a.used[r] }); k >= 0 {
			from, found = list[k], true
		}
	}
	if found {
		a.used[from] = true
		a.moved.Map.Move(from.File, from.Row, 1, ref.File, ref.Row)
	}
	for u, key := range a.keysOf(b, i) {
		switch {
		case !found && !key.null:
			a.fresh = append(a.fresh, freshKey{rowKey: key, unique: u, ref: ref, old: rowKey{null: true}})
		case found && key != a.keys[from][u]:
			a.fresh = append(a.fresh, freshKey{rowKey: key, unique: u, ref: ref, old: a.keys[from][u], from: from})
		}
	}
}

func (a *adoption) keysOf(b *table.Batch, i int) (keys []rowKey) {
	for u := range a.tv.Def.Uniques {
		def := &a.tv.Def.Uniques[u]
		key, null := def.Key(nil, b, i)
		k := rowKey{null: null}
		if !null {
			k.hash, k.exact = def.HashOf(key)
		}
		keys = append(keys, k)
	}
	return keys
}

// text is what makes a row the same row: its key, or all of it.
func (a *adoption) text(b *table.Batch, i int) string {
	if len(a.tv.Def.Uniques) > 0 {
		if key, null := a.tv.Def.Uniques[0].Key([]byte("k"), b, i); !null {
			return string(key)
		}
	}
	text := []byte("r")
	for _, v := range b.Cols {
		text = appendContent(text, v, i)
	}
	return string(text)
}

// appendContent makes equal bytes of equal values.
func appendContent(dst []byte, v *table.Vec, i int) []byte {
	for _, e := range v.Exact {
		if e.Row == i {
			dst = fmt.Appendf(dst, "e%q", e.Text)
		}
	}
	if v.IsNull(i) || v.Type.Kind != table.List {
		return fmt.Appendf(dst, "%T%#v,", format.Value(v, i), format.Value(v, i))
	}
	dst = append(dst, '[')
	for k := int(v.Off[i]); k < int(v.Off[i+1]); k++ {
		dst = appendContent(dst, v.Elems, k)
	}
	return append(dst, ']')
}

// index puts new keys into the key maps, and takes out those that rows had before. Nobody finds the new ones before the files are the store's.
func (a *adoption) index() {
	for _, k := range a.fresh {
		if !k.old.null {
			a.tv.Unique(a.tv.Def.Uniques[k.unique].ID).Forget(k.old.hash, k.from)
		}
	}
	for _, k := range a.fresh {
		if !k.null {
			a.tv.Unique(a.tv.Def.Uniques[k.unique].ID).Put(k.hash, k.exact, k.ref)
		}
	}
}
