package server

import (
	"encoding/binary"
	"math/big"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"sluice/server/wire"
	"sluice/sql"
	"sluice/sql/pgvalue"
	"sluice/writer/datafile"
	"sluice/writer/table"
)

// rowEncoder makes DataRows of a reader's batches, in the types and formats that the client expects.
type rowEncoder struct {
	env    *pgvalue.Env
	cols   []resultColumn
	frames [][]byte
	value  []byte // of the field at hand
}

// resultColumn is one column of the result.
type resultColumn struct {
	codec  *pgvalue.Codec
	typ    table.Type // as the reader sends it
	digits int        // place of the column with the decimals to print; -1: those of the type
	text   bool       // the reader sends text
	binary bool
}

// newRowEncoder compares what the printer promises with what Postgres says of the result.
func newRowEncoder(s *session, q *sql.DuckQuery, fields []wire.Field, bind *wire.Bind) (*rowEncoder, error) {
	if len(fields) != len(q.Outputs) {
		return nil, &sql.UnfitError{Reason: "the number of columns differs"}
	}
	e := &rowEncoder{env: s.env}
	for i, out := range q.Outputs {
		c, err := s.resultColumn(out, fields[i])
		if err != nil {
			return nil, err
		}
		c.binary = bind != nil && bind.NumResultFormats() > 0 && bind.ResultFormat(min(i, bind.NumResultFormats()-1)) == 1
		e.cols = append(e.cols, c)
	}
	return e, nil
}

func (s *session) resultColumn(out sql.DuckOutput, f wire.Field) (c resultColumn, err error) {
	c.digits = out.Digits
	switch {
	case out.OID == 0:
		c.codec = s.rel(out.Origin.ID).Columns[out.Origin.Columns[0]].Codec
		c.typ = c.codec.Type()
		if c.codec.OID() != f.Type {
			return c, &sql.UnfitError{Reason: "a type differs"}
		}
		return c, nil
	case out.OID != f.Type && !(out.OID == pgvalue.OIDText && f.Type == pgvalue.OIDVarchar):
		return c, &sql.UnfitError{Reason: "a type differs"}
	case out.OID == pgvalue.OIDNumeric && out.Digits < 0:
		c.typ = table.Type{Kind: table.Decimal128, Precision: 38, Scale: out.Scale}
		c.codec, err = pgvalue.NewCodec(f.Type, int32(38<<16|out.Scale)+4, c.typ)
	case out.OID == pgvalue.OIDNumeric:
		c.typ = table.Type{Kind: table.Decimal128, Precision: 38, Scale: out.Scale}
		c.codec, err = pgvalue.NewCodec(f.Type, -1, table.Type{Kind: table.String})
	case out.OID == pgvalue.OIDUUID:
		c.typ, c.text = table.Type{Kind: table.String}, true
		c.codec, err = pgvalue.NewCodec(f.Type, -1, table.Type{Kind: table.UUID})
	default:
		c.typ, _, _ = pgvalue.Lake(f.Type, f.Modifier)
		c.codec, err = pgvalue.NewCodec(f.Type, f.Modifier, c.typ)
	}
	return c, err
}

// batch encodes one batch of the result.
func (e *rowEncoder) batch(rec arrow.RecordBatch) error {
	vecs, digits, err := e.vectors(rec)
	if err != nil {
		return err
	}
	var arena []byte
	for row := range int(rec.NumRows()) {
		start := len(arena)
		arena = append(arena, 'D', 0, 0, 0, 0)
		arena = binary.BigEndian.AppendUint16(arena, uint16(len(e.cols)))
		for i := range e.cols {
			if arena, err = e.field(arena, i, vecs[i], digits[i], row); err != nil {
				return err
			}
		}
		binary.BigEndian.PutUint32(arena[start+1:], uint32(len(arena)-start-1))
		e.frames = append(e.frames, arena[start:len(arena):len(arena)])
	}
	return nil
}

// field appends one value with its length.
func (e *rowEncoder) field(dst []byte, i int, v *table.Vec, digits arrow.Array, row int) ([]byte, error) {
	if v.IsNull(row) {
		return append(dst, 0xff, 0xff, 0xff, 0xff), nil
	}
	c := &e.cols[i]
	at, err := row, error(nil)
	switch {
	case digits != nil:
		v, err = c.printed(v, row, digits)
		at = 0
	case c.text:
		u := table.NewVec(c.codec.Type())
		err = c.codec.AppendText(u, v.Bytes(row), nil)
		v, at = u, 0
	}
	if err != nil {
		return dst, &sql.UnfitError{Reason: err.Error()}
	}
	if c.binary {
		e.value, err = c.codec.Binary(e.value[:0], v, at)
	} else {
		e.value, err = c.codec.Text(e.value[:0], v, at, e.env)
	}
	if err != nil {
		return dst, &sql.UnfitError{Reason: err.Error()}
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(e.value)))
	return append(dst, e.value...), nil
}

// printed is a numeric with as many decimals as its row says.
func (c *resultColumn) printed(v *table.Vec, row int, digits arrow.Array) (*table.Vec, error) {
	n, err := strconv.Atoi(digits.ValueStr(row))
	if err != nil {
		return nil, err
	}
	out := table.NewVec(c.codec.Type())
	return out, c.codec.AppendText(out, []byte(decimalText(v.FixedAt(row), c.typ.Scale, n)), nil)
}

// decimalText prints a 128-bit decimal of scale with n decimals.
func decimalText(raw []byte, scale, n int) string {
	x := new(big.Int).SetUint64(binary.LittleEndian.Uint64(raw))
	hi := big.NewInt(int64(binary.LittleEndian.Uint64(raw[8:])))
	x.Add(x, hi.Lsh(hi, 64))
	sign := ""
	if x.Sign() < 0 {
		sign = "-"
	}
	text := x.Abs(x).String()
	if pad := scale + 1 - len(text); pad > 0 {
		text = strings.Repeat("0", pad) + text
	}
	whole, frac := text[:len(text)-scale], text[len(text)-scale:]
	if n <= len(frac) {
		frac = frac[:n]
	} else {
		frac += strings.Repeat("0", n-len(frac))
	}
	if n == 0 {
		return sign + whole
	}
	return sign + whole + "." + frac
}

// vectors is the batch's columns as vectors, and beside each its column of decimals, if it has one.
func (e *rowEncoder) vectors(rec arrow.RecordBatch) ([]*table.Vec, []arrow.Array, error) {
	schema := &table.Schema{}
	fields := make([]arrow.Field, len(e.cols))
	arrays := make([]arrow.Array, len(e.cols))
	digits := make([]arrow.Array, len(e.cols))
	for i, c := range e.cols {
		schema.Columns = append(schema.Columns, table.Column{FieldID: i + 1, Type: c.typ})
		fields[i] = datafile.ArrowSchema(&table.Schema{Columns: schema.Columns[i:]}, nil).Field(0)
		arrays[i] = rec.Column(i)
		fields[i].Type, fields[i].Nullable = arrays[i].DataType(), true
		if c.digits >= 0 {
			digits[i] = rec.Column(c.digits)
		}
	}
	b, err := datafile.FromArrow(array.NewRecordBatch(arrow.NewSchema(fields, nil), arrays, rec.NumRows()), schema)
	if err != nil {
		return nil, nil, &sql.UnfitError{Reason: err.Error()}
	}
	return b.Cols, digits, nil
}

// spool is the whole answer.
func (e *rowEncoder) spool(head []byte, simple bool) *spool {
	out := &spool{}
	if simple {
		out.frames = append(out.frames, head)
	}
	tag := wire.AppendCommandComplete(nil, "SELECT "+strconv.Itoa(len(e.frames)))
	out.frames = append(append(out.frames, e.frames...), tag)
	return out
}
