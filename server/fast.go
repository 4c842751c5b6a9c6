package server

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"sluice/planner"
	"sluice/server/wire"
	"sluice/sql"
	"sluice/sql/pgvalue"
	"sluice/writer"
	"sluice/writer/lock"
	"sluice/writer/table"
)

// The fast lane: rows go from the wire into vectors and from there into the transaction, without Postgres. It only ever succeeds: a value
// that it cannot read, a NULL that is not allowed, a key that exists, anything at all that Postgres would have a word about, and the statement
// takes the exact lane from the start, where Postgres says that word itself.

// errNotFast sends a statement to the exact lane.
var errNotFast = errors.New("statement needs the exact lane")

// writePlan is a compiled write. It is good until the registry changes.
type writePlan interface {
	// bind converts the values of one execution; an error sends it to the exact lane.
	// p's memory may be used for them.
	bind(s *session, p *portal, b params) (*fastWrite, error)
	// result is its RETURNING, or nil.
	result() *projection
}

// fastWrite is a write with its values.
type fastWrite struct {
	rel       *rel
	tag       string      // of its command, up to the number of rows
	returning *projection // nil: none
	batch     *table.Batch
	holes     []int // columns of batch that the backend computes
	open      bool  // it is one statement of a pipeline
	upsert    bool  // with ON CONFLICT, which is for READ COMMITTED
	// run does it. After an error what it did has to be rolled back.
	run func(ctx context.Context, t *writer.Txn) (written, error)
}

// insertPlan is a compiled INSERT … VALUES, or of unnested arrays.
type insertPlan struct {
	rel       *rel
	cols      []int // where each value of a row goes
	rest      []int // columns that no value is for
	rows      [][]sql.Value
	arrays    []arrayParam // instead of rows
	conflict  *conflictPlan
	merges    bool // the table's engine says what becomes of keys that exist
	returning *projection
}

func (ip *insertPlan) result() *projection { return ip.returning }

// arrayParam is an array parameter whose elements are the values of one column.
type arrayParam struct {
	number int
	codec  *pgvalue.Codec
}

// compileWrite compiles a write for the fast lane, or returns nil.
func (s *session) compileWrite(st *sql.Statement, p planner.Plan) writePlan {
	switch r := s.rel(p.Target); {
	case r == nil:
	case st.Kind == sql.Insert:
		if ip := r.compileInsert(st); ip != nil {
			return ip
		}
	case st.Kind == sql.Update || st.Kind == sql.Delete:
		if kp := r.compileKeyWrite(st); kp != nil {
			return kp
		}
	}
	return nil
}

// compileInsert compiles a simple INSERT into a plain table, or returns nil.
func (r *rel) compileInsert(st *sql.Statement) *insertPlan {
	in := st.Insert()
	if in == nil {
		return nil
	}
	ip := &insertPlan{rel: r, rows: in.Rows}
	values := len(in.Arrays)
	if values == 0 {
		values = len(in.Rows[0])
	}
	if ip.cols = r.places(in.Columns, values); len(ip.cols) != values {
		return nil
	}
	if in.Arrays != nil && !ip.compileArrays(in.Arrays) {
		return nil
	}
	var ok bool
	if in.Conflict != nil {
		if ip.conflict, ok = r.compileConflict(in.Conflict); !ok {
			return nil
		}
	}
	if ip.merges = in.Conflict == nil && r.engine != nil; ip.merges && !r.mayFold(ip.cols) {
		return nil
	}
	if ip.returning, ok = r.projectReturning(in.Returning); !ok {
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
		if at < 0 || seen[at] || r.Columns[at].Generated || r.Columns[at].attr.TypeKind == "d" {
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

// defaultsKnown reports whether the columns can be filled.
func (r *rel) defaultsKnown(cols []int) bool {
	return !slices.ContainsFunc(cols, func(c int) bool { return r.Columns[c].fallback == nil })
}

// bind implements writePlan.
func (ip *insertPlan) bind(s *session, p *portal, b params) (*fastWrite, error) {
	batch := p.rows
	if batch == nil || batch.Schema != ip.rel.Schema || len(ip.rows) != 1 {
		batch = table.NewBatch(ip.rel.Schema)
	}
	if p.rows = nil; len(ip.rows) == 1 {
		p.rows = batch
	}
	batch.Truncate(0)
	if err := ip.build(batch, b, s.env); err != nil {
		return nil, err
	}
	return ip.bindRows(batch, b, s.env)
}

// bindRows makes a write of rows.
func (ip *insertPlan) bindRows(batch *table.Batch, b params, env *pgvalue.Env) (_ *fastWrite, err error) {
	w := &fastWrite{rel: ip.rel, tag: "INSERT 0 ", returning: ip.returning, batch: batch, open: b.bind != nil, upsert: ip.conflict != nil || ip.merges}
	if w.holes, err = holes(batch, batch.Rows); err != nil {
		return nil, err
	}
	if ip.conflict != nil {
		if w.run, err = ip.conflict.bind(ip, batch, b, env); err != nil {
			return nil, err
		}
		return w, nil
	}
	if ip.merges {
		w.run = func(ctx context.Context, t *writer.Txn) (written, error) {
			rows, err := ip.rel.fold(ctx, t, batch, ip.cols)
			return written{batch.Rows, rows}, err
		}
		return w, nil
	}
	w.run = func(ctx context.Context, t *writer.Txn) (written, error) {
		_, err := t.Insert(ctx, table.ID(ip.rel.OID), batch)
		return written{batch.Rows, batch}, err
	}
	return w, nil
}

// build makes the rows. errNotFast if a value is not plain.
func (ip *insertPlan) build(batch *table.Batch, b params, env *pgvalue.Env) error {
	if ip.arrays != nil {
		return ip.unnest(batch, b, env)
	}
	for _, row := range ip.rows {
		for i, v := range row {
			if err := ip.rel.put(batch.Cols[ip.cols[i]], ip.cols[i], v, b, env); err != nil {
				return err
			}
		}
		batch.Rows++
	}
	return ip.rel.fill(batch, ip.rest, batch.Rows)
}

// put appends a value as it is assigned to column at.
func (r *rel) put(v *table.Vec, at int, val sql.Value, b params, env *pgvalue.Env) error {
	if val.Kind == sql.Param {
		return r.Columns[at].putParam(v, val.Number, b, env)
	}
	return r.Columns[at].putText(v, val.Kind, []byte(val.Text), env)
}

// putText appends a literal as it is assigned to the column; DEFAULT may leave a hole.
func (c *column) putText(v *table.Vec, kind sql.ValueKind, text []byte, env *pgvalue.Env) error {
	if c.attr.Identity == "a" && kind != sql.Default {
		return errNotFast
	}
	switch kind {
	case sql.Default:
		return c.putDefault(v)
	case sql.Null:
		return c.putNull(v)
	case sql.Integer, sql.Numeric:
		if !numeric(c.Codec.OID(), kind) || bytes.HasPrefix(text, minusZero) {
			return errNotFast // a numeric has no negative zero, a float has
		}
	case sql.Bool:
		if c.Codec.OID() != pgvalue.OIDBool {
			return errNotFast
		}
	}
	if c.Codec.AppendText(v, text, env) != nil {
		return errNotFast
	}
	return nil
}

var minusZero = []byte("-0")

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
	case !ok || c.attr.Identity == "a":
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

// write runs a write in the fast lane and returns its answer, or nil if the exact lane has to do it; then nothing was done.
func (s *session) write(ctx context.Context, w *fastWrite, format func(int) int16) (out *spool, err error) {
	if err := s.begun(ctx); err != nil || s.tx.readOnly {
		return nil, err
	}
	ctx, stop := s.timed(ctx)
	defer stop()
	t := s.tx.lake
	sp := t.Savepoint()
	defer t.Release(sp)
	if out, err = s.writeLocked(ctx, w, t, format); err == nil {
		return out, nil
	}
	t.RollbackTo(sp)
	if isExact(err) {
		err = nil
	}
	return nil, err
}

func (s *session) writeLocked(ctx context.Context, w *fastWrite, t *writer.Txn, format func(int) int16) (*spool, error) {
	if w.upsert && t.Isolation() != writer.ReadCommitted {
		return nil, errNotFast
	}
	if err := s.lockFor(ctx, w.rel); err != nil {
		return nil, err
	}
	if len(w.holes) > 0 {
		if err := s.compute(w.rel, w.batch, w.holes, w.batch.Rows, w.open); err != nil {
			return nil, err
		}
	}
	done, err := w.run(ctx, t)
	if err == nil && w.batch != nil {
		err = s.checkKeys(ctx, w.rel, w.batch)
	}
	if err != nil {
		return nil, w.drawn(err)
	}
	return w.result(done, format, s.env)
}

// lockFor locks a table to write to it. errNotFast if who was waited for has changed it: the writer notices another schema, but
// another default it does not know of.
func (s *session) lockFor(ctx context.Context, r *rel) error {
	if err := s.tx.lake.LockTable(ctx, table.ID(r.OID), lock.RowExclusive, s.lockWait()); err != nil {
		return err
	}
	if s.rel(r.OID) != r {
		return errNotFast
	}
	return nil
}

// writeStatement runs a simple Query's write in the fast lane, if it can.
func (s *session) writeStatement(ctx context.Context, w *fastWrite) (done bool, err error) {
	out, err := s.write(ctx, w, textFormat)
	if out == nil {
		return false, err
	}
	if w.returning != nil {
		out.frames = slices.Insert(out.frames, 0, wire.AppendRowDescription(nil, w.returning.fields))
	}
	s.tx.answered(out.frames...)
	s.send(out)
	return true, nil
}

// isExact reports whether an error of the fast lane only says that the exact lane has to do it, which may know better or has an error of
// its own for it.
func isExact(err error) bool {
	var unique *writer.UniqueConflict
	return errors.Is(err, errNotFast) || errors.As(err, &unique) || errors.Is(err, writer.ErrSchemaChanged) || errors.Is(err, writer.ErrTwice)
}

// fastStatement runs a simple Query's statement in the fast lane, if it can.
func (s *session) fastStatement(ctx context.Context, st *sql.Statement, p planner.Plan) (done bool, err error) {
	if st.Kind == sql.CopyFrom {
		return s.fastCopy(ctx, st, p)
	}
	if st.Kind == sql.Select {
		return s.pointStatement(ctx, st, p)
	}
	plan := s.compileWrite(st, p)
	if plan == nil {
		return false, nil
	}
	w, err := plan.bind(s, &portal{}, params{})
	if err != nil {
		return false, nil
	}
	return s.writeStatement(ctx, w)
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
