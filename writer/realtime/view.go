package realtime

import (
	"maps"
	"slices"
	"sort"

	"github.com/RoaringBitmap/roaring/v2"

	"sluice/writer/table"
)

// View is all tables at one position. It is a value; whoever holds it keeps the rows it sees in memory.
type View struct{ at *instant }

// Position is the newest transaction that the view sees.
func (v View) Position() table.Position { return v.at.position }

// Generation is that of the store when the view was made: two views of the same generation use the same names for rows.
func (v View) Generation() uint64 { return v.at.generation }

// Table is one table at the view's position.
func (v View) Table(id table.ID) (TableView, bool) {
	s := v.at.tables[id]
	return TableView{State: s, Position: v.at.position}, s != nil
}

// Tables lists the tables in id order.
func (v View) Tables() []table.ID { return slices.Sorted(maps.Keys(v.at.tables)) }

// TableView is one table at one position.
type TableView struct {
	*State
	Position table.Position
}

// Rows are some tail rows: row i of Batch has the number First+i. Sel lists the live ones; nil is all.
type Rows struct {
	Batch *table.Batch
	Sel   []int32
	First uint64
}

// Tail calls fn with the tail's rows in order of their numbers, live rows only, until fn fails.
func (v TableView) Tail(fn func(Rows) error) error {
	cut, _ := v.cutAt(v.Position)
	for _, seg := range v.segments() {
		b := seg.at(v.Position)
		if b.Rows == 0 {
			break
		}
		from := int(min(max(cut.row, seg.first)-seg.first, uint64(b.Rows)))
		sel := seg.live(v.Position, from, b.Rows)
		if sel != nil && len(sel) == 0 {
			continue
		}
		if err := fn(Rows{Batch: b, Sel: sel, First: seg.first}); err != nil {
			return err
		}
	}
	return nil
}

// Batches is Tail with the rows of each transaction apart. One that went on in another segment comes in pieces, with one position.
func (v TableView) Batches(fn func(Rows, table.Position) error) error {
	cut, _ := v.cutAt(v.Position)
	for _, seg := range v.segments() {
		b := seg.at(v.Position)
		from := int(min(max(cut.row, seg.first)-seg.first, uint64(b.Rows)))
		for _, e := range seg.endsAt(v.Position) {
			if e.row <= from {
				continue
			}
			if sel := seg.within(v.Position, from, e.row); len(sel) > 0 {
				if err := fn(Rows{Batch: b, Sel: sel, First: seg.first}, e.position); err != nil {
					return err
				}
			}
			from = e.row
		}
	}
	return nil
}

// Dead is the dead rows of a file, to be read only; nil is none. All says that the file has no live row.
func (v TableView) Dead(f *File) (dead *roaring.Bitmap, all bool) {
	if _, cut := v.cutAt(v.Position); cut {
		return nil, true
	}
	dead = f.Deleted
	if list, _ := v.deathsAt(f.ID, v.Position); len(list) > 0 {
		if dead = roaring.New(); f.Deleted != nil {
			dead.Or(f.Deleted)
		}
		for _, d := range list {
			dead.Add(d.row)
		}
	}
	return dead, dead != nil && dead.GetCardinality() == f.Rows
}

// Visible reports whether a row, in the names of the view's generation, is seen by the view.
func (v TableView) Visible(ref table.Ref) bool {
	if cut, ok := v.cutAt(v.Position); ok && (ref.File != 0 || ref.Row < cut.row) {
		return false
	}
	if ref.File == 0 {
		seg, i := find(v.segments(), ref.Row)
		if seg == nil || i >= seg.limit(v.Position) {
			return false
		}
		d := seg.diedAt(i)
		return d == 0 || d > v.Position
	}
	f := v.File(ref.File)
	if f == nil || ref.Row >= f.Rows || f.Deleted != nil && f.Deleted.Contains(uint32(ref.Row)) {
		return false
	}
	list, _ := v.deathsAt(f.ID, v.Position)
	return !slices.ContainsFunc(list, func(d death) bool { return uint64(d.row) == ref.Row })
}

// TailRow copies one tail row out.
func (v TableView) TailRow(row uint64) (*table.Batch, bool) {
	seg, i := find(v.segments(), row)
	if seg == nil {
		return nil, false
	}
	return seg.row(i), true
}

// Size estimates live rows and their bytes, from counts only.
func (v TableView) Size() (rows, bytes int64) {
	if _, cut := v.cutAt(v.Position); !cut {
		for _, f := range v.Files {
			list, _ := v.deathsAt(f.ID, v.Position)
			live := int64(f.Rows) - int64(len(list))
			if f.Deleted != nil {
				live -= int64(f.Deleted.GetCardinality())
			}
			rows += live
			bytes += f.Bytes * live / max(int64(f.Rows), 1)
		}
	}
	tailRows, tailBytes := v.TailSize()
	return rows + tailRows, bytes + tailBytes
}

// Lookup calls fn with rows that may have had a key with this hash at the view's position, newest first, in the names of the view's
// generation, until fn returns false. complete says that a row not offered does not exist; otherwise (the view is older than
// a flush) the caller has to scan when none of the rows offered is the one.
func (s *Store) Lookup(v TableView, unique uint32, hash uint64, fn func(table.Ref) bool) (complete bool) {
	now := s.now.Load().tables[v.Def.ID]
	if now == nil {
		now = v.State
	}
	u := now.Unique(unique)
	if u != nil {
		u.Lookup(hash, func(ref table.Ref) bool {
			ref, ok := now.nameAt(ref, v.generation)
			return !ok || fn(ref)
		})
	}
	return u != nil && s.now.Load().tables[v.Def.ID] == v.State
}

// NameAt is the name that a row had in the generation of a view; false if the row is not there.
func (s *Store) NameAt(v TableView, ref table.Ref) (table.Ref, bool) {
	now := s.now.Load().tables[v.Def.ID]
	if now == nil || now.generation <= v.generation {
		return v.follow(ref)
	}
	return now.nameAt(ref, v.generation)
}

// Live calls fn with the live rows of the newest state that may have the key with this hash, until fn returns false.
func (s *Store) Live(id table.ID, unique uint32, hash uint64, fn func(table.Ref) bool) {
	u := s.unique(id, unique)
	if u == nil {
		return
	}
	u.Lookup(hash, func(ref table.Ref) bool {
		// A flush may be renaming: the map may be one step before or behind the state.
		cur, live := s.Current(id, ref)
		return !live || fn(cur)
	})
}

// Hits says which of the keys some row, dead or alive, may have; nil: none. With loose the keys have to be compared.
func (s *Store) Hits(id table.ID, unique uint32, keys *Keys) (hits []bool, loose bool) {
	u := s.unique(id, unique)
	if u == nil {
		return nil, false
	}
	hits = u.Hits(keys)
	return hits, keys.loose || u.loose.Load()
}

func (s *Store) unique(id table.ID, unique uint32) *Unique {
	st := s.now.Load().tables[id]
	if st == nil {
		return nil
	}
	return st.Unique(unique)
}

func sortDeaths(list []death) {
	sort.SliceStable(list, func(i, j int) bool { return list[i].position < list[j].position })
}
