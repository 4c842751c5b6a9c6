package sql

import (
	"strconv"
	"strings"
)

// Literals is an INSERT … VALUES of literals, cut without the parser: what is around the rows, and where they are. Most of a long
// statement is rows, and the parser takes some 10 µs for each. It knows the plain spellings only; Cut says no to everything else.
type Literals struct {
	Head string // up to and with VALUES
	Tail string // behind the last row
	rows string
}

// longestFrame is the longest text around rows that is worth remembering.
const longestFrame = 4096

// CutInsert finds the rows of an INSERT … VALUES; ok is false if the text is anything else, or is written in a way that only the parser
// knows.
func CutInsert(text string) (l Literals, ok bool) {
	at := valuesKeyword(text)
	if at < 0 {
		return l, false
	}
	c := cursor{text: text, at: at}
	if c.blanks(); !c.is('(') {
		return l, false
	}
	begin := c.at
	for {
		if !c.skipRow() {
			return l, false
		}
		end := c.at
		if c.blanks(); !c.is(',') {
			l = Literals{Head: text[:at], Tail: text[end:], rows: text[begin:end]}
			return l, len(l.Head)+len(l.Tail) <= longestFrame && lastStatement(l.Tail)
		}
		c.at++
		if c.blanks(); !c.is('(') {
			return l, false
		}
	}
}

// lastStatement reports whether no other statement follows.
func lastStatement(tail string) bool {
	at := strings.IndexByte(tail, ';')
	return at < 0 || strings.Trim(tail[at+1:], " \t\r\n\f") == ""
}

// valuesKeyword is where the word VALUES ends that the rows follow, -1 if the text does not begin as INSERT INTO name (columns) VALUES.
func valuesKeyword(text string) int {
	c := cursor{text: text}
	if c.blanks(); !c.word("insert") {
		return -1
	}
	depth := 0
	for c.at < len(text) {
		switch b := text[c.at]; {
		case b == '(':
			depth++
			c.at++
		case b == ')':
			depth--
			c.at++
		case b == '"':
			end := strings.IndexByte(text[c.at+1:], '"')
			if end < 0 {
				return -1
			}
			c.at += end + 2
		case isIdent(b):
			begin := c.at
			for c.at < len(text) && isIdent(text[c.at]) {
				c.at++
			}
			if depth == 0 && c.at-begin == 6 && strings.EqualFold(text[begin:c.at], "values") {
				return c.at
			}
		case isBlank(b) || b == ',' || b == '.':
			c.at++
		default: // a comment, a string, an expression
			return -1
		}
	}
	return -1
}

func isBlank(b byte) bool { return b == ' ' || b == '\t' || b == '\n' || b == '\r' || b == '\f' }

func isIdent(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '_' || b == '$' || b >= 0x80
}

// cursor reads a text from its front.
type cursor struct {
	text string
	at   int
}

func (c *cursor) is(b byte) bool { return c.at < len(c.text) && c.text[c.at] == b }

func (c *cursor) blanks() {
	for c.at < len(c.text) && isBlank(c.text[c.at]) {
		c.at++
	}
}

// word takes a keyword, which is given in lower case.
func (c *cursor) word(w string) bool {
	end := c.at + len(w)
	if end > len(c.text) || !strings.EqualFold(c.text[c.at:end], w) || end < len(c.text) && isIdent(c.text[end]) {
		return false
	}
	c.at = end
	return true
}

// skipRow passes (…) without a look at its values, but for strings; what else could hold a parenthesis makes it say no.
func (c *cursor) skipRow() bool {
	for c.at++; c.at < len(c.text); c.at++ {
		switch c.text[c.at] {
		case '\'':
			if !c.skipString() {
				return false
			}
			c.at-- // on its last quote
		case ')':
			c.at++
			return true
		case '(', '"', '$', '/', ';':
			return false
		}
	}
	return false
}

// skipString passes '…', in which only a quote is special, and that is doubled (standard_conforming_strings).
func (c *cursor) skipString() bool {
	for c.at++; ; c.at += 2 {
		end := strings.IndexByte(c.text[c.at:], '\'')
		if end < 0 {
			return false
		}
		if c.at += end; c.at+1 >= len(c.text) || c.text[c.at+1] != '\'' {
			c.at++
			return true
		}
	}
}

// First is the first row with what is around it: a short statement of the same form.
func (l *Literals) First() string {
	c := cursor{text: l.rows}
	c.skipRow()
	return l.Head + " " + l.rows[:c.at] + l.Tail
}

// Each calls fn with the values of all rows, in order; column counts from 0 in each row. The text of a value lives as long as the call. It
// returns the number of rows; ok is false if a value is not plain, fn says so, or rows have not width values.
func (l *Literals) Each(width int, fn func(column int, kind ValueKind, text []byte) bool) (rows int, ok bool) {
	c := cursor{text: l.rows}
	var scratch []byte
	for {
		c.at++ // (
		for column := 0; ; column++ {
			kind, text, plain := c.value(&scratch)
			if !plain || column >= width || !fn(column, kind, text) {
				return 0, false
			}
			if c.blanks(); c.is(',') {
				c.at++
				continue
			}
			if !c.is(')') || column != width-1 {
				return 0, false
			}
			break
		}
		c.at++ // )
		rows++
		if c.at == len(c.text) {
			return rows, true
		}
		for !c.is('(') { // CutInsert saw that there is a comma and blanks only
			c.at++
		}
	}
}

// value takes one literal.
func (c *cursor) value(scratch *[]byte) (kind ValueKind, text []byte, ok bool) {
	c.blanks()
	if c.at >= len(c.text) {
		return 0, nil, false
	}
	switch b := c.text[c.at]; {
	case b == '\'':
		return String, c.stringValue(scratch), true
	case b >= '0' && b <= '9' || b == '-' || b == '.':
		return c.number(scratch)
	case c.word("null"):
		return Null, nil, true
	case c.word("default"):
		return Default, nil, true
	case c.word("true"):
		return Bool, append((*scratch)[:0], 't'), true
	case c.word("false"):
		return Bool, append((*scratch)[:0], 'f'), true
	}
	return 0, nil, false
}

func (c *cursor) stringValue(scratch *[]byte) []byte {
	out := (*scratch)[:0]
	for c.at++; ; c.at += 2 {
		end := strings.IndexByte(c.text[c.at:], '\'')
		out = append(out, c.text[c.at:c.at+end]...)
		if c.at += end; c.at+1 >= len(c.text) || c.text[c.at+1] != '\'' {
			c.at++
			*scratch = out
			return out
		}
		out = append(out, '\'')
	}
}

// number takes digits with an optional sign, point and exponent.
func (c *cursor) number(scratch *[]byte) (kind ValueKind, text []byte, ok bool) {
	begin := c.at
	if c.is('-') {
		c.at++
	}
	digits := c.digits()
	kind = Integer
	if c.is('.') {
		c.at++
		kind, digits = Numeric, digits+c.digits()
	}
	if c.is('e') || c.is('E') {
		if c.at++; c.is('-') || c.is('+') {
			c.at++
		}
		if kind = Numeric; c.digits() == 0 {
			return 0, nil, false
		}
	}
	*scratch = append((*scratch)[:0], c.text[begin:c.at]...)
	if kind == Integer && len(*scratch) > 18 {
		if _, err := strconv.ParseInt(string(*scratch), 10, 64); err != nil {
			kind = Numeric
		}
	}
	return kind, *scratch, digits > 0
}

func (c *cursor) digits() int {
	begin := c.at
	for c.at < len(c.text) && c.text[c.at] >= '0' && c.text[c.at] <= '9' {
		c.at++
	}
	return c.at - begin
}
