package realtime

import (
	"maps"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"sluice/writer/table"
)

// Cut is a prefix of the log, up to the view's position, as a flush takes it: what its tables hold in the tail.
type Cut struct {
	View
	Tables []TableCut // those with anything in the tail, in id order
}

// TableCut is one table of a Cut.
type TableCut struct {
	TableView
	NextRow   uint64 // number of the first tail row behind the cut; State.NextRow is the first within
	Truncated bool   // all files of the state are dead
}

// Deleted is the rows of a file that died in the tail, and all that are dead.
func (c *TableCut) Deleted(f *File) (fresh, all *roaring.Bitmap) {
	list, _ := c.deathsAt(f.ID, c.Position)
	if len(list) == 0 {
		return nil, f.Deleted
	}
	fresh = roaring.New()
	for _, d := range list {
		fresh.Add(d.row)
	}
	all = fresh.Clone()
	if f.Deleted != nil {
		all.Or(f.Deleted)
	}
	return fresh, all
}

// Cut seals the tail at the newest position: later rows go to new segments, so that the flushed ones can be dropped whole.
func (s *Store) Cut() *Cut {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &Cut{View: s.View()}
	for _, id := range c.View.Tables() {
		tv, _ := c.View.Table(id)
		if !tv.changed(tv.Position) {
			continue
		}
		_, truncated := tv.cutAt(tv.Position)
		c.Tables = append(c.Tables, TableCut{TableView: tv, NextRow: tv.seal(), Truncated: truncated})
	}
	return c
}

func (s *State) seal() (next uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last := s.building(); last != nil {
		last.seal()
	}
	return s.next
}

// Flushed is what a flip made of one table: a flush of a Cut, or files that took the place of others.
type Flushed struct {
	Table   table.ID
	Files   []*File // written
	Deleted map[table.FileID]*roaring.Bitmap
	Removed []table.FileID // files with no live row, or whose rows Map moves, left out of the table's metadata
	NextRow uint64
	Map     *RowMap
}

// Publish makes a flip of everything up to at that is committed the newest state: files in, flushed tail out, the rest of the tail and its
// deaths under the rows' new names. Row maps older than generation keep are forgotten. It returns the new generation.
func (s *Store) Publish(at table.Position, tables []Flushed, keep uint64) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now.Load()
	next := &instant{tables: maps.Clone(now.tables), position: now.position, generation: now.generation + 1}
	for i := range tables {
		f := &tables[i]
		if old := now.tables[f.Table]; old != nil {
			next.tables[f.Table] = old.flushed(f, at, next.generation, keep)
		}
	}
	s.now.Store(next)
	return next.generation
}

// Reindex brings the key maps up to a flip that is published. Until then look-ups follow the row maps.
func (s *Store) Reindex(tables []Flushed) {
	now := s.now.Load()
	for i := range tables {
		if st := now.tables[tables[i].Table]; st != nil {
			for _, u := range st.uniques {
				u.Moved(tables[i].Map, st.flushedDead)
			}
		}
	}
	s.Weigh()
}

// flushed is the state after f, a flip of everything at or before p.
func (s *State) flushed(f *Flushed, p table.Position, generation, keep uint64) *State {
	f.Map.generation = generation
	n := newState(s.Def, f.After(s.Files), f.NextRow, generation)
	n.uniques = s.uniques
	for _, m := range s.maps {
		if m.generation >= keep {
			n.maps = append(n.maps, m)
		}
	}
	n.maps = append(n.maps, f.Map)
	n.next = s.next
	for _, seg := range s.segs {
		if seg.first >= f.NextRow {
			n.segs = append(n.segs, seg)
		} else {
			n.inherit(seg, f.Map, p)
			f.Map.noteUpdated(seg, p)
		}
	}
	for _, c := range s.cuts {
		if c.position > p {
			n.cuts = append(n.cuts, c)
		}
	}
	for id, list := range s.deaths {
		for _, d := range list {
			ref := table.Ref{File: id, Row: uint64(d.row)}
			if d.position > p {
				n.bury(f.Map, ref, d)
			} else if d.updated {
				f.Map.markUpdated(ref)
			}
		}
	}
	n.settle()
	return n
}

// After is the files of the table after the flush, in no order.
func (f *Flushed) After(before []*File) []*File {
	files := slices.Clone(f.Files)
	for _, old := range before {
		if slices.Contains(f.Removed, old.ID) {
			continue
		}
		if del := f.Deleted[old.ID]; del != nil {
			c := *old
			c.Deleted = del
			old = &c
		}
		files = append(files, old)
	}
	return files
}

// bury notes the death of a file row under the name that it has after m, if its file is there still.
func (s *State) bury(m *RowMap, ref table.Ref, d death) {
	if to, ok := m.Next(ref); ok && s.File(to.File) != nil {
		s.deaths[to.File] = append(s.deaths[to.File], death{uint32(to.Row), d.updated, d.position})
	}
}

// inherit turns the rows of a flushed segment that died after p into deaths of file rows.
func (s *State) inherit(seg *segment, m *RowMap, p table.Position) {
	if seg.deaths.Load() == 0 {
		return
	}
	for i := range seg.batch.Rows { // sealed: it does not grow
		if d := seg.diedAt(i); d > p {
			if to, ok := m.Find(table.Ref{Row: seg.first + uint64(i)}); ok {
				s.deaths[to.File] = append(s.deaths[to.File], death{uint32(to.Row), seg.updated(i), d})
			}
		}
	}
}

// noteUpdated keeps what a flushed segment knows about rows that are in no file.
func (m *RowMap) noteUpdated(seg *segment, p table.Position) {
	if seg.deaths.Load() == 0 {
		return
	}
	for i := range seg.batch.Rows { // sealed: it does not grow
		if seg.updated(i) && seg.diedAt(i) <= p {
			m.markUpdated(table.Ref{Row: seg.first + uint64(i)})
		}
	}
}

// settle puts deaths in position order and makes the newest bitmaps.
func (s *State) settle() {
	for id, list := range s.deaths {
		sortDeaths(list)
		dead := roaring.New()
		for _, d := range list {
			dead.Add(d.row)
		}
		s.dead[id] = dead
	}
}

// MapsFor are the maps that the flip of a flush has to store: its own, and older ones of generation from or later, which
// frames behind the flush may still need at replay.
func (s *State) MapsFor(m *RowMap, from uint64) []*RowMap {
	var keep []*RowMap
	for _, old := range s.maps {
		if old.generation >= from {
			keep = append(keep, old)
		}
	}
	return append(keep, m)
}
