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

// Range says that Count rows from First on, of the tail or of file From, are now the rows of file File from Row on.
type Range struct {
	From         table.FileID // 0: the tail
	First, Count uint64
	File         table.FileID
	Row          uint64
}

// RowMap says where rows went in one flip: the tail rows [Begin, End) of a table in a flush, and the rows of the files Moved when others
// took their place. Rows that were dead by then are in no range. A RowMap is never changed once shared.
type RowMap struct {
	Begin, End uint64
	Moved      []table.FileID // in order
	Ranges     []Range        // by From, First
	generation uint64         // of the store when the flip was published
	// updated is the rows, of the tail and of files, that died before the flush because they got newer versions. It is not stored:
	// only who saw a row alive asks, and nobody outlives the process.
	updated  map[table.FileID]*roaring64.Bitmap
	backOnce sync.Once
	back     []Range // by File, Row
}

// Add appends count tail rows: they follow the rows added before in tail order.
func (m *RowMap) Add(first, count uint64, file table.FileID, row uint64) {
	m.Move(0, first, count, file, row)
}

// Move appends count rows of file from, which is in Moved.
func (m *RowMap) Move(from table.FileID, first, count uint64, file table.FileID, row uint64) {
	if n := len(m.Ranges); n > 0 {
		if l := &m.Ranges[n-1]; l.From == from && l.File == file && l.First+l.Count == first && l.Row+l.Count == row {
			l.Count += count
			return
		}
	}
	m.Ranges = append(m.Ranges, Range{From: from, First: first, Count: count, File: file, Row: row})
}

// Sort orders files and ranges, for those who wrote several files at a time.
func (m *RowMap) Sort() {
	slices.Sort(m.Moved)
	slices.SortFunc(m.Ranges, func(a, b Range) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.First, b.First)) })
}

// Covers reports whether the row that was called ref has another name, or none, since this flip.
func (m *RowMap) Covers(ref table.Ref) bool {
	if ref.File == 0 {
		return ref.Row >= m.Begin && ref.Row < m.End
	}
	_, moved := slices.BinarySearch(m.Moved, ref.File)
	return moved
}

// Find is the name after the flip of a row that it covers; false if the row was dead by then.
func (m *RowMap) Find(ref table.Ref) (table.Ref, bool) {
	i := sort.Search(len(m.Ranges), func(i int) bool {
		r := &m.Ranges[i]
		return r.From > ref.File || r.From == ref.File && r.First > ref.Row
	}) - 1
	if i < 0 || m.Ranges[i].From != ref.File || ref.Row-m.Ranges[i].First >= m.Ranges[i].Count {
		return table.Ref{}, false
	}
	r := &m.Ranges[i]
	return table.Ref{File: r.File, Row: r.Row + ref.Row - r.First}, true
}

// Next is the row's name after the flip, whether or not it covers it; false if the row was dead by then.
func (m *RowMap) Next(ref table.Ref) (table.Ref, bool) {
	if !m.Covers(ref) {
		return ref, true
	}
	return m.Find(ref)
}

// Back is the name that a file row had before the flip; false if this flip did not write it.
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
	return table.Ref{File: m.back[i].From, Row: m.back[i].First + ref.Row - m.back[i].Row}, true
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

// rowMapVersion 1 knew no moves of files.
const rowMapVersion = 2

// EncodeRowMaps makes the bytes that a flip stores: version, number of maps, and per map begin, end, number of moved files and their ids,
// number of ranges and the ranges (from, first, count, file, row), all as unsigned varints. first is the gap to the end of the range before
// if that is of the same file, or, in the first of the tail, to begin.
func EncodeRowMaps(maps []*RowMap) []byte {
	b := append(make([]byte, 0, 64), rowMapVersion)
	b = binary.AppendUvarint(b, uint64(len(maps)))
	for _, m := range maps {
		b = binary.AppendUvarint(b, m.Begin)
		b = binary.AppendUvarint(b, m.End)
		b = binary.AppendUvarint(b, uint64(len(m.Moved)))
		for _, id := range m.Moved {
			b = binary.AppendUvarint(b, uint64(id))
		}
		b = binary.AppendUvarint(b, uint64(len(m.Ranges)))
		from, at := table.FileID(0), m.Begin
		for _, r := range m.Ranges {
			if r.From != from {
				from, at = r.From, 0
			}
			b = binary.AppendUvarint(b, uint64(from))
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
	if b[0] != rowMapVersion && b[0] != 1 {
		return nil, fmt.Errorf("decode row map: version %d, want %d: %w", b[0], rowMapVersion, ErrCorrupt)
	}
	d := mapDecoder{b: b[1:], moves: b[0] > 1}
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
	b     []byte
	moves bool
	bad   bool
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
	if d.moves {
		for n := d.count(); n > 0 && !d.bad; n-- {
			m.Moved = append(m.Moved, table.FileID(d.uint()))
		}
	}
	from, at := table.FileID(0), m.Begin
	for n := d.count(); n > 0 && !d.bad; n-- {
		r := Range{From: from}
		if d.moves {
			r.From = table.FileID(d.uint())
		}
		if r.From != from {
			d.bad = d.bad || r.From < from || !m.Covers(table.Ref{File: r.From})
			from, at = r.From, 0
		}
		r.First, r.Count = at+d.uint(), d.uint()
		r.File, r.Row = table.FileID(d.uint()), d.uint()
		at = r.First + r.Count
		if r.Count == 0 || from == 0 && at > m.End || at < r.First {
			d.bad = true
		}
		m.Ranges = append(m.Ranges, r)
	}
	return m
}
