package server

import (
	"context"

	"sluice/planner"
	"sluice/server/wire"
	"sluice/sql"
	"sluice/sql/pgvalue"
	"sluice/writer/table"
)

// Point reads by key skip Postgres: key map → tail or one row group. Like all of the fast lane they only ever succeed: what is not plain
// takes the exact lane.

// pointPlan is a compiled read of one row.
type pointPlan struct {
	rel     *rel
	version uint64 // of the registry
	where   *sql.Lookup
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
	set, ok = pp.rel.exactKeys(pp.where, b)
	return set, ok && len(set.keys) <= 1
}

// read answers a point read. done is false if the exact lane has to do it; then nothing was sent.
func (s *session) readPoint(ctx context.Context, pp *pointPlan, set keySet, format func(int) int16) (out *spool, done bool, err error) {
	if err := s.begun(ctx); err != nil {
		return nil, false, err
	}
	out = &spool{}
	rows := 0
	for _, key := range set.keys {
		found, ok, err := s.tx.lake.Statement().ByKey(ctx, table.ID(pp.rel.OID), set.unique, key)
		if err != nil {
			return nil, false, err
		}
		if !ok {
			continue
		}
		at := 0
		if found.Sel != nil {
			at = int(found.Sel[0])
		}
		values, ok := pp.encode(found.Batch, at, format, s.env)
		if !ok {
			return nil, false, nil
		}
		out.frames = append(out.frames, wire.AppendDataRow(nil, values))
		rows++
	}
	tag := "SELECT 0"
	if rows == 1 {
		tag = "SELECT 1"
	}
	out.frames = append(out.frames, wire.AppendCommandComplete(nil, tag))
	return out, true, nil
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
	if st.point == nil || st.point.version != s.srv.rels.version.Load() || s.tx != nil && s.tx.ddlRan {
		st.point = s.compilePoint(st.stmt, p.plan)
	}
	if st.point == nil {
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
