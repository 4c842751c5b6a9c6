package writer

import (
	"fmt"

	"sluice/writer/datafile"
	"sluice/writer/table"
)

// Adapt is the batch under another schema of its table: columns are found by field id, a column that the batch does not have
// is its Initial value. Vectors are shared where they can be. The error says which column Iceberg cannot promote.
func Adapt(b *table.Batch, to *table.Schema) (*table.Batch, error) {
	if b.Schema == to || b.Schema.ID == to.ID && len(b.Schema.Columns) == len(to.Columns) {
		return b, nil
	}
	out := &table.Batch{Schema: to, Rows: b.Rows, Cols: make([]*table.Vec, len(to.Columns))}
	for i := range to.Columns {
		v, err := adaptColumn(b, &to.Columns[i])
		if err != nil {
			return nil, fmt.Errorf("adapt column %s: %w", to.Columns[i].Name, err)
		}
		out.Cols[i] = v
	}
	return out, nil
}

func adaptColumn(b *table.Batch, c *table.Column) (*table.Vec, error) {
	for i := range b.Schema.Columns {
		if b.Schema.Columns[i].FieldID == c.FieldID {
			return widen(b.Cols[i], c.Type)
		}
	}
	return datafile.Initial(c, b.Rows)
}

// widen converts to a type that Iceberg lets a column grow to.
func widen(v *table.Vec, to table.Type) (*table.Vec, error) {
	if v.Type.Equal(to) {
		return v, nil
	}
	from := v.Type
	ok := from.Kind == table.Int32 && to.Kind == table.Int64 || from.Kind == table.Float32 && to.Kind == table.Float64 ||
		decimal(from) && decimal(to) && from.Scale == to.Scale && from.Precision <= to.Precision
	if !ok {
		return nil, fmt.Errorf("no way from %s to %s", from, to)
	}
	out := table.NewVec(to)
	for i := range v.Len {
		if v.IsNull(i) {
			out.AppendFrom(v, i) // NULL, or the exact text
			continue
		}
		widenValue(out, v, i)
	}
	return out, nil
}

func widenValue(out, v *table.Vec, i int) {
	switch {
	case v.Type.Kind == table.Int32:
		out.AppendInt64(int64(v.Int32(i)))
	case v.Type.Kind == table.Float32:
		out.AppendFloat64(float64(v.Float32(i)))
	case v.Type.Kind == out.Type.Kind:
		out.AppendFixed(v.FixedAt(i))
	default:
		var b [16]byte // sign extension of a little-endian number
		copy(b[:], v.FixedAt(i))
		if b[7]&0x80 != 0 {
			for k := 8; k < 16; k++ {
				b[k] = 0xff
			}
		}
		out.AppendFixed(b[:])
	}
}

func decimal(t table.Type) bool { return t.Kind == table.Decimal64 || t.Kind == table.Decimal128 }
