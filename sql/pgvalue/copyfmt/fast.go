package copyfmt

import (
	"bytes"
	"encoding/binary"
	"math/bits"

	"sluice/writer/table"
)

// fastRow parses the row at buf[at:] if it is a plain one: complete, the right number of fields, nothing escaped but NULL,
// quotes only around whole fields, every value read without a doubt. Otherwise the batch is left with half a row.
func (p *Parser) fastRow(b *table.Batch, buf []byte, at int) (next int, ok bool) {
	if p.csv() && buf[at] == '\\' {
		return 0, false
	}
	last := len(p.Columns) - 1
	for i := range p.Columns {
		var f field
		if next, ok = p.plain(b, i, buf, at); ok {
			if i < last {
				if buf[next] != p.delim {
					return 0, false
				}
				at = next + 1
			}
			continue
		}
		if p.csv() {
			f, next, ok = p.fastCSV(buf, at)
		} else {
			f, next, ok = p.fastText(buf, at)
		}
		if !ok || next >= len(buf) || !p.fastConvert(b, i, f) {
			return 0, false
		}
		if i < last {
			if buf[next] != p.delim {
				return 0, false
			}
			at = next + 1
		}
	}
	switch {
	case buf[next] == '\n' && p.scan.eol == newline:
		next++
	case buf[next] == '\r' && p.scan.eol == carriageNewline && next+1 < len(buf) && buf[next+1] == '\n':
		next += 2
	default:
		return 0, false
	}
	if p.nullColumn(b) >= 0 {
		return 0, false // slowRow says where
	}
	p.line++
	p.endRow(b)
	return next, true
}

// plain appends a number or timestamp without a look for its end.
func (p *Parser) plain(b *table.Batch, i int, buf []byte, at int) (next int, ok bool) {
	col := &p.Columns[i]
	if !p.plainEnds || at >= len(buf) {
		return 0, false
	}
	n, ok := col.Codec.AppendPlain(b.Cols[col.Index], buf[at:], p.delim, p.Env)
	return at + n, ok
}

func (p *Parser) fastConvert(b *table.Batch, i int, f field) bool {
	col := &p.Columns[i]
	v := b.Cols[col.Index]
	switch {
	case p.forceNull[i] || p.forceNotNull[i]:
		return false
	case f.null:
		v.AppendNull()
	default:
		return col.Codec.AppendText(v, f.value, p.Env) == nil
	}
	return true
}

// fastText finds the end of a field without escapes.
func (p *Parser) fastText(buf []byte, at int) (f field, end int, ok bool) {
	if at == len(buf) {
		return f, 0, false
	}
	if buf[at] == '\\' {
		return field{null: true}, at + 2, at+2 < len(buf) && buf[at+1] == 'N' && p.null == `\N` && p.endsField(buf[at+2])
	}
	end = stop(buf, at, p.delim, '\\')
	if end == len(buf) || buf[end] == '\\' {
		return f, 0, false
	}
	f.value = buf[at:end]
	f.null = string(f.value) == p.null
	return f, end, true
}

func (p *Parser) endsField(c byte) bool { return c == p.delim || c == '\n' || c == '\r' }

// fastCSV finds the end of a field without quotes, or with quotes around it and none, nor a line end, inside.
func (p *Parser) fastCSV(buf []byte, at int) (f field, end int, ok bool) {
	if at == len(buf) {
		return f, 0, false
	}
	if buf[at] != p.quote {
		end = stop(buf, at, p.delim, p.quote)
		if end == len(buf) || buf[end] == p.quote {
			return f, 0, false
		}
		f.value = buf[at:end]
		f.null = string(f.value) == p.null
		return f, end, true
	}
	n := bytes.IndexByte(buf[at+1:], p.quote)
	if n < 0 {
		return f, 0, false
	}
	f.value = buf[at+1 : at+1+n]
	end = at + n + 2
	if bytes.IndexByte(f.value, '\n') >= 0 || bytes.IndexByte(f.value, '\r') >= 0 ||
		p.escape != p.quote && bytes.IndexByte(f.value, p.escape) >= 0 {
		return f, 0, false
	}
	return f, end, end < len(buf) && p.endsField(buf[end])
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// zeros marks the lowest zero byte of x (and perhaps some above it).
func zeros(x uint64) uint64 { return (x - ones) &^ x & highs }

// controls marks the lowest byte of x that is below 14, as the line ends and the tab are.
func controls(x uint64) uint64 { return (x - 14*ones) &^ x & highs }

// stop is the first place from at on with a line end, delim or special; len(buf) if there is none.
func stop(buf []byte, at int, delim, special byte) int {
	s := uint64(special) * ones
	d := uint64(delim) * ones
	if delim < 14 {
		d = s
	}
	for at+8 <= len(buf) {
		x := binary.LittleEndian.Uint64(buf[at:])
		m := controls(x) | zeros(x^s) | zeros(x^d)
		if m == 0 {
			at += 8
			continue
		}
		at += bits.TrailingZeros64(m) >> 3
		if c := buf[at]; c == delim || c == special || c == '\n' || c == '\r' {
			return at
		}
		at++ // some other control character
	}
	for ; at < len(buf); at++ {
		if c := buf[at]; c == delim || c == special || c == '\n' || c == '\r' {
			return at
		}
	}
	return at
}
