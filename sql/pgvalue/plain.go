package pgvalue

import "sluice/writer/table"

// AppendPlain appends the value that buf begins with, if it is spelled the plain way and delim or a line end follows, and
// returns its length. It is AppendText for readers of lines, which then need not look for the end of the field first. When
// it is not ok, v is unchanged and AppendText decides.
func (c *Codec) AppendPlain(v *table.Vec, buf []byte, delim byte, env *Env) (n int, ok bool) {
	switch c.form {
	case formInt4, formInt8:
		return c.plainInt(v, buf, delim)
	case formFloat8:
		return plainFloat(v, buf, delim)
	case formTimestamp, formTimestampTZ:
		return c.plainTimestamp(v, buf, delim, env.or())
	}
	return 0, false
}

func ends(buf []byte, n int, delim byte) bool {
	return n < len(buf) && (buf[n] == delim || buf[n] == '\n' || buf[n] == '\r')
}

// plainDigits reads digits from buf[n:], at most 18 of them.
func plainDigits(buf []byte, n int) (x int64, end int) {
	for end = n; end < len(buf) && end-n < 18; end++ {
		d := buf[end] - '0'
		if d > 9 {
			break
		}
		x = x*10 + int64(d)
	}
	return x, end
}

func (c *Codec) plainInt(v *table.Vec, buf []byte, delim byte) (int, bool) {
	n := 0
	neg := len(buf) > 0 && buf[0] == '-'
	if neg {
		n = 1
	}
	x, end := plainDigits(buf, n)
	if end == n || !ends(buf, end, delim) {
		return 0, false
	}
	if neg {
		x = -x
	}
	if c.form == formInt8 {
		v.AppendInt64(x)
		return end, true
	}
	if x != int64(int32(x)) {
		return 0, false
	}
	v.AppendInt32(int32(x))
	return end, true
}

func plainFloat(v *table.Vec, buf []byte, delim byte) (int, bool) {
	n := 0
	neg := len(buf) > 0 && buf[0] == '-'
	if neg {
		n = 1
	}
	x, end := plainDigits(buf, n)
	if end == n {
		return 0, false
	}
	frac := 0
	if end < len(buf) && buf[end] == '.' {
		point := end
		for end++; end < len(buf) && buf[end]-'0' <= 9 && end-n <= 16; end++ {
			x = x*10 + int64(buf[end]-'0')
		}
		frac = end - point - 1
	}
	if end-n > 16 || x >= 1<<53 || !ends(buf, end, delim) {
		return 0, false
	}
	f := float64(x) / exact10[frac]
	if neg {
		f = -f
	}
	v.AppendFloat64(f)
	return end, true
}

func (c *Codec) plainTimestamp(v *table.Vec, buf []byte, delim byte, env *Env) (int, bool) {
	t, n, ok := plainStamp(buf)
	if !ok {
		return 0, false
	}
	if zone := buf[n:]; len(zone) > 3 && zone[0] == '+' && zone[1] == '0' && zone[2] == '0' {
		t.zoned = true
		n += 3
	}
	if !ends(buf, n, delim) {
		return 0, false
	}
	m, ok := c.stamp(&t, env)
	if ok {
		c.storeMoment(v, m)
	}
	return n, ok
}
