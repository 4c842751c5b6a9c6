package realtime

import (
	"slices"
	"sort"
	"sync"

	"github.com/RoaringBitmap/roaring/v2"

	"sluice/writer/table"
)

// Def is what the store knows about a table. A Def is never changed once shared.
type Def struct {
	ID        table.ID
	Namespace string
	Name      string
	Schema    *table.Schema
	Uniques   []UniqueDef
	Options   map[string]string // lake options
	Location  string            // root of the table's objects
}

// File is one data file of the flushed state. A File is never changed once shared.
type File struct {
	ID       table.FileID
	Location string
	Rows     uint64
	Bytes    int64
	Deleted  *roaring.Bitmap // rows that are dead at the flushed position; nil: none
}

// death is one file row that died in the tail.
type death struct {
	row      uint32
	updated  bool // it has a newer version
	position table.Position
}

// cutoff is a TRUNCATE: all files of the state and all tail rows below row died at position.
type cutoff struct {
	row      uint64
	position table.Position
}

// State is one table between two flushes or schema changes: the files and first tail row are fixed, the tail grows at its end
// and gains deaths, each with its position, so that whoever holds a State and a position sees the same rows for ever.
type State struct {
	Def     *Def
	Files   []*File // by ID
	NextRow uint64  // number of the first tail row

	generation uint64 // of the store when this State became current
	maps       []*RowMap
	uniques    []*Unique // as Def.Uniques

	// The publisher alone appends; mu is held for the time of an append or of copying a slice header.
	mu     sync.RWMutex
	segs   []*segment
	deaths map[table.FileID][]death // in position order
	dead   map[table.FileID]*roaring.Bitmap
	cuts   []cutoff // in position order
	next   uint64   // number after the last tail row
}

func newState(def *Def, files []*File, nextRow uint64, generation uint64) *State {
	s := &State{Def: def, NextRow: nextRow, next: nextRow, generation: generation,
		deaths: map[table.FileID][]death{}, dead: map[table.FileID]*roaring.Bitmap{}}
	s.Files = slices.Clone(files)
	slices.SortFunc(s.Files, func(a, b *File) int { return int(a.ID) - int(b.ID) })
	return s
}

// File is the file called id, or nil.
func (s *State) File(id table.FileID) *File {
	i := sort.Search(len(s.Files), func(i int) bool { return s.Files[i].ID >= id })
	if i == len(s.Files) || s.Files[i].ID != id {
		return nil
	}
	return s.Files[i]
}

// Unique is the key map of the constraint called id, or nil.
func (s *State) Unique(id uint32) *Unique {
	for i := range s.Def.Uniques {
		if s.Def.Uniques[i].ID == id {
			return s.uniques[i]
		}
	}
	return nil
}

// flushedDead reports whether a file row was dead at the flushed position.
func (s *State) flushedDead(ref table.Ref) bool {
	f := s.File(ref.File)
	return f == nil || f.Deleted != nil && f.Deleted.Contains(uint32(ref.Row))
}

// Next is the number after the last tail row.
func (s *State) Next() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.next
}

// Maps are the row maps of the flushes that somebody may still need, oldest first.
func (s *State) Maps() []*RowMap { return s.maps }

// follow is the name that ref has in this state; false if the row was dead at a flip, or is of a state that is forgotten.
func (s *State) follow(ref table.Ref) (table.Ref, bool) {
	if ref.File == 0 && ref.Row >= s.NextRow {
		return ref, true
	}
	for _, m := range s.maps {
		var ok bool
		if ref, ok = m.Next(ref); !ok {
			return ref, false
		}
	}
	return ref, ref.File != 0
}

// nameAt is the name that ref, taken from this or an older state, had when the store was at an older generation.
func (s *State) nameAt(ref table.Ref, generation uint64) (table.Ref, bool) {
	for _, m := range s.maps {
		if m.generation > generation {
			break
		}
		var ok bool
		if ref, ok = m.Next(ref); !ok {
			return ref, false
		}
	}
	for _, m := range slices.Backward(s.maps) {
		if m.generation <= generation {
			break
		}
		if back, ok := m.Back(ref); ok {
			ref = back
		}
	}
	return ref, true
}

func (s *State) segments() []*segment {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.segs[:len(s.segs):len(s.segs)]
}

// cutAt is the newest TRUNCATE at or before v.
func (s *State) cutAt(v table.Position) (cutoff, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	i := sort.Search(len(s.cuts), func(i int) bool { return s.cuts[i].position > v })
	if i == 0 {
		return cutoff{}, false
	}
	return s.cuts[i-1], true
}

// deathsAt is the rows of a file that died in the tail at or before v; all says that they are all there are so far.
func (s *State) deathsAt(id table.FileID, v table.Position) (list []death, all bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	list = s.deaths[id]
	i := sort.Search(len(list), func(i int) bool { return list[i].position > v })
	return list[:i:i], i == len(list)
}

// kill marks a row, in this state's names, dead at pos. False: it was dead before, or is not there.
func (s *State) kill(ref table.Ref, pos table.Position, updated bool) bool {
	if ref.File == 0 {
		seg, i := find(s.segments(), ref.Row)
		return seg != nil && seg.kill(i, pos, updated)
	}
	f := s.File(ref.File)
	if f == nil || ref.Row >= f.Rows {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	dead := s.dead[ref.File]
	if dead == nil {
		dead = roaring.New()
		s.dead[ref.File] = dead
	}
	if f.Deleted != nil && f.Deleted.Contains(uint32(ref.Row)) || !dead.CheckedAdd(uint32(ref.Row)) {
		return false
	}
	s.deaths[ref.File] = append(s.deaths[ref.File], death{uint32(ref.Row), updated, pos})
	return true
}

// updated reports whether a row, in this state's names, died in this state's tail because it got a newer version.
func (s *State) updated(ref table.Ref) bool {
	if ref.File == 0 {
		seg, i := find(s.segments(), ref.Row)
		return seg != nil && seg.updated(i)
	}
	list, _ := s.deathsAt(ref.File, ^table.Position(0))
	return slices.ContainsFunc(list, func(d death) bool { return uint64(d.row) == ref.Row && d.updated })
}

// live reports whether a row, in this state's names, is live in the newest state.
func (s *State) live(ref table.Ref) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if n := len(s.cuts); n > 0 && (ref.File != 0 || ref.Row < s.cuts[n-1].row) {
		return false
	}
	if ref.File == 0 {
		seg, i := find(s.segs, ref.Row)
		return seg != nil && seg.diedAt(i) == 0
	}
	f := s.File(ref.File)
	if f == nil || ref.Row >= f.Rows {
		return false
	}
	dead := s.dead[ref.File]
	return !(f.Deleted != nil && f.Deleted.Contains(uint32(ref.Row))) && !(dead != nil && dead.Contains(uint32(ref.Row)))
}

// insert appends rows with the numbers from first on, committed at pos, and says about how many bytes it took.
func (s *State) insert(b *table.Batch, keys []Keys, first uint64, pos table.Position) int64 {
	size := int64(b.Size())
	s.mu.Lock()
	last := s.building()
	if b.Rows >= adoptRows {
		if last != nil {
			last.seal()
		}
		s.segs = append(s.segs, newSealed(b, first, pos))
	} else {
		s.fill(last, b, first, pos, size)
	}
	s.next = first + uint64(b.Rows)
	s.mu.Unlock()
	s.index(b, keys, first)
	return size + int64(len(s.uniques)*b.Rows)*keyBytes
}

func (s *State) fill(last *segment, b *table.Batch, first uint64, pos table.Position, size int64) {
	if last != nil && last.first+uint64(last.batch.Rows) != first {
		last.seal() // the number of an aborted prepared transaction's rows are left out
	}
	for at := 0; at < b.Rows; {
		if last == nil || last.room() == 0 {
			if last != nil {
				last.seal()
			}
			last = newBuilding(s.Def.Schema, first+uint64(at))
			s.segs = append(s.segs, last)
		}
		stop := min(b.Rows, at+last.room())
		last.append(b, at, stop, pos, size*int64(stop-at)/int64(b.Rows))
		at = stop
	}
}

// building is the segment that still grows, or nil.
func (s *State) building() *segment {
	if n := len(s.segs); n > 0 && !s.segs[n-1].sealed {
		return s.segs[n-1]
	}
	return nil
}

func (s *State) index(b *table.Batch, keys []Keys, first uint64) {
	for u := range s.uniques {
		if keys != nil {
			s.uniques[u].PutRows(&keys[u], first)
			continue
		}
		k := KeysOf(&s.Def.Uniques[u], b)
		s.uniques[u].PutRows(&k, first)
	}
}

// truncate makes everything before it dead at pos.
func (s *State) truncate(pos table.Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last := s.building(); last != nil {
		last.seal()
	}
	s.cuts = append(s.cuts, cutoff{row: s.next, position: pos})
}

// changed reports whether the tail holds anything at or before v.
func (s *State) changed(v table.Position) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if len(s.segs) > 0 && s.segs[0].limit(v) > 0 || len(s.cuts) > 0 && s.cuts[0].position <= v {
		return true
	}
	for _, list := range s.deaths {
		if len(list) > 0 && list[0].position <= v {
			return true
		}
	}
	return false
}
