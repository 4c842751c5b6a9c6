package realtime

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"sluice/writer/table"
)

// ErrCorrupt is wrapped by errors about an encoded row map that does not decode.
var ErrCorrupt = errors.New("corrupt row map")

// Range says that Count tail rows from First on are now the rows of file File from Row on.
type Range struct {
	First, Count uint64
	File         table.FileID
	Row          uint64
}

// RowMap says where the tail rows [Begin, End) of a table went in one flush. Rows that were dead at the flush are in no range.
// A RowMap is never changed once shared.
type RowMap struct {
	Begin, End uint64
	Ranges     []Range // by First
	generation uint64  // of the store when the flush was published
	// updated is the rows, of the tail and of files, that died before the flush because they got newer versions. It is not stored:
	// only who saw a row alive asks, and nobody outlives the process.
	updated  map[table.FileID]*roaring64.Bitmap
	backOnce sync.Once
	back     []Range // by File, Row
}

// Add appends count rows: they follow the rows added before in tail order.
func (m *RowMap) Add(first, count uint64, file table.FileID, row uint64) {
	if n := len(m.Ranges); n > 0 {
		if l := &m.Ranges[n-1]; l.File == file && l.First+l.Count == first && l.Row+l.Count == row {
			l.Count += count
			return
		}
	}
	m.Ranges = append(m.Ranges, Range{First: first, Count: count, File: file, Row: row})
}

// Sort orders the ranges by tail row, for flushes that wrote several files at a time.
func (m *RowMap) Sort() {
	slices.SortFunc(m.Ranges, func(a, b Range) int { return cmp.Compare(a.First, b.First) })
}

// Covers reports whether ref is a tail row that this flush took.
func (m *RowMap) Covers(ref table.Ref) bool {
	return ref.File == 0 && ref.Row >= m.Begin && ref.Row < m.End
}

// Find is the row's name after the flush; false if it was dead by then.
func (m *RowMap) Find(ref table.Ref) (table.Ref, bool) {
	i := sort.Search(len(m.Ranges), func(i int) bool { return m.Ranges[i].First > ref.Row }) - 1
	if i < 0 || ref.Row-m.Ranges[i].First >= m.Ranges[i].Count {
		return table.Ref{}, false
	}
	r := &m.Ranges[i]
	return table.Ref{File: r.File, Row: r.Row + ref.Row - r.First}, true
}

// Back is the name that a file row had in the tail; false if this flush did not write it.
func (m *RowMap) Back(ref table.Ref) (table.Ref, bool) {
	m.backOnce.Do(func() {
		m.back = slices.Clone(m.Ranges)
		slices.SortFunc(m.back, func(a, b Range) int {
			return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Row, b.Row))
		})
	})
	i := sort.Search(len(m.back), func(i int) bool {
		r := &m.back[i]
		return r.File > ref.File || r.File == ref.File && r.Row > ref.Row
	}) - 1
	if i < 0 || m.back[i].File != ref.File || ref.Row-m.back[i].Row >= m.back[i].Count {
		return table.Ref{}, false
	}
	return table.Ref{Row: m.back[i].First + ref.Row - m.back[i].Row}, true
}

func (m *RowMap) markUpdated(ref table.Ref) {
	if m.updated == nil {
		m.updated = map[table.FileID]*roaring64.Bitmap{}
	}
	if m.updated[ref.File] == nil {
		m.updated[ref.File] = roaring64.New()
	}
	m.updated[ref.File].Add(ref.Row)
}

func (m *RowMap) updatedRow(ref table.Ref) bool {
	bm := m.updated[ref.File]
	return bm != nil && bm.Contains(ref.Row)
}

const rowMapVersion = 1

// EncodeRowMaps makes the bytes that a flip stores: version, number of maps, and per map begin, end, number of ranges and the
// ranges (gap to the range before, count, file, row), all as unsigned varints.
func EncodeRowMaps(maps []*RowMap) []byte {
	b := append(make([]byte, 0, 64), rowMapVersion)
	b = binary.AppendUvarint(b, uint64(len(maps)))
	for _, m := range maps {
		b = binary.AppendUvarint(b, m.Begin)
		b = binary.AppendUvarint(b, m.End)
		b = binary.AppendUvarint(b, uint64(len(m.Ranges)))
		at := m.Begin
		for _, r := range m.Ranges {
			b = binary.AppendUvarint(b, r.First-at)
			b = binary.AppendUvarint(b, r.Count)
			b = binary.AppendUvarint(b, uint64(r.File))
			b = binary.AppendUvarint(b, r.Row)
			at = r.First + r.Count
		}
	}
	return b
}

// DecodeRowMaps is the reverse of EncodeRowMaps. No bytes are no maps.
func DecodeRowMaps(b []byte) ([]*RowMap, error) {
	if len(b) == 0 {
		return nil, nil
	}
	if b[0] != rowMapVersion {
		return nil, fmt.Errorf("decode row map: version %d, want %d: %w", b[0], rowMapVersion, ErrCorrupt)
	}
	d := mapDecoder{b: b[1:]}
	maps := make([]*RowMap, 0, 1)
	for n := d.count(); n > 0 && !d.bad; n-- {
		maps = append(maps, d.rowMap())
	}
	if d.bad || len(d.b) > 0 {
		return nil, fmt.Errorf("decode row map: %d bytes left: %w", len(d.b), ErrCorrupt)
	}
	return maps, nil
}

type mapDecoder struct {
	b   []byte
	bad bool
}

func (d *mapDecoder) uint() uint64 {
	x, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.bad = true
		return 0
	}
	d.b = d.b[n:]
	return x
}

// count is a number of things that take at least a byte each.
func (d *mapDecoder) count() uint64 {
	n := d.uint()
	if n > uint64(len(d.b)) {
		d.bad = true
		return 0
	}
	return n
}

func (d *mapDecoder) rowMap() *RowMap {
	m := &RowMap{Begin: d.uint(), End: d.uint()}
	at := m.Begin
	for n := d.count(); n > 0 && !d.bad; n-- {
		r := Range{First: at + d.uint(), Count: d.uint()}
		r.File, r.Row = table.FileID(d.uint()), d.uint()
		at = r.First + r.Count
		if r.Count == 0 || at > m.End || at < r.First {
			d.bad = true
		}
		m.Ranges = append(m.Ranges, r)
	}
	return m
}
