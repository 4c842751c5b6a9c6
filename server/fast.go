package server

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"sluice/planner"
	"sluice/server/wire"
	"sluice/sql"
	"sluice/sql/pgvalue"
	"sluice/writer"
	"sluice/writer/table"
)

// The fast lane: rows go from the wire into vectors and from there into the transaction, without Postgres. It only ever succeeds: a value
// that it cannot read, a NULL that is not allowed, a key that exists, anything at all that Postgres would have a word about, and the statement
// takes the exact lane from the start, where Postgres says that word itself.

// errNotFast sends a statement to the exact lane.
var errNotFast = errors.New("statement needs the exact lane")

// insertPlan is a compiled INSERT … VALUES.
type insertPlan struct {
	rel     *rel
	version uint64 // of the registry
	cols    []int  // where each value of a row goes
	rest    []int  // columns that no value is for
	rows    [][]sql.Value
}

// compileInsert compiles a simple INSERT into a plain table, or returns nil.
func (s *session) compileInsert(st *sql.Statement, p planner.Plan) *insertPlan {
	in := st.Insert()
	r := s.rel(p.Target)
	if in == nil || r == nil {
		return nil
	}
	ip := &insertPlan{rel: r, version: s.srv.rels.version.Load(), rows: in.Rows}
	if ip.cols = r.places(in.Columns, len(in.Rows[0])); ip.cols == nil {
		return nil
	}
	for _, row := range in.Rows {
		if len(row) != len(ip.cols) {
			return nil
		}
	}
	if ip.rest = r.others(ip.cols); !r.defaultsKnown(ip.rest) {
		return nil
	}
	return ip
}

// places is where the named columns stand; nil if one is unknown, named twice, or cannot be written. No names: the first n columns.
func (r *rel) places(names []string, n int) []int {
	if names == nil {
		if n > len(r.Columns) {
			return nil
		}
		for i := range n {
			names = append(names, r.Columns[i].Name)
		}
	}
	seen := map[int]bool{}
	out := make([]int, len(names))
	for i, name := range names {
		at := r.Schema.Index(name)
		if at < 0 || seen[at] || r.Columns[at].Generated || r.Columns[at].attr.Identity == "a" || r.Columns[at].attr.TypeKind == "d" {
			return nil
		}
		seen[at], out[i] = true, at
	}
	return out
}

// others is all columns that are not in cols.
func (r *rel) others(cols []int) []int {
	in := map[int]bool{}
	for _, c := range cols {
		in[c] = true
	}
	var out []int
	for i := range r.Columns {
		if !in[i] {
			out = append(out, i)
		}
	}
	return out
}

// defaultsKnown reports whether the columns' defaults are NULL: any other default is Postgres' to compute.
func (r *rel) defaultsKnown(cols []int) bool {
	for _, c := range cols {
		if a := r.Columns[c].attr; a.TypeKind == "d" || a.Default != nil || a.Identity != "" || a.NotNull {
			return false
		}
	}
	return true
}

// build makes the rows. errNotFast if a value is not plain.
func (ip *insertPlan) build(b params, env *pgvalue.Env) (*table.Batch, error) {
	batch := table.NewBatch(ip.rel.Schema)
	for _, row := range ip.rows {
		for i, v := range row {
			if err := ip.put(batch.Cols[ip.cols[i]], ip.cols[i], v, b, env); err != nil {
				return nil, err
			}
		}
		for _, c := range ip.rest {
			batch.Cols[c].AppendNull()
		}
		batch.Rows++
	}
	return batch, nil
}

func (ip *insertPlan) put(v *table.Vec, at int, val sql.Value, b params, env *pgvalue.Env) error {
	c := &ip.rel.Columns[at]
	switch val.Kind {
	case sql.Param:
		return c.putParam(v, val.Number, b, env)
	case sql.Default:
		if c.attr.Default != nil || c.attr.NotNull || c.attr.Identity != "" {
			return errNotFast
		}
		v.AppendNull()
		return nil
	case sql.Null:
		return c.putNull(v)
	case sql.Integer, sql.Numeric:
		if !numeric(c.Codec.OID(), val.Kind) || strings.HasPrefix(val.Text, "-0") {
			return errNotFast // a numeric has no negative zero, a float has
		}
	}
	if c.Codec.AppendText(v, []byte(val.Text), env) != nil {
		return errNotFast
	}
	return nil
}

func (c *column) putNull(v *table.Vec) error {
	if c.attr.NotNull {
		return errNotFast
	}
	v.AppendNull()
	return nil
}

func (c *column) putParam(v *table.Vec, n int, b params, env *pgvalue.Env) error {
	val, binary, ok := b.value(n, c)
	switch {
	case !ok:
		return errNotFast
	case val == nil:
		return c.putNull(v)
	case binary:
		if c.Codec.AppendBinary(v, val) != nil {
			return errNotFast
		}
	default:
		if c.Codec.AppendText(v, val, env) != nil {
			return errNotFast
		}
	}
	return nil
}

// numeric reports whether a number literal is assigned to the type as its digits say.
func numeric(oid uint32, kind sql.ValueKind) bool {
	switch oid {
	case pgvalue.OIDInt2, pgvalue.OIDInt4, pgvalue.OIDInt8:
		return kind == sql.Integer
	case pgvalue.OIDNumeric, pgvalue.OIDFloat4, pgvalue.OIDFloat8:
		return true
	}
	return false
}

// fastInsert runs a compiled INSERT. done is false if the exact lane has to do it.
func (s *session) fastInsert(ctx context.Context, ip *insertPlan, batch *table.Batch) (rows int, done bool, err error) {
	if err := s.begun(ctx); err != nil {
		return 0, false, err
	}
	if s.tx.readOnly {
		return 0, false, nil
	}
	t := s.tx.lake
	sp := t.Savepoint()
	defer t.Release(sp)
	if _, err := t.Insert(ctx, table.ID(ip.rel.OID), batch); err != nil {
		t.RollbackTo(sp)
		var unique *writer.UniqueConflict
		if errors.As(err, &unique) || errors.Is(err, writer.ErrSchemaChanged) {
			return 0, false, nil
		}
		return 0, false, err
	}
	return batch.Rows, true, nil
}

// insertTag is the command tag of an INSERT.
func insertTag(rows int) []byte {
	return wire.AppendCommandComplete(nil, "INSERT 0 "+strconv.Itoa(rows))
}

// fastStatement runs a simple Query's statement in the fast lane, if it can.
func (s *session) fastStatement(ctx context.Context, st *sql.Statement, p planner.Plan) (done bool, err error) {
	if st.Kind == sql.CopyFrom {
		return s.fastCopy(ctx, st, p)
	}
	if st.Kind == sql.Select {
		return s.pointStatement(ctx, st, p)
	}
	ip := s.compileInsert(st, p)
	if ip == nil {
		return false, nil
	}
	batch, err := ip.build(params{}, s.env)
	if err != nil {
		return false, nil
	}
	rows, done, err := s.fastInsert(ctx, ip, batch)
	if done {
		s.complete(insertTag(rows))
	}
	return done, err
}

// complete answers with a CommandComplete; that of an implicit transaction waits for the decider.
func (s *session) complete(frame []byte) {
	s.release()
	if s.be.status == 'T' && !s.implicit {
		s.c.Raw(frame)
		return
	}
	s.hold(frame)
}
