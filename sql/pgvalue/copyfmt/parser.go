package copyfmt

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"sluice/sql/pgvalue"
	"sluice/writer/table"
)

// Column is one column of a COPY.
type Column struct {
	Name  string
	Index int // of its vector in the batch
	Codec *pgvalue.Codec
	// NotNull ends the COPY with a *NullError at the first NULL.
	NotNull bool
}

// NullError is a NULL in a column that is NotNull. The row stands in the batch behind Batch.Rows.
type NullError struct {
	Column  int // of the vector in the batch: the first one of the row
	Context string
}

// Error is for logs; the caller knows Postgres' words.
func (e *NullError) Error() string { return e.Context + ": null in column " + strconv.Itoa(e.Column) }

// Target says where the rows of a COPY FROM go.
type Target struct {
	Table   string // its name, for CONTEXT
	Columns []Column
	Env     *pgvalue.Env
	// Resolve asks Postgres for the canonical text of a field that only Postgres can read. Without it such a field ends the
	// COPY with pgvalue.ErrNeedPostgres.
	Resolve func(col int, text []byte) (canonical []byte, err error)
}

// Parser appends the rows of a COPY FROM to batches. It fills the vectors of the target's columns and counts Batch.Rows;
// columns that are not named in the COPY are the caller's.
type Parser struct {
	Target
	// Lines is the line of each row of the batch; the caller empties it together with the batch.
	Lines []int64

	format                  Format
	delim, quote, escape    byte
	null                    string
	header                  Header
	forceNotNull, forceNull []bool // by column

	rest      []byte // the beginning of a row, or of the binary header
	scan      scanner
	line      int64 // as Postgres counts
	begun     bool  // header passed
	ended     bool  // end marker seen
	err       error
	plainEnds bool // delimiter, quote and null string are none that a number or timestamp can hold
	fields    []field
	text      []byte // of the fields that had escapes or quotes
}

// field is one field of a line: the text it had, and its value.
type field struct {
	value []byte
	null  bool
}

// NewParser makes a parser; the options are checked.
func NewParser(o Options, t Target) (*Parser, error) {
	if err := o.Check(true); err != nil {
		return nil, err
	}
	p := &Parser{Target: t, format: o.Format, delim: o.delimiter()[0], null: o.null(), header: o.Header}
	if o.Format == CSV {
		p.quote, p.escape = o.quote()[0], o.escape()[0]
	}
	for _, c := range t.Columns {
		p.forceNotNull = append(p.forceNotNull, slices.Contains(o.ForceNotNull, c.Name))
		p.forceNull = append(p.forceNull, slices.Contains(o.ForceNull, c.Name))
	}
	p.plainEnds = (p.null == "" || p.null == `\N`) && !strings.ContainsAny(string([]byte{p.delim, p.quote}), "0123456789+-.: T")
	p.begun = o.Header == NoHeader && o.Format != Binary
	return p, nil
}

// Line is the line, counted from 1, that was read last; in the binary format it is the row.
func (p *Parser) Line() int64 { return p.line }

// Feed parses the rows that chunk completes. What is left over waits for the next call; chunk is not kept.
func (p *Parser) Feed(b *table.Batch, chunk []byte) error {
	return p.feed(b, chunk, false)
}

// End parses what is left at the end of the data.
func (p *Parser) End(b *table.Batch) error {
	return p.feed(b, nil, true)
}

func (p *Parser) feed(b *table.Batch, chunk []byte, final bool) error {
	if p.err != nil || p.ended && p.format != Binary {
		return p.err
	}
	buf := chunk
	if len(p.rest) > 0 {
		if len(p.rest)+len(chunk) > fieldLimit && p.format != Binary {
			p.err = p.lineError(p.line+1, tooLarge(len(p.rest), len(chunk)))
			return p.err
		}
		p.rest = append(p.rest, chunk...)
		buf = p.rest
	}
	var n int
	if p.format == Binary {
		n, p.err = p.binaryRows(b, buf, final)
	} else {
		n, p.err = p.rows(b, buf, final)
	}
	if p.err == nil {
		p.rest = append(p.rest[:0], buf[n:]...)
	}
	return p.err
}

// rows parses the lines of buf and returns how much of it they took.
func (p *Parser) rows(b *table.Batch, buf []byte, final bool) (n int, err error) {
	for n < len(buf) && !p.ended {
		if p.begun && p.scan.at == 0 && p.scan.eol != unknownEOL && len(p.Columns) > 0 {
			if next, ok := p.fastRow(b, buf, n); ok {
				n = next
				continue
			}
			p.undo(b)
		}
		line, next, found, err := p.scan.next(p, buf[n:], final)
		if err != nil {
			return n, p.lineError(p.line+1+p.scan.lines, err)
		}
		if !found {
			return n, nil
		}
		ahead := buf[n:]
		n += next
		if err := p.slowRow(b, line, ahead); err != nil {
			return n, p.failed(b, err)
		}
	}
	if final && !p.begun { // no data at all is an empty header
		return n, p.slowRow(b, nil, nil)
	}
	return n, nil
}

// undo drops the fields of a row that is not complete.
func (p *Parser) undo(b *table.Batch) {
	for i := range p.Columns {
		b.Cols[p.Columns[i].Index].Truncate(b.Rows)
	}
}

// failed leaves no half row in the batch. The whole row of a NullError stays: its values are shown.
func (p *Parser) failed(b *table.Batch, err error) error {
	if _, whole := err.(*NullError); !whole {
		p.undo(b)
	}
	return err
}

func (p *Parser) endRow(b *table.Batch) {
	b.Rows++
	p.Lines = append(p.Lines, p.line)
}

// nullColumn is the table's first column with a NULL that it does not allow in the row behind Batch.Rows, or -1.
func (p *Parser) nullColumn(b *table.Batch) int {
	first := -1
	for i := range p.Columns {
		c := &p.Columns[i]
		v := b.Cols[c.Index]
		if !c.NotNull || v.Nulls == 0 || !v.IsNull(b.Rows) || first >= 0 && c.Index > first {
			continue
		}
		if _, exact := v.ExactText(b.Rows); !exact {
			first = c.Index
		}
	}
	return first
}

// slowRow parses one line, without its end, in Postgres' order. The line stands at the beginning of ahead: a character that
// is broken off by the end of the line is shown with the bytes behind it.
func (p *Parser) slowRow(b *table.Batch, line, ahead []byte) error {
	p.line += 1 + p.scan.lines
	p.scan.restart()
	if p.ended && len(line) == 0 && p.begun {
		return nil
	}
	if pgvalue.CheckUTF8(line) != nil {
		return p.lineError(p.line, pgvalue.CheckUTF8(ahead))
	}
	if !p.begun {
		p.begun = true
		return p.checkHeader(line)
	}
	if err := p.split(line); err != nil {
		return p.textError(line, err)
	}
	if len(p.fields) > len(p.Columns) {
		return p.textError(line, badFormat("extra data after last expected column"))
	}
	for i := range p.Columns {
		if i >= len(p.fields) {
			return p.textError(line, badFormat(`missing data for column "`+p.Columns[i].Name+`"`))
		}
		if err := p.convert(b, i, p.fields[i]); err != nil {
			return err
		}
	}
	if c := p.nullColumn(b); c >= 0 {
		return &NullError{c, p.textContext(line)}
	}
	p.endRow(b)
	return nil
}

func badFormat(message string) error { return &pgvalue.Error{Code: "22P04", Message: message} }

func (p *Parser) split(line []byte) error {
	p.fields, p.text = p.fields[:0], p.text[:0]
	if cap(p.text) < len(line) { // fields point into text: it must not move
		p.text = make([]byte, 0, 2*len(line))
	}
	if len(p.Columns) == 0 {
		if len(line) > 0 {
			return badFormat("extra data after last expected column")
		}
		return nil
	}
	if p.format == CSV {
		return p.splitCSV(line)
	}
	return p.splitText(line)
}

// convert appends field f to column i.
func (p *Parser) convert(b *table.Batch, i int, f field) error {
	col := &p.Columns[i]
	v := b.Cols[col.Index]
	switch {
	case f.null && p.forceNotNull[i]:
		f = field{value: []byte(p.null)}
	case !f.null && p.forceNull[i] && string(f.value) == p.null:
		f.null = true
	}
	if f.null {
		v.AppendNull()
		return nil
	}
	err := col.Codec.AppendText(v, f.value, p.Env)
	if err == pgvalue.ErrNeedPostgres && p.Resolve != nil {
		var canonical []byte
		if canonical, err = p.Resolve(i, f.value); err == nil {
			err = col.Codec.AppendCanonical(v, canonical)
		}
	}
	if err != nil {
		return withContext(err, p.FieldContext(p.line, i, f.value))
	}
	return nil
}

func (p *Parser) checkHeader(line []byte) error {
	if p.header != MatchHeader {
		return nil
	}
	if err := p.split(line); err != nil {
		return p.textError(line, err)
	}
	if len(p.fields) != len(p.Columns) {
		return p.textError(line, badFormat("wrong number of fields in header line: got "+strconv.Itoa(len(p.fields))+
			", expected "+strconv.Itoa(len(p.Columns))))
	}
	for i, f := range p.fields {
		where := "column name mismatch in header line field " + strconv.Itoa(i+1) + ": got "
		want := `, expected "` + p.Columns[i].Name + `"`
		if f.null {
			return p.textError(line, badFormat(where+`null value ("`+p.null+`")`+want))
		}
		if string(f.value) != p.Columns[i].Name {
			return p.textError(line, badFormat(where+`"`+string(f.value)+`"`+want))
		}
	}
	return nil
}

// FieldContext is the CONTEXT of an error in a field of the text or CSV format.
func (p *Parser) FieldContext(line int64, col int, text []byte) string {
	return p.lineContext(line) + ", column " + p.Columns[col].Name + `: "` + shorten(text) + `"`
}

func (p *Parser) lineContext(line int64) string {
	return "COPY " + p.Table + ", line " + strconv.FormatInt(line, 10)
}

func (p *Parser) lineError(line int64, err error) error {
	return withContext(err, p.lineContext(line))
}

func (p *Parser) textError(line []byte, err error) error {
	return withContext(err, p.textContext(line))
}

func (p *Parser) textContext(line []byte) string {
	return p.lineContext(p.line) + `: "` + shorten(line) + `"`
}

// shorten cuts what CONTEXT shows at 100 bytes, between characters.
func shorten(text []byte) string {
	const limit = 100
	if len(text) <= limit {
		return string(text)
	}
	n := limit
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return string(text[:n]) + "..."
}

// withContext is err with its Context set if it is an error of Postgres that has none.
func withContext(err error, context string) error {
	var e *pgvalue.Error
	if !errors.As(err, &e) {
		return err
	}
	c := *e
	if c.Context == "" {
		c.Context = context
	} else {
		c.Context += "\n" + context
	}
	return &c
}
