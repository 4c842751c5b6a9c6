package pgvalue

import (
	"bytes"
	"encoding/binary"
	"math/bits"

	"sluice/writer/table"
)

// number is a numeric taken apart: digits × 10^-scale, shown with scale digits behind the point.
type number struct {
	kind   numberKind
	neg    bool
	digits []byte // values 0 to 9, the first is not 0; empty for zero
	scale  int    // not below 0
}

type numberKind uint8

const (
	finite numberKind = iota
	notANumber
	infinite
)

// numberRoom is the digits a number may have before it needs memory of its own.
const numberRoom = 160

// numberLimit is the length of text and the exponent beyond which Postgres is asked.
const numberLimit = 4000

// appendNumeric appends to a decimal vector.
func (c *Codec) appendNumeric(v *table.Vec, text []byte) error {
	if c.p > 0 && c.typ.Kind == table.Decimal64 && c.s == c.typ.Scale {
		if x, ok := shortDecimal(text, c.s, c.p); ok {
			v.AppendInt64(x)
			return nil
		}
	}
	var room [numberRoom]byte
	n, err := parseNumber(room[:0], text)
	if err != nil {
		return err
	}
	return c.storeNumber(v, n)
}

// shortDecimal reads [-]digits[.digits] that needs no rounding into the unscaled integer of decimal(p, s), p ≤ 18.
func shortDecimal(b []byte, s, p int) (x int64, ok bool) {
	neg := len(b) > 0 && b[0] == '-'
	if neg {
		b = b[1:]
	}
	frac, digits := -1, 0
	for _, c := range b {
		if c == '.' && frac < 0 {
			frac = 0
			continue
		}
		if c -= '0'; c > 9 {
			return 0, false
		}
		if x = x*10 + int64(c); frac >= 0 {
			frac++
		}
		digits++
	}
	frac = max(frac, 0)
	if digits == 0 || digits+s-frac > 18 || frac > s {
		return 0, false
	}
	x *= int64(pow10[s-frac])
	if x >= int64(pow10[p]) {
		return 0, false
	}
	if neg {
		x = -x
	}
	return x, true
}

var pow10 = func() (p [20]uint64) {
	p[0] = 1
	for i := 1; i < len(p); i++ {
		p[i] = p[i-1] * 10
	}
	return
}()

// storeNumber applies the typmod and appends n.
func (c *Codec) storeNumber(v *table.Vec, n number) error {
	if c.p > 0 {
		var err error
		if n, err = n.fit(c.p, c.s); err != nil {
			return err
		}
	}
	if c.form == formNumericText {
		var room [numberRoom + 8]byte
		v.AppendBytes(n.text(room[:0]))
		return nil
	}
	if n.kind != finite || !c.pushDecimal(v, n) {
		v.AppendExact(string(n.text(nil)))
	}
	return nil
}

// pushDecimal appends n to the decimal vector if it is exactly representable. A number whose spelling gets lost is noted
// in Exact too.
func (c *Codec) pushDecimal(v *table.Vec, n number) bool {
	short := n
	if c.p == 0 {
		short = n.trim()
	}
	pad := v.Type.Scale - short.scale
	if pad < 0 || len(short.digits)+pad > v.Type.Precision && len(short.digits) > 0 {
		return false
	}
	hi, lo := short.unscaled(pad)
	if n.neg {
		hi, lo = negate(hi, lo)
	}
	if v.Type.Kind == table.Decimal64 {
		v.AppendInt64(int64(lo))
	} else {
		var b [16]byte
		binary.LittleEndian.PutUint64(b[:], lo)
		binary.LittleEndian.PutUint64(b[8:], hi)
		v.AppendFixed(b[:])
	}
	if short.scale != n.scale {
		v.Exact = append(v.Exact, table.Exact{Row: v.Len - 1, Text: string(n.text(nil))})
	}
	return true
}

// trim drops the zeros at the end of the fraction.
func (n number) trim() number {
	for n.scale > 0 && len(n.digits) > 0 && n.digits[len(n.digits)-1] == 0 {
		n.digits = n.digits[:len(n.digits)-1]
		n.scale--
	}
	if len(n.digits) == 0 {
		n.scale = 0
	}
	return n
}

// unscaled is the digits and pad zeros as a 128-bit integer.
func (n number) unscaled(pad int) (hi, lo uint64) {
	for _, d := range n.digits {
		hi, lo = mulAdd(hi, lo, 10, uint64(d))
	}
	if len(n.digits) == 0 {
		return 0, 0
	}
	for ; pad > 0; pad -= min(pad, 19) {
		hi, lo = mulAdd(hi, lo, pow10[min(pad, 19)], 0)
	}
	return hi, lo
}

func mulAdd(hi, lo, m, a uint64) (uint64, uint64) {
	h, l := bits.Mul64(lo, m)
	l, carry := bits.Add64(l, a, 0)
	return hi*m + h + carry, l
}

func negate(hi, lo uint64) (uint64, uint64) {
	lo, borrow := bits.Sub64(0, lo, 0)
	hi, _ = bits.Sub64(0, hi, borrow)
	return hi, lo
}

func (c *Codec) appendNumericText(v *table.Vec, text []byte) error {
	var room [numberRoom]byte
	n, err := parseNumber(room[:0], text)
	if err != nil {
		return err
	}
	return c.storeNumber(v, n)
}

// parseNumber reads what numeric_in reads. The digits go to buf as long as they fit.
func parseNumber(buf, text []byte) (number, error) {
	if len(text) > numberLimit {
		return number{}, needPostgres(text)
	}
	return parseStored(buf, text)
}

// parseStored is parseNumber for text of any length.
func parseStored(buf, text []byte) (number, error) {
	b := trimBlanks(text)
	n := number{neg: len(b) > 0 && b[0] == '-'}
	w := b
	if n.neg || len(b) > 0 && b[0] == '+' {
		w = b[1:]
	}
	end, _, ok := scanFloat(b)
	switch {
	case foldEqual(b, "nan"):
		return number{kind: notANumber}, nil
	case foldEqual(w, "infinity"), foldEqual(w, "inf"):
		n.kind = infinite
		return n, nil
	case ok && end < len(b) && bytes.ContainsAny(b[:end+1], "eE"): // strtol has its own view of exponents
		return n, needPostgres(text)
	case !ok || end < len(b):
		return n, syntaxError("numeric", text)
	}
	return n.read(buf, w)
}

// read takes the digits, point and exponent of w, which is a well-formed number without sign.
func (n number) read(buf, w []byte) (number, error) {
	exp, point := 0, false
	for i, c := range w {
		switch {
		case c == '.':
			point = true
			continue
		case c > '9':
			var ok bool
			if exp, ok = smallExponent(w[i+1:]); !ok {
				return n, ErrNeedPostgres
			}
			return n.place(buf, exp), nil
		}
		if point {
			n.scale++
		}
		if c != '0' || len(buf) > 0 {
			buf = append(buf, c-'0')
		}
	}
	return n.place(buf, exp), nil
}

func smallExponent(b []byte) (int, bool) {
	x, ok := shortInt(trimPlus(b))
	return int(x), ok && x > -numberLimit && x < numberLimit
}

func trimPlus(b []byte) []byte {
	if b[0] == '+' {
		return b[1:]
	}
	return b
}

// place moves the point by exp.
func (n number) place(buf []byte, exp int) number {
	n.digits = buf
	for n.scale -= exp; n.scale < 0; n.scale++ {
		if len(n.digits) > 0 {
			n.digits = append(n.digits, 0)
		}
	}
	if len(n.digits) == 0 {
		n.neg = false
	}
	return n
}

// fit rounds n, half away from zero, to what numeric(p, s) holds.
func (n number) fit(p, s int) (number, error) {
	switch n.kind {
	case notANumber:
		return n, nil
	case infinite:
		return n, overflow("A field with precision " + itoa(p) + ", scale " + itoa(s) + " cannot hold an infinite value.")
	}
	n = n.round(s)
	if len(n.digits) > 0 && len(n.digits)-n.scale > p-s {
		bound := "1"
		if p != s {
			bound = "10^" + itoa(p-s)
		}
		return n, overflow("A field with precision " + itoa(p) + ", scale " + itoa(s) +
			" must round to an absolute value less than " + bound + ".")
	}
	return n, nil
}

func overflow(detail string) error {
	return &Error{Code: "22003", Message: "numeric field overflow", Detail: detail}
}

// round brings n to s digits behind the point; with s below 0 the last -s digits before it become zero.
func (n number) round(s int) number {
	drop := n.scale - s
	n.scale = s
	if drop > 0 {
		n.digits = dropDigits(n.digits, drop)
	}
	for ; drop < 0 && len(n.digits) > 0; drop++ {
		n.digits = append(n.digits, 0)
	}
	for ; n.scale < 0; n.scale++ {
		if len(n.digits) > 0 {
			n.digits = append(n.digits, 0)
		}
	}
	if len(n.digits) == 0 {
		n.neg = false
	}
	return n
}

// dropDigits rounds the last drop digits away.
func dropDigits(digits []byte, drop int) []byte {
	if drop > len(digits) {
		return digits[:0]
	}
	keep := len(digits) - drop
	up := digits[keep] >= 5
	digits = digits[:keep]
	if !up {
		return digits
	}
	for i := keep - 1; i >= 0; i-- {
		if digits[i] < 9 {
			digits[i]++
			return digits
		}
		digits[i] = 0
	}
	digits = append(digits, 0) // all nines, or nothing: a one in front
	copy(digits[1:], digits)
	digits[0] = 1
	return digits
}

// text prints n as numeric_out does.
func (n number) text(dst []byte) []byte {
	switch {
	case n.kind == notANumber:
		return append(dst, "NaN"...)
	case n.kind == infinite && n.neg:
		return append(dst, "-Infinity"...)
	case n.kind == infinite:
		return append(dst, "Infinity"...)
	}
	if n.neg {
		dst = append(dst, '-')
	}
	whole := len(n.digits) - n.scale
	if whole <= 0 {
		dst = append(dst, '0')
	} else {
		dst = appendDigits(dst, n.digits[:whole])
	}
	if n.scale == 0 {
		return dst
	}
	dst = append(dst, '.')
	for i := whole; i < 0; i++ {
		dst = append(dst, '0')
	}
	return appendDigits(dst, n.digits[max(whole, 0):])
}

func appendDigits(dst, digits []byte) []byte {
	for _, d := range digits {
		dst = append(dst, '0'+d)
	}
	return dst
}

// load takes value i of a decimal or text vector apart.
func (c *Codec) load(buf []byte, v *table.Vec, i int) (number, error) {
	if len(v.Exact) > 0 {
		if text, ok := v.ExactText(i); ok {
			return parseStored(buf, []byte(text))
		}
	}
	if v.Type.Kind == table.String {
		return parseStored(buf, v.Bytes(i))
	}
	n := decimalAt(buf, v, i)
	if c.p == 0 {
		n = n.trim()
	}
	return n, nil
}

// decimalAt is value i of a decimal vector with all its digits.
func decimalAt(buf []byte, v *table.Vec, i int) number {
	n := number{scale: v.Type.Scale}
	hi, lo := unscaledAt(v, i)
	if n.neg = int64(hi) < 0; n.neg {
		hi, lo = negate(hi, lo)
	}
	n.digits = digitsOf(buf, hi, lo)
	return n
}

// unscaledAt is the unscaled integer of value i of a decimal vector, in two's complement.
func unscaledAt(v *table.Vec, i int) (hi, lo uint64) {
	if v.Type.Kind == table.Decimal64 {
		x := v.Int64(i)
		return uint64(x >> 63), uint64(x)
	}
	b := v.FixedAt(i)
	return binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b)
}

// digitsOf is the decimal digits of a 128-bit integer.
func digitsOf(buf []byte, hi, lo uint64) []byte {
	var rev [40]byte
	at := len(rev)
	for hi > 0 {
		var r uint64
		q, r0 := hi/pow10[19], hi%pow10[19]
		lo, r = bits.Div64(r0, lo, pow10[19])
		hi = q
		for range 19 {
			at--
			rev[at] = byte(r % 10)
			r /= 10
		}
	}
	for ; lo > 0; lo /= 10 {
		at--
		rev[at] = byte(lo % 10)
	}
	for at < len(rev) && rev[at] == 0 {
		at++
	}
	return append(buf, rev[at:]...)
}

func (c *Codec) numericText(dst []byte, v *table.Vec, i int) []byte {
	var room [40]byte
	n := decimalAt(room[:0], v, i)
	if c.p == 0 {
		n = n.trim()
	}
	return n.text(dst)
}

const (
	signNegative = 0x4000
	signNaN      = 0xc000
	signPlusInf  = 0xd000
	signMinusInf = 0xf000
)

// numericBinary writes the header (digit count, weight, sign, scale) and the base-10000 digits.
func (c *Codec) numericBinary(dst []byte, v *table.Vec, i int) ([]byte, error) {
	var room [numberRoom]byte
	n, err := c.load(room[:0], v, i)
	if err != nil {
		return dst, err
	}
	return n.binary(dst), nil
}

func (n number) binary(dst []byte) []byte {
	switch {
	case n.kind == notANumber:
		return append(dst, 0, 0, 0, 0, signNaN>>8, 0, 0, 0)
	case n.kind == infinite && n.neg:
		return append(dst, 0, 0, 0, 0, signMinusInf>>8, 0, 0, 0x20)
	case n.kind == infinite:
		return append(dst, 0, 0, 0, 0, signPlusInf>>8, 0, 0, 0x20)
	}
	head := len(dst)
	dst = append(dst, 0, 0, 0, 0, 0, 0, byte(n.scale>>8), byte(n.scale))
	whole := len(n.digits) - n.scale // digits before the point; below 0 there are zeros behind it
	groups := floorDiv(whole+3, 4)
	count := 0
	for g := -groups; ; g++ { // group g holds the decimal places 4g to 4g+3 behind the point
		at := whole + 4*g
		if at >= len(n.digits) {
			break
		}
		dst = binary.BigEndian.AppendUint16(dst, n.group(at))
		count++
	}
	for count > 0 && dst[len(dst)-1] == 0 && dst[len(dst)-2] == 0 {
		dst = dst[:len(dst)-2]
		count--
	}
	if count == 0 {
		return dst
	}
	binary.BigEndian.PutUint16(dst[head:], uint16(count))
	binary.BigEndian.PutUint16(dst[head+2:], uint16(groups-1))
	if n.neg {
		binary.BigEndian.PutUint16(dst[head+4:], signNegative)
	}
	return dst
}

func floorDiv(a, b int) int {
	q := a / b
	if a%b != 0 && a < 0 {
		q--
	}
	return q
}

// group is the four digits from index at, zeros where there are none.
func (n number) group(at int) (g uint16) {
	for k := at; k < at+4; k++ {
		g *= 10
		if k >= 0 && k < len(n.digits) {
			g += uint16(n.digits[k])
		}
	}
	return g
}

func (c *Codec) recvNumeric(v *table.Vec, b []byte) error {
	var room [numberRoom]byte
	n, err := recvNumber(room[:0], b)
	if err != nil {
		return err
	}
	return c.storeNumber(v, n)
}

func recvNumber(buf, b []byte) (number, error) {
	if len(b) < 8 {
		return number{}, errInsufficient
	}
	count := int(binary.BigEndian.Uint16(b))
	weight := int(int16(binary.BigEndian.Uint16(b[2:])))
	sign := binary.BigEndian.Uint16(b[4:])
	scale := int(binary.BigEndian.Uint16(b[6:]))
	switch sign {
	case 0, signNegative, signNaN, signPlusInf, signMinusInf:
	default:
		return number{}, badNumeric("sign")
	}
	if scale > 0x3fff {
		return number{}, badNumeric("scale")
	}
	b = b[8:]
	if len(b) < 2*count {
		return number{}, errInsufficient
	}
	return recvDigits(buf, b, count, weight, sign, scale)
}

func recvDigits(buf, b []byte, count, weight int, sign uint16, scale int) (number, error) {
	n := number{neg: sign == signNegative || sign == signMinusInf}
	for i := range count {
		g := binary.BigEndian.Uint16(b[2*i:])
		if g > 9999 {
			return n, badNumeric("digit")
		}
		for _, d := range [4]uint16{g / 1000, g / 100 % 10, g / 10 % 10, g % 10} {
			if d > 0 || len(buf) > 0 {
				buf = append(buf, byte(d))
			}
		}
	}
	switch {
	case len(b) > 2*count:
		return n, errTrailing
	case sign == signNaN:
		n.kind = notANumber
	case sign >= signPlusInf:
		n.kind = infinite
	default:
		n = n.cut(buf, 4*(count-1-weight), scale)
	}
	return n, nil
}

func badNumeric(part string) error {
	return &Error{Code: "22P03", Message: "invalid " + part + ` in external "numeric" value`}
}

// cut sets the digits, of which have are behind the point, and leaves want there, without rounding.
func (n number) cut(digits []byte, have, want int) number {
	n.scale = want
	if have > want {
		digits = digits[:max(len(digits)-(have-want), 0)]
	}
	for ; have < want && len(digits) > 0; have++ {
		digits = append(digits, 0)
	}
	n.digits = digits
	n.neg = n.neg && len(digits) > 0
	return n
}
