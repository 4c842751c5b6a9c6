package copyfmt

import (
	"encoding/binary"
	"strconv"

	"sluice/sql/pgvalue"
	"sluice/writer/table"
)

// fieldLimit is the size of a field, or of a line, that Postgres cannot hold.
const fieldLimit = 1<<30 - 1

func tooLarge(have, more int) error {
	return &pgvalue.Error{Code: "54000", Message: "out of memory", Detail: "Cannot enlarge string buffer containing " +
		strconv.Itoa(have) + " bytes by " + strconv.Itoa(more) + " more bytes."}
}

const signature = "PGCOPY\n\xff\r\n\x00"

// binaryRows parses the rows of the binary format in buf and returns how much of it they took.
func (p *Parser) binaryRows(b *table.Batch, buf []byte, final bool) (n int, err error) {
	if !p.begun {
		if n, err = binaryHeader(buf, final); n == 0 || err != nil {
			return 0, err
		}
		p.begun = true
	}
	for n < len(buf) {
		if p.ended {
			return n, p.lineError(p.line, badFormat("received copy data after EOF marker"))
		}
		size, whole := p.rowSize(buf[n:])
		if !whole && !final {
			return n, nil
		}
		p.line++
		if err := p.binaryRow(b, buf[n:]); err != nil {
			return n, p.failed(b, err)
		}
		n += size
	}
	return n, nil
}

// binaryHeader checks the header; its length is 0 as long as it is not complete.
func binaryHeader(buf []byte, final bool) (int, error) {
	n := len(signature)
	if len(buf) < n && !final {
		return 0, nil
	}
	if len(buf) < n || string(buf[:n]) != signature {
		return 0, badFormat("COPY file signature not recognized")
	}
	if len(buf) < n+8 {
		return headerEnd(buf[n:], final)
	}
	flags := binary.BigEndian.Uint32(buf[n:])
	switch {
	case flags&(1<<16) != 0:
		return 0, badFormat("invalid COPY file header (WITH OIDS)")
	case flags>>16 != 0:
		return 0, badFormat("unrecognized critical flags in COPY file header")
	}
	extra := int(int32(binary.BigEndian.Uint32(buf[n+4:])))
	switch {
	case extra < 0:
		return 0, badFormat("invalid COPY file header (missing length)")
	case len(buf) >= n+8+extra:
		return n + 8 + extra, nil
	case final:
		return 0, badFormat("invalid COPY file header (wrong length)")
	}
	return 0, nil
}

func headerEnd(rest []byte, final bool) (int, error) {
	switch {
	case !final:
		return 0, nil
	case len(rest) < 4:
		return 0, badFormat("invalid COPY file header (missing flags)")
	}
	return 0, badFormat("invalid COPY file header (missing length)")
}

// rowSize is the length of the row that buf begins with, if it is all there. A malformed row counts as whole.
func (p *Parser) rowSize(buf []byte) (size int, whole bool) {
	if len(buf) < 2 {
		return len(buf), false
	}
	count := int(int16(binary.BigEndian.Uint16(buf)))
	size = 2
	if count != len(p.Columns) {
		return size, true
	}
	for range count {
		if len(buf) < size+4 {
			return len(buf), false
		}
		n := int32(binary.BigEndian.Uint32(buf[size:]))
		size += 4
		switch {
		case n == -1:
			continue
		case n < 0 || n >= fieldLimit:
			return size, true
		}
		if size += int(n); size > len(buf) {
			return len(buf), false
		}
	}
	return size, true
}

func (p *Parser) binaryRow(b *table.Batch, buf []byte) error {
	if len(buf) < 2 { // Postgres takes a broken field count for the end
		return nil
	}
	count := int(int16(binary.BigEndian.Uint16(buf)))
	if count == -1 {
		p.ended = true
		return nil
	}
	if count != len(p.Columns) {
		return p.lineError(p.line, badFormat("row field count is "+strconv.Itoa(count)+", expected "+strconv.Itoa(len(p.Columns))))
	}
	buf = buf[2:]
	for i := range p.Columns {
		var err error
		if buf, err = p.binaryField(b, i, buf); err != nil {
			return withContext(err, p.lineContext(p.line)+", column "+p.Columns[i].Name)
		}
	}
	if c := p.nullColumn(b); c >= 0 {
		return &NullError{c, p.lineContext(p.line)}
	}
	p.endRow(b)
	return nil
}

func (p *Parser) binaryField(b *table.Batch, i int, buf []byte) ([]byte, error) {
	if len(buf) < 4 {
		return nil, badFormat("unexpected EOF in COPY data")
	}
	n := int32(binary.BigEndian.Uint32(buf))
	buf = buf[4:]
	col := &p.Columns[i]
	v := b.Cols[col.Index]
	switch {
	case n == -1:
		v.AppendNull()
		return buf, nil
	case n < 0:
		return nil, badFormat("invalid field size")
	case n >= fieldLimit:
		return nil, tooLarge(0, int(n))
	case int(n) > len(buf):
		return nil, badFormat("unexpected EOF in COPY data")
	}
	return buf[n:], col.Codec.AppendBinary(v, buf[:n])
}
