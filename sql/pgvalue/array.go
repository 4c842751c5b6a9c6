package pgvalue

import (
	"encoding/binary"
	"math"
	"strconv"
	"sync"
	"unsafe"

	"sluice/writer/table"
)

const maxDims = 6

// shape is the dimensions of an array with their lower bounds.
type shape struct {
	dims  int
	size  [maxDims]int
	lower [maxDims]int
}

func listShape(n int) shape {
	if n == 0 {
		return shape{}
	}
	return shape{dims: 1, size: [maxDims]int{n}, lower: [maxDims]int{1}}
}

// list reports whether a lake list holds an array of this shape.
func (s *shape) list() bool { return s.dims == 0 || s.dims == 1 && s.lower[0] == 1 }

func (s *shape) count() int {
	if s.dims == 0 {
		return 0
	}
	n := 1
	for _, d := range s.size[:s.dims] {
		n *= d
	}
	return n
}

// bounded reports whether the text form spells the bounds out.
func (s *shape) bounded() bool {
	for _, l := range s.lower[:s.dims] {
		if l != 1 {
			return true
		}
	}
	return false
}

// element is one element of a parsed array literal: its text in arrayParser.text.
type element struct {
	begin, end int
	null       bool
}

// arrayParser reads array literals. It takes the plain forms only; for the rest Postgres is asked.
type arrayParser struct {
	shape
	in    []byte
	at    int
	text  []byte // the unescaped elements
	elems []element
	depth int // of the elements; 0 until the first
}

var arrayParsers = sync.Pool{New: func() any { return new(arrayParser) }}

// parse reads the whole literal.
func (p *arrayParser) parse(in []byte) bool {
	*p = arrayParser{in: in, text: p.text[:0], elems: p.elems[:0]}
	p.blanks()
	declared, ok := p.bounds()
	if !ok || !p.braces(1) {
		return false
	}
	p.blanks()
	if p.at < len(in) {
		return false
	}
	p.dims = p.depth
	if declared.dims == 0 {
		for d := range p.dims {
			p.lower[d] = 1
		}
		return true
	}
	p.lower = declared.lower
	return declared.dims == p.dims && declared.size == p.size
}

func (p *arrayParser) blanks() {
	for p.at < len(p.in) && isBlank(p.in[p.at]) {
		p.at++
	}
}

func (p *arrayParser) peek() byte {
	if p.at == len(p.in) {
		return 0
	}
	return p.in[p.at]
}

// bounds reads [l:u]…= in front of the braces.
func (p *arrayParser) bounds() (s shape, ok bool) {
	for p.peek() == '[' {
		if s.dims == maxDims {
			return s, false
		}
		p.at++
		lower, ok1 := p.bound(':')
		upper, ok2 := p.bound(']')
		if !ok1 || !ok2 || upper < lower || upper-lower > 1<<26 || upper == math.MaxInt32 {
			return s, false
		}
		s.lower[s.dims], s.size[s.dims] = lower, upper-lower+1
		s.dims++
	}
	if s.dims > 0 {
		if p.peek() != '=' {
			return s, false
		}
		p.at++
	}
	return s, true
}

func (p *arrayParser) bound(end byte) (int, bool) {
	begin := p.at
	for p.at < len(p.in) && p.in[p.at] != end {
		p.at++
	}
	if p.at == len(p.in) {
		return 0, false
	}
	x, ok := shortInt(p.in[begin:p.at])
	p.at++
	return int(x), ok && int64(int32(x)) == x
}

// braces reads {…} at nesting level d.
func (p *arrayParser) braces(d int) bool {
	if d > maxDims || p.peek() != '{' {
		return false
	}
	p.at++
	p.blanks()
	if p.peek() == '}' {
		p.at++
		return d == 1
	}
	n := 0
	for {
		if !p.item(d) {
			return false
		}
		n++
		p.blanks()
		switch p.peek() {
		case ',':
			p.at++
			p.blanks()
		case '}':
			p.at++
			return p.sized(d, n)
		default:
			return false
		}
	}
}

// sized notes the size of level d, or compares it with the one seen before.
func (p *arrayParser) sized(d, n int) bool {
	if p.size[d-1] == 0 {
		p.size[d-1] = n
	}
	return p.size[d-1] == n
}

func (p *arrayParser) item(d int) bool {
	if p.peek() == '{' {
		return (p.depth == 0 || d < p.depth) && p.braces(d+1)
	}
	if p.depth == 0 {
		p.depth = d
	}
	if p.depth != d {
		return false
	}
	if p.peek() == '"' {
		return p.quoted()
	}
	return p.bare()
}

func (p *arrayParser) quoted() bool {
	begin := len(p.text)
	for p.at++; p.at < len(p.in); p.at++ {
		c := p.in[p.at]
		if c == '"' {
			p.at++
			p.elems = append(p.elems, element{begin: begin, end: len(p.text)})
			return true
		}
		if c == '\\' {
			if p.at++; p.at == len(p.in) {
				return false
			}
			c = p.in[p.at]
		}
		p.text = append(p.text, c)
	}
	return false
}

func (p *arrayParser) bare() bool {
	begin := p.at
	for p.at < len(p.in) && p.in[p.at] != ',' && p.in[p.at] != '}' {
		if c := p.in[p.at]; c == '"' || c == '\\' || c == '{' {
			return false
		}
		p.at++
	}
	word := trimBlanks(p.in[begin:p.at])
	if len(word) == 0 {
		return false
	}
	at := len(p.text)
	p.text = append(p.text, word...)
	p.elems = append(p.elems, element{begin: at, end: len(p.text), null: foldEqual(word, "null")})
	return true
}

func (c *Codec) appendArray(v *table.Vec, text []byte, env *Env) error {
	if err := CheckUTF8(text); err != nil {
		return err
	}
	p := arrayParsers.Get().(*arrayParser)
	defer arrayParsers.Put(p)
	if !p.parse(text) {
		return ErrNeedPostgres
	}
	begin := v.Elems.Len
	if err := c.appendElems(v.Elems, p, env); err != nil {
		v.Elems.Truncate(begin)
		return c.elemError(err)
	}
	return c.endArray(v, begin, p.shape)
}

func (c *Codec) appendElems(elems *table.Vec, p *arrayParser, env *Env) error {
	for _, e := range p.elems {
		if e.null {
			elems.AppendNull()
		} else if err := c.elem.AppendText(elems, p.text[e.begin:e.end], env); err != nil {
			return err
		}
	}
	return nil
}

// elemError is the error of an element. With a typmod it may be another one: an INSERT reads all elements before it applies
// the typmod, COPY applies it to each.
func (c *Codec) elemError(err error) error {
	if c.elem.p > 0 || c.elem.limit >= 0 {
		return ErrNeedPostgres
	}
	return err
}

// endArray makes the elements from begin on one value: a list, or the array's text if no list holds it.
func (c *Codec) endArray(v *table.Vec, begin int, s shape) error {
	exact := firstExact(v.Elems, begin)
	if s.list() && exact == len(v.Elems.Exact) {
		v.EndList()
		return nil
	}
	text, err := c.elem.arrayText(nil, v.Elems, begin, v.Elems.Len, s, defaultEnv)
	if err != nil {
		v.Elems.Truncate(begin)
		return err
	}
	if s.list() && onlySpelling(v.Elems, exact) {
		v.Elems.Exact = v.Elems.Exact[:exact]
		v.EndList()
		v.Exact = append(v.Exact, table.Exact{Row: v.Len - 1, Text: string(text)})
		return nil
	}
	v.Elems.Truncate(begin)
	v.AppendExact(string(text))
	return nil
}

func firstExact(v *table.Vec, begin int) int {
	n := len(v.Exact)
	for n > 0 && v.Exact[n-1].Row >= begin {
		n--
	}
	return n
}

// onlySpelling reports whether the values of v.Exact from n on are all in the vector too.
func onlySpelling(v *table.Vec, n int) bool {
	for _, e := range v.Exact[n:] {
		if v.IsNull(e.Row) {
			return false
		}
	}
	return true
}

// arrayText prints elements [begin, end) of v, of which c is the codec, as an array of shape s.
func (c *Codec) arrayText(dst []byte, v *table.Vec, begin, end int, s shape, env *Env) ([]byte, error) {
	if end == begin {
		return append(dst, "{}"...), nil
	}
	if s.bounded() {
		for d := range s.dims {
			dst = strconv.AppendInt(append(dst, '['), int64(s.lower[d]), 10)
			dst = strconv.AppendInt(append(dst, ':'), int64(s.lower[d]+s.size[d]-1), 10)
			dst = append(dst, ']')
		}
		dst = append(dst, '=')
	}
	var err error
	for i := begin; i < end; i++ {
		dst = s.open(dst, i-begin)
		if dst, err = c.elemText(dst, v, i, env); err != nil {
			return dst, err
		}
		dst = s.shut(dst, i-begin)
	}
	return dst, nil
}

// open writes the comma and the braces that come before element i.
func (s *shape) open(dst []byte, i int) []byte {
	if i > 0 {
		dst = append(dst, ',')
	}
	for n := s.edges(i); n > 0; n-- {
		dst = append(dst, '{')
	}
	return dst
}

func (s *shape) shut(dst []byte, i int) []byte {
	for n := s.edges(i + 1); n > 0; n-- {
		dst = append(dst, '}')
	}
	return dst
}

// edges is the number of dimensions in which element i is the first.
func (s *shape) edges(i int) int {
	n := 0
	for d := s.dims - 1; d >= 0 && i%s.size[d] == 0; d-- {
		i /= s.size[d]
		n++
	}
	return n
}

func (c *Codec) elemText(dst []byte, v *table.Vec, i int, env *Env) ([]byte, error) {
	if isNull(v, i) {
		return append(dst, "NULL"...), nil
	}
	begin := len(dst)
	dst, err := c.Text(dst, v, i, env)
	if err != nil {
		return dst, err
	}
	return quoteElement(dst, begin), nil
}

// isNull reports whether value i is NULL for a client, which a value in Exact is not.
func isNull(v *table.Vec, i int) bool {
	if !v.IsNull(i) {
		return false
	}
	_, exact := v.ExactText(i)
	return !exact
}

// IsNull reports whether value i of v is NULL; a value that stands only in Vec.Exact is not.
func IsNull(v *table.Vec, i int) bool { return isNull(v, i) }

// quoteElement quotes the array element dst[begin:] if it needs quotes.
func quoteElement(dst []byte, begin int) []byte {
	s := dst[begin:]
	quote, escapes := len(s) == 0 || foldEqual(s, "null"), 0
	for _, b := range s {
		switch {
		case b == '"' || b == '\\':
			escapes++
		case b == '{' || b == '}' || b == ',' || isBlank(b):
			quote = true
		}
	}
	if !quote && escapes == 0 {
		return dst
	}
	// Move the bytes to their places from the end.
	n := len(s)
	for range escapes + 2 {
		dst = append(dst, '"')
	}
	to := len(dst) - 2
	for from := begin + n - 1; from >= begin; from-- {
		b := dst[from]
		dst[to] = b
		to--
		if b == '"' || b == '\\' {
			dst[to] = '\\'
			to--
		}
	}
	dst[begin] = '"'
	return dst
}

// parseArrayText parses the canonical text of an array in Vec.Exact into a vector of its elements.
func (c *Codec) parseArrayText(text string) (*table.Vec, shape, error) {
	var p arrayParser
	if !p.parse(unsafe.Slice(unsafe.StringData(text), len(text))) {
		return nil, shape{}, ErrNeedPostgres
	}
	elems := table.NewVec(c.elem.typ)
	for _, e := range p.elems {
		if e.null {
			elems.AppendNull()
		} else if err := c.elem.AppendCanonical(elems, p.text[e.begin:e.end]); err != nil {
			return nil, shape{}, err
		}
	}
	return elems, p.shape, nil
}

func (c *Codec) exactArrayText(dst []byte, text string, env *Env) ([]byte, error) {
	elems, s, err := c.parseArrayText(text)
	if err != nil {
		return dst, err
	}
	return c.elem.arrayText(dst, elems, 0, elems.Len, s, env)
}

// arrayBinary writes dimensions, element type and elements as array_send does.
func (c *Codec) arrayBinary(dst []byte, v *table.Vec, i int) ([]byte, error) {
	if text, ok := v.ExactText(i); ok {
		elems, s, err := c.parseArrayText(text)
		if err != nil {
			return dst, err
		}
		return c.elem.elemsBinary(dst, elems, 0, elems.Len, s)
	}
	b, e := v.ListRange(i)
	return c.elem.elemsBinary(dst, v.Elems, b, e, listShape(e-b))
}

func (c *Codec) elemsBinary(dst []byte, v *table.Vec, begin, end int, s shape) ([]byte, error) {
	dst = binary.BigEndian.AppendUint32(dst, uint32(s.dims))
	dst = binary.BigEndian.AppendUint32(dst, nullFlag(v, begin, end))
	dst = binary.BigEndian.AppendUint32(dst, c.oid)
	for d := range s.dims {
		dst = binary.BigEndian.AppendUint32(dst, uint32(s.size[d]))
		dst = binary.BigEndian.AppendUint32(dst, uint32(s.lower[d]))
	}
	var err error
	for i := begin; i < end; i++ {
		at := len(dst)
		dst = append(dst, 0xff, 0xff, 0xff, 0xff)
		if isNull(v, i) {
			continue
		}
		if dst, err = c.Binary(dst, v, i); err != nil {
			return dst, err
		}
		binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	}
	return dst, nil
}

func nullFlag(v *table.Vec, begin, end int) uint32 {
	for i := begin; i < end; i++ {
		if isNull(v, i) {
			return 1
		}
	}
	return 0
}

// recvArray reads what array_recv reads; malformed input is left to Postgres and its messages.
func (c *Codec) recvArray(v *table.Vec, b []byte) error {
	s, b, ok := c.recvShape(b)
	if !ok {
		return ErrNeedPostgres
	}
	begin := v.Elems.Len
	for range s.count() {
		var err error
		if b, err = c.recvElem(v.Elems, b); err != nil {
			v.Elems.Truncate(begin)
			return c.elemError(err)
		}
	}
	if len(b) > 0 {
		v.Elems.Truncate(begin)
		return ErrNeedPostgres
	}
	return c.endArray(v, begin, s)
}

func (c *Codec) recvShape(b []byte) (s shape, rest []byte, ok bool) {
	if len(b) < 12 {
		return s, b, false
	}
	dims, flags := binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])
	if dims > maxDims || flags > 1 || binary.BigEndian.Uint32(b[8:]) != c.elem.oid || len(b) < 12+8*int(dims) {
		return s, b, false
	}
	s.dims = int(dims)
	b = b[12:]
	total := 1
	for d := range s.dims {
		n, low := binary.BigEndian.Uint32(b), int32(binary.BigEndian.Uint32(b[4:]))
		if n == 0 || n > 1<<26 || total*int(n) > 1<<26 || int64(low)+int64(n) > math.MaxInt32 {
			return s, b, false
		}
		total *= int(n)
		s.size[d], s.lower[d] = int(n), int(low)
		b = b[8:]
	}
	return s, b, true
}

func (c *Codec) recvElem(elems *table.Vec, b []byte) ([]byte, error) {
	if len(b) < 4 {
		return b, ErrNeedPostgres
	}
	n := int32(binary.BigEndian.Uint32(b))
	b = b[4:]
	if n == -1 {
		elems.AppendNull()
		return b, nil
	}
	if n < 0 || int(n) > len(b) {
		return b, ErrNeedPostgres
	}
	err := c.elem.AppendBinary(elems, b[:n])
	if e, ok := err.(*Error); ok && (e == errTrailing || e == errInsufficient || e == errNoData) {
		err = ErrNeedPostgres // "improper binary format in array element 1" and such
	}
	return b[n:], err
}

// ArrayLiteral appends the text[] literal of the values of v at rows (all rows if nil): what unnest($1::text[]) gives back
// is each value's canonical text, or NULL.
func ArrayLiteral(dst []byte, v *table.Vec, rows []int, c *Codec) ([]byte, error) {
	n := len(rows)
	if rows == nil {
		n = v.Len
	}
	dst = append(dst, '{')
	var err error
	for k := range n {
		if k > 0 {
			dst = append(dst, ',')
		}
		i := k
		if rows != nil {
			i = rows[k]
		}
		if dst, err = c.elemText(dst, v, i, defaultEnv); err != nil {
			return dst, err
		}
	}
	return append(dst, '}'), nil
}
