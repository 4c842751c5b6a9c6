package pgvalue

import (
	"math"
	"math/big"
	"strconv"
	"unsafe"

	"sluice/writer/table"
)

var floatNames = [...]string{formFloat4: "real", formFloat8: "double precision"}

func (c *Codec) appendFloat(v *table.Vec, text []byte) error {
	bits := 64
	if c.form == formFloat4 {
		bits = 32
	}
	x, err := parseFloat(text, bits, floatNames[c.form])
	if err != nil {
		return err
	}
	if bits == 32 {
		v.AppendFloat32(float32(x))
	} else {
		v.AppendFloat64(x)
	}
	return nil
}

func parseFloat(text []byte, bits int, name string) (float64, error) {
	if x, ok := shortFloat(text); ok && bits == 64 {
		return x, nil
	}
	b := trimBlanks(text)
	n, zero, ok := scanFloat(b)
	if !ok {
		return specialFloat(b, text, name)
	}
	if n < len(b) && lower(b[n]) == 'x' { // the C library reads hexadecimal numbers too
		return 0, needPostgres(text)
	}
	x, err := strconv.ParseFloat(unsafe.String(unsafe.SliceData(b), n), bits)
	if err != nil || x == 0 && !zero {
		if bits == 64 {
			text = b[:n]
		}
		return 0, floatRange(text, name)
	}
	if n < len(b) {
		return 0, syntaxError(name, text)
	}
	return x, nil
}

// shortFloat reads [-]digits[.digits] with at most 15 digits: the digits and the power of ten are exact doubles, so that
// their quotient is the nearest one.
func shortFloat(b []byte) (float64, bool) {
	neg := len(b) > 0 && b[0] == '-'
	if neg {
		b = b[1:]
	}
	if len(b) == 0 || len(b) > 16 || b[0]-'0' > 9 {
		return 0, false
	}
	x, frac := int64(0), -1
	for i, c := range b {
		if c == '.' && frac < 0 {
			frac = len(b) - i - 1
			continue
		}
		if c -= '0'; c > 9 {
			return 0, false
		}
		x = x*10 + int64(c)
	}
	if x >= 1<<53 {
		return 0, false
	}
	f := float64(x)
	if frac > 0 {
		f /= exact10[frac]
	}
	if neg {
		f = -f
	}
	return f, true
}

var exact10 = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15}

func floatRange(text []byte, name string) error {
	if err := CheckUTF8(text); err != nil {
		return err
	}
	return &Error{Code: "22003", Message: `"` + string(text) + `" is out of range for type ` + name}
}

// scanFloat finds the length of the decimal number that b begins with, and whether all its digits are zero.
func scanFloat(b []byte) (n int, zero, ok bool) {
	i := 0
	if i < len(b) && (b[i] == '-' || b[i] == '+') {
		i++
	}
	digits := 0
	zero = true
	for dot := false; i < len(b); i++ {
		if b[i] == '.' && !dot {
			dot = true
			continue
		}
		if b[i]-'0' > 9 {
			break
		}
		zero = zero && b[i] == '0'
		digits++
	}
	if digits == 0 {
		return 0, false, false
	}
	return exponentEnd(b, i), zero, true
}

// exponentEnd is where the exponent that begins at i ends; i itself if there is none.
func exponentEnd(b []byte, i int) int {
	if i == len(b) || lower(b[i]) != 'e' {
		return i
	}
	k := i + 1
	if k < len(b) && (b[k] == '-' || b[k] == '+') {
		k++
	}
	first := k
	for k < len(b) && b[k]-'0' <= 9 {
		k++
	}
	if k == first {
		return i
	}
	return k
}

// quietNaN is C's NaN; Go's own has another bit set.
var quietNaN = math.Float64frombits(0x7ff8 << 48)

func specialFloat(b, text []byte, name string) (float64, error) {
	sign, w := 1, b
	if len(w) > 0 && (w[0] == '-' || w[0] == '+') {
		if w[0] == '-' {
			sign = -1
		}
		w = w[1:]
	}
	switch {
	case foldEqual(w, "infinity"), foldEqual(w, "inf"):
		return math.Inf(sign), nil
	case foldEqual(w, "nan"):
		if sign < 0 {
			return math.Copysign(quietNaN, -1), nil
		}
		return quietNaN, nil
	case foldPrefix(w, "nan"): // nan(…) is up to the C library
		return 0, needPostgres(text)
	}
	return 0, syntaxError(name, text)
}

func (c *Codec) floatText(dst []byte, v *table.Vec, i int, env *Env) []byte {
	if c.form == formFloat4 {
		return appendFloatText(dst, float64(v.Float32(i)), 32, env.floatDigits)
	}
	return appendFloatText(dst, v.Float64(i), 64, env.floatDigits)
}

// appendFloatText prints x as Postgres does: the shortest digits that read back the same, or %g with 15 (6) digits and
// extra_float_digits more if that setting is not positive.
func appendFloatText(dst []byte, x float64, bits, extra int) []byte {
	switch {
	case math.IsNaN(x):
		return append(dst, "NaN"...)
	case math.IsInf(x, 1):
		return append(dst, "Infinity"...)
	case math.IsInf(x, -1):
		return append(dst, "-Infinity"...)
	}
	digits := 15
	if bits == 32 {
		digits = 6
	}
	var buf [32]byte
	if extra > 0 {
		return layoutFloat(dst, shortestFloat(buf[:0], x, bits), digits)
	}
	digits = max(digits+extra, 1)
	return layoutFloat(dst, strconv.AppendFloat(buf[:0], x, 'e', digits-1, 64), digits)
}

// layoutFloat rewrites d.ddde±xx as %g would: plain notation for exponents from -4 to below limit, no trailing zeros.
func layoutFloat(dst, e []byte, limit int) []byte {
	if e[0] == '-' {
		dst, e = append(dst, '-'), e[1:]
	}
	at := len(e) - 1
	for e[at] != 'e' {
		at--
	}
	exp, _ := strconv.Atoi(unsafe.String(unsafe.SliceData(e[at+1:]), len(e)-at-1))
	tail := e[at:]
	digits := e[:1]
	if at > 1 {
		e[1] = e[0] // over the point
		digits = e[1:at]
	}
	for len(digits) > 1 && digits[len(digits)-1] == '0' {
		digits = digits[:len(digits)-1]
	}
	switch {
	case exp < -4 || exp >= limit:
		dst = append(dst, digits[0])
		if len(digits) > 1 {
			dst = append(append(dst, '.'), digits[1:]...)
		}
		return append(dst, tail...)
	case exp < 0:
		dst = append(append(dst, '0', '.'), "0000"[:-exp-1]...)
		return append(dst, digits...)
	case exp+1 >= len(digits):
		dst = append(dst, digits...)
		return append(dst, "0000000000000000"[:exp+1-len(digits)]...)
	}
	dst = append(append(dst, digits[:exp+1]...), '.')
	return append(dst, digits[exp+1:]...)
}

// shortestFloat is the shortest decimal strictly between the neighbours' midpoints. Go takes a midpoint too where reading
// it back rounds to even; Postgres never does.
func shortestFloat(dst []byte, x float64, bits int) []byte {
	s := strconv.AppendFloat(dst, x, 'e', -1, bits)
	mid := float64(1 << 54)
	if bits == 32 {
		mid = 1 << 25
	}
	if a := math.Abs(x); a < mid || a > 1e45 || !onMidpoint(s, x, bits) {
		return s
	}
	for n := 0; ; n++ {
		if s = strconv.AppendFloat(dst, x, 'e', n, 64); readsBack(s, x, bits) && !onMidpoint(s, x, bits) {
			return s
		}
	}
}

func readsBack(s []byte, x float64, bits int) bool {
	y, err := strconv.ParseFloat(string(s), bits)
	return err == nil && y == x
}

// onMidpoint reports whether the decimal s is exactly half way between x and one of its neighbours.
func onMidpoint(s []byte, x float64, bits int) bool {
	d, ok := new(big.Rat).SetString(string(s))
	if !ok {
		return false
	}
	for _, to := range [...]float64{math.Inf(-1), math.Inf(1)} {
		y := math.Nextafter(x, to)
		if bits == 32 {
			y = float64(math.Nextafter32(float32(x), float32(to)))
		}
		if math.IsInf(y, 0) {
			continue
		}
		m := new(big.Rat).Add(new(big.Rat).SetFloat64(x), new(big.Rat).SetFloat64(y))
		if m.Quo(m, big.NewRat(2, 1)).Cmp(d) == 0 {
			return true
		}
	}
	return false
}
