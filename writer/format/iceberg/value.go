package iceberg

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
	ice "github.com/apache/iceberg-go"
	"github.com/google/uuid"

	"sluice/writer/format"
	"sluice/writer/table"
)

// toJSON is the first value of v as a default in a schema's JSON: Iceberg's JSON single-value form.
func toJSON(v *table.Vec) (any, error) {
	switch x := toLiteral(v.Type, format.Value(v, 0)).(type) {
	case ice.Date:
		return time.Unix(int64(x)*86400, 0).UTC().Format("2006-01-02"), nil
	case ice.Time:
		return time.UnixMicro(int64(x)).UTC().Format("15:04:05.000000"), nil
	case ice.Timestamp:
		s := time.UnixMicro(int64(x)).UTC().Format("2006-01-02T15:04:05.000000")
		if v.Type.Kind == table.TimestampTZ {
			s += "+00:00"
		}
		return s, nil
	case ice.Decimal:
		return x.Val.ToString(int32(x.Scale)), nil
	case []byte:
		return hex.EncodeToString(x), nil
	case float32:
		return finite(float64(x))
	case float64:
		return finite(x)
	case uuid.UUID:
		return x.String(), nil
	default:
		return x, nil // boolean, int, long, string
	}
}

func finite(x float64) (any, error) {
	if x-x != 0 {
		return nil, fmt.Errorf("default %v: JSON has no such number", x)
	}
	return x, nil
}

// toLiteral is a value as format.Value gives it, of type t, in iceberg-go's terms.
func toLiteral(t table.Type, v any) any {
	switch t.Kind {
	case table.Date:
		return ice.Date(v.(int32))
	case table.Time:
		return ice.Time(v.(int64))
	case table.Timestamp, table.TimestampTZ:
		return ice.Timestamp(v.(int64))
	case table.UUID:
		return uuid.UUID(v.([16]byte))
	case table.Decimal64, table.Decimal128:
		if n, ok := v.(int64); ok {
			return ice.Decimal{Val: decimal128.FromI64(n), Scale: t.Scale}
		}
		b := v.([16]byte)
		n := decimal128.New(int64(binary.LittleEndian.Uint64(b[8:])), binary.LittleEndian.Uint64(b[:]))
		return ice.Decimal{Val: n, Scale: t.Scale}
	}
	return v
}

// PartitionValues is the partition values of row i of b, one for each field of s.Spec: what a file must have that holds it.
func PartitionValues(s *table.Schema, b *table.Batch, i int) ([]any, error) {
	values := make([]any, len(s.Spec))
	for k, p := range s.Spec {
		c := slices.IndexFunc(s.Columns, func(c table.Column) bool { return c.FieldID == p.Source })
		if c < 0 {
			return nil, fmt.Errorf("partition field %s: no column with field id %d", p.Name, p.Source)
		}
		t, err := ice.ParseTransform(p.Transform)
		if err != nil {
			return nil, fmt.Errorf("partition field %s: %w", p.Name, err)
		}
		v := format.Value(b.Cols[c], i)
		if v == nil {
			continue
		}
		lit, err := literal(toLiteral(s.Columns[c].Type, v))
		if err != nil {
			return nil, fmt.Errorf("partition field %s: %w", p.Name, err)
		}
		values[k] = fromLiteral(t.Apply(ice.Optional[ice.Literal]{Valid: true, Val: lit}).Val.Any())
	}
	return values, nil
}

func literal(v any) (ice.Literal, error) {
	switch v := v.(type) {
	case bool:
		return ice.NewLiteral(v), nil
	case int32:
		return ice.NewLiteral(v), nil
	case int64:
		return ice.NewLiteral(v), nil
	case float32:
		return ice.NewLiteral(v), nil
	case float64:
		return ice.NewLiteral(v), nil
	case string:
		return ice.NewLiteral(v), nil
	case []byte:
		return ice.NewLiteral(v), nil
	case ice.Date:
		return ice.NewLiteral(v), nil
	case ice.Time:
		return ice.NewLiteral(v), nil
	case ice.Timestamp:
		return ice.NewLiteral(v), nil
	case ice.Decimal:
		return ice.NewLiteral(v), nil
	case uuid.UUID:
		return ice.NewLiteral(v), nil
	}
	return nil, fmt.Errorf("a %T has no partition value", v)
}

// toPartition is a file's partition values by partition field id.
func toPartition(s *table.Schema, values []any) (map[int]any, error) {
	if len(values) != len(s.Spec) {
		return nil, fmt.Errorf("%d partition values for %d partition fields", len(values), len(s.Spec))
	}
	part := map[int]any{}
	for i, p := range s.Spec {
		v := values[i]
		switch {
		case v == nil:
		case p.Transform == "day":
			v = ice.Date(v.(int32))
		case p.Transform == "identity" || strings.HasPrefix(p.Transform, "truncate["):
			v = toLiteral(source(s, p).Type, v) // toSpec has seen the column
		}
		part[p.FieldID] = v
	}
	return part, nil
}

// fromPartition is the partition values of a file of spec, in order of the spec's fields.
func fromPartition(spec *ice.PartitionSpec, part map[int]any) []any {
	var values []any
	for _, p := range spec.Fields() {
		values = append(values, fromLiteral(part[p.FieldID]))
	}
	return values
}

// fromLiteral is toLiteral backwards, but for decimals: those that fit are int64 whatever their type; toLiteral takes both.
func fromLiteral(v any) any {
	switch v := v.(type) {
	case ice.Date:
		return int32(v)
	case ice.Time:
		return int64(v)
	case ice.Timestamp:
		return int64(v)
	case uuid.UUID:
		return [16]byte(v)
	case ice.DecimalLiteral:
		return fromDecimal(v.Val)
	case ice.Decimal:
		return fromDecimal(v.Val)
	}
	return v
}

func fromDecimal(n decimal128.Num) any {
	if n.HighBits() == int64(n.LowBits())>>63 {
		return int64(n.LowBits())
	}
	b := binary.LittleEndian.AppendUint64(nil, n.LowBits())
	return [16]byte(binary.LittleEndian.AppendUint64(b, uint64(n.HighBits())))
}

// toBound is a bound in the layout of table.Vec as Iceberg serializes single values.
func toBound(k table.Kind, b []byte) []byte {
	if b == nil || k != table.Decimal64 && k != table.Decimal128 {
		return b
	}
	out := slices.Clone(b) // decimals: big-endian two's complement, as short as possible
	slices.Reverse(out)
	for len(out) > 1 && (out[0] == 0 && out[1] < 0x80 || out[0] == 0xff && out[1] >= 0x80) {
		out = out[1:]
	}
	return out
}
