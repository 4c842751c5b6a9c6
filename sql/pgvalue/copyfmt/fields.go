package copyfmt

import "sluice/sql/pgvalue"

// splitText splits a line of the text format and undoes its escapes.
func (p *Parser) splitText(line []byte) error {
	for {
		begin, n := len(p.text), 0
		suspect := false // an escape made a byte that need not be text
		for n < len(line) && line[n] != p.delim {
			if line[n] != '\\' {
				p.text = append(p.text, line[n])
				n++
				continue
			}
			if n+1 == len(line) { // a lonely backslash at the end is not part of the field
				line = line[:n]
				break
			}
			c, width := unescape(line[n+1:])
			suspect = suspect || c == 0 || c >= 0x80
			p.text = append(p.text, c)
			n += 1 + width
		}
		f := field{value: p.text[begin:len(p.text):len(p.text)], null: string(line[:n]) == p.null}
		if suspect && !f.null {
			if err := pgvalue.CheckUTF8(f.value); err != nil {
				return err
			}
		}
		p.fields = append(p.fields, f)
		if n == len(line) {
			return nil
		}
		line = line[n+1:]
	}
}

// unescape reads what follows a backslash: the byte it stands for and the length.
func unescape(b []byte) (c byte, width int) {
	switch b[0] {
	case 'b':
		return '\b', 1
	case 'f':
		return '\f', 1
	case 'n':
		return '\n', 1
	case 'r':
		return '\r', 1
	case 't':
		return '\t', 1
	case 'v':
		return '\v', 1
	case 'x':
		return unescapeHex(b)
	}
	if b[0]-'0' > 7 {
		return b[0], 1
	}
	for width < len(b) && width < 3 && b[width]-'0' <= 7 {
		c = c<<3 | (b[width] - '0')
		width++
	}
	return c, width
}

func unescapeHex(b []byte) (c byte, width int) {
	for width = 1; width < len(b) && width < 3; width++ {
		x, ok := hex(b[width])
		if !ok {
			break
		}
		c = c<<4 | x
	}
	if width == 1 {
		return 'x', 1
	}
	return c, width
}

func hex(c byte) (byte, bool) {
	switch {
	case c-'0' <= 9:
		return c - '0', true
	case c|32-'a' <= 5:
		return c | 32 - 'a' + 10, true
	}
	return 0, false
}

// splitCSV splits a line of the CSV format and undoes its quotes.
func (p *Parser) splitCSV(line []byte) error {
	for {
		begin, n := len(p.text), 0
		quoted := false
		for n < len(line) && line[n] != p.delim {
			if line[n] != p.quote {
				p.text = append(p.text, line[n])
				n++
				continue
			}
			quoted = true
			width, ok := p.unquote(line[n+1:])
			if !ok {
				return badFormat("unterminated CSV quoted field")
			}
			n += 1 + width
		}
		value := p.text[begin:len(p.text):len(p.text)]
		p.fields = append(p.fields, field{value: value, null: !quoted && string(line[:n]) == p.null})
		if n == len(line) {
			return nil
		}
		line = line[n+1:]
	}
}

// unquote copies up to the closing quote and returns the length with it.
func (p *Parser) unquote(b []byte) (width int, ok bool) {
	for n := 0; n < len(b); n++ {
		c := b[n]
		if c == p.escape && n+1 < len(b) && (b[n+1] == p.escape || b[n+1] == p.quote) {
			n++
			c = b[n]
		} else if c == p.quote {
			return n + 1, true
		}
		p.text = append(p.text, c)
	}
	return 0, false
}
