package wal

import (
	"encoding/binary"
	"math/bits"

	"sluice/writer/table"
)

// The column form: per column a vector header, then the vector's buffers as they are in memory, each padded to 8 bytes:
// the validity bitmap if there is a NULL, then the values (fixed kinds), or offsets and bytes, or offsets and the vector
// of the elements; last the exact texts as uvarint row, uvarint length, bytes.
const (
	vecKind  = 0  // u8, table.Kind
	vecFlags = 1  // u8
	vecExact = 4  // u32, number of exact texts
	vecLen   = 8  // u64, number of values
	vecData  = 16 // u64, bytes of the values of a variable kind

	vecHeader = 24

	vecHasNulls   = 1
	knownVecFlags = vecHasNulls
)

// appendVec appends the first n values. The vector's owner may be appending to it: nothing from n on is looked at.
func appendVec(b []byte, v *table.Vec, n int) []byte {
	start := len(b)
	var h [vecHeader]byte
	h[vecKind] = byte(v.Type.Kind)
	le.PutUint64(h[vecLen:], uint64(n))
	b = append(b, h[:]...)
	if v.Nulls > 0 && n > 0 {
		b[start+vecFlags] |= vecHasNulls
		b = appendValid(b, v.Valid, n)
	}
	if w := v.Type.Kind.Width(); w > 0 {
		b = pad(append(b, v.Fixed[:n*w]...))
	} else if n > 0 {
		b = appendVariable(b, start, v, n)
	}
	return appendExacts(b, start, v, n)
}

func appendValid(b, valid []byte, n int) []byte {
	b = append(b, valid[:(n+7)/8]...)
	if n&7 != 0 {
		b[len(b)-1] &= byte(1<<(n&7)) - 1
	}
	return pad(b)
}

func appendVariable(b []byte, start int, v *table.Vec, n int) []byte {
	for _, o := range v.Off[:n+1] {
		b = le.AppendUint32(b, uint32(o))
	}
	b = pad(b)
	end := int(v.Off[n])
	if v.Type.Kind == table.List {
		return appendVec(b, v.Elems, end)
	}
	le.PutUint64(b[start+vecData:], uint64(end))
	return pad(append(b, v.Data[:end]...))
}

func appendExacts(b []byte, start int, v *table.Vec, n int) []byte {
	count := uint32(0)
	for _, e := range v.Exact {
		if e.Row >= n {
			break
		}
		b = binary.AppendUvarint(b, uint64(e.Row))
		b = binary.AppendUvarint(b, uint64(len(e.Text)))
		b = append(b, e.Text...)
		count++
	}
	le.PutUint32(b[start+vecExact:], count)
	return pad(b)
}

// columns reads n rows in column form.
func (c *cursor) columns(s *table.Schema, n int) *table.Batch {
	b := &table.Batch{Schema: s, Rows: n, Cols: make([]*table.Vec, len(s.Columns))}
	for i := range s.Columns {
		b.Cols[i] = c.vec(s.Columns[i].Type, uint64(n))
	}
	return b
}

func (c *cursor) vec(t table.Type, want uint64) *table.Vec {
	v := table.NewVec(t)
	h := c.take(vecHeader)
	if c.err != nil {
		return v
	}
	n := le.Uint64(h[vecLen:])
	c.check(table.Kind(h[vecKind]) == t.Kind, "vector of kind %d in a column of kind %d", h[vecKind], t.Kind)
	c.check(n == want, "vector of %d values, expected %d", n, want)
	c.check(n <= 8*uint64(c.left()), "vector of %d values in %d bytes", n, c.left())
	c.check(h[vecFlags]&^knownVecFlags == 0, "unknown vector flags %#x", h[vecFlags])
	if c.err != nil {
		return v
	}
	v.Len = int(n)
	if h[vecFlags]&vecHasNulls != 0 {
		c.valid(v)
	}
	if w := t.Kind.Width(); w > 0 {
		v.Fixed = c.buffer(v.Len * w)
		c.align()
	} else if v.Len > 0 {
		c.variable(v, le.Uint64(h[vecData:]))
	}
	c.exacts(v, le.Uint32(h[vecExact:]))
	return v
}

// valid reads the bitmap and counts the NULLs.
func (c *cursor) valid(v *table.Vec) {
	v.Valid = c.buffer((v.Len + 7) / 8)
	c.align()
	if c.err != nil {
		return
	}
	ones := 0
	for _, x := range v.Valid {
		ones += bits.OnesCount8(x)
	}
	c.check(v.Len&7 == 0 || v.Valid[v.Len>>3]>>(v.Len&7) == 0, "validity bits behind value %d", v.Len)
	if v.Nulls = v.Len - ones; v.Nulls == 0 {
		v.Valid = nil
	}
}

func (c *cursor) variable(v *table.Vec, size uint64) {
	raw := c.take(4 * (v.Len + 1))
	c.align()
	if c.err != nil {
		return
	}
	v.Off = make([]int32, v.Len+1)
	ok := le.Uint32(raw) == 0
	for i := range v.Off {
		v.Off[i] = int32(le.Uint32(raw[4*i:]))
		ok = ok && (i == 0 || v.Off[i] >= v.Off[i-1])
	}
	c.check(ok, "offsets that do not grow from 0")
	end := uint64(v.Off[v.Len])
	if v.Type.Kind == table.List {
		v.Elems = c.vec(*v.Type.Elem, end)
		return
	}
	c.check(end == size, "offsets up to %d in %d bytes", end, size)
	if c.err == nil {
		v.Data = c.buffer(int(end))
		c.align()
	}
}

func (c *cursor) exacts(v *table.Vec, n uint32) {
	last := -1
	for ; n > 0 && c.err == nil; n-- {
		row := int(c.uvarint(uint64(v.Len)))
		text := string(c.take(c.length()))
		c.check(row > last && row < v.Len, "exact text of value %d", row)
		v.Exact = append(v.Exact, table.Exact{Row: row, Text: text})
		last = row
	}
	c.align()
}
