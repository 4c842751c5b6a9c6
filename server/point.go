package server

import (
	"context"
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
	*projection
	version uint64      // of the registry
	where   *sql.Lookup // nil: all rows
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
	out := r.project(pt.Columns)
	if out == nil {
		return nil
	}
	return &pointPlan{projection: out, version: s.srv.rels.version.Load(), where: pt.Where}
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
		if err := pp.add(out, r.Batch, at, format, env); err != nil {
			return err
		}
	}
	return nil
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
		if st.point = s.compilePoint(st.stmt, p.plan); st.point != nil && s.resultChanged(st, before.result(), st.point.projection) {
			st.point = before
			return false
		}
	}
	if st.point == nil || !p.formats(m, st.point.projection) {
		return false
	}
	var ok bool
	p.key, ok = st.point.key(params{m, p.st.types})
	p.isPoint = ok
	return ok
}

func (pp *pointPlan) result() *projection {
	if pp == nil {
		return nil
	}
	return pp.projection
}
