package copyfmt

import (
	"encoding/binary"
	"slices"

	"sluice/sql/pgvalue"
	"sluice/writer/table"
)

// Writer prints rows as COPY TO does. Everything it appends for one row goes into one CopyData message.
type Writer struct {
	format               Format
	delim, quote, escape byte
	null                 string
	header               bool
	force                []bool
	columns              []Column
	env                  *pgvalue.Env
	scratch              []byte
	spans                []span
}

// span is the text of one field in Writer.scratch.
type span struct {
	begin, end int
	null       bool
}

// NewWriter makes a writer; the options are checked.
func NewWriter(o Options, columns []Column, env *pgvalue.Env) (*Writer, error) {
	if err := o.Check(false); err != nil {
		return nil, err
	}
	w := &Writer{format: o.Format, delim: o.delimiter()[0], null: o.null(), header: o.Header != NoHeader, columns: columns, env: env}
	if o.Format == CSV {
		w.quote, w.escape = o.quote()[0], o.escape()[0]
	}
	for _, c := range columns {
		w.force = append(w.force, o.ForceQuoteAll || slices.Contains(o.ForceQuote, c.Name))
	}
	return w, nil
}

// Head appends what comes before the first row, perhaps nothing.
func (w *Writer) Head(dst []byte) []byte {
	if w.format == Binary {
		return append(append(dst, signature...), 0, 0, 0, 0, 0, 0, 0, 0)
	}
	if !w.header {
		return dst
	}
	for i, c := range w.columns {
		if i > 0 {
			dst = append(dst, w.delim)
		}
		if w.format == CSV {
			dst = w.csvField(dst, []byte(c.Name), false)
		} else {
			dst = w.textField(dst, []byte(c.Name))
		}
	}
	return append(dst, '\n')
}

// Tail appends what comes behind the last row, perhaps nothing.
func (w *Writer) Tail(dst []byte) []byte {
	if w.format == Binary {
		return append(dst, 0xff, 0xff)
	}
	return dst
}

// Row appends row i of b.
func (w *Writer) Row(dst []byte, b *table.Batch, i int) ([]byte, error) {
	if w.format == Binary {
		return w.binaryRow(dst, b, i)
	}
	w.scratch, w.spans = w.scratch[:0], w.spans[:0]
	for k := range w.columns {
		c := &w.columns[k]
		v := b.Cols[c.Index]
		if pgvalue.IsNull(v, i) {
			w.spans = append(w.spans, span{null: true})
			continue
		}
		begin := len(w.scratch)
		var err error
		if w.scratch, err = c.Codec.Text(w.scratch, v, i, w.env); err != nil {
			return dst, err
		}
		w.spans = append(w.spans, span{begin: begin, end: len(w.scratch)})
	}
	return w.line(dst), nil
}

func (w *Writer) binaryRow(dst []byte, b *table.Batch, i int) ([]byte, error) {
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(w.columns)))
	for k := range w.columns {
		c := &w.columns[k]
		v := b.Cols[c.Index]
		at := len(dst)
		dst = append(dst, 0xff, 0xff, 0xff, 0xff)
		if pgvalue.IsNull(v, i) {
			continue
		}
		var err error
		if dst, err = c.Codec.Binary(dst, v, i); err != nil {
			return dst, err
		}
		binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	}
	return dst, nil
}

// Fields appends a row from the values' text, or their bytes in the binary format; nil is NULL.
func (w *Writer) Fields(dst []byte, values [][]byte) []byte {
	if w.format == Binary {
		return binaryFields(dst, values)
	}
	w.scratch, w.spans = w.scratch[:0], w.spans[:0]
	for _, v := range values {
		begin := len(w.scratch)
		w.scratch = append(w.scratch, v...)
		w.spans = append(w.spans, span{begin, len(w.scratch), v == nil})
	}
	return w.line(dst)
}

func binaryFields(dst []byte, values [][]byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(values)))
	for _, v := range values {
		if v == nil {
			dst = append(dst, 0xff, 0xff, 0xff, 0xff)
			continue
		}
		dst = append(binary.BigEndian.AppendUint32(dst, uint32(len(v))), v...)
	}
	return dst
}

// line prints the fields in spans.
func (w *Writer) line(dst []byte) []byte {
	for i, s := range w.spans {
		if i > 0 {
			dst = append(dst, w.delim)
		}
		switch value := w.scratch[s.begin:s.end]; {
		case s.null:
			dst = append(dst, w.null...)
		case w.format == CSV:
			dst = w.csvField(dst, value, w.force[i])
		default:
			dst = w.textField(dst, value)
		}
	}
	return append(dst, '\n')
}

var textEscapes = [...]byte{'\b': 'b', '\f': 'f', '\n': 'n', '\r': 'r', '\t': 't', '\v': 'v'}

func (w *Writer) textField(dst, s []byte) []byte {
	run := 0
	for i, c := range s {
		letter := c
		switch {
		case int(c) < len(textEscapes) && textEscapes[c] != 0:
			letter = textEscapes[c]
		case c != '\\' && c != w.delim:
			continue
		}
		dst = append(append(dst, s[run:i]...), '\\', letter)
		run = i + 1
	}
	return append(dst, s[run:]...)
}

func (w *Writer) csvField(dst, s []byte, force bool) []byte {
	if !force && !w.needsQuotes(s) {
		return append(dst, s...)
	}
	dst = append(dst, w.quote)
	for _, c := range s {
		if c == w.quote || c == w.escape {
			dst = append(dst, w.escape)
		}
		dst = append(dst, c)
	}
	return append(dst, w.quote)
}

func (w *Writer) needsQuotes(s []byte) bool {
	if string(s) == w.null || len(w.columns) == 1 && string(s) == `\.` {
		return true
	}
	for _, c := range s {
		if c == w.delim || c == w.quote || c == '\n' || c == '\r' {
			return true
		}
	}
	return false
}
