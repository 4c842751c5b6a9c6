package writer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"sluice/writer/datafile"
	"sluice/writer/realtime"
	"sluice/writer/table"
)

// View is what one statement sees: all tables at one position, and what its transaction had done before it. A view may be
// used as long as its transaction is open, by one goroutine at a time, until the transaction rolls back to an earlier
// savepoint or changes a table's schema.
type View struct {
	t    *Txn
	base realtime.View
	time int // own events before it
}

// Rows are rows of one table: row i of Batch is called {File, First+i}. Sel lists the live ones; nil is all. The memory is
// shared: it may be kept, not changed.
type Rows struct {
	Batch *table.Batch
	Sel   []int32
	File  table.FileID // 0 the tail, table.Own the transaction's own rows
	First uint64
}

// Ref is the name of row i of the batch.
func (r *Rows) Ref(i int) table.Ref { return table.Ref{File: r.File, Row: r.First + uint64(i)} }

// Live is the number of live rows.
func (r *Rows) Live() int {
	if r.Sel == nil {
		return r.Batch.Rows
	}
	return len(r.Sel)
}

// each calls fn with the live rows' places in the batch.
func (r *Rows) each(fn func(i int) error) error {
	if r.Sel == nil {
		for i := range r.Batch.Rows {
			if err := fn(i); err != nil {
				return err
			}
		}
		return nil
	}
	for _, i := range r.Sel {
		if err := fn(int(i)); err != nil {
			return err
		}
	}
	return nil
}

// Position is the newest commit that the view sees.
func (v *View) Position() table.Position { return v.base.Position() }

// Stale reports whether others have changed a table since, visibly or not yet.
func (v *View) Stale(id table.ID) bool {
	q := &v.t.w.seq
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.wrote[id] > v.Position()
}

// Table is the table as the view's transaction sees it.
func (v *View) Table(id table.ID) (*Def, bool) { return v.t.def(v.base, id) }

// Scan calls fn with the live rows until fn fails: files, then the tail, then own rows, each in order.
func (v *View) Scan(ctx context.Context, id table.ID, fn func(Rows) error) error {
	return v.ScanColumns(ctx, id, nil, fn)
}

// ScanColumns is Scan of some columns (indexes into the schema; nil is all): batches have the schema datafile.Project(schema, cols).
func (v *View) ScanColumns(ctx context.Context, id table.ID, cols []int, fn func(Rows) error) error {
	s, err := v.scan(id, cols)
	if err != nil {
		return err
	}
	if err := s.files(ctx, fn); err != nil {
		return err
	}
	return s.memory(ctx, fn)
}

// Tail is Scan without the files.
func (v *View) Tail(ctx context.Context, id table.ID, cols []int, fn func(Rows) error) error {
	s, err := v.scan(id, cols)
	if err != nil {
		return err
	}
	return s.memory(ctx, fn)
}

// Own is Scan of what the transaction itself inserted and has not deleted.
func (v *View) Own(ctx context.Context, id table.ID, fn func(Rows) error) error {
	s, err := v.scan(id, nil)
	if err != nil {
		return err
	}
	s.shared = false
	return s.memory(ctx, fn)
}

// scan is one pass over a table.
type scan struct {
	v      *View
	def    *Def
	cols   []int
	base   realtime.TableView
	shared bool // there is a committed table, and it is not truncated by the view's own transaction
	own    *ownTable
	hidden hidden
}

func (v *View) scan(id table.ID, cols []int) (*scan, error) {
	def, ok := v.Table(id)
	if !ok {
		return nil, fmt.Errorf("scan table %d: %w", id, ErrUnknownTable)
	}
	v.t.read(id)
	s := &scan{v: v, def: def, cols: cols, own: v.t.tables[id]}
	s.base, s.shared = v.base.Table(id)
	if s.own == nil {
		return s, nil
	}
	if s.own.fresh || s.own.truncated != 0 && s.own.truncated <= v.time {
		s.shared = false
		return s, nil
	}
	s.hide()
	return s, nil
}

// hide collects the view's own deletes under the names of the view's generation.
func (s *scan) hide() {
	s.own.sync(s.v.t.w)
	for _, g := range s.own.gone {
		if g.time >= s.v.time {
			break
		}
		if ref, ok := s.v.t.w.store.NameAt(s.base, g.ref); ok {
			if s.hidden == nil {
				s.hidden = hidden{}
			}
			s.hidden.add(ref)
		}
	}
}

func (s *scan) files(ctx context.Context, fn func(Rows) error) error {
	if !s.shared {
		return nil
	}
	for _, f := range s.base.Files {
		dead, none := s.base.Dead(f)
		if none {
			continue
		}
		if err := s.file(ctx, f, dead, fn); err != nil {
			return fmt.Errorf("scan file %s: %w", f.Location, err)
		}
	}
	return nil
}

func (s *scan) file(ctx context.Context, f *realtime.File, dead *roaring.Bitmap, fn func(Rows) error) error {
	opts := datafile.ReadOptions{Columns: s.cols}
	for c, err := range datafile.Read(ctx, s.v.t.w.opts.Objects, fileOf(f), s.def.Schema, opts) {
		if err != nil {
			return err
		}
		sel := s.hidden.without(f.ID, c.First, c.Rows.Rows, survivors(dead, c.First, c.Rows.Rows))
		if sel != nil && len(sel) == 0 {
			continue
		}
		if err := fn(Rows{Batch: c.Rows, Sel: sel, File: f.ID, First: c.First}); err != nil {
			return err
		}
	}
	return nil
}

func fileOf(f *realtime.File) datafile.File {
	return datafile.File{Location: f.Location, Rows: int64(f.Rows), Size: f.Bytes}
}

// survivors lists the rows of [first, first+n) that are not dead, counted from first; nil is all.
func survivors(dead *roaring.Bitmap, first uint64, n int) []int32 {
	if dead == nil || !dead.IntersectsWithInterval(first, first+uint64(n)) {
		return nil
	}
	sel := make([]int32, 0, n)
	for i := range n {
		if !dead.Contains(uint32(first) + uint32(i)) {
			sel = append(sel, int32(i))
		}
	}
	return sel
}

// memory is what is not in files of the shared state: the tail, and own rows wherever they are.
func (s *scan) memory(ctx context.Context, fn func(Rows) error) error {
	if s.shared {
		if err := s.base.Tail(func(r realtime.Rows) error { return s.tail(r, fn) }); err != nil {
			return err
		}
	}
	if s.own == nil {
		return nil
	}
	n := s.own.rowsAt(s.v.time)
	if err := s.spilled(ctx, n, fn); err != nil {
		return err
	}
	sel := s.own.live(s.own.base, n, s.v.time)
	if n <= s.own.base || sel != nil && len(sel) == 0 {
		return nil
	}
	b := s.own.rows.Snap()
	b.Truncate(n - s.own.base)
	return fn(Rows{Batch: project(b, s.cols), Sel: sel, File: table.Own, First: uint64(s.own.base)})
}

func (s *scan) tail(r realtime.Rows, fn func(Rows) error) error {
	sel := s.hidden.without(0, r.First, r.Batch.Rows, r.Sel)
	if sel != nil && len(sel) == 0 {
		return nil
	}
	b, err := Adapt(r.Batch, s.def.Schema)
	if err != nil {
		return err
	}
	return fn(Rows{Batch: project(b, s.cols), Sel: sel, First: r.First})
}

func project(b *table.Batch, cols []int) *table.Batch {
	if cols == nil {
		return b
	}
	p := &table.Batch{Schema: datafile.Project(b.Schema, cols), Rows: b.Rows}
	for _, c := range cols {
		p.Cols = append(p.Cols, b.Cols[c])
	}
	return p
}

// Size estimates the live rows of a table and their bytes without reading any.
func (v *View) Size(id table.ID) (rows, bytes int64) {
	s, err := v.scan(id, nil)
	if err != nil {
		return 0, 0
	}
	if s.shared {
		rows, bytes = s.base.Size()
	}
	if s.own != nil {
		n := s.own.rowsAt(v.time)
		rows += int64(n)
		bytes += s.own.size() * int64(n) / int64(max(s.own.count(), 1))
		for _, g := range s.own.gone {
			if s.shared && g.time < v.time {
				rows--
			}
		}
	}
	return max(rows, 0), bytes
}

// FileView is a data file with the rows that a view does not see.
type FileView struct {
	ID       table.FileID
	Location string
	Rows     uint64
	Bytes    int64
	Dead     *roaring.Bitmap // to be read only; nil is none
}

// Files lists the files that hold at least one live row, for readers that open them themselves.
func (v *View) Files(id table.ID) ([]FileView, error) {
	s, err := v.scan(id, nil)
	if err != nil || !s.shared {
		return nil, err
	}
	var list []FileView
	for _, f := range s.base.Files {
		dead, none := s.base.Dead(f)
		if bm := s.hidden[f.ID]; bm != nil && !none {
			own := roaring.New()
			for it := bm.Iterator(); it.HasNext(); {
				own.Add(uint32(it.Next()))
			}
			if dead != nil {
				own.Or(dead)
			}
			dead, none = own, own.GetCardinality() == f.Rows
		}
		if !none {
			list = append(list, FileView{ID: f.ID, Location: f.Location, Rows: f.Rows, Bytes: f.Bytes, Dead: dead})
		}
	}
	return list, nil
}

// ByKey finds the row that has key in the unique constraint called unique.
func (v *View) ByKey(ctx context.Context, id table.ID, unique uint32, key []byte) (Rows, bool, error) {
	s, err := v.scan(id, nil)
	if err != nil {
		return Rows{}, false, err
	}
	u := slices.IndexFunc(s.def.Uniques, func(d UniqueDef) bool { return d.ID == unique })
	if u < 0 {
		return Rows{}, false, fmt.Errorf("look up in table %d: no unique constraint %d", id, unique)
	}
	if r, ok, err := s.ownByKey(ctx, u, key); ok || err != nil {
		return r, ok, err
	}
	if !s.shared {
		return Rows{}, false, nil
	}
	return s.sharedByKey(ctx, u, key)
}

// ByKeys calls fn with each row that has one of keys in the unique constraint called unique, one row at a time. The rows of one file are
// read together: a row group is decoded once, not once a key.
func (v *View) ByKeys(ctx context.Context, id table.ID, unique uint32, keys [][]byte, fn func(Rows) error) error {
	s, err := v.scan(id, nil)
	if err != nil {
		return err
	}
	u := slices.IndexFunc(s.def.Uniques, func(d UniqueDef) bool { return d.ID == unique })
	if u < 0 {
		return fmt.Errorf("look up in table %d: no unique constraint %d", id, unique)
	}
	rows, wanted := map[table.FileID][]uint64{}, make(map[string]bool, len(keys))
	for _, key := range keys {
		if !s.candidates(u, key, rows) {
			r, ok, err := v.ByKey(ctx, id, unique, key)
			if ok {
				err = fn(r)
			}
			if err != nil {
				return err
			}
			continue
		}
		wanted[string(key)] = true
	}
	for file, list := range rows {
		if err := s.fetchKeys(ctx, u, file, list, wanted, fn); err != nil {
			return err
		}
	}
	return nil
}

// candidates adds the shared rows that the view sees and that may have key. false: own rows or an older map have to be asked one by one.
func (s *scan) candidates(u int, key []byte, rows map[table.FileID][]uint64) bool {
	if s.own != nil && s.own.count() > 0 || !s.shared {
		return false
	}
	hash, _ := s.def.Uniques[u].HashOf(key)
	var found []table.Ref
	complete := s.v.t.w.store.Lookup(s.base, s.def.Uniques[u].ID, hash, func(ref table.Ref) bool {
		if s.sees(ref) {
			found = append(found, ref)
		}
		return true
	})
	if !complete {
		return false
	}
	for _, ref := range found {
		rows[ref.File] = append(rows[ref.File], ref.Row)
	}
	return true
}

// fetchKeys reads candidates of one file and calls fn with those that have a wanted key.
func (s *scan) fetchKeys(ctx context.Context, u int, file table.FileID, list []uint64, wanted map[string]bool, fn func(Rows) error) error {
	slices.Sort(list)
	list = slices.Compact(list)
	b, err := s.fetch(ctx, file, list)
	if err != nil {
		return err
	}
	for i, row := range list {
		if key, null := s.def.Uniques[u].Key(nil, b, i); null || !wanted[string(key)] {
			continue
		}
		one := table.NewBatch(b.Schema)
		one.AppendRow(b, i)
		if err := fn(Rows{Batch: one, File: file, First: row}); err != nil {
			return err
		}
	}
	return nil
}

// ownByKey looks at the own rows that the view sees.
func (s *scan) ownByKey(ctx context.Context, u int, key []byte) (found Rows, ok bool, err error) {
	if s.own == nil || s.own.count() == 0 {
		return Rows{}, false, nil
	}
	n, def := s.own.rowsAt(s.v.time), &s.def.Uniques[u]
	hash, _ := def.HashOf(key)
	lookErr := s.own.each(u, hash, func(r int) bool {
		if r >= n {
			return true
		}
		var b *table.Batch
		if b, err = s.own.fetch(ctx, s.v.t.w, []uint64{uint64(r)}); err != nil {
			return false
		}
		if k, null := def.Key(nil, b, 0); null || string(k) != string(key) {
			return true
		}
		if d := int(s.own.died(r)); d == 0 || d > s.v.time {
			found, ok = Rows{Batch: b, File: table.Own, First: uint64(r)}, true
		}
		return false // only the newest row with a key can be alive
	})
	return found, ok, errors.Join(err, lookErr)
}

func (s *scan) sharedByKey(ctx context.Context, u int, key []byte) (found Rows, ok bool, err error) {
	w := s.v.t.w
	hash, _ := s.def.Uniques[u].HashOf(key)
	complete := w.store.Lookup(s.base, s.def.Uniques[u].ID, hash, func(ref table.Ref) bool {
		if !s.sees(ref) {
			return true
		}
		var b *table.Batch
		if b, err = s.fetch(ctx, ref.File, []uint64{ref.Row}); err != nil {
			return false
		}
		if k, null := s.def.Uniques[u].Key(nil, b, 0); null || string(k) != string(key) {
			return true
		}
		found, ok = Rows{Batch: b, File: ref.File, First: ref.Row}, true
		return false
	})
	if ok || complete || err != nil {
		return found, ok, err
	}
	return s.search(ctx, u, key)
}

// sees reports whether the view sees the row, which is called as in the view's generation.
func (s *scan) sees(ref table.Ref) bool {
	if bm := s.hidden[ref.File]; bm != nil && bm.Contains(ref.Row) {
		return false
	}
	return s.base.Visible(ref)
}

// search is ByKey the slow way, for a view that is older than a flush: the key map may know only newer rows.
func (s *scan) search(ctx context.Context, u int, key []byte) (found Rows, ok bool, err error) {
	err = s.all(ctx, func(r Rows) error {
		return r.each(func(i int) error {
			if k, null := s.def.Uniques[u].Key(nil, r.Batch, i); null || string(k) != string(key) {
				return nil
			}
			b := table.NewBatch(r.Batch.Schema)
			b.AppendRow(r.Batch, i)
			found, ok = Rows{Batch: b, File: r.File, First: r.First + uint64(i)}, true
			return errStop
		})
	})
	if ok {
		err = nil
	}
	return found, ok, err
}

func (s *scan) all(ctx context.Context, fn func(Rows) error) error {
	if err := s.files(ctx, fn); err != nil {
		return err
	}
	return s.base.Tail(func(r realtime.Rows) error { return s.tail(r, fn) })
}

// Fetch reads rows by name, in the order of refs. They need not be live: it is for rows that a scan of this view found.
func (v *View) Fetch(ctx context.Context, id table.ID, refs []table.Ref) (*table.Batch, error) {
	s, err := v.scan(id, nil)
	if err != nil {
		return nil, err
	}
	out := table.NewBatch(s.def.Schema)
	for i := 0; i < len(refs); {
		rows := []uint64{refs[i].Row}
		for i+len(rows) < len(refs) && refs[i+len(rows)].File == refs[i].File {
			rows = append(rows, refs[i+len(rows)].Row)
		}
		b, err := s.fetch(ctx, refs[i].File, rows)
		if err != nil {
			return nil, fmt.Errorf("fetch rows of table %d: %w", id, err)
		}
		out.AppendRange(b, 0, b.Rows)
		i += len(rows)
	}
	return out, nil
}

// Live picks those of refs, whatever view of the transaction named them, that this view sees: under their names in it, each once.
func (v *View) Live(id table.ID, refs []table.Ref) ([]table.Ref, error) {
	if len(refs) == 0 {
		return nil, nil
	}
	s, err := v.scan(id, nil)
	if err != nil {
		return nil, err
	}
	var live []table.Ref
	for _, ref := range refs {
		if ref, ok := s.live(ref); ok && !slices.Contains(live, ref) {
			live = append(live, ref)
		}
	}
	return live, nil
}

func (s *scan) live(ref table.Ref) (table.Ref, bool) {
	if ref.File == table.Own {
		if s.own == nil || int(ref.Row) >= s.own.rowsAt(s.v.time) {
			return ref, false
		}
		died := int(s.own.died(int(ref.Row)))
		return ref, died == 0 || died > s.v.time
	}
	if !s.shared {
		return ref, false
	}
	name, ok := s.v.t.w.store.NameAt(s.base, ref)
	return name, ok && s.sees(name)
}

func (s *scan) fetch(ctx context.Context, file table.FileID, rows []uint64) (*table.Batch, error) {
	switch file {
	case table.Own:
		return s.own.fetch(ctx, s.v.t.w, rows)
	case 0:
		out := table.NewBatch(s.def.Schema)
		for _, r := range rows {
			b, ok := s.base.TailRow(r)
			if !ok {
				return nil, fmt.Errorf("no tail row %d", r)
			}
			b, err := Adapt(b, s.def.Schema)
			if err != nil {
				return nil, err
			}
			out.AppendRow(b, 0)
		}
		return out, nil
	}
	f := s.base.File(file)
	if f == nil {
		return nil, fmt.Errorf("no file %d", file)
	}
	return s.v.t.w.rows.ReadRows(ctx, fileOf(f), s.def.Schema, rows)
}
