package wal

import (
	"encoding/binary"
	"hash/crc32"
	"math"

	"sluice/writer/invariants"
	"sluice/writer/table"
)

// The frame header, little-endian. The first fixedHeader bytes have a fixed shape and their own checksum, so that telling a
// header from other bytes costs the same everywhere; then comes one row number a table, with a checksum in the fixed part.
// Enqueue computes both. The rest is the body, whose checksum Encode computes.
const (
	atCRC      = 0  // u32, CRC32C of stream id + fixed part from atMagic on
	atMagic    = 4  // u16
	atVersion  = 6  // u8
	atKind     = 7  // u8
	atLength   = 8  // u32, whole frame in units of 8 bytes
	atFlags    = 12 // u32
	atPosition = 16 // u64
	atSegment  = 24 // u64, number of the segment: stale frames of a recycled file have a smaller one
	atAppend   = 32 // u64, position of the first frame of the same append: everything below it was durable before
	atBodyCRC  = 40 // u32, CRC32C of the body
	atFirstCRC = 44 // u32, CRC32C of the row numbers
	atTime     = 48 // i64
	atID       = 56 // 16 bytes
	atResolves = 72 // u64
	atSequence = 80 // i64
	atTables   = 88 // u32
	atWriter   = 92 // u32, bytes of the writer's name
	atFirsts   = 96 // u64 a table

	fixedHeader = atFirsts

	frameMagic   = 0x4c53 // "SL"
	frameVersion = 1
	frameAlign   = 8

	flagCommitted = 1
	flagAnswer    = 2 // an answer follows the writer's name
	knownFlags    = flagCommitted | flagAnswer
)

// The table section, little-endian; it is part of the body and starts at a multiple of 8.
const (
	atTable    = 0  // u32
	atSchema   = 4  // u32
	atSize     = 8  // u64, whole section, so that a reader can pass over a table that was dropped
	atRows     = 16 // u32
	atDeletes  = 20 // u32
	atForm     = 24 // u8
	atOpFlags  = 25 // u8
	atColumns  = 26 // u16
	atReserved = 28 // u32, zero

	tableHeader = 32
	refSize     = 12

	formNone    = 0
	formRows    = 1
	formColumns = 2

	opTruncate   = 1
	knownOpFlags = opTruncate

	// columnsFrom is the number of rows from which the column form is smaller work than the row form.
	columnsFrom = 16
)

var (
	le         = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// Frame is an encoded transaction: made by Encode, given to Enqueue once.
type Frame struct {
	txn   *Txn
	bytes []byte
	small [256]byte // holds a small frame, so that a one-row transaction costs one allocation
}

// Txn is the transaction that the frame was made from, with Position and First filled in once Enqueue has been called.
func (f *Frame) Txn() *Txn { return f.txn }

// Size is the length of the frame in bytes.
func (f *Frame) Size() int { return len(f.bytes) }

// Alone is the frame by itself, for Decode: as if it were the only one of a log.
func (f *Frame) Alone() []byte {
	f.patch(0, 0, 0, 0, make([]uint64, len(f.txn.Tables)))
	return f.bytes
}

// Encode makes the frame of t. It takes no lock and is where all the work is. The frame keeps t: the caller must not
// change it any more.
func Encode(t *Txn) *Frame {
	f := &Frame{txn: t}
	b := f.small[:0]
	if n := bound(t); n > len(f.small) {
		b = make([]byte, 0, n)
	}
	b = appendHeader(b, t)
	body := len(b)
	b = append(b, t.Writer...)
	b = pad(b)
	if len(t.Answer) > 0 {
		b = le.AppendUint64(b, uint64(len(t.Answer)))
		b = pad(append(b, t.Answer...))
	}
	for i := range t.Tables {
		b = appendTable(b, &t.Tables[i])
	}
	invariants.Check(len(b)/frameAlign <= math.MaxUint32, "a frame of %d bytes", len(b))
	le.PutUint32(b[atLength:], uint32(len(b)/frameAlign))
	le.PutUint32(b[atBodyCRC:], crc32.Update(0, castagnoli, b[body:]))
	f.bytes = b
	return f
}

// bound is a size that the frame of t does not exceed.
func bound(t *Txn) int {
	n := fixedHeader + len(t.Writer) + len(t.Answer) + 3*frameAlign
	for i := range t.Tables {
		o := &t.Tables[i]
		n += 8 + tableHeader + refSize*len(o.Deletes) + 2*frameAlign
		if o.Rows != nil {
			n += boundRows(o.Rows)
		}
	}
	return n
}

func boundRows(b *table.Batch) int {
	n := b.Rows * ((len(b.Cols) + 7) / 8)
	columns := b.Rows >= columnsFrom || hasExact(b)
	for _, v := range b.Cols {
		n += boundVec(v, columns)
	}
	return n
}

// boundVec holds for both forms: per value at most 5 bytes of length, per vector a header and the padding of its parts.
func boundVec(v *table.Vec, columns bool) int {
	n := len(v.Fixed) + len(v.Data)
	if v.Type.Kind.Width() == 0 {
		n += 5*v.Len + 8
	}
	if columns || v.Elems != nil {
		n += vecHeader + v.Len/8 + 6*frameAlign
	}
	for i := range v.Exact {
		n += 10 + len(v.Exact[i].Text)
	}
	if v.Elems != nil {
		n += v.Len + boundVec(v.Elems, columns)
	}
	return n + v.Nulls
}

func appendHeader(b []byte, t *Txn) []byte {
	b = extend(b, fixedHeader)
	h := b
	le.PutUint16(h[atMagic:], frameMagic)
	h[atVersion] = frameVersion
	h[atKind] = byte(t.Kind)
	le.PutUint32(h[atFlags:], t.flags())
	le.PutUint64(h[atTime:], uint64(t.Time))
	copy(h[atID:], t.ID[:])
	le.PutUint64(h[atResolves:], uint64(t.Resolves))
	le.PutUint64(h[atSequence:], uint64(t.Sequence))
	le.PutUint32(h[atTables:], uint32(len(t.Tables)))
	le.PutUint32(h[atWriter:], uint32(len(t.Writer)))
	for i := range t.Tables {
		b = le.AppendUint64(b, t.Tables[i].First)
	}
	return b
}

func (t *Txn) flags() (f uint32) {
	if t.Committed {
		f |= flagCommitted
	}
	if len(t.Answer) > 0 {
		f |= flagAnswer
	}
	return f
}

func appendTable(b []byte, o *TableOps) []byte {
	start := len(b)
	b = extend(b, tableHeader)
	h := b[start:]
	le.PutUint32(h[atTable:], uint32(o.Table))
	le.PutUint32(h[atSchema:], uint32(o.Schema))
	le.PutUint32(h[atDeletes:], uint32(len(o.Deletes)))
	if o.Truncate {
		h[atOpFlags] |= opTruncate
	}
	b = appendRefs(b, o.Deletes)
	if o.Rows != nil && o.Rows.Rows > 0 {
		le.PutUint32(b[start+atRows:], uint32(o.Rows.Rows))
		le.PutUint16(b[start+atColumns:], uint16(len(o.Rows.Cols)))
		b = appendBatch(b, start, o.Rows)
	}
	b = pad(b)
	le.PutUint64(b[start+atSize:], uint64(len(b)-start))
	return b
}

func appendRefs(b []byte, refs []table.Ref) []byte {
	for _, r := range refs {
		invariants.Check(r.File != table.Own, "a frame deletes the uncommitted row %d", r.Row)
		b = le.AppendUint32(b, uint32(r.File))
		b = le.AppendUint64(b, r.Row)
	}
	return pad(b)
}

func appendBatch(b []byte, section int, rows *table.Batch) []byte {
	if rows.Rows < columnsFrom && !hasExact(rows) {
		b[section+atForm] = formRows
		return appendRows(b, rows)
	}
	b[section+atForm] = formColumns
	for _, v := range rows.Cols {
		b = appendVec(b, v, rows.Rows)
	}
	return b
}

// extend appends n zero bytes. A frame's memory is made for it and only ever grows, so what lies behind b is zero.
func extend(b []byte, n int) []byte {
	if n <= cap(b)-len(b) {
		return b[:len(b)+n]
	}
	return append(b, make([]byte, n)...)
}

var zeroes [frameAlign]byte

func pad(b []byte) []byte {
	if n := len(b) & (frameAlign - 1); n > 0 {
		b = append(b, zeroes[n:]...)
	}
	return b
}

// setTime sets the commit time. patch comes after it.
func (f *Frame) setTime(t int64) {
	f.txn.Time = t
	le.PutUint64(f.bytes[atTime:], uint64(t))
}

// patch fills in what only the sequencer knows, and the header's checksum over it. It costs one pass over about 100
// bytes, under the log's mutex.
func (f *Frame) patch(seed uint32, segment uint64, first, pos table.Position, firsts []uint64) (crc uint32) {
	b := f.bytes
	f.txn.Position = pos
	le.PutUint64(b[atPosition:], uint64(pos))
	le.PutUint64(b[atSegment:], segment)
	le.PutUint64(b[atAppend:], uint64(first))
	for i, n := range firsts {
		f.txn.Tables[i].First = n
		le.PutUint64(b[atFirsts+8*i:], n)
	}
	le.PutUint32(b[atFirstCRC:], crc32.Update(0, castagnoli, b[atFirsts:atFirsts+8*len(firsts)]))
	crc = crc32.Update(seed, castagnoli, b[atMagic:fixedHeader])
	le.PutUint32(b[atCRC:], crc)
	return crc
}

// header is a frame header as read; nothing in it is to be trusted before verify.
type header struct {
	crc, firstCRC   uint32
	bodyCRC, flags  uint32
	version         uint8
	kind            Kind
	length          int64
	position, first table.Position
	segment         uint64
	tables, writer  uint32
}

// readHeader reads the fixed part of a header; ok is false if b cannot be the begin of a frame of at most limit bytes.
func readHeader(b []byte, limit int64) (h header, ok bool) {
	if len(b) < fixedHeader || le.Uint16(b[atMagic:]) != frameMagic {
		return h, false
	}
	h = header{
		crc: le.Uint32(b[atCRC:]), firstCRC: le.Uint32(b[atFirstCRC:]), bodyCRC: le.Uint32(b[atBodyCRC:]),
		flags: le.Uint32(b[atFlags:]), version: b[atVersion], kind: Kind(b[atKind]),
		length:   frameAlign * int64(le.Uint32(b[atLength:])),
		position: table.Position(le.Uint64(b[atPosition:])), first: table.Position(le.Uint64(b[atAppend:])),
		segment: le.Uint64(b[atSegment:]), tables: le.Uint32(b[atTables:]), writer: le.Uint32(b[atWriter:]),
	}
	return h, h.length <= limit && int64(h.size()) <= h.length
}

func (h *header) size() int { return fixedHeader + 8*int(h.tables) }

// verify checks the checksum of the fixed part b.
func (h *header) verify(b []byte, seed uint32) bool {
	return crc32.Update(seed, castagnoli, b[atMagic:fixedHeader]) == h.crc
}

// known says whether this version can read the frame. A reader must not pass over one that it does not know.
func (h *header) known() bool {
	return h.version == frameVersion && h.flags&^knownFlags == 0 && h.kind >= Commit && h.kind <= Resolved
}

// verifyFrame checks the checksums of what follows the fixed part.
func (h *header) verifyFrame(frame []byte) bool {
	n := h.size()
	return crc32.Update(0, castagnoli, frame[fixedHeader:n]) == h.firstCRC && crc32.Update(0, castagnoli, frame[n:]) == h.bodyCRC
}
