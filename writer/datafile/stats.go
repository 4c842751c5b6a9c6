package datafile

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"unicode/utf8"

	"sluice/writer/table"
)

// boundLength is how many characters (or bytes, for binary) of a bound are kept: Iceberg's default, truncate(16).
const boundLength = 16

// bounds gathers the statistics of one column over the batches of a file.
type bounds struct {
	stats  ColumnStats
	kind   table.Kind
	off    bool // no bounds: a kind without, or a NaN was seen
	seen   bool
	lo, hi int64 // integers
	f0, f1 float64
	b0, b1 []byte // decimals, strings, bytes
}

func newBounds(id int, kind table.Kind) *bounds {
	b := &bounds{stats: ColumnStats{FieldID: id, Counted: kind != table.List}, kind: kind}
	b.off = kind == table.List || kind == table.UUID // Spark compares uuids as signed numbers and would lose rows
	return b
}

func (b *bounds) add(v *table.Vec) {
	b.stats.Values += int64(v.Len)
	b.stats.Nulls += int64(v.Nulls)
	switch b.kind {
	case table.Float32, table.Float64:
		b.addFloats(v) // also counts NaNs
	case table.List, table.UUID:
	case table.Decimal128, table.String, table.Binary:
		b.addBytes(v)
	default:
		b.addInts(v)
	}
}

func (b *bounds) addInts(v *table.Vec) {
	for i := range v.Len {
		if v.IsNull(i) {
			continue
		}
		x := intAt(v, i)
		if !b.seen {
			b.lo, b.hi, b.seen = x, x, true
		}
		b.lo, b.hi = min(b.lo, x), max(b.hi, x)
	}
}

func intAt(v *table.Vec, i int) int64 {
	switch v.Type.Kind.Width() {
	case 1:
		return int64(v.Fixed[i])
	case 4:
		return int64(v.Int32(i))
	}
	return v.Int64(i)
}

func floatAt(v *table.Vec, i int) float64 {
	if v.Type.Kind == table.Float32 {
		return float64(v.Float32(i))
	}
	return v.Float64(i)
}

// hasNaN reports whether a vector holds a NaN.
func hasNaN(v *table.Vec) bool {
	if v.Type.Kind != table.Float32 && v.Type.Kind != table.Float64 {
		return false
	}
	for i := range v.Len {
		if x := floatAt(v, i); x != x && !v.IsNull(i) {
			return true
		}
	}
	return false
}

// addFloats switches bounds off at the first NaN: DuckDB and Spark sort NaN above all numbers, bounds leave it out, and a
// file that is pruned by them would lose rows.
func (b *bounds) addFloats(v *table.Vec) {
	for i := range v.Len {
		if v.IsNull(i) {
			continue
		}
		x := floatAt(v, i)
		if x != x {
			b.stats.NaNs++
			b.off = true
			continue
		}
		if !b.seen {
			b.f0, b.f1, b.seen = x, x, true
		}
		b.f0, b.f1 = min(b.f0, x), max(b.f1, x)
	}
}

func (b *bounds) addBytes(v *table.Vec) {
	compare := bytes.Compare
	if b.kind == table.Decimal128 {
		compare = compareDecimals
	}
	for i := range v.Len {
		if v.IsNull(i) {
			continue
		}
		x := valueAt(v, i)
		if !b.seen {
			b.b0, b.b1, b.seen = append([]byte{}, x...), append([]byte{}, x...), true // an empty bound is not nil
		} else if compare(x, b.b0) < 0 {
			b.b0 = append(b.b0[:0], x...)
		} else if compare(x, b.b1) > 0 {
			b.b1 = append(b.b1[:0], x...)
		}
	}
}

func valueAt(v *table.Vec, i int) []byte {
	if v.Type.Kind.Width() > 0 {
		return v.FixedAt(i)
	}
	return v.Bytes(i)
}

// compareDecimals orders 16-byte little-endian two's complement numbers.
func compareDecimals(x, y []byte) int {
	hx, hy := int64(binary.LittleEndian.Uint64(x[8:])), int64(binary.LittleEndian.Uint64(y[8:]))
	lx, ly := binary.LittleEndian.Uint64(x), binary.LittleEndian.Uint64(y)
	switch {
	case hx < hy || hx == hy && lx < ly:
		return -1
	case hx == hy && lx == ly:
		return 0
	}
	return 1
}

// finish is the column's statistics but for its size in the file.
func (b *bounds) finish() ColumnStats {
	s := b.stats
	if b.off || !b.seen {
		return s
	}
	switch b.kind {
	case table.Float32:
		lo, hi := zeroBounds(b.f0, b.f1)
		s.Min = binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(lo)))
		s.Max = binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(hi)))
	case table.Float64:
		lo, hi := zeroBounds(b.f0, b.f1)
		s.Min = binary.LittleEndian.AppendUint64(nil, math.Float64bits(lo))
		s.Max = binary.LittleEndian.AppendUint64(nil, math.Float64bits(hi))
	case table.Decimal128:
		s.Min, s.Max = b.b0, b.b1
	case table.String:
		s.Min, s.Max = cutLow(b.b0), cutHigh(b.b1)
	case table.Binary:
		s.Min, s.Max = b.b0[:min(len(b.b0), boundLength)], cutHighBytes(b.b1)
	default:
		w := b.kind.Width()
		s.Min = binary.LittleEndian.AppendUint64(nil, uint64(b.lo))[:w]
		s.Max = binary.LittleEndian.AppendUint64(nil, uint64(b.hi))[:w]
	}
	return s
}

// zeroBounds makes a bound of zero hold for both zeros.
func zeroBounds(lo, hi float64) (float64, float64) {
	if lo == 0 {
		lo = math.Copysign(0, -1)
	}
	if hi == 0 {
		hi = 0 // the positive one
		hi = math.Abs(hi)
	}
	return lo, hi
}

// cutLow keeps the first boundLength characters.
func cutLow(s []byte) []byte {
	if n := prefixLength(s); n < len(s) {
		return s[:n:n]
	}
	return s
}

func prefixLength(s []byte) int {
	n := 0
	for range boundLength {
		if n == len(s) {
			break
		}
		_, w := utf8.DecodeRune(s[n:])
		n += w
	}
	return n
}

// cutHigh is a string of at most boundLength characters that is not below s, nil if there is none.
func cutHigh(s []byte) []byte {
	n := prefixLength(s)
	if n == len(s) {
		return s
	}
	out := slices.Clone(s[:n])
	for len(out) > 0 {
		r, w := utf8.DecodeLastRune(out)
		out = out[:len(out)-w]
		if r == utf8.MaxRune {
			continue // cannot grow: drop it and raise the one before
		}
		if r++; r == 0xD800 {
			r = 0xE000 // surrogates are no characters
		}
		return utf8.AppendRune(out, r)
	}
	return nil
}

// cutHighBytes is cutHigh for bytes.
func cutHighBytes(s []byte) []byte {
	if len(s) <= boundLength {
		return s
	}
	out := slices.Clone(s[:boundLength])
	for i := len(out) - 1; i >= 0; i-- {
		if out[i] != 0xff {
			out[i]++
			return out[:i+1]
		}
	}
	return nil
}
