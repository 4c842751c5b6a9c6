package server

import (
	"slices"
	"strconv"

	"sluice/server/wire"
	"sluice/sql"
	"sluice/sql/pgvalue"
	"sluice/writer/table"
)

// Results that the fast lane makes itself: of point reads, and of RETURNING.

// projection is the columns of a result.
type projection struct {
	rel    *rel
	fields []wire.Field
	cols   []int // where each field stands
}

// project compiles a list of columns, nil for all; it returns nil if one is unknown, or only Postgres can print it.
func (r *rel) project(columns []sql.PointColumn) *projection {
	if columns == nil {
		for i := range r.Columns {
			columns = append(columns, sql.PointColumn{Name: r.Columns[i].Name, As: r.Columns[i].Name})
		}
	}
	out := &projection{rel: r}
	for _, c := range columns {
		at := r.Schema.Index(c.Name)
		if at < 0 || r.Columns[at].Codec.Kept() {
			return nil
		}
		a := r.Columns[at].attr
		size, fixed := typeSizes[a.Base]
		if !fixed {
			size = -1
		}
		out.cols = append(out.cols, at)
		out.fields = append(out.fields, wire.Field{Name: c.As, Table: r.OID, Attr: a.Num, Type: a.Base, Size: size, Modifier: a.BaseTypmod})
	}
	return out
}

// projectReturning compiles a RETURNING, nil without one; ok is false if only Postgres can do it.
func (r *rel) projectReturning(list *sql.Returning) (out *projection, ok bool) {
	if list == nil {
		return nil, true
	}
	out = r.project(list.Columns)
	return out, out != nil
}

// describe is the RowDescription.
func (o *projection) describe(format func(int) int16) []wire.Field {
	fields := make([]wire.Field, len(o.fields))
	for i, f := range o.fields {
		f.Format = format(i)
		fields[i] = f
	}
	return fields
}

// add appends a row to a result. errNotFast if only Postgres can print it.
func (o *projection) add(out *spool, b *table.Batch, row int, format func(int) int16, env *pgvalue.Env) error {
	values := make([][]byte, len(o.cols))
	for i, c := range o.cols {
		v, codec := b.Cols[c], o.rel.Columns[c].Codec
		if pgvalue.IsNull(v, row) {
			continue
		}
		var err error
		if format(i) == 1 {
			values[i], err = codec.Binary([]byte{}, v, row)
		} else {
			values[i], err = codec.Text([]byte{}, v, row, env)
		}
		if err != nil {
			return errNotFast
		}
	}
	out.frames = append(out.frames, wire.AppendDataRow(nil, values))
	return nil
}

// resultChanged reports whether a result is not known to be what it was at Parse, in which case Postgres may refuse the statement. before is as
// compiled the last time, nil if it never was.
func (s *session) resultChanged(st *prepared, before, now *projection) bool {
	if before == nil {
		return st.parsed != s.srv.rels.version.Load() || s.tx != nil && s.tx.ddlRan
	}
	return !slices.Equal(before.fields, now.fields)
}

// formats takes the formats of a result from its Bind; false if there is not one for each column.
func (p *portal) formats(m *wire.Bind, out *projection) bool {
	if n := m.NumResultFormats(); n > 1 && n != len(out.cols) {
		return false
	}
	formats := make([]int16, len(out.cols))
	for i := range formats {
		formats[i] = m.ResultFormat(i)
	}
	p.format = func(i int) int16 { return formats[i] }
	return true
}

// written is what a write did.
type written struct {
	rows  int
	batch *table.Batch // the rows as RETURNING shows them, if there is one
}

// result is the answer to a write.
func (w *fastWrite) result(done written, format func(int) int16, env *pgvalue.Env) (*spool, error) {
	out := &spool{}
	for i := 0; w.returning != nil && i < done.rows; i++ {
		if err := w.returning.add(out, done.batch, i, format, env); err != nil {
			return nil, err
		}
	}
	out.frames = append(out.frames, wire.AppendCommandComplete(nil, w.tag+strconv.Itoa(done.rows)))
	return out, nil
}
