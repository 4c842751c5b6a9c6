package wal

import (
	"encoding/binary"

	"sluice/writer/table"
)

// The row form: per row a bitmap of the columns that are NULL in the vector, then the other values in column order. Fixed
// kinds are their bytes, variable ones a uvarint length and bytes, lists a uvarint length, a bitmap of NULL elements and
// the other elements. Batches with exact texts take the column form whatever their size.

func hasExact(b *table.Batch) bool {
	for _, v := range b.Cols {
		if len(v.Exact) > 0 || v.Elems != nil && len(v.Elems.Exact) > 0 {
			return true
		}
	}
	return false
}

func appendRows(b []byte, rows *table.Batch) []byte {
	for i := range rows.Rows {
		bitmap := len(b)
		b = extend(b, (len(rows.Cols)+7)/8)
		for c, v := range rows.Cols {
			if v.Valid != nil && v.IsNull(i) {
				b[bitmap+c>>3] |= 1 << (c & 7)
				continue
			}
			b = appendValue(b, v, i)
		}
	}
	return b
}

// appendValue is where a one-row transaction spends its time: the two common widths are single stores.
func appendValue(b []byte, v *table.Vec, i int) []byte {
	switch w := v.Type.Kind.Width(); w {
	case 8:
		return le.AppendUint64(b, le.Uint64(v.Fixed[i*8:]))
	case 4:
		return le.AppendUint32(b, le.Uint32(v.Fixed[i*4:]))
	case 0:
		if v.Type.Kind == table.List {
			return appendList(b, v, i)
		}
		s := v.Data[v.Off[i]:v.Off[i+1]]
		return append(binary.AppendUvarint(b, uint64(len(s))), s...)
	default:
		return append(b, v.Fixed[i*w:i*w+w]...)
	}
}

func appendList(b []byte, v *table.Vec, i int) []byte {
	begin, end := v.ListRange(i)
	b = binary.AppendUvarint(b, uint64(end-begin))
	bitmap := len(b)
	b = extend(b, (end-begin+7)/8)
	for k := begin; k < end; k++ {
		if v.Elems.IsNull(k) {
			b[bitmap+(k-begin)>>3] |= 1 << ((k - begin) & 7)
			continue
		}
		b = appendValue(b, v.Elems, k)
	}
	return b
}

// rows reads n rows into a new batch.
func (c *cursor) rows(s *table.Schema, n int) *table.Batch {
	b := table.NewBatch(s)
	for range n {
		nulls := c.take((len(b.Cols) + 7) / 8)
		for i, v := range b.Cols {
			if c.err != nil {
				return b
			}
			c.value(v, nulls[i>>3]&(1<<(i&7)) != 0)
		}
		b.Rows++
	}
	return b
}

func (c *cursor) value(v *table.Vec, null bool) {
	switch w := v.Type.Kind.Width(); {
	case null:
		v.AppendNull()
	case w > 0:
		if x := c.take(w); c.err == nil {
			v.AppendFixed(x)
		}
	case v.Type.Kind == table.List:
		c.list(v)
	default:
		v.AppendBytes(c.take(c.length()))
	}
}

func (c *cursor) list(v *table.Vec) {
	n := int(c.uvarint(8 * uint64(c.left())))
	nulls := c.take((n + 7) / 8)
	for k := 0; k < n && c.err == nil; k++ {
		c.value(v.Elems, nulls[k>>3]&(1<<(k&7)) != 0)
	}
	v.EndList()
}
