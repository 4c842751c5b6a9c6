package server

import (
	"context"
	"slices"
	"strconv"

	"sluice/planner"
	"sluice/server/wire"
	"sluice/sql"
	"sluice/sql/pgvalue"
	"sluice/writer"
	"sluice/writer/lock"
	"sluice/writer/table"
)

// Point reads by key, and reads of all of a small table, skip Postgres: key map → tail or one block of a file. Like all of the fast lane they only ever succeed: what is not plain
// takes the exact lane.

// pointPlan is a compiled read of one row.
type pointPlan struct {
	rel     *rel
	version uint64      // of the registry
	where   *sql.Lookup // nil: all rows
	fields  []wire.Field
	cols    []int // where each field stands
}

// typeSizes is pg_type.typlen of the types with a fixed size.
var typeSizes = map[uint32]int16{pgvalue.OIDBool: 1, pgvalue.OIDInt2: 2, pgvalue.OIDInt4: 4, pgvalue.OIDInt8: 8, pgvalue.OIDFloat4: 4,
	pgvalue.OIDFloat8: 8, pgvalue.OIDDate: 4, pgvalue.OIDTime: 8, pgvalue.OIDTimestamp: 8, pgvalue.OIDTimestampTZ: 8, pgvalue.OIDUUID: 16,
	pgvalue.OIDName: 64}

// compilePoint compiles a point read, or returns nil.
func (s *session) compilePoint(st *sql.Statement, p planner.Plan) *pointPlan {
	pt, r := st.Point(), s.rel(p.Target)
	if pt == nil || r == nil {
		return nil
	}
	pp := &pointPlan{rel: r, version: s.srv.rels.version.Load(), where: pt.Where}
	columns := pt.Columns
	if columns == nil {
		for i := range r.Columns {
			columns = append(columns, sql.PointColumn{Name: r.Columns[i].Name, As: r.Columns[i].Name})
		}
	}
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
		pp.cols = append(pp.cols, at)
		pp.fields = append(pp.fields, wire.Field{Name: c.As, Table: r.OID, Attr: a.Num, Type: a.Base, Size: size, Modifier: a.BaseTypmod})
	}
	return pp
}

// key is the key that the values of a statement name. ok is false if they are not those of one unique constraint.
func (pp *pointPlan) key(b params) (set keySet, ok bool) {
	if pp.where == nil {
		return set, true
	}
	set, ok = pp.rel.exactKeys(pp.where, b)
	return set, ok && len(set.keys) <= 1
}

// read answers a point read. done is false if the exact lane has to do it; then nothing was sent.
func (s *session) readPoint(ctx context.Context, pp *pointPlan, set keySet, format func(int) int16) (out *spool, done bool, err error) {
	if err := s.begun(ctx); err != nil {
		return nil, false, err
	}
	id := table.ID(pp.rel.OID)
	if err := s.tx.lake.LockTable(ctx, id, lock.AccessShare, s.lockWait()); err != nil {
		return nil, false, s.lockFailed(err, pp.rel.OID, "relation")
	}
	if s.rel(pp.rel.OID) != pp.rel { // who was waited for has changed it
		return nil, false, nil
	}
	out = &spool{}
	add := func(r writer.Rows) error { return pp.rows(out, r, format, s.env) }
	view := s.tx.lake.Statement()
	if pp.where == nil {
		err = view.Scan(ctx, id, add)
	}
	for _, key := range set.keys {
		found, ok, kerr := view.ByKey(ctx, id, set.unique, key)
		if err = kerr; ok {
			err = add(found)
		}
	}
	if err != nil {
		if isExact(err) {
			err = nil
		}
		return nil, false, err
	}
	out.frames = append(out.frames, wire.AppendCommandComplete(nil, "SELECT "+strconv.Itoa(len(out.frames))))
	return out, true, nil
}

// rows adds the live rows to the result. errNotFast if only Postgres can print one.
func (pp *pointPlan) rows(out *spool, r writer.Rows, format func(int) int16, env *pgvalue.Env) error {
	for i := range r.Live() {
		at := i
		if r.Sel != nil {
			at = int(r.Sel[i])
		}
		values, ok := pp.encode(r.Batch, at, format, env)
		if !ok {
			return errNotFast
		}
		out.frames = append(out.frames, wire.AppendDataRow(nil, values))
	}
	return nil
}

// encode makes the values of one row; ok is false if only Postgres can print one.
func (pp *pointPlan) encode(b *table.Batch, row int, format func(int) int16, env *pgvalue.Env) (values [][]byte, ok bool) {
	values = make([][]byte, len(pp.cols))
	for i, c := range pp.cols {
		v, codec := b.Cols[c], pp.rel.Columns[c].Codec
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
			return nil, false
		}
	}
	return values, true
}

// describePoint is the RowDescription of a point read.
func (pp *pointPlan) describe(format func(int) int16) []wire.Field {
	fields := make([]wire.Field, len(pp.fields))
	for i, f := range pp.fields {
		f.Format = format(i)
		fields[i] = f
	}
	return fields
}

func textFormat(int) int16 { return 0 }

// pointStatement answers a simple Query's point read in the fast lane, if it can.
func (s *session) pointStatement(ctx context.Context, st *sql.Statement, p planner.Plan) (done bool, err error) {
	pp := s.compilePoint(st, p)
	if pp == nil {
		return false, nil
	}
	set, ok := pp.key(params{})
	if !ok {
		return false, nil
	}
	out, done, err := s.readPoint(ctx, pp, set, textFormat)
	if done {
		out.frames = append([][]byte{wire.AppendRowDescription(nil, pp.fields)}, out.frames...)
		s.send(out)
	}
	return done, err
}

// bindPoint prepares the portal of a point read; false: the backend binds it.
func (s *session) bindPoint(p *portal, m *wire.Bind) bool {
	st := p.st
	if v := s.srv.rels.version.Load(); st.point == nil || st.point.version != v || s.tx != nil && s.tx.ddlRan {
		before := st.point
		st.point = s.compilePoint(st.stmt, p.plan)
		// What the columns were at Parse must still be: it is not known, or Postgres refuses other ones.
		if before == nil && st.parsed != v || before != nil && st.point != nil && !slices.Equal(before.fields, st.point.fields) {
			st.point = before
			return false
		}
	}
	if n := m.NumResultFormats(); st.point == nil || n > 1 && n != len(st.point.cols) {
		return false
	}
	formats := make([]int16, len(st.point.cols))
	for i := range formats {
		formats[i] = m.ResultFormat(i)
	}
	p.format = func(i int) int16 { return formats[i] }
	var ok bool
	p.key, ok = st.point.key(params{m, p.st.types})
	p.isPoint = ok
	return ok
}
