package pgvalue

import (
	"encoding/binary"
	"math"
	"strconv"

	"sluice/writer/table"
)

func isBlank(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

func trimBlanks(b []byte) []byte {
	for len(b) > 0 && isBlank(b[0]) {
		b = b[1:]
	}
	for len(b) > 0 && isBlank(b[len(b)-1]) {
		b = b[:len(b)-1]
	}
	return b
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c + 32
	}
	return c
}

// foldPrefix reports whether b, in any case, begins with the lower-case word.
func foldPrefix(b []byte, word string) bool {
	if len(b) < len(word) {
		return false
	}
	for i := range len(word) {
		if lower(b[i]) != word[i] {
			return false
		}
	}
	return true
}

func foldEqual(b []byte, word string) bool { return len(b) == len(word) && foldPrefix(b, word) }

// wordPrefix reports whether b, in any case, is a beginning of word with at least n bytes.
func wordPrefix(b []byte, word string, n int) bool {
	return len(b) >= n && len(b) <= len(word) && foldPrefix(b, word[:len(b)])
}

func appendBool(v *table.Vec, text []byte) error {
	b := trimBlanks(text)
	switch {
	case wordPrefix(b, "true", 1), wordPrefix(b, "yes", 1), wordPrefix(b, "on", 2), len(b) == 1 && b[0] == '1':
		v.AppendBool(true)
	case wordPrefix(b, "false", 1), wordPrefix(b, "no", 1), wordPrefix(b, "off", 2), len(b) == 1 && b[0] == '0':
		v.AppendBool(false)
	default:
		return syntaxError("boolean", text)
	}
	return nil
}

func recvBool(v *table.Vec, b []byte) error {
	if len(b) == 0 {
		return errNoData
	}
	if err := checkLength(b, 1); err != nil {
		return err
	}
	v.AppendBool(b[0] != 0)
	return nil
}

func checkLength(b []byte, n int) error {
	if len(b) < n {
		return errInsufficient
	}
	if len(b) > n {
		return errTrailing
	}
	return nil
}

var intNames = [...]string{formInt2: "smallint", formInt4: "integer", formInt8: "bigint"}
var intBits = [...]uint{formInt2: 16, formInt4: 32, formInt8: 64}

func (c *Codec) appendInt(v *table.Vec, text []byte) error {
	x, ok := shortInt(text)
	if !ok || c.form != formInt8 && x != x<<(64-intBits[c.form])>>(64-intBits[c.form]) {
		var err error
		if x, err = longInt(text, intBits[c.form], intNames[c.form]); err != nil {
			return err
		}
	}
	if c.form == formInt8 {
		v.AppendInt64(x)
	} else {
		v.AppendInt32(int32(x))
	}
	return nil
}

// shortInt reads the plain spelling: an optional minus and 1 to 18 digits.
func shortInt(b []byte) (x int64, ok bool) {
	neg := len(b) > 0 && b[0] == '-'
	if neg {
		b = b[1:]
	}
	if len(b) == 0 || len(b) > 18 {
		return 0, false
	}
	for _, c := range b {
		if c -= '0'; c > 9 {
			return 0, false
		}
		x = x*10 + int64(c)
	}
	if neg {
		x = -x
	}
	return x, true
}

// longInt is Postgres' own loop: it adds up below zero, and a digit too many wins over what follows it.
func longInt(text []byte, bits uint, name string) (int64, error) {
	b := text
	for len(b) > 0 && isBlank(b[0]) {
		b = b[1:]
	}
	neg := len(b) > 0 && b[0] == '-'
	if neg || len(b) > 0 && b[0] == '+' {
		b = b[1:]
	}
	if len(b) == 0 || b[0]-'0' > 9 {
		return 0, syntaxError(name, text)
	}
	low := int64(-1) << (bits - 1)
	x := int64(0)
	for ; len(b) > 0 && b[0]-'0' <= 9; b = b[1:] {
		d := int64(b[0] - '0')
		if x < low/10 || x*10 < low+d {
			return 0, rangeError(name, text)
		}
		x = x*10 - d
	}
	if len(trimBlanks(b)) > 0 {
		return 0, syntaxError(name, text)
	}
	if neg {
		return x, nil
	}
	if x == low {
		return 0, rangeError(name, text)
	}
	return -x, nil
}

func (c *Codec) recvInt(v *table.Vec, b []byte) error {
	if err := checkLength(b, int(intBits[c.form]/8)); err != nil {
		return err
	}
	switch c.form {
	case formInt2:
		v.AppendInt32(int32(int16(binary.BigEndian.Uint16(b))))
	case formInt4:
		v.AppendInt32(int32(binary.BigEndian.Uint32(b)))
	default:
		v.AppendInt64(int64(binary.BigEndian.Uint64(b)))
	}
	return nil
}

func (c *Codec) intText(dst []byte, v *table.Vec, i int) []byte {
	if c.form == formInt8 {
		return strconv.AppendInt(dst, v.Int64(i), 10)
	}
	return strconv.AppendInt(dst, int64(v.Int32(i)), 10)
}

func (c *Codec) intBinary(dst []byte, v *table.Vec, i int) []byte {
	switch c.form {
	case formInt2:
		return binary.BigEndian.AppendUint16(dst, uint16(v.Int32(i)))
	case formInt4:
		return binary.BigEndian.AppendUint32(dst, uint32(v.Int32(i)))
	}
	return binary.BigEndian.AppendUint64(dst, uint64(v.Int64(i)))
}

func (c *Codec) recvFloat(v *table.Vec, b []byte) error {
	if c.form == formFloat4 {
		if err := checkLength(b, 4); err != nil {
			return err
		}
		v.AppendFloat32(math.Float32frombits(binary.BigEndian.Uint32(b)))
		return nil
	}
	if err := checkLength(b, 8); err != nil {
		return err
	}
	v.AppendFloat64(math.Float64frombits(binary.BigEndian.Uint64(b)))
	return nil
}

func (c *Codec) floatBinary(dst []byte, v *table.Vec, i int) []byte {
	if c.form == formFloat4 {
		return binary.BigEndian.AppendUint32(dst, uint32(v.Int32(i)))
	}
	return binary.BigEndian.AppendUint64(dst, uint64(v.Int64(i)))
}

// hexValue is the value of a hexadecimal digit, 16 and more for every other byte.
var hexValue = func() (t [256]byte) {
	for i := range t {
		t[i] = 0xff
	}
	for i := range 10 {
		t['0'+i] = byte(i)
	}
	for i := range 6 {
		t['a'+i], t['A'+i] = byte(10+i), byte(10+i)
	}
	return
}()

func appendUUID(v *table.Vec, text []byte) error {
	var u [16]byte
	if !plainUUID(&u, text) && !parseUUID(&u, text) {
		return syntaxError("uuid", text)
	}
	v.AppendFixed(u[:])
	return nil
}

// plainUUID reads the form that Postgres prints.
func plainUUID(u *[16]byte, b []byte) bool {
	if len(b) != 36 || b[8] != '-' || b[13] != '-' || b[18] != '-' || b[23] != '-' {
		return false
	}
	bad := byte(0)
	at := 0
	for i := range u {
		hi, lo := hexValue[b[at]], hexValue[b[at+1]]
		bad |= hi | lo
		u[i] = hi<<4 | lo
		at += 2
		if i == 3 || i == 5 || i == 7 || i == 9 {
			at++
		}
	}
	return bad < 16
}

// parseUUID reads the forms Postgres takes: braces around it, a hyphen after every second byte but the last.
func parseUUID(u *[16]byte, b []byte) bool {
	braces := len(b) > 1 && b[0] == '{'
	if braces {
		if b[len(b)-1] != '}' {
			return false
		}
		b = b[1 : len(b)-1]
	}
	for i := range u {
		if len(b) < 2 {
			return false
		}
		hi, lo := hexValue[b[0]], hexValue[b[1]]
		if hi|lo > 15 {
			return false
		}
		u[i] = hi<<4 | lo
		b = b[2:]
		if len(b) > 0 && b[0] == '-' && i&1 == 1 && i < 15 {
			b = b[1:]
		}
	}
	return len(b) == 0
}

func recvUUID(v *table.Vec, b []byte) error {
	if err := checkLength(b, 16); err != nil {
		return err
	}
	v.AppendFixed(b)
	return nil
}

func uuidText(dst, u []byte) []byte {
	for i, c := range u {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			dst = append(dst, '-')
		}
		dst = append(dst, hexDigits[c>>4], hexDigits[c&15])
	}
	return dst
}
