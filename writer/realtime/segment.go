package realtime

import (
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"sluice/writer/table"
)

const (
	pageRows     = 1024
	buildingRows = 64 * pageRows // a building segment seals at this many rows
	buildingSize = 8 << 20       // or at this many bytes
	adoptRows    = 8 * 1024      // a batch this long becomes a sealed segment of its own, without a copy
)

// page holds the positions at which 1,024 rows died, with updatedBit if a newer version took the row's place; 0 is alive.
type page [pageRows]atomic.Uint64

const updatedBit = 1 << 63

// end says that the rows of a segment below row were inserted at or before position.
type end struct {
	row      int
	position table.Position
}

// segment is a run of tail rows with consecutive numbers. Rows never change and never move; only the newest segment of a table
// (building) grows, by the publisher alone. Deaths are stamped at any time.
type segment struct {
	first uint64

	mu     sync.RWMutex // growth of batch and ends; a reader takes it for the time of a Snap
	batch  *table.Batch
	ends   []end
	sealed bool

	snap   atomic.Pointer[table.Batch]
	died   []atomic.Pointer[page] // fixed length; a page is made when the first of its rows dies
	deaths atomic.Int64
	bytes  atomic.Int64
}

func newBuilding(s *table.Schema, first uint64) *segment {
	return &segment{first: first, batch: table.NewBatch(s), died: make([]atomic.Pointer[page], buildingRows/pageRows)}
}

func newSealed(b *table.Batch, first uint64, pos table.Position) *segment {
	s := &segment{first: first, batch: b, sealed: true, ends: []end{{b.Rows, pos}}}
	s.died = make([]atomic.Pointer[page], (b.Rows+pageRows-1)/pageRows)
	s.bytes.Store(int64(b.Size()))
	return s
}

// append adds rows [begin, end) of b, committed at pos.
func (s *segment) append(b *table.Batch, begin, stop int, pos table.Position, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batch.AppendRange(b, begin, stop)
	if n := len(s.ends); n > 0 && s.ends[n-1].position == pos {
		s.ends[n-1].row = s.batch.Rows
	} else {
		s.ends = append(s.ends, end{s.batch.Rows, pos})
	}
	s.bytes.Add(bytes)
}

func (s *segment) seal() {
	s.mu.Lock()
	s.sealed = true
	s.mu.Unlock()
}

// room is how many more rows the segment takes.
func (s *segment) room() int {
	if s.sealed || s.bytes.Load() >= buildingSize {
		return 0
	}
	return buildingRows - s.batch.Rows
}

func (s *segment) rows() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.batch.Rows
}

// limit is how many of the rows were inserted at or before v. Rows are in commit order, so these are a prefix.
func (s *segment) limit(v table.Position) int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	i := sort.Search(len(s.ends), func(i int) bool { return s.ends[i].position > v })
	if i == 0 {
		return 0
	}
	return s.ends[i-1].row
}

// endsAt is where the transactions at or before v end.
func (s *segment) endsAt(v table.Position) []end {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n := sort.Search(len(s.ends), func(i int) bool { return s.ends[i].position > v })
	return slices.Clone(s.ends[:n])
}

// within lists the rows [from, n) that are alive at v.
func (s *segment) within(v table.Position, from, n int) []int32 {
	sel := make([]int32, 0, n-from)
	for i := from; i < n; i++ {
		if d := s.diedAt(i); d == 0 || d > v {
			sel = append(sel, int32(i))
		}
	}
	return sel
}

// at is a batch of exactly the rows below limit(v).
func (s *segment) at(v table.Position) *table.Batch {
	n := s.limit(v)
	b := s.snap.Load()
	if b == nil || b.Rows < n {
		b = s.takeSnap()
	}
	if b.Rows > n {
		b = prefix(b, n)
	}
	return b
}

func (s *segment) takeSnap() *table.Batch {
	s.mu.RLock()
	defer s.mu.RUnlock()
	b := s.batch.Snap()
	s.snap.Store(b)
	return b
}

// prefix is the first n rows of a snapshot, without touching it.
func prefix(b *table.Batch, n int) *table.Batch {
	p := b.Snap()
	p.Truncate(n)
	return p
}

// row copies one row out.
func (s *segment) row(i int) *table.Batch {
	s.mu.RLock()
	defer s.mu.RUnlock()
	b := table.NewBatch(s.batch.Schema)
	b.AppendRow(s.batch, i)
	return b
}

// kill stamps the death of row i. False: it was dead before.
func (s *segment) kill(i int, pos table.Position, updated bool) bool {
	stamp := uint64(pos)
	if updated {
		stamp |= updatedBit
	}
	p := s.died[i/pageRows].Load()
	if p == nil {
		p = new(page)
		s.died[i/pageRows].Store(p) // only the publisher stamps
	}
	if !p[i%pageRows].CompareAndSwap(0, stamp) {
		return false
	}
	s.deaths.Add(1)
	return true
}

// diedAt is the position at which row i died; 0 is alive.
func (s *segment) diedAt(i int) table.Position { return table.Position(s.stamp(i) &^ updatedBit) }

// updated reports whether row i died because it got a newer version.
func (s *segment) updated(i int) bool { return s.stamp(i)&updatedBit != 0 }

func (s *segment) stamp(i int) uint64 {
	p := s.died[i/pageRows].Load()
	if p == nil {
		return 0
	}
	return p[i%pageRows].Load()
}

// live lists the rows in [from, n) that are not dead at v; nil means all of [0, n).
func (s *segment) live(v table.Position, from, n int) []int32 {
	if from == 0 && s.deaths.Load() == 0 {
		return nil
	}
	if sel := s.within(v, min(from, n), n); len(sel) < n {
		return sel
	}
	return nil
}

// find is the segment that holds tail row number row.
func find(segs []*segment, row uint64) (*segment, int) {
	i := sort.Search(len(segs), func(i int) bool { return segs[i].first > row }) - 1
	if i < 0 || row-segs[i].first >= uint64(segs[i].rows()) {
		return nil, 0
	}
	return segs[i], int(row - segs[i].first)
}
