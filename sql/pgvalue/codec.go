package pgvalue

import (
	"fmt"

	"sluice/writer/table"
)

// form is how a Codec treats values; there is one a Postgres type, and two more for numerics and unknown types.
type form uint8

const (
	formKept form = iota // canonical text of a type that only Postgres knows
	formBool
	formInt2
	formInt4
	formInt8
	formFloat4
	formFloat8
	formNumeric
	formNumericText // a numeric that no decimal can hold, kept as text
	formText
	formVarchar
	formBpchar
	formName
	formBytea
	formUUID
	formDate
	formTime
	formTimestamp
	formTimestampTZ
	formJSON
	formJSONB
	formArray
)

var forms = map[uint32]form{
	OIDBool: formBool, OIDBytea: formBytea, OIDName: formName, OIDInt8: formInt8, OIDInt2: formInt2, OIDInt4: formInt4,
	OIDText: formText, OIDJSON: formJSON, OIDFloat4: formFloat4, OIDFloat8: formFloat8, OIDBpchar: formBpchar,
	OIDVarchar: formVarchar, OIDDate: formDate, OIDTime: formTime, OIDTimestamp: formTimestamp,
	OIDTimestampTZ: formTimestampTZ, OIDNumeric: formNumeric, OIDUUID: formUUID, OIDJSONB: formJSONB,
}

// Codec reads and prints the values of one column. It never changes and may be shared.
type Codec struct {
	oid    uint32
	typmod int32
	typ    table.Type
	form   form
	limit  int // varchar, char: characters; time, timestamp: digits of the second; -1 without
	p, s   int // numeric: precision and scale; p is 0 without a typmod
	elem   *Codec
	plain  bool
}

// NewCodec makes the codec of a column of Postgres type (oid, typmod) that is stored as t. t is what Lake says, or, for
// numeric, any other decimal or String.
func NewCodec(oid uint32, typmod int32, t table.Type) (*Codec, error) {
	c := &Codec{oid: oid, typmod: typmod, typ: t, limit: -1}
	if elem, ok := arrayElem[oid]; ok && t.Kind == table.List {
		var err error
		if c.elem, err = NewCodec(elem, typmod, *t.Elem); err != nil {
			return nil, err
		}
		c.form = formArray
		return c, nil
	}
	want, _, known := Lake(oid, typmod)
	if known && arrayElem[oid] == 0 || oid == OIDNumeric {
		c.form = forms[oid]
	}
	c.setTypmod()
	if c.form != formNumeric && t.Kind != want.Kind && t.Kind != table.String {
		return nil, fmt.Errorf("type %d cannot be stored as %s", oid, t)
	}
	if c.form == formNumeric {
		return c, c.setNumeric()
	}
	if t.Kind != want.Kind { // kept as text on request
		c.form = formKept
	}
	c.plain = plainText[oid]
	return c, nil
}

func (c *Codec) setNumeric() error {
	switch c.typ.Kind {
	case table.String:
		c.form = formNumericText
	case table.Decimal64, table.Decimal128:
	default:
		return fmt.Errorf("numeric cannot be stored as %s", c.typ)
	}
	return nil
}

func (c *Codec) setTypmod() {
	switch c.form {
	case formVarchar, formBpchar:
		if c.typmod >= 4 {
			c.limit = int(c.typmod) - 4
		}
	case formTime, formTimestamp, formTimestampTZ:
		if c.typmod >= 0 && c.typmod < 6 {
			c.limit = int(c.typmod)
		}
	case formNumeric:
		if c.typmod >= 4 {
			c.p, c.s = numericTypmod(c.typmod)
		}
	}
}

// OID is the Postgres type.
func (c *Codec) OID() uint32 { return c.oid }

// Typmod is the Postgres type modifier, -1 without one.
func (c *Codec) Typmod() int32 { return c.typmod }

// Type is the lake type.
func (c *Codec) Type() table.Type { return c.typ }

// Kept reports whether values are canonical text of a type that only Postgres can read: AppendText always returns
// ErrNeedPostgres, AppendBinary and Binary ErrNoBinary.
func (c *Codec) Kept() bool { return c.form == formKept }

// Plain is the codec of a kept type whose text no setting changes and whose text is equal iff the values are (the labels
// of an enum). Codecs of the built-in types of that sort are plain from the start.
func (c *Codec) Plain() *Codec {
	p := *c
	p.plain = true
	return &p
}

// plainText is the kept types whose text does not depend on settings, and is equal if and only if the values are.
var plainText = map[uint32]bool{
	18: true, 26: true, 650: true, 774: true, 829: true, 869: true, 1560: true, 1562: true, 3220: true, 5069: true,
	3904: true, 3926: true, // int4range, int8range
}

// AppendText appends the value that Postgres' input function makes of text. On an error v is unchanged.
func (c *Codec) AppendText(v *table.Vec, text []byte, env *Env) error {
	switch c.form {
	case formBool:
		return appendBool(v, text)
	case formInt2, formInt4, formInt8:
		return c.appendInt(v, text)
	case formFloat4, formFloat8:
		return c.appendFloat(v, text)
	case formNumeric:
		return c.appendNumeric(v, text)
	case formNumericText:
		return c.appendNumericText(v, text)
	case formText, formVarchar, formBpchar, formName:
		return c.appendString(v, text)
	case formBytea:
		return appendBytea(v, text)
	case formUUID:
		return appendUUID(v, text)
	case formDate, formTime, formTimestamp, formTimestampTZ:
		return c.appendTemporal(v, text, env.or())
	case formJSON:
		return appendJSON(v, text)
	case formJSONB:
		return appendJSONB(v, text)
	case formArray:
		return c.appendArray(v, text, env)
	}
	return needPostgres(text)
}

// AppendCanonical appends a value from the text that Postgres printed for it under DefaultEnv's settings. On an error v is
// unchanged.
func (c *Codec) AppendCanonical(v *table.Vec, text []byte) error {
	if c.form == formKept {
		if err := CheckUTF8(text); err != nil {
			return err
		}
		v.AppendBytes(text)
		return nil
	}
	err := c.AppendText(v, text, nil)
	if err != ErrNeedPostgres {
		return err
	}
	switch c.form {
	case formNumeric, formDate, formTimestamp, formTimestampTZ, formArray:
		v.AppendExact(string(text))
		return nil
	case formNumericText, formJSON, formJSONB:
		v.AppendBytes(text)
		return nil
	}
	return err
}

// AppendBinary appends the value that Postgres' receive function makes of b. On an error v is unchanged.
func (c *Codec) AppendBinary(v *table.Vec, b []byte) error {
	switch c.form {
	case formBool:
		return recvBool(v, b)
	case formInt2, formInt4, formInt8:
		return c.recvInt(v, b)
	case formFloat4, formFloat8:
		return c.recvFloat(v, b)
	case formNumeric, formNumericText:
		return c.recvNumeric(v, b)
	case formText, formVarchar, formBpchar, formName:
		return c.appendString(v, b)
	case formBytea:
		v.AppendBytes(b)
		return nil
	case formUUID:
		return recvUUID(v, b)
	case formDate, formTime, formTimestamp, formTimestampTZ:
		return c.recvTemporal(v, b)
	case formJSON:
		return appendJSON(v, b)
	case formJSONB:
		return recvJSONB(v, b)
	case formArray:
		return c.recvArray(v, b)
	}
	return ErrNoBinary
}

// Text appends the text of value i, which is not NULL (a value in Vec.Exact is not NULL), as Postgres prints it under env.
func (c *Codec) Text(dst []byte, v *table.Vec, i int, env *Env) ([]byte, error) {
	env = env.or()
	if len(v.Exact) > 0 {
		if text, ok := v.ExactText(i); ok {
			return c.exactText(dst, text, env)
		}
	}
	switch c.form {
	case formBool:
		return append(dst, "ft"[v.Fixed[i]]), nil
	case formInt2, formInt4, formInt8:
		return c.intText(dst, v, i), nil
	case formFloat4, formFloat8:
		return c.floatText(dst, v, i, env), nil
	case formNumeric:
		return c.numericText(dst, v, i), nil
	case formBytea:
		return byteaText(dst, v.Bytes(i), env.byteaEscape), nil
	case formUUID:
		return uuidText(dst, v.FixedAt(i)), nil
	case formDate, formTime, formTimestamp, formTimestampTZ:
		return c.temporalText(dst, c.moment(v, i), env)
	case formArray:
		b, e := v.ListRange(i)
		return c.elem.arrayText(dst, v.Elems, b, e, listShape(e-b), env)
	case formKept:
		if !c.settled(env) {
			return dst, ErrNeedPostgres
		}
	}
	return append(dst, v.Bytes(i)...), nil
}

// settled reports whether the kept text is what Postgres would print under env.
func (c *Codec) settled(env *Env) bool {
	if c.plain || env.canonical {
		return true
	}
	const interval, timetz = 1186, 1266
	return c.oid == timetz || c.oid == interval && env.interval == "postgres"
}

// exactText prints a value of Vec.Exact.
func (c *Codec) exactText(dst []byte, text string, env *Env) ([]byte, error) {
	if env.canonical || c.form == formNumeric {
		return append(dst, text...), nil
	}
	switch c.form {
	case formDate, formTimestamp, formTimestampTZ:
		m, err := c.parseExact(text)
		if err != nil {
			return dst, err
		}
		return c.temporalText(dst, m, env)
	case formArray:
		return c.exactArrayText(dst, text, env)
	}
	return append(dst, text...), nil
}

// Binary appends the bytes of value i, which is not NULL, as Postgres' send function makes them.
func (c *Codec) Binary(dst []byte, v *table.Vec, i int) ([]byte, error) {
	switch c.form {
	case formKept:
		return dst, ErrNoBinary
	case formBool:
		return append(dst, v.Fixed[i]), nil
	case formInt2, formInt4, formInt8:
		return c.intBinary(dst, v, i), nil
	case formFloat4, formFloat8:
		return c.floatBinary(dst, v, i), nil
	case formNumeric, formNumericText:
		return c.numericBinary(dst, v, i)
	case formUUID:
		return append(dst, v.FixedAt(i)...), nil
	case formDate, formTime, formTimestamp, formTimestampTZ:
		return c.temporalBinary(dst, v, i)
	case formJSONB:
		dst = append(dst, 1)
	case formArray:
		return c.arrayBinary(dst, v, i)
	}
	return append(dst, v.Bytes(i)...), nil
}
