package pgvalue

import (
	"encoding/binary"
	"math"
	"math/bits"

	"sluice/writer/table"
)

// KeyOK reports whether values of the type can be a key: whether Key follows the type's btree equality. A type that is not
// known here (an enum, an extension's type) is not; the text of an enum's label is a right key all the same.
func KeyOK(oid uint32) bool {
	if elem := arrayElem[oid]; elem != 0 {
		oid = elem
	}
	return plainText[oid] || forms[oid] != formKept && oid != OIDJSON
}

// Key appends a byte string that is equal for two values if and only if Postgres' btree equality of the type says so (for
// text under a deterministic collation). The encodings are self-delimiting, so those of several columns may stand side by
// side. Value i must not be NULL. The integers share one encoding, and so do the floats; nothing else compares across types.
func Key(dst []byte, v *table.Vec, i int, oid uint32) []byte {
	switch form := forms[oid]; form {
	case formBool:
		return append(dst, v.Fixed[i])
	case formInt2, formInt4:
		return binary.BigEndian.AppendUint64(dst, uint64(int64(v.Int32(i))))
	case formInt8, formTime:
		return binary.BigEndian.AppendUint64(dst, uint64(v.Int64(i)))
	case formFloat4:
		return keyFloat(dst, float64(v.Float32(i)))
	case formFloat8:
		return keyFloat(dst, v.Float64(i))
	case formNumeric:
		return keyNumeric(dst, v, i)
	case formUUID:
		return append(dst, v.FixedAt(i)...)
	case formDate, formTimestamp, formTimestampTZ:
		c := Codec{form: form, limit: -1}
		m, _ := c.momentAt(v, i)
		return binary.BigEndian.AppendUint64(dst, uint64(m))
	case formBpchar:
		return keyBytes(dst, trimPad(v.Bytes(i)))
	case formJSONB:
		return keyJSONB(dst, v.Bytes(i))
	}
	if elem := arrayElem[oid]; elem != 0 && v.Type.Kind == table.List {
		return keyArray(dst, v, i, elem)
	}
	return keyBytes(dst, v.Bytes(i))
}

func keyBytes(dst, b []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

func trimPad(b []byte) []byte {
	for len(b) > 0 && b[len(b)-1] == ' ' {
		b = b[:len(b)-1]
	}
	return b
}

func keyFloat(dst []byte, x float64) []byte {
	switch {
	case x == 0:
		x = 0 // no minus
	case x != x:
		x = math.NaN()
	}
	return binary.BigEndian.AppendUint64(dst, math.Float64bits(x))
}

// The first byte of a numeric's key.
const (
	keyZero = iota
	keyPositive
	keyNegative
	keyNaN
	keyPlusInf
	keyMinusInf
	keyLong // with keyPositive or keyNegative added: more digits than 128 bits hold
)

func keyNumeric(dst []byte, v *table.Vec, i int) []byte {
	if v.Type.Kind == table.String {
		return keyNumericText(dst, string(v.Bytes(i)))
	}
	if v.IsNull(i) {
		text, _ := v.ExactText(i)
		return keyNumericText(dst, text)
	}
	hi, lo := unscaledAt(v, i)
	neg := int64(hi) < 0
	if neg {
		hi, lo = negate(hi, lo)
	}
	return keyUnscaled(dst, neg, hi, lo, v.Type.Scale)
}

// keyUnscaled writes sign, scale and magnitude without trailing zeros.
func keyUnscaled(dst []byte, neg bool, hi, lo uint64, scale int) []byte {
	if hi|lo == 0 {
		return append(dst, keyZero)
	}
	for {
		q1, r := hi/10, hi%10
		q0, r := bits.Div64(r, lo, 10)
		if r != 0 {
			break
		}
		hi, lo = q1, q0
		scale--
	}
	sign := byte(keyPositive)
	if neg {
		sign = keyNegative
	}
	dst = binary.AppendVarint(append(dst, sign), int64(scale))
	return binary.AppendUvarint(binary.AppendUvarint(dst, hi), lo)
}

func keyNumericText(dst []byte, text string) []byte {
	var room [numberRoom]byte
	n, _ := parseStored(room[:0], []byte(text)) // canonical text: no error
	switch {
	case n.kind == notANumber:
		return append(dst, keyNaN)
	case n.kind == infinite && n.neg:
		return append(dst, keyMinusInf)
	case n.kind == infinite:
		return append(dst, keyPlusInf)
	case len(n.digits) == 0:
		return append(dst, keyZero)
	}
	for n.digits[len(n.digits)-1] == 0 {
		n.digits = n.digits[:len(n.digits)-1]
		n.scale--
	}
	if len(n.digits) <= 38 {
		hi, lo := n.unscaled(0)
		return keyUnscaled(dst, n.neg, hi, lo, n.scale)
	}
	sign := byte(keyLong + keyPositive)
	if n.neg {
		sign = keyLong + keyNegative
	}
	dst = binary.AppendVarint(append(dst, sign), int64(n.scale))
	return keyBytes(dst, n.digits)
}

// keyJSONB writes the document with its numbers in their shortest spelling.
func keyJSONB(dst, text []byte) []byte {
	p := jsonbs.Get().(*jsonbParser)
	defer jsonbs.Put(p)
	p.equal = true
	out, ok := p.normal(text)
	p.equal = false
	if !ok { // deeper or longer than read here: the normal form itself
		out = text
	}
	return keyBytes(dst, out)
}

// keyArray writes the shape and, element by element, a null mark and the key.
func keyArray(dst []byte, v *table.Vec, i int, elem uint32) []byte {
	elems := v.Elems
	var s shape
	var begin, end int
	if v.IsNull(i) {
		text, _ := v.ExactText(i)
		c, err := NewCodec(elem, -1, *v.Type.Elem)
		if err != nil {
			return keyBytes(dst, []byte(text))
		}
		outer := Codec{elem: c}
		if elems, s, err = outer.parseArrayText(text); err != nil {
			return keyBytes(dst, []byte(text))
		}
		end = elems.Len
	} else {
		begin, end = v.ListRange(i)
		s = listShape(end - begin)
	}
	dst = binary.AppendUvarint(dst, uint64(s.dims))
	for d := range s.dims {
		dst = binary.AppendVarint(binary.AppendVarint(dst, int64(s.size[d])), int64(s.lower[d]))
	}
	for k := begin; k < end; k++ {
		if isNull(elems, k) {
			dst = append(dst, 0)
			continue
		}
		dst = Key(append(dst, 1), elems, k, elem)
	}
	return dst
}
