package pgvalue

import (
	"unicode/utf8"

	"sluice/writer/table"
)

const nameLimit = 63 // bytes of a name

func (c *Codec) appendString(v *table.Vec, text []byte) error {
	if err := CheckUTF8(text); err != nil {
		return err
	}
	switch c.form {
	case formName:
		text = clip(text, nameLimit)
	case formVarchar, formBpchar:
		if c.limit >= 0 {
			return c.appendLimited(v, text)
		}
	}
	v.AppendBytes(text)
	return nil
}

// appendLimited applies the length of varchar(n) and char(n): blanks beyond it are cut, char(n) is padded.
func (c *Codec) appendLimited(v *table.Vec, text []byte) error {
	chars := len(text)
	if chars > c.limit || c.form == formBpchar {
		chars = utf8.RuneCount(text)
	}
	if chars > c.limit {
		end := runeOffset(text, c.limit)
		for _, b := range text[end:] {
			if b != ' ' {
				return c.tooLong()
			}
		}
		text, chars = text[:end], c.limit
	}
	if c.form == formBpchar && chars < c.limit {
		appendPadded(v, text, c.limit-chars)
		return nil
	}
	v.AppendBytes(text)
	return nil
}

func (c *Codec) tooLong() error {
	name := "character varying("
	if c.form == formBpchar {
		name = "character("
	}
	return &Error{Code: "22001", Message: "value too long for type " + name + itoa(c.limit) + ")"}
}

// appendPadded appends text and n blanks as one value.
func appendPadded(v *table.Vec, text []byte, n int) {
	var buf [256]byte
	padded := append(buf[:0], text...)
	for range n {
		padded = append(padded, ' ')
	}
	v.AppendBytes(padded)
}

// runeOffset is where character n begins.
func runeOffset(b []byte, n int) int {
	at := 0
	for ; n > 0; n-- {
		_, w := utf8.DecodeRune(b[at:])
		at += w
	}
	return at
}

// clip is the longest beginning of b with at most n bytes that ends between characters.
func clip(b []byte, n int) []byte {
	if len(b) <= n {
		return b
	}
	for n > 0 && !utf8.RuneStart(b[n]) {
		n--
	}
	return b[:n]
}

func appendBytea(v *table.Vec, text []byte) error {
	if err := CheckUTF8(text); err != nil {
		return err
	}
	begin := len(v.Data)
	data, err := decodeBytea(v.Data, text)
	if err != nil {
		return err
	}
	// The bytes are decoded behind the vector's own and appended from there onto themselves.
	v.Data = data[:begin]
	v.AppendBytes(data[begin:])
	return nil
}

func decodeBytea(dst, text []byte) ([]byte, error) {
	if len(text) >= 2 && text[0] == '\\' && text[1] == 'x' {
		return decodeHex(dst, text[2:])
	}
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] != '\\':
			dst = append(dst, text[i])
		case i+1 < len(text) && text[i+1] == '\\':
			dst = append(dst, '\\')
			i++
		case i+3 < len(text) && text[i+1]-'0' <= 3 && text[i+2]-'0' <= 7 && text[i+3]-'0' <= 7:
			dst = append(dst, (text[i+1]-'0')<<6|(text[i+2]-'0')<<3|(text[i+3]-'0'))
			i += 3
		default:
			return nil, &Error{Code: "22P02", Message: "invalid input syntax for type bytea"}
		}
	}
	return dst, nil
}

func decodeHex(dst, text []byte) ([]byte, error) {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case ' ', '\n', '\t', '\r':
			continue
		}
		hi := hexValue[text[i]]
		if hi > 15 {
			return nil, badHex(text[i:])
		}
		if i++; i == len(text) {
			return nil, &Error{Code: "22023", Message: "invalid hexadecimal data: odd number of digits"}
		}
		lo := hexValue[text[i]]
		if lo > 15 {
			return nil, badHex(text[i:])
		}
		dst = append(dst, hi<<4|lo)
	}
	return dst, nil
}

func badHex(at []byte) error {
	_, n := utf8.DecodeRune(at)
	return &Error{Code: "22023", Message: `invalid hexadecimal digit: "` + string(at[:n]) + `"`}
}

func byteaText(dst, b []byte, escape bool) []byte {
	if escape {
		return byteaEscape(dst, b)
	}
	dst = append(dst, '\\', 'x')
	for _, c := range b {
		dst = append(dst, hexDigits[c>>4], hexDigits[c&15])
	}
	return dst
}

func byteaEscape(dst, b []byte) []byte {
	for _, c := range b {
		switch {
		case c == '\\':
			dst = append(dst, '\\', '\\')
		case c < 0x20 || c > 0x7e:
			dst = append(dst, '\\', '0'+c>>6, '0'+(c>>3&7), '0'+(c&7))
		default:
			dst = append(dst, c)
		}
	}
	return dst
}
