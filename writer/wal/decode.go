package wal

import (
	"encoding/binary"
	"fmt"

	"sluice/writer/table"
)

// Schemas finds the columns that rows were encoded with. nil without an error means that the table was dropped: what
// frames did to it is passed over.
type Schemas func(id table.ID, schema int) (*table.Schema, error)

// decode makes the transaction of a verified frame. With alias the vectors of column forms share the frame's memory.
// It does not trust the frame: a frame with right checksums and wrong content is an error, never a panic.
func decode(frame []byte, h *header, schemas Schemas, alias bool) (*Txn, error) {
	t := h.txn(frame)
	c := &cursor{b: frame, off: h.size(), alias: alias}
	c.identity(t, h)
	for i := range int(h.tables) {
		o, err := c.tableOps(schemas)
		if err != nil {
			return nil, err
		}
		if o != nil {
			o.First = le.Uint64(frame[atFirsts+8*i:])
			t.Tables = append(t.Tables, *o)
		}
	}
	c.check(c.left() == 0, "%d bytes behind the last table", c.left())
	return t, c.err
}

// Decode reads what Frame.Alone made.
func Decode(b []byte, schemas Schemas) (*Txn, error) {
	h, ok := readHeader(b, int64(len(b)))
	if !ok || !h.known() || !h.verify(b, 0) || h.length != int64(len(b)) || !h.verifyFrame(b) {
		return nil, &CorruptError{Reason: "a frame by itself is damaged"}
	}
	return decode(b, &h, schemas, false)
}

// identity reads the writer's name and its answer, which does not keep the frame's memory.
func (c *cursor) identity(t *Txn, h *header) {
	t.Writer = string(c.take(int(h.writer)))
	c.align()
	if h.flags&flagAnswer == 0 {
		return
	}
	n := uint64(0)
	if b := c.take(8); b != nil {
		n = le.Uint64(b)
	}
	c.check(n > 0 && n <= uint64(c.left()) && h.writer > 0, "answer of %d bytes", n)
	t.Answer = append([]byte(nil), c.take(int(n))...)
	c.align()
}

func (h *header) txn(b []byte) *Txn {
	t := &Txn{
		Position: h.position, Kind: h.kind, Time: int64(le.Uint64(b[atTime:])),
		Sequence: int64(le.Uint64(b[atSequence:])), Resolves: table.Position(le.Uint64(b[atResolves:])),
		Committed: h.flags&flagCommitted != 0,
	}
	copy(t.ID[:], b[atID:])
	return t
}

// section is the fixed part of a table's section.
type section struct {
	table         table.ID
	schema        int
	size          uint64
	rows, deletes uint32
	form, flags   uint8
	columns       uint16
	begin, end    int
}

func (c *cursor) section() section {
	s := section{begin: c.off}
	h := c.take(tableHeader)
	if c.err != nil {
		return s
	}
	s.table, s.schema, s.size = table.ID(le.Uint32(h[atTable:])), int(int32(le.Uint32(h[atSchema:]))), le.Uint64(h[atSize:])
	s.rows, s.deletes = le.Uint32(h[atRows:]), le.Uint32(h[atDeletes:])
	s.form, s.flags, s.columns = h[atForm], h[atOpFlags], le.Uint16(h[atColumns:])
	c.check(s.size >= tableHeader && s.size%frameAlign == 0 && s.size-tableHeader <= uint64(c.left()), "table section of %d bytes", s.size)
	c.check(s.form <= formColumns && s.flags&^knownOpFlags == 0 && le.Uint32(h[atReserved:]) == 0, "unknown form %d or flags %#x", s.form, s.flags)
	c.check((s.form == formNone) == (s.rows == 0), "form %d with %d rows", s.form, s.rows)
	s.end = s.begin + int(s.size)
	return s
}

func (c *cursor) tableOps(schemas Schemas) (*TableOps, error) {
	s := c.section()
	if c.err != nil {
		return nil, c.err
	}
	columns, err := schemas(s.table, s.schema)
	if err != nil {
		return nil, fmt.Errorf("find schema %d of table %d: %w", s.schema, s.table, err)
	}
	if columns == nil {
		c.off = s.end
		return nil, nil
	}
	o := &TableOps{Table: s.table, Schema: s.schema, Truncate: s.flags&opTruncate != 0}
	o.Deletes = c.refs(int(s.deletes))
	if s.form != formNone {
		o.Rows = c.batch(&s, columns)
	}
	c.align()
	c.check(c.off == s.end, "table section ends at %d, expected %d", c.off, s.end)
	return o, c.err
}

func (c *cursor) batch(s *section, columns *table.Schema) *table.Batch {
	c.check(int(s.columns) == len(columns.Columns), "%d columns in the frame, %d in schema %d of table %d",
		s.columns, len(columns.Columns), s.schema, s.table)
	if c.err != nil {
		return nil
	}
	if s.form == formColumns {
		return c.columns(columns, int(s.rows))
	}
	c.check(s.rows < columnsFrom, "row form with %d rows", s.rows)
	if c.err != nil {
		return nil
	}
	return c.rows(columns, int(s.rows))
}

func (c *cursor) refs(n int) []table.Ref {
	b := c.take(n * refSize)
	c.align()
	if n == 0 || c.err != nil {
		return nil
	}
	refs := make([]table.Ref, n)
	for i := range refs {
		refs[i] = table.Ref{File: table.FileID(le.Uint32(b[i*refSize:])), Row: le.Uint64(b[i*refSize+4:])}
	}
	return refs
}

// cursor reads a frame. After the first error every read gives zero values: callers look at err where a value would be
// used as a size.
type cursor struct {
	b     []byte
	off   int
	alias bool
	err   error
}

func (c *cursor) left() int { return len(c.b) - c.off }

func (c *cursor) check(ok bool, format string, args ...any) {
	if !ok && c.err == nil {
		c.err = &CorruptError{Reason: fmt.Sprintf("at byte %d of the frame: "+format, append([]any{c.off}, args...)...)}
	}
}

// take is the next n bytes; they belong to the frame.
func (c *cursor) take(n int) []byte {
	if c.err == nil && (n < 0 || n > c.left()) {
		c.check(false, "%d bytes expected, %d left", n, c.left())
	}
	if c.err != nil {
		return nil
	}
	s := c.b[c.off : c.off+n : c.off+n]
	c.off += n
	return s
}

// buffer is the next n bytes as a vector may keep them.
func (c *cursor) buffer(n int) []byte {
	s := c.take(n)
	if c.alias || s == nil {
		return s
	}
	return append(make([]byte, 0, len(s)), s...)
}

// align passes over padding, which has to be zero: a flipped bit there is a bad checksum, anything else a bad encoder.
func (c *cursor) align() {
	for _, x := range c.take(-c.off & (frameAlign - 1)) {
		c.check(x == 0, "padding is not zero")
	}
}

func (c *cursor) uvarint(limit uint64) uint64 {
	if c.err != nil {
		return 0
	}
	x, n := binary.Uvarint(c.b[c.off:])
	c.check(n > 0 && x <= limit, "number %d, at most %d expected", x, limit)
	if c.err != nil {
		return 0
	}
	c.off += n
	return x
}

// length is a length that fits into what is left; one more is allowed for the exact texts, which are stored plus one.
func (c *cursor) length() int { return int(c.uvarint(uint64(c.left()) + 1)) }
