package table

import (
	"encoding/binary"
	"math"
	"unsafe"
)

// Vec is a column vector in the layout of Arrow, so that it becomes an Arrow array without a copy (Bool excepted, which is
// a byte a value here and a bit in Arrow). A Vec grows at its end; what is below Len never changes, so a copy of the struct
// is a stable view of the first Len values while the owner appends (Truncate is only for vectors nobody else has seen).
type Vec struct {
	Type  Type
	Len   int
	Nulls int
	Valid []byte  // bitmap, least significant bit first; nil while there is no NULL
	Fixed []byte  // fixed kinds: Len*Width bytes, little-endian
	Off   []int32 // String, Binary, List: Len+1 offsets into Data or Elems; nil while Len is 0
	Data  []byte  // String, Binary
	Elems *Vec    // List
	// Exact holds, in row order, the values that Type cannot represent. They are NULL in the vector, or the nearest value (a
	// numeric whose spelling the decimal loses): whoever wants the value itself looks at ExactText first.
	Exact []Exact
}

// Exact is one value that the column's lake type cannot hold, as its Postgres text.
type Exact struct {
	Row  int
	Text string
}

// NewVec makes an empty vector of type t.
func NewVec(t Type) *Vec {
	v := &Vec{Type: t}
	if t.Kind == List {
		v.Elems = NewVec(*t.Elem)
	}
	return v
}

// IsNull reports whether value i is NULL in the vector. A value in Exact may be NULL in this sense: see ExactText.
func (v *Vec) IsNull(i int) bool { return v.Valid != nil && v.Valid[i>>3]&(1<<(i&7)) == 0 }

// ExactText is the text of value i if it is one that Type cannot hold.
func (v *Vec) ExactText(i int) (string, bool) {
	lo, hi := 0, len(v.Exact)
	for lo < hi {
		if m := (lo + hi) / 2; v.Exact[m].Row < i {
			lo = m + 1
		} else {
			hi = m
		}
	}
	if lo < len(v.Exact) && v.Exact[lo].Row == i {
		return v.Exact[lo].Text, true
	}
	return "", false
}

func (v *Vec) pushValid(ok bool) {
	if v.Valid == nil {
		if ok {
			return
		}
		v.Valid = make([]byte, (v.Len>>3)+1)
		for i := range v.Valid {
			v.Valid[i] = 0xff
		}
		v.Valid[v.Len>>3] = byte(1<<(v.Len&7)) - 1
	} else if v.Len&7 == 0 && v.Len>>3 >= len(v.Valid) {
		v.Valid = append(v.Valid, 0)
	}
	if ok {
		// A reader may hold this byte's lower bits: copy on write would cost a byte each; readers only look below their Len.
		v.Valid[v.Len>>3] |= 1 << (v.Len & 7)
	} else {
		v.Nulls++
	}
}

func (v *Vec) pushOff(end int) {
	if v.Off == nil {
		v.Off = append(v.Off, 0)
	}
	v.Off = append(v.Off, int32(end))
}

// AppendNull appends NULL.
func (v *Vec) AppendNull() {
	v.pushValid(false)
	v.appendZero()
	v.Len++
}

func (v *Vec) appendZero() {
	switch w := v.Type.Kind.Width(); {
	case w == 1:
		v.Fixed = append(v.Fixed, 0)
	case w == 4:
		v.Fixed = append(v.Fixed, 0, 0, 0, 0)
	case w == 8:
		v.Fixed = append(v.Fixed, 0, 0, 0, 0, 0, 0, 0, 0)
	case w > 0:
		v.Fixed = append(v.Fixed, make([]byte, w)...)
	case v.Type.Kind == List:
		v.pushOff(v.Elems.Len)
	default:
		v.pushOff(len(v.Data))
	}
}

// AppendExact appends a value that the lake type cannot hold.
func (v *Vec) AppendExact(text string) {
	v.Exact = append(v.Exact, Exact{Row: v.Len, Text: text})
	v.AppendNull()
}

// AppendBool appends to a Bool vector.
func (v *Vec) AppendBool(b bool) {
	v.pushValid(true)
	var x byte
	if b {
		x = 1
	}
	v.Fixed = append(v.Fixed, x)
	v.Len++
}

// AppendInt32 appends to an Int32 or Date vector.
func (v *Vec) AppendInt32(x int32) {
	v.pushValid(true)
	v.Fixed = binary.LittleEndian.AppendUint32(v.Fixed, uint32(x))
	v.Len++
}

// AppendInt64 appends to an Int64, Decimal64, Time, Timestamp or TimestampTZ vector.
func (v *Vec) AppendInt64(x int64) {
	v.pushValid(true)
	v.Fixed = binary.LittleEndian.AppendUint64(v.Fixed, uint64(x))
	v.Len++
}

// AppendFloat32 appends to a Float32 vector.
func (v *Vec) AppendFloat32(x float32) {
	v.pushValid(true)
	v.Fixed = binary.LittleEndian.AppendUint32(v.Fixed, math.Float32bits(x))
	v.Len++
}

// AppendFloat64 appends to a Float64 vector.
func (v *Vec) AppendFloat64(x float64) { v.AppendInt64(int64(math.Float64bits(x))) }

// AppendFixed appends the raw bytes of one value of a fixed kind; len(b) is the kind's width.
func (v *Vec) AppendFixed(b []byte) {
	v.pushValid(true)
	v.Fixed = append(v.Fixed, b...)
	v.Len++
}

// AppendBytes appends to a String or Binary vector.
func (v *Vec) AppendBytes(b []byte) {
	v.pushValid(true)
	v.Data = append(v.Data, b...)
	v.pushOff(len(v.Data))
	v.Len++
}

// AppendString appends to a String vector.
func (v *Vec) AppendString(s string) {
	v.pushValid(true)
	v.Data = append(v.Data, s...)
	v.pushOff(len(v.Data))
	v.Len++
}

// EndList ends one value of a List vector: its elements are what was appended to Elems since the value before it.
func (v *Vec) EndList() {
	v.pushValid(true)
	v.pushOff(v.Elems.Len)
	v.Len++
}

// Bool is value i of a Bool vector.
func (v *Vec) Bool(i int) bool { return v.Fixed[i] != 0 }

// Int32 is value i of an Int32 or Date vector.
func (v *Vec) Int32(i int) int32 { return int32(binary.LittleEndian.Uint32(v.Fixed[i*4:])) }

// Int64 is value i of an Int64, Decimal64, Time, Timestamp or TimestampTZ vector.
func (v *Vec) Int64(i int) int64 { return int64(binary.LittleEndian.Uint64(v.Fixed[i*8:])) }

// Float32 is value i of a Float32 vector.
func (v *Vec) Float32(i int) float32 { return math.Float32frombits(uint32(v.Int32(i))) }

// Float64 is value i of a Float64 vector.
func (v *Vec) Float64(i int) float64 { return math.Float64frombits(uint64(v.Int64(i))) }

// FixedAt is the raw bytes of value i of a fixed kind; they belong to the vector.
func (v *Vec) FixedAt(i int) []byte {
	w := v.Type.Kind.Width()
	return v.Fixed[i*w : i*w+w : i*w+w]
}

// Bytes is value i of a String or Binary vector; the bytes belong to the vector.
func (v *Vec) Bytes(i int) []byte { return v.Data[v.Off[i]:v.Off[i+1]:v.Off[i+1]] }

// ListRange is the range [begin, end) in Elems of value i of a List vector.
func (v *Vec) ListRange(i int) (begin, end int) { return int(v.Off[i]), int(v.Off[i+1]) }

// AppendFrom appends value i of src, a vector of the same type.
func (v *Vec) AppendFrom(src *Vec, i int) {
	if len(src.Exact) > 0 {
		if t, ok := src.ExactText(i); ok {
			v.Exact = append(v.Exact, Exact{Row: v.Len, Text: t})
		}
	}
	if src.IsNull(i) {
		v.AppendNull()
		return
	}
	switch {
	case v.Type.Kind == List:
		b, e := src.ListRange(i)
		for k := b; k < e; k++ {
			v.Elems.AppendFrom(src.Elems, k)
		}
		v.EndList()
	case v.Type.Kind.Width() == 0:
		v.AppendBytes(src.Bytes(i))
	default:
		v.AppendFixed(src.FixedAt(i))
	}
}

// AppendRange appends values [begin, end) of src, a vector of the same type.
func (v *Vec) AppendRange(src *Vec, begin, end int) {
	if src.Nulls > 0 || v.Nulls > 0 || len(src.Exact) > 0 || v.Type.Kind == List || end-begin < 4 {
		for i := begin; i < end; i++ {
			v.AppendFrom(src, i)
		}
		return
	}
	if w := v.Type.Kind.Width(); w > 0 {
		v.Fixed = append(v.Fixed, src.Fixed[begin*w:end*w]...)
	} else {
		base := int32(len(v.Data)) - src.Off[begin]
		v.Data = append(v.Data, src.Data[src.Off[begin]:src.Off[end]]...)
		if v.Off == nil {
			v.Off = append(v.Off, 0)
		}
		for _, o := range src.Off[begin+1 : end+1] {
			v.Off = append(v.Off, o+base)
		}
	}
	v.Len += end - begin
}

// Truncate drops the values from n on. Only the owner of a vector that nobody else has seen may call it.
func (v *Vec) Truncate(n int) {
	if n >= v.Len {
		return
	}
	if v.Valid != nil {
		nulls := 0
		for i := 0; i < n; i++ {
			if v.IsNull(i) {
				nulls++
			}
		}
		v.Nulls = nulls
		if nulls == 0 {
			v.Valid = nil
		} else {
			v.Valid = v.Valid[:(n+7)>>3]
			if n&7 != 0 {
				v.Valid[n>>3] &= byte(1<<(n&7)) - 1
			}
		}
	}
	for len(v.Exact) > 0 && v.Exact[len(v.Exact)-1].Row >= n {
		v.Exact = v.Exact[:len(v.Exact)-1]
	}
	if w := v.Type.Kind.Width(); w > 0 {
		v.Fixed = v.Fixed[:n*w]
	} else if v.Off != nil {
		end := int(v.Off[n])
		v.Off = v.Off[:n+1]
		if v.Type.Kind == List {
			v.Elems.Truncate(end)
		} else {
			v.Data = v.Data[:end]
		}
	}
	v.Len = n
}

// Size is the memory that the values take, in bytes.
func (v *Vec) Size() int {
	n := len(v.Valid) + len(v.Fixed) + 4*len(v.Off) + len(v.Data)
	for i := range v.Exact {
		n += 24 + len(v.Exact[i].Text)
	}
	if v.Elems != nil {
		n += v.Elems.Size()
	}
	return n
}

// Int64s is the values of an 8-byte kind as a slice that shares the vector's memory.
func (v *Vec) Int64s() []int64 {
	if v.Len == 0 {
		return nil
	}
	return unsafe.Slice((*int64)(unsafe.Pointer(unsafe.SliceData(v.Fixed))), v.Len)
}

// Batch is rows of one table: one vector a column of the schema, all of length Rows.
type Batch struct {
	Schema *Schema
	Rows   int
	Cols   []*Vec
}

// NewBatch makes an empty batch.
func NewBatch(s *Schema) *Batch {
	b := &Batch{Schema: s, Cols: make([]*Vec, len(s.Columns))}
	for i := range s.Columns {
		b.Cols[i] = NewVec(s.Columns[i].Type)
	}
	return b
}

// AppendRow appends row i of src, a batch of the same schema.
func (b *Batch) AppendRow(src *Batch, i int) {
	for c := range b.Cols {
		b.Cols[c].AppendFrom(src.Cols[c], i)
	}
	b.Rows++
}

// AppendRange appends rows [begin, end) of src, a batch of the same schema.
func (b *Batch) AppendRange(src *Batch, begin, end int) {
	for c := range b.Cols {
		b.Cols[c].AppendRange(src.Cols[c], begin, end)
	}
	b.Rows += end - begin
}

// Truncate drops the rows from n on. Only for batches that nobody else has seen.
func (b *Batch) Truncate(n int) {
	for _, c := range b.Cols {
		c.Truncate(n)
	}
	b.Rows = min(b.Rows, n)
}

// Snap is a stable view of the rows that are in the batch now, while its owner goes on appending.
func (b *Batch) Snap() *Batch {
	s := &Batch{Schema: b.Schema, Rows: b.Rows, Cols: make([]*Vec, len(b.Cols))}
	for i, c := range b.Cols {
		s.Cols[i] = c.snap()
	}
	return s
}

func (v *Vec) snap() *Vec {
	c := *v
	if v.Valid != nil { // the last byte still gains bits: readers take their own
		c.Valid = append([]byte(nil), v.Valid...)
	}
	if v.Elems != nil {
		c.Elems = v.Elems.snap()
	}
	return &c
}

// Size is the memory that the rows take, in bytes.
func (b *Batch) Size() int {
	n := 0
	for _, c := range b.Cols {
		n += c.Size()
	}
	return n
}
