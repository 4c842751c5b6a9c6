package realtime_test

import (
	"slices"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"

	"sluice/writer/realtime"
	"sluice/writer/realtime/realtimetest"
	"sluice/writer/table"
)

const pkey = 7

func open(*testing.T) realtimetest.Store { return openWith(false) }

func openWith(bad bool) realtimetest.Store {
	s := &store{Store: realtime.New(0), schema: realtimetest.Schema(), files: map[table.FileID][]int64{}, next: 1, bad: bad}
	def := &realtime.Def{ID: realtimetest.ID, Schema: s.schema, Uniques: []realtime.UniqueDef{{ID: pkey, Name: "pkey", Key: realtimetest.Key}}}
	if bad {
		def.Uniques[0].Hash = badHash
	}
	if err := s.Define(realtime.Seed{Def: def, NextRow: 1}); err != nil {
		panic(err)
	}
	return s
}

// TestStore runs the suite.
//
// claims: P3 P45 P65
func TestStore(t *testing.T) { realtimetest.Run(t, open) }

// TestStoreBadHash is the suite where most keys have the hash of others.
//
// claims: H25
func TestStoreBadHash(t *testing.T) {
	realtimetest.Run(t, func(*testing.T) realtimetest.Store { return openWith(true) })
}

// store adds what the writer adds: files, here as slices.
type store struct {
	*realtime.Store
	schema *table.Schema
	files  map[table.FileID][]int64
	next   table.FileID
	at     table.Position // of the newest flush
	bad    bool           // keys share hashes
}

// badHash has three values.
func badHash(key []byte) uint64 { return uint64(key[0]%3) << 40 }

// row is the batch and place of a row.
func (s *store) row(ref table.Ref) (*table.Batch, int) {
	b := table.NewBatch(s.schema)
	if ref.File == 0 {
		tv, _ := s.Store.View().Table(realtimetest.ID)
		b, _ = tv.TailRow(ref.Row)
		return b, 0
	}
	b.Cols[0].AppendInt64(s.files[ref.File][ref.Row])
	b.Rows++
	return b, 0
}

func (s *store) Apply(pos table.Position, op realtimetest.Op) {
	b := table.NewBatch(s.schema)
	for _, v := range op.Rows {
		b.Cols[0].AppendInt64(v)
		b.Rows++
	}
	s.Store.Apply(realtime.Commit{Position: pos, Ops: []realtime.Op{{Table: realtimetest.ID, Truncate: op.Truncate, Deletes: op.Deletes, First: op.First, Rows: b}}})
}

func (s *store) View() realtimetest.View { return view{s, s.Store.View()} }

func (s *store) Current(ref table.Ref) (table.Ref, bool) {
	return s.Store.Current(realtimetest.ID, ref)
}

func (s *store) Live(key []byte) (ref table.Ref, ok bool) {
	hash, _ := realtime.HashKey(key)
	if s.bad {
		hash = badHash(key)
	}
	s.Store.Live(realtimetest.ID, pkey, hash, func(cur table.Ref) bool {
		b, i := s.row(cur)
		k, _ := realtimetest.Key(nil, b, i)
		if string(k) == string(key) {
			ref, ok = cur, true
		}
		return !ok
	})
	return ref, ok
}

type view struct {
	s *store
	v realtime.View
}

func (v view) Rows() map[int64]table.Ref {
	rows := map[int64]table.Ref{}
	tv, _ := v.v.Table(realtimetest.ID)
	for _, f := range tv.Files {
		dead, none := tv.Dead(f)
		for i, x := range v.s.files[f.ID] {
			if !none && (dead == nil || !dead.Contains(uint32(i))) {
				rows[x] = table.Ref{File: f.ID, Row: uint64(i)}
			}
		}
	}
	_ = tv.Tail(func(r realtime.Rows) error {
		for i := range r.Batch.Rows {
			if r.Sel == nil || slices.Contains(r.Sel, int32(i)) {
				rows[r.Batch.Cols[0].Int64(i)] = table.Ref{Row: r.First + uint64(i)}
			}
		}
		return nil
	})
	for x, ref := range rows {
		if !tv.Visible(ref) {
			delete(rows, x)
		}
	}
	return rows
}

// Cut plans a flush into one file, and publishes it later.
func (s *store) Cut() func() {
	cut := s.Store.Cut()
	if len(cut.Tables) == 0 {
		return func() {}
	}
	c := &cut.Tables[0]
	f := realtime.Flushed{Table: realtimetest.ID, NextRow: c.NextRow, Deleted: map[table.FileID]*roaring.Bitmap{},
		Map: &realtime.RowMap{Begin: c.State.NextRow, End: c.NextRow}}
	for _, old := range c.Files {
		if c.Truncated {
			f.Removed = append(f.Removed, old.ID)
		} else if fresh, all := c.Deleted(old); fresh != nil {
			f.Deleted[old.ID] = all
		}
	}
	id := s.next
	_ = c.Tail(func(r realtime.Rows) error {
		for i := range r.Batch.Rows {
			if r.Sel == nil || slices.Contains(r.Sel, int32(i)) {
				f.Map.Add(r.First+uint64(i), 1, id, uint64(len(s.files[id])))
				s.files[id] = append(s.files[id], r.Batch.Cols[0].Int64(i))
			}
		}
		return nil
	})
	if n := len(s.files[id]); n > 0 {
		f.Files, s.next = []*realtime.File{{ID: id, Rows: uint64(n)}}, s.next+1
	}
	decoded, err := realtime.DecodeRowMaps(realtime.EncodeRowMaps([]*realtime.RowMap{f.Map}))
	if err != nil {
		panic(err)
	}
	f.Map = decoded[0]
	return func() {
		list := []realtime.Flushed{f}
		s.at = cut.Position()
		s.Publish(s.at, list, 0)
		s.Reindex(list)
	}
}

// Move puts the rows of files that are live at the newest flush into one file, in an order of its own.
func (s *store) Move(pick func(table.FileID) bool) func() {
	tv, _ := s.Store.View().Table(realtimetest.ID)
	f := realtime.Flushed{Table: realtimetest.ID, Map: &realtime.RowMap{}}
	id := s.next
	s.next++
	for _, old := range slices.Backward(tv.Files) {
		if !pick(old.ID) {
			continue
		}
		f.Removed, f.Map.Moved = append(f.Removed, old.ID), append(f.Map.Moved, old.ID)
		for i, v := range s.files[old.ID] {
			if old.Deleted == nil || !old.Deleted.Contains(uint32(i)) {
				f.Map.Move(old.ID, uint64(i), 1, id, uint64(len(s.files[id])))
				s.files[id] = append(s.files[id], v)
			}
		}
	}
	f.Map.Sort()
	if n := len(s.files[id]); n > 0 {
		f.Files = []*realtime.File{{ID: id, Rows: uint64(n)}}
	}
	decoded, err := realtime.DecodeRowMaps(realtime.EncodeRowMaps([]*realtime.RowMap{f.Map}))
	if err != nil {
		panic(err)
	}
	f.Map = decoded[0]
	return func() {
		now, _ := s.Store.View().Table(realtimetest.ID)
		f.NextRow = now.NextRow
		list := []realtime.Flushed{f}
		s.Publish(s.at, list, 0)
		s.Reindex(list)
	}
}

// TestRowMapCorrupt: bytes that are no row map are an error, never a panic.
func TestRowMapCorrupt(t *testing.T) {
	m := &realtime.RowMap{Begin: 5, End: 900}
	m.Add(5, 100, 1, 0)
	m.Add(300, 7, 2, 50)
	moved := &realtime.RowMap{Moved: []table.FileID{1, 2}}
	moved.Move(1, 3, 20, 3, 0)
	moved.Move(2, 0, 57, 3, 20)
	good := realtime.EncodeRowMaps([]*realtime.RowMap{m, moved, m})
	for i := range good {
		for _, x := range []byte{0, 0x7f, 0xff} {
			bad := slices.Clone(good)
			bad[i] = x
			_, _ = realtime.DecodeRowMaps(bad)
		}
		if _, err := realtime.DecodeRowMaps(good[:i]); err == nil && i > 0 {
			t.Errorf("%d of %d bytes decode", i, len(good))
		}
	}
}

// TestLargeBatches: batches that become segments of their own mix with small ones, and old views keep their rows.
func TestLargeBatches(t *testing.T) {
	s := open(t).(*store)
	next, pos, v := uint64(1), table.Position(0), int64(0)
	var views []realtimetest.View
	var want []int
	for _, n := range []int{1, 10_000, 3, 70_000, 2, 2} {
		op := realtimetest.Op{First: next}
		for range n {
			v++
			op.Rows = append(op.Rows, v*10)
		}
		pos++
		s.Apply(pos, op)
		next += uint64(n)
		views, want = append(views, s.View()), append(want, int(v))
	}
	for i, w := range views {
		if got := len(w.Rows()); got != want[i] {
			t.Errorf("view %d has %d rows, want %d", i, got, want[i])
		}
	}
	if g := s.Gauges(); g.TotalRows != v || g.BuildingRows == 0 || g.SealedRows == 0 || g.TotalBytes < 8*v {
		t.Errorf("gauges %+v", g)
	}
	s.Cut()()
	if g := s.Gauges(); g.TotalRows != 0 {
		t.Errorf("gauges after the flush %+v", g)
	}
	if got := len(views[2].Rows()); got != want[2] {
		t.Errorf("an old view has %d rows, want %d", got, want[2])
	}
}
