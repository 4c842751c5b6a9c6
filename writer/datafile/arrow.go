package datafile

import (
	"encoding/binary"
	"fmt"
	"math/big"
	"slices"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"sluice/writer/table"
)

// This file is the only place where vectors become Arrow arrays and back. Buffers are shared, not copied, except where the
// layouts differ (Bool, Decimal64) or an array starts inside its buffers.

// fieldIDKey is the Arrow field metadata that pqarrow turns into a Parquet field id.
const fieldIDKey = "PARQUET:field_id"

func fieldMetadata(id int) arrow.Metadata {
	return arrow.NewMetadata([]string{fieldIDKey}, []string{strconv.Itoa(id)})
}

// fieldID is the field id of f, or -1.
func fieldID(f arrow.Field) int {
	if s, ok := f.Metadata.GetValue(fieldIDKey); ok {
		if id, err := strconv.Atoi(s); err == nil {
			return id
		}
	}
	return -1
}

// ArrowSchema is the Arrow schema of s with field ids, as Write uses it: companions of the columns in exact (indexes into
// s.Columns) come after all columns.
func ArrowSchema(s *table.Schema, exact []int) *arrow.Schema {
	var fields []arrow.Field
	for _, c := range s.Columns {
		fields = append(fields, arrow.Field{Name: c.Name, Type: ArrowType(c.Type, c.ElemID), Nullable: !c.NotNull || c.Exact,
			Metadata: fieldMetadata(c.FieldID)})
	}
	for _, i := range exact {
		fields = append(fields, arrow.Field{Name: CompanionName(s, i), Type: arrow.BinaryTypes.String, Nullable: true,
			Metadata: fieldMetadata(s.Columns[i].ExactID)})
	}
	return arrow.NewSchema(fields, nil)
}

// ArrowType is the Arrow type of t; a list's element gets the field id elemID.
func ArrowType(t table.Type, elemID int) arrow.DataType {
	switch t.Kind {
	case table.Bool:
		return arrow.FixedWidthTypes.Boolean
	case table.Int32:
		return arrow.PrimitiveTypes.Int32
	case table.Int64:
		return arrow.PrimitiveTypes.Int64
	case table.Float32:
		return arrow.PrimitiveTypes.Float32
	case table.Float64:
		return arrow.PrimitiveTypes.Float64
	case table.Decimal64, table.Decimal128:
		return &arrow.Decimal128Type{Precision: int32(t.Precision), Scale: int32(t.Scale)}
	case table.Date:
		return arrow.FixedWidthTypes.Date32
	case table.Time:
		return arrow.FixedWidthTypes.Time64us
	case table.Timestamp:
		return &arrow.TimestampType{Unit: arrow.Microsecond}
	case table.TimestampTZ:
		return arrow.FixedWidthTypes.Timestamp_us
	case table.UUID:
		return extensions.NewUUIDType()
	case table.String:
		return arrow.BinaryTypes.String
	case table.Binary:
		return arrow.BinaryTypes.Binary
	case table.List:
		return arrow.ListOfField(arrow.Field{Name: "element", Type: ArrowType(*t.Elem, 0), Nullable: true, Metadata: fieldMetadata(elemID)})
	}
	panic(fmt.Sprintf("datafile: no arrow type for kind %d", t.Kind))
}

// ToArrow is the batch as an Arrow record with the schema ArrowSchema(b.Schema, exact). It shares the batch's memory.
func ToArrow(b *table.Batch, exact []int) arrow.RecordBatch {
	return toRecord(b, ArrowSchema(b.Schema, exact), exact)
}

func toRecord(b *table.Batch, schema *arrow.Schema, exact []int) arrow.RecordBatch {
	cols := make([]arrow.Array, 0, len(b.Cols)+len(exact))
	for i, v := range b.Cols {
		cols = append(cols, toArray(v, schema.Field(i).Type))
	}
	for _, i := range exact {
		cols = append(cols, toArray(companion(b.Cols[i]), arrow.BinaryTypes.String))
	}
	return array.NewRecordBatch(schema, cols, int64(b.Rows))
}

// companion is the texts of v.Exact as a string vector as long as v.
func companion(v *table.Vec) *table.Vec {
	c := table.NewVec(table.Type{Kind: table.String})
	for _, e := range v.Exact {
		for c.Len < e.Row {
			c.AppendNull()
		}
		c.AppendString(e.Text)
	}
	for c.Len < v.Len {
		c.AppendNull()
	}
	return c
}

// toArray is v as an Arrow array of type dt, which is ArrowType of v.Type.
func toArray(v *table.Vec, dt arrow.DataType) arrow.Array {
	if ext, ok := dt.(arrow.ExtensionType); ok {
		return array.NewExtensionArrayWithStorage(ext, array.MakeFromData(toData(v, ext.StorageType())))
	}
	return array.MakeFromData(toData(v, dt))
}

func toData(v *table.Vec, dt arrow.DataType) arrow.ArrayData {
	var valid *memory.Buffer
	if v.Nulls > 0 {
		valid = memory.NewBufferBytes(v.Valid)
	}
	var children []arrow.ArrayData
	buffers := []*memory.Buffer{valid}
	switch v.Type.Kind {
	case table.Bool:
		buffers = append(buffers, memory.NewBufferBytes(packBits(v.Fixed[:v.Len])))
	case table.Decimal64:
		buffers = append(buffers, memory.NewBufferBytes(widenDecimals(v)))
	case table.List:
		elem := dt.(*arrow.ListType).Elem()
		buffers = append(buffers, offsets(v))
		children = append(children, toArray(v.Elems, elem).Data())
	case table.String, table.Binary:
		buffers = append(buffers, offsets(v), memory.NewBufferBytes(v.Data))
	default:
		buffers = append(buffers, memory.NewBufferBytes(v.Fixed))
	}
	return array.NewData(dt, v.Len, buffers, children, v.Nulls, 0)
}

func offsets(v *table.Vec) *memory.Buffer {
	off := v.Off
	if v.Len == 0 {
		off = []int32{0}
	}
	return memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(off))
}

func packBits(bools []byte) []byte {
	bits := make([]byte, (len(bools)+7)/8)
	for i, b := range bools {
		bits[i>>3] |= (b & 1) << (i & 7)
	}
	return bits
}

func widenDecimals(v *table.Vec) []byte {
	out := make([]byte, 0, 16*v.Len)
	for i := range v.Len {
		x := v.Int64(i)
		out = binary.LittleEndian.AppendUint64(out, uint64(x))
		out = binary.LittleEndian.AppendUint64(out, uint64(x>>63))
	}
	return out
}

// FromArrow is an Arrow record as a batch of schema s: fields are found by field id, missing columns get their Initial
// value, companion texts come back as Exact. The batch shares the record's memory, which must be Go's.
func FromArrow(rec arrow.RecordBatch, s *table.Schema) (*table.Batch, error) {
	b := &table.Batch{Schema: s, Rows: int(rec.NumRows()), Cols: make([]*table.Vec, len(s.Columns))}
	byID := map[int]arrow.Array{}
	for i, f := range rec.Schema().Fields() {
		byID[fieldID(f)] = rec.Column(i)
	}
	for i := range s.Columns {
		var err error
		if b.Cols[i], err = column(&s.Columns[i], byID, b.Rows); err != nil {
			return nil, fmt.Errorf("convert column %s: %w", s.Columns[i].Name, err)
		}
	}
	return b, nil
}

func column(c *table.Column, byID map[int]arrow.Array, rows int) (*table.Vec, error) {
	a, ok := byID[c.FieldID]
	if !ok {
		return Initial(c, rows)
	}
	v, err := fromArray(a, c.Type)
	if err != nil || c.ExactID == 0 || byID[c.ExactID] == nil {
		return v, err
	}
	texts, err := fromArray(byID[c.ExactID], table.Type{Kind: table.String})
	if err != nil {
		return nil, err
	}
	for i := range texts.Len {
		if !texts.IsNull(i) && (v.IsNull(i) || spells(string(texts.Bytes(i)), v, i)) {
			v.Exact = append(v.Exact, table.Exact{Row: i, Text: string(texts.Bytes(i))})
		}
	}
	return v, nil
}

// spells reports whether a text beside a value is that value's own spelling (1.10 beside 1.1). Any other is left over from an engine that
// changed only the value.
func spells(text string, v *table.Vec, i int) bool {
	if v.Type.Kind == table.List {
		return true
	}
	if v.Type.Kind != table.Decimal64 && v.Type.Kind != table.Decimal128 {
		return false
	}
	want, ok := new(big.Rat).SetString(text)
	return ok && want.Cmp(decimalAt(v, i)) == 0
}

// decimalAt is value i of a decimal vector.
func decimalAt(v *table.Vec, i int) *big.Rat {
	b := slices.Clone(v.FixedAt(i))
	slices.Reverse(b)
	n := new(big.Int).SetBytes(b)
	if b[0]&0x80 != 0 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	return new(big.Rat).SetFrac(n, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(v.Type.Scale)), nil))
}

// Initial is the value that rows have which are older than column c, rows times. Where the lake type cannot hold it, or may lose its spelling,
// the text stands in Exact.
func Initial(c *table.Column, rows int) (*table.Vec, error) {
	v := table.NewVec(c.Type)
	if c.Initial == nil {
		for range rows {
			v.AppendNull()
		}
		return v, nil
	}
	one, err := ParseText(c.Type, *c.Initial)
	switch {
	case err != nil && !c.Exact:
		return nil, err
	case err != nil:
		one = table.NewVec(c.Type)
		one.AppendExact(*c.Initial)
	case c.Exact && (c.Type.Kind == table.Decimal64 || c.Type.Kind == table.Decimal128):
		one.Exact = []table.Exact{{Text: *c.Initial}}
	}
	for range rows {
		v.AppendFrom(one, 0)
	}
	return v, nil
}

// fromArray is a as a vector of type t, widened if a's type is one that t was widened from.
func fromArray(a arrow.Array, t table.Type) (*table.Vec, error) {
	if ext, ok := a.(array.ExtensionArray); ok {
		a = ext.Storage()
	}
	v := table.NewVec(t)
	v.Len = a.Len()
	setValid(v, a)
	if v.Len == 0 {
		return v, nil
	}
	switch a := a.(type) {
	case *array.Boolean:
		if t.Kind == table.Bool {
			v.Fixed = make([]byte, v.Len)
			for i := range v.Fixed {
				if a.Value(i) {
					v.Fixed[i] = 1
				}
			}
			return v, nil
		}
	case *array.Decimal128:
		return v, fromDecimals(v, a)
	case *array.String:
		return v, fromBytes(v, a.ValueOffsets(), a.ValueBytes())
	case *array.Binary:
		return v, fromBytes(v, a.ValueOffsets(), a.ValueBytes())
	case *array.LargeString:
		return v, fromBytes(v, narrow(a.ValueOffsets()), a.ValueBytes())
	case *array.LargeBinary:
		return v, fromBytes(v, narrow(a.ValueOffsets()), a.ValueBytes())
	case *array.List:
		return v, fromList(v, a.Offsets()[a.Data().Offset():][:v.Len+1], a.ListValues())
	case *array.LargeList:
		return v, fromList(v, narrow(a.Offsets()[a.Data().Offset():][:v.Len+1]), a.ListValues())
	default:
		if fromFixed(v, a) {
			return v, nil
		}
	}
	return nil, fmt.Errorf("a %s cannot be read as %s", a.DataType(), t)
}

// setValid takes a's validity bitmap over.
func setValid(v *table.Vec, a arrow.Array) {
	v.Nulls = a.NullN()
	if v.Nulls == 0 {
		return
	}
	n := (v.Len + 7) / 8
	off := a.Data().Offset()
	bits := a.NullBitmapBytes()
	if off%8 == 0 && v.Len%8 == 0 {
		v.Valid = bits[off/8 : off/8+n : off/8+n]
		return
	}
	v.Valid = make([]byte, n) // the bits after the last must be zero, and the buffer is not ours
	for i := range v.Len {
		if k := off + i; bits[k>>3]&(1<<(k&7)) != 0 {
			v.Valid[i>>3] |= 1 << (i & 7)
		}
	}
}

// fromFixed takes over or widens the values of a kind with a fixed width. It reports whether a's type fits v's.
func fromFixed(v *table.Vec, a arrow.Array) bool {
	switch dt := a.DataType().(type) {
	case *arrow.Int32Type:
		if v.Type.Kind == table.Int64 {
			for _, x := range a.(*array.Int32).Int32Values() {
				v.Fixed = binary.LittleEndian.AppendUint64(v.Fixed, uint64(int64(x)))
			}
			return true
		}
		return v.Type.Kind == table.Int32 && share(v, a)
	case *arrow.Float32Type:
		if v.Type.Kind == table.Float64 {
			w := table.NewVec(v.Type)
			for _, x := range a.(*array.Float32).Float32Values() {
				w.AppendFloat64(float64(x))
			}
			v.Fixed = w.Fixed
			return true
		}
		return v.Type.Kind == table.Float32 && share(v, a)
	case *arrow.Int64Type:
		return v.Type.Kind == table.Int64 && share(v, a)
	case *arrow.Float64Type:
		return v.Type.Kind == table.Float64 && share(v, a)
	case *arrow.Date32Type:
		return v.Type.Kind == table.Date && share(v, a)
	case *arrow.Time64Type:
		return v.Type.Kind == table.Time && dt.Unit == arrow.Microsecond && share(v, a)
	case *arrow.TimestampType:
		zoned := dt.TimeZone != ""
		return (v.Type.Kind == table.TimestampTZ && zoned || v.Type.Kind == table.Timestamp && !zoned) &&
			dt.Unit == arrow.Microsecond && share(v, a)
	case *arrow.FixedSizeBinaryType:
		return v.Type.Kind == table.UUID && dt.ByteWidth == 16 && share(v, a)
	}
	return false
}

func share(v *table.Vec, a arrow.Array) bool {
	w := v.Type.Kind.Width()
	begin := a.Data().Offset() * w
	end := begin + v.Len*w
	v.Fixed = a.Data().Buffers()[1].Bytes()[begin:end:end]
	return true
}

func fromDecimals(v *table.Vec, a *array.Decimal128) error {
	dt := a.DataType().(*arrow.Decimal128Type)
	if k := v.Type.Kind; k != table.Decimal64 && k != table.Decimal128 || int(dt.Scale) != v.Type.Scale {
		return fmt.Errorf("a %s cannot be read as %s", dt, v.Type)
	}
	if v.Type.Kind == table.Decimal128 {
		share(v, a)
		return nil
	}
	v.Fixed = make([]byte, 0, 8*v.Len)
	for i, x := range a.Values() {
		lo := x.LowBits()
		if !v.IsNull(i) && x.HighBits() != int64(lo)>>63 {
			return fmt.Errorf("%s does not fit %s", x.ToString(dt.Scale), v.Type)
		}
		v.Fixed = binary.LittleEndian.AppendUint64(v.Fixed, lo)
	}
	return nil
}

// fromBytes takes over variable values; data begins where off[0] points to.
func fromBytes(v *table.Vec, off []int32, data []byte) error {
	if v.Type.Kind != table.String && v.Type.Kind != table.Binary {
		return fmt.Errorf("a string or binary cannot be read as %s", v.Type)
	}
	v.Off, v.Data = rebase(off), data[:len(data):len(data)]
	return nil
}

func fromList(v *table.Vec, off []int32, elems arrow.Array) error {
	if v.Type.Kind != table.List {
		return fmt.Errorf("a list cannot be read as %s", v.Type)
	}
	begin, end := int64(off[0]), int64(off[len(off)-1])
	e, err := fromArray(array.NewSlice(elems, begin, end), *v.Type.Elem)
	if err != nil {
		return fmt.Errorf("convert list element: %w", err)
	}
	v.Off, v.Elems = rebase(off), e
	return nil
}

// rebase is off with the first offset 0.
func rebase(off []int32) []int32 {
	if off[0] == 0 {
		return slices.Clip(off)
	}
	out := make([]int32, len(off))
	for i, o := range off {
		out[i] = o - off[0]
	}
	return out
}

func narrow(off []int64) []int32 {
	out := make([]int32, len(off))
	for i, o := range off {
		out[i] = int32(o - off[0])
	}
	return out
}
