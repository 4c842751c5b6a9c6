package pgvalue

import (
	"bytes"
	"slices"
	"sync"
	"unicode/utf16"
	"unicode/utf8"

	"sluice/writer/table"
)

// jsonDepth is how deep a document may be nested before Postgres decides (its own limit is the size of its stack).
const jsonDepth = 500

func appendJSON(v *table.Vec, text []byte) error {
	if err := CheckUTF8(text); err != nil {
		return err
	}
	p := jsonParser{in: text}
	if !p.document() {
		return ErrNeedPostgres
	}
	v.AppendBytes(text)
	return nil
}

func appendJSONB(v *table.Vec, text []byte) error {
	if err := CheckUTF8(text); err != nil {
		return err
	}
	p := jsonbs.Get().(*jsonbParser)
	defer jsonbs.Put(p)
	out, ok := p.normal(text)
	if !ok {
		return ErrNeedPostgres
	}
	v.AppendBytes(out)
	return nil
}

func recvJSONB(v *table.Vec, b []byte) error {
	if len(b) == 0 {
		return errInsufficient
	}
	if b[0] != 1 {
		return ErrNeedPostgres
	}
	return appendJSONB(v, b[1:])
}

// jsonParser checks the syntax of JSON, which is what Postgres does with a value of type json.
type jsonParser struct {
	in []byte
	at int
}

func (p *jsonParser) blanks() {
	for p.at < len(p.in) {
		switch p.in[p.at] {
		case ' ', '\t', '\n', '\r':
			p.at++
		default:
			return
		}
	}
}

// next is the next byte that is not blank; 0 at the end.
func (p *jsonParser) next() byte {
	p.blanks()
	if p.at == len(p.in) {
		return 0
	}
	return p.in[p.at]
}

func (p *jsonParser) take(c byte) bool {
	if p.at < len(p.in) && p.in[p.at] == c {
		p.at++
		return true
	}
	return false
}

func (p *jsonParser) word(w string) bool {
	if p.at+len(w) > len(p.in) || string(p.in[p.at:p.at+len(w)]) != w {
		return false
	}
	p.at += len(w)
	return true
}

func (p *jsonParser) document() bool {
	if !p.value(0) {
		return false
	}
	p.blanks()
	return p.at == len(p.in)
}

func (p *jsonParser) value(depth int) bool {
	switch p.next() {
	case '{':
		p.at++
		return depth < jsonDepth && p.object(depth+1)
	case '[':
		p.at++
		return depth < jsonDepth && p.array(depth+1)
	case '"':
		_, ok := p.str()
		return ok
	case 't':
		return p.word("true")
	case 'f':
		return p.word("false")
	case 'n':
		return p.word("null")
	}
	return p.number()
}

func (p *jsonParser) object(depth int) bool {
	if p.next() == '}' {
		p.at++
		return true
	}
	for {
		if p.next() != '"' {
			return false
		}
		if _, ok := p.str(); !ok || p.next() != ':' {
			return false
		}
		p.at++
		if !p.value(depth) {
			return false
		}
		switch p.next() {
		case '}':
			p.at++
			return true
		case ',':
			p.at++
		default:
			return false
		}
	}
}

func (p *jsonParser) array(depth int) bool {
	if p.next() == ']' {
		p.at++
		return true
	}
	for {
		if !p.value(depth) {
			return false
		}
		switch p.next() {
		case ']':
			p.at++
			return true
		case ',':
			p.at++
		default:
			return false
		}
	}
}

// str passes over a string and reports whether it is without escapes.
func (p *jsonParser) str() (plain, ok bool) {
	plain = true
	for p.at++; p.at < len(p.in); p.at++ {
		switch c := p.in[p.at]; {
		case c == '"':
			p.at++
			return plain, true
		case c < ' ':
			return false, false
		case c == '\\':
			plain = false
			if p.at++; !p.escape() {
				return false, false
			}
		}
	}
	return false, false
}

// escape passes over what follows a backslash, but for its last byte.
func (p *jsonParser) escape() bool {
	if p.at == len(p.in) {
		return false
	}
	switch p.in[p.at] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return true
	case 'u':
		_, ok := hexRune(p.in[p.at+1:])
		p.at += 4
		return ok
	}
	return false
}

func hexRune(b []byte) (r rune, ok bool) {
	if len(b) < 4 {
		return 0, false
	}
	for _, c := range b[:4] {
		x := hexValue[c]
		if x > 15 {
			return 0, false
		}
		r = r<<4 | rune(x)
	}
	return r, true
}

func (p *jsonParser) digits() bool {
	begin := p.at
	for p.at < len(p.in) && p.in[p.at]-'0' <= 9 {
		p.at++
	}
	return p.at > begin
}

func (p *jsonParser) number() bool {
	p.take('-')
	if !p.take('0') && !p.digits() {
		return false
	}
	if p.take('.') && !p.digits() {
		return false
	}
	if p.take('e') || p.take('E') {
		if !p.take('+') {
			p.take('-')
		}
		return p.digits()
	}
	return true
}

// jsonbParser writes the normal form of jsonb: keys by length and then bytes, the last of equal ones wins.
type jsonbParser struct {
	jsonParser
	out     []byte
	keys    []byte   // unescaped keys of the open objects
	members []member // members of the open objects
	spare   []byte
	equal   bool // print numbers so that equal ones look the same
}

// member is one member of an object: its key in keys, its normal form in out.
type member struct{ key, keyEnd, out, outEnd int }

var jsonbs = sync.Pool{New: func() any { return new(jsonbParser) }}

// normal is the normal form of text; it belongs to p.
func (p *jsonbParser) normal(text []byte) ([]byte, bool) {
	p.in, p.at, p.out, p.keys, p.members = text, 0, p.out[:0], p.keys[:0], p.members[:0]
	ok := len(text) < 64<<20 && p.value(0)
	p.blanks()
	ok = ok && p.at == len(p.in)
	p.in = nil
	return p.out, ok
}

func (p *jsonbParser) value(depth int) bool {
	switch p.next() {
	case '{':
		p.at++
		return depth < jsonDepth && p.object(depth+1)
	case '[':
		p.at++
		return depth < jsonDepth && p.array(depth+1)
	case '"':
		return p.text()
	case 't':
		return p.copyWord("true")
	case 'f':
		return p.copyWord("false")
	case 'n':
		return p.copyWord("null")
	}
	return p.numeric()
}

func (p *jsonbParser) copyWord(w string) bool {
	p.out = append(p.out, w...)
	return p.word(w)
}

func (p *jsonbParser) array(depth int) bool {
	p.out = append(p.out, '[')
	if p.next() == ']' {
		p.at++
		p.out = append(p.out, ']')
		return true
	}
	for {
		if !p.value(depth) {
			return false
		}
		switch p.next() {
		case ']':
			p.at++
			p.out = append(p.out, ']')
			return true
		case ',':
			p.at++
			p.out = append(p.out, ", "...)
		default:
			return false
		}
	}
}

func (p *jsonbParser) object(depth int) bool {
	first, begin, keys := len(p.members), len(p.out), len(p.keys)
	if p.next() == '}' {
		p.at++
		p.out = append(p.out, "{}"...)
		return true
	}
	for {
		if p.next() != '"' || !p.member(depth) {
			return false
		}
		switch p.next() {
		case '}':
			p.at++
			p.close(first, begin)
			p.members, p.keys = p.members[:first], p.keys[:keys]
			return true
		case ',':
			p.at++
		default:
			return false
		}
	}
}

// member reads "key": value and leaves its normal form at the end of out.
func (p *jsonbParser) member(depth int) bool {
	m := member{key: len(p.keys), out: len(p.out)}
	var ok bool
	if p.keys, ok = p.unescape(p.keys); !ok || p.next() != ':' {
		return false
	}
	p.at++
	m.keyEnd = len(p.keys)
	p.out = append(quoteJSON(p.out, p.keys[m.key:]), ": "...)
	if !p.value(depth) {
		return false
	}
	m.outEnd = len(p.out)
	p.members = append(p.members, m)
	return true
}

// close puts the members from first on, which are in out from begin on, into order and braces.
func (p *jsonbParser) close(first, begin int) {
	ms := p.members[first:]
	slices.SortStableFunc(ms, func(a, b member) int { return p.compareKeys(a, b) })
	p.spare = append(p.spare[:0], '{')
	for i, m := range ms {
		if i+1 < len(ms) && p.compareKeys(m, ms[i+1]) == 0 {
			continue
		}
		if len(p.spare) > 1 {
			p.spare = append(p.spare, ", "...)
		}
		p.spare = append(p.spare, p.out[m.out:m.outEnd]...)
	}
	p.out = append(append(p.out[:begin], p.spare...), '}')
}

func (p *jsonbParser) compareKeys(a, b member) int {
	if d := (a.keyEnd - a.key) - (b.keyEnd - b.key); d != 0 {
		return d
	}
	return bytes.Compare(p.keys[a.key:a.keyEnd], p.keys[b.key:b.keyEnd])
}

func (p *jsonbParser) text() bool {
	n := len(p.keys)
	var ok bool
	if p.keys, ok = p.unescape(p.keys); ok {
		p.out = quoteJSON(p.out, p.keys[n:])
	}
	p.keys = p.keys[:n]
	return ok
}

// unescape appends the content of the string at p.at.
func (p *jsonbParser) unescape(dst []byte) ([]byte, bool) {
	begin := p.at + 1
	plain, ok := p.str()
	if !ok {
		return dst, false
	}
	s := p.in[begin : p.at-1]
	if plain {
		return append(dst, s...), true
	}
	for len(s) > 0 {
		if s[0] != '\\' {
			n := bytes.IndexByte(s, '\\')
			if n < 0 {
				n = len(s)
			}
			dst, s = append(dst, s[:n]...), s[n:]
			continue
		}
		if s[1] != 'u' {
			dst, s = append(dst, unescaped[s[1]]), s[2:]
			continue
		}
		r, n := escapedRune(s)
		if n == 0 {
			return dst, false
		}
		dst, s = utf8.AppendRune(dst, r), s[n:]
	}
	return dst, true
}

var unescaped = [128]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escapedRune reads \uXXXX or a pair of surrogates; n is 0 for what Postgres refuses.
func escapedRune(s []byte) (r rune, n int) {
	r, _ = hexRune(s[2:])
	if r == 0 {
		return 0, 0
	}
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	if len(s) < 12 || s[6] != '\\' || s[7] != 'u' {
		return 0, 0
	}
	low, _ := hexRune(s[8:])
	if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
		return 0, 0
	}
	return r, 12
}

// quoteJSON appends s as Postgres quotes a string of JSON.
func quoteJSON(dst, s []byte) []byte {
	dst = append(dst, '"')
	run := 0
	for i, c := range s {
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[run:i]...)
		run = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\f':
			dst = append(dst, '\\', 'f')
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return append(append(dst, s[run:]...), '"')
}

func (p *jsonbParser) numeric() bool {
	begin := p.at
	if !p.number() {
		return false
	}
	var room [numberRoom]byte
	n, err := parseNumber(room[:0], p.in[begin:p.at])
	if err != nil {
		return false
	}
	if p.equal {
		n = n.trim()
	}
	p.out = n.text(p.out)
	return true
}
