package writer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"sluice/writer/catalog"
	"sluice/writer/datafile"
	"sluice/writer/flush"
	"sluice/writer/invariants"
	"sluice/writer/keyindex"
	"sluice/writer/realtime"
	"sluice/writer/table"
)

// A transaction whose rows do not fit into memory writes them as data files before its commit. The files are listed for the flip that
// will commit it (invariant I4), and nobody can reach them before. Its commit is then a flip, as that of a schema change:
//
//	Insert, memory is short     rows become files, listed first       a crash: the next start deletes them
//	Commit                      the rest becomes files, files with dead rows are written again without them
//	as CommitDDL                flush of the tail, an empty prepared frame at p, flush of what came meanwhile, metadata
//	flip                        decides                               a crash before it: the frame at p is void
//	                                                                  after it: the catalog has everything up to p
//
// docs/design/0007-bulk.md says why the flip decides and not the frame. Keys of rows in files are on local disk, too, without a name: a crash
// leaves nothing of them.

// spill is the own rows [first, first+count) as files.
type spill struct {
	first, count int
	files        []*flush.File
	rows         *realtime.RowMap // where they are, counted from first
}

// listFor is the flip that files are listed for.
func (t *Txn) listFor() string {
	if t.flip == "" {
		t.flip = t.w.unique()
	}
	return t.flip
}

// canSpill reports whether the table has a place for files that this transaction does not change.
func (t *Txn) canSpill(o *ownTable) bool {
	return !o.fresh && t.changes[o.id] == nil && t.w.committer.Place(o.id).Pointer.Location != ""
}

// spillAll makes room; false if there was nothing that could go. What went wrong shows when the commit tries again.
func (t *Txn) spillAll(ctx context.Context) bool {
	some := false
	for _, o := range t.tables {
		if o.rows.Rows > 0 && t.canSpill(o) && t.spill(ctx, o) == nil {
			some = true
		}
	}
	return some
}

// spill moves the rows in memory to files, and their keys. After an error they are where they were.
func (t *Txn) spill(ctx context.Context, o *ownTable) error {
	if o.rows.Rows == 0 {
		return nil
	}
	if err := t.spillKeys(o); err != nil {
		return fmt.Errorf("write keys of table %d to files: %w", o.id, err)
	}
	invariants.Here("bulk: keys in files")
	p, err := t.writeRows(ctx, o, o.rows)
	if err != nil {
		return fmt.Errorf("write rows of table %d to files: %w", o.id, err)
	}
	invariants.Here("bulk: rows in files")
	o.spills = append(o.spills, &spill{first: o.base, count: o.rows.Rows, files: p.Files, rows: p.Map})
	o.base += o.rows.Rows
	o.rows, o.bytes = table.NewBatch(o.def.Schema), 0 // views go on reading the batch they have
	o.forgetKeys()
	t.weigh()
	return nil
}

// pieceBytes is about how many bytes of rows a file that a transaction writes has: it is in memory until it is complete.
func (w *Writer) pieceBytes() int64 { return max(w.opts.SpillBytes/4, 1) }

// weigh accounts for what the transaction holds now.
func (t *Txn) weigh() {
	n := t.locks.KeyBytes()
	for _, o := range t.tables {
		n += o.held()
	}
	t.w.own.Add(n - t.bytes)
	t.bytes = n
}

func (s *spill) locations() (names []string) {
	for _, f := range s.files {
		names = append(names, f.Location)
	}
	return names
}

// writeRows writes a batch as files of the table.
func (t *Txn) writeRows(ctx context.Context, o *ownTable, b *table.Batch) (*flush.Table, error) {
	target := t.w.target(o.def)
	target.FileSize = min(target.FileSize, max(t.w.pieceBytes()/flush.Packed, 1))
	p, err := flush.PlanRows(o.def, target, t.w.opts.Partition, b)
	if err != nil {
		return nil, err
	}
	plan := &flush.Plan{Tables: []*flush.Table{p}}
	names := plan.Locations()
	if err := t.w.writeFiles(ctx, t.listFor(), plan); err != nil {
		t.w.discard(context.WithoutCancel(ctx), names)
		return nil, err
	}
	return p, nil
}

// discard deletes files of a transaction that no flip has named yet. It is needed, since they are listed for a flip that may
// commit without them; one that fails leaks.
func (w *Writer) discard(ctx context.Context, locations []string) {
	for _, l := range locations {
		if err := w.opts.Objects.Delete(ctx, l); err != nil {
			w.opts.Log.Warn("delete file", "location", l, "error", err)
		}
	}
}

// commitFiles is Commit of a transaction with rows in files.
func (t *Txn) commitFiles(ctx context.Context) (table.Position, error) {
	if err := t.finishSpills(ctx); err != nil {
		return 0, fmt.Errorf("commit: %w", err)
	}
	d := &ddl{t: t, w: t.w, wrote: t.wroteRows()}
	if !d.placed() {
		return t.w.Visible(), nil
	}
	pos, err := d.run(ctx, func(ctx context.Context, f *catalog.Flip) error { return t.w.committer.Flip(ctx, f) })
	if errors.Is(err, catalog.ErrConflict) { // somebody else moved a pointer meanwhile
		err = errors.Join(fmt.Errorf("%w: %w", ErrSerialization, err), t.w.catchUp(ctx))
	}
	if err != nil {
		return pos, fmt.Errorf("commit: %w", err)
	}
	return pos, nil
}

// finishSpills makes the files of tables that have some exactly the rows to commit.
func (t *Txn) finishSpills(ctx context.Context) error {
	for _, o := range t.tables {
		if o.base == 0 {
			continue
		}
		if err := t.spill(ctx, o); err != nil {
			return err
		}
		for _, s := range o.spills {
			if err := t.rewrite(ctx, o, s); err != nil {
				return fmt.Errorf("write rows of table %d again: %w", o.id, err)
			}
		}
		o.spills = slices.DeleteFunc(o.spills, func(s *spill) bool { return len(s.files) == 0 })
	}
	return nil
}

// rewrite writes the files of a spill in which rows died again without them.
func (t *Txn) rewrite(ctx context.Context, o *ownTable, s *spill) error {
	next := &spill{first: s.first, count: s.count, rows: &realtime.RowMap{End: s.rows.End}}
	var old []string
	for _, f := range s.files {
		ranges := s.rangesOf(f.ID)
		if !slices.ContainsFunc(ranges, func(r realtime.Range) bool { return o.dead.any(s.first+int(r.First), int(r.Count)) }) {
			next.files = append(next.files, f)
			next.rows.Ranges = append(next.rows.Ranges, ranges...)
			continue
		}
		old = append(old, f.Location)
		if err := t.rewriteFile(ctx, o, s, f, next); err != nil {
			return err
		}
	}
	next.rows.Sort()
	*s = *next
	t.w.discard(ctx, old)
	return nil
}

func (t *Txn) rewriteFile(ctx context.Context, o *ownTable, s *spill, f *flush.File, next *spill) error {
	b := table.NewBatch(o.def.Schema)
	var numbers []uint64 // of the rows of b, counted from the spill's first
	err := s.read(ctx, t.w, o.def.Schema, nil, f, func(c *table.Batch, first uint64) error {
		for i := range c.Rows {
			if o.died(s.first+int(first)+i) == 0 {
				b.AppendRow(c, i)
				numbers = append(numbers, first+uint64(i))
			}
		}
		return nil
	})
	if err != nil || b.Rows == 0 {
		return err
	}
	p, err := t.writeRows(ctx, o, b)
	if err != nil {
		return err
	}
	next.files = append(next.files, p.Files...)
	for _, r := range p.Map.Ranges {
		for k := range r.Count {
			next.rows.Add(numbers[r.First+k], 1, r.File, r.Row+k)
		}
	}
	return nil
}

// rangesOf is the ranges of one file, in the order of its rows.
func (s *spill) rangesOf(id table.FileID) (list []realtime.Range) {
	for _, r := range s.rows.Ranges {
		if r.File == id {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b realtime.Range) int { return int(int64(a.Row) - int64(b.Row)) })
	return list
}

// read calls fn with the rows of one file in runs of consecutive numbers, counted from the spill's first.
func (s *spill) read(ctx context.Context, w *Writer, schema *table.Schema, cols []int, f *flush.File, fn func(b *table.Batch, first uint64) error) error {
	ranges := s.rangesOf(f.ID)
	for c, err := range datafile.Read(ctx, w.opts.Objects, f.Data, schema, datafile.ReadOptions{Columns: cols}) {
		if err != nil {
			return err
		}
		end := c.First + uint64(c.Rows.Rows)
		for len(ranges) > 0 && ranges[0].Row < end {
			r := ranges[0]
			from := max(r.Row, c.First)
			to := min(r.Row+r.Count, end)
			if err := fn(cutOut(c.Rows, int(from-c.First), int(to-c.First)), r.First+from-r.Row); err != nil {
				return err
			}
			if r.Row+r.Count > end {
				break
			}
			ranges = ranges[1:]
		}
	}
	return nil
}

func cutOut(b *table.Batch, begin, end int) *table.Batch {
	if begin == 0 && end == b.Rows {
		return b
	}
	out := table.NewBatch(b.Schema)
	out.AppendRange(b, begin, end)
	return out
}

// spilled calls fn with the own rows below n that are in files.
func (s *scan) spilled(ctx context.Context, n int, fn func(Rows) error) error {
	for _, sp := range s.own.spills {
		if sp.first >= n {
			break // a savepoint that goes back may delete its files
		}
		for _, f := range sp.files {
			err := sp.read(ctx, s.v.t.w, s.def.Schema, s.cols, f, func(b *table.Batch, first uint64) error {
				at := sp.first + int(first)
				b = cutOut(b, 0, max(min(b.Rows, n-at), 0))
				sel := s.own.live(at, at+b.Rows, s.v.time)
				if b.Rows == 0 || sel != nil && len(sel) == 0 {
					return nil
				}
				return fn(Rows{Batch: b, Sel: sel, File: table.Own, First: uint64(at)})
			})
			if err != nil {
				return fmt.Errorf("scan own rows: %w", err)
			}
		}
	}
	return nil
}

// row is where own row number row can be read.
func (o *ownTable) row(ctx context.Context, w *Writer, row int) (*table.Batch, int, error) {
	if row >= o.base {
		return o.rows, row - o.base, nil
	}
	b, err := o.fetch(ctx, w, []uint64{uint64(row)})
	return b, 0, err
}

// fetch reads own rows by number, in the order asked.
func (o *ownTable) fetch(ctx context.Context, w *Writer, rows []uint64) (*table.Batch, error) {
	out := table.NewBatch(o.rows.Schema)
	for len(rows) > 0 {
		if rows[0] >= uint64(o.base) {
			out.AppendRow(o.rows, int(rows[0])-o.base)
			rows = rows[1:]
			continue
		}
		f, at, n := o.together(rows)
		b, err := w.rows.ReadRows(ctx, f.Data, o.def.Schema, at)
		if err != nil {
			return nil, err
		}
		out.AppendRange(b, 0, b.Rows)
		rows = rows[n:]
	}
	return out, nil
}

// together is how many of rows, from the front, are in one file, and where.
func (o *ownTable) together(rows []uint64) (f *flush.File, at []uint64, n int) {
	for _, row := range rows {
		g, place := o.find(row)
		if g == nil || f != nil && g != f {
			break
		}
		f, at = g, append(at, place)
	}
	return f, at, len(at)
}

// find is where a row is, if it is in a file. All rows of a spill are in its files until the commit.
func (o *ownTable) find(row uint64) (*flush.File, uint64) {
	if row >= uint64(o.base) {
		return nil, 0
	}
	i, found := slices.BinarySearchFunc(o.spills, int(row), func(s *spill, row int) int { return s.first - row })
	if !found {
		i--
	}
	s := o.spills[i]
	ref, _ := s.rows.Find(table.Ref{Row: row - uint64(s.first)})
	k := slices.IndexFunc(s.files, func(f *flush.File) bool { return f.ID == ref.File })
	return s.files[k], ref.Row
}

// size is about the bytes of all own rows.
func (o *ownTable) size() int64 {
	n := int64(o.rows.Size())
	for _, s := range o.spills {
		for _, f := range s.files {
			n += f.Data.Size
		}
	}
	return n
}

// staged is the files of all spills as a flush, whose map counts own rows.
func (o *ownTable) staged(next table.FileID) *flush.Table {
	t := &flush.Table{Def: o.def, NextFile: next, Map: &realtime.RowMap{End: uint64(o.base)}}
	for _, s := range o.spills {
		t.Files = append(t.Files, s.files...)
		for _, r := range s.rows.Ranges {
			t.Map.Add(r.First+uint64(s.first), r.Count, r.File, r.Row)
		}
	}
	return t
}

// putKeys puts the keys of the rows that m has into a constraint's map. All rows are in files.
func (o *ownTable) putKeys(u *realtime.Unique, unique uint32, m *realtime.RowMap) error {
	i := slices.IndexFunc(o.def.Uniques, func(d UniqueDef) bool { return d.ID == unique })
	if i < 0 || o.keys[i].spilled == nil {
		return nil
	}
	k := &o.keys[i]
	u.Reserve(k.spilled.Len())
	return k.spilled.All(func(e keyindex.Entry) error {
		if ref, ok := m.Find(table.Ref{Row: uint64(e.Row)}); ok {
			u.Put(e.Hash, !k.loose, ref)
		}
		return nil
	})
}
