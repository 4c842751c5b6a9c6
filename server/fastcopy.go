package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sluice/planner"
	"sluice/server/wire"
	"sluice/sql"
	"sluice/sql/pgvalue"
	"sluice/sql/pgvalue/copyfmt"
	"sluice/writer"
	"sluice/writer/table"
)

// So much of a COPY goes into the transaction at a time: rows, or bytes that the client has sent.
const (
	copyBatch = 64 << 10
	copyBytes = 4 << 20
)

// fastCopy runs COPY FROM STDIN of a plain table: parser, vectors, transaction. done is false if the exact lane has to do it; then nothing
// was asked of the client yet.
func (s *session) fastCopy(ctx context.Context, st *sql.Statement, p planner.Plan) (done bool, err error) {
	c, r := st.Copy(), s.rel(p.Target)
	if c == nil || r == nil {
		return false, nil
	}
	in, err := s.newCopy(ctx, c, r)
	if in == nil || err != nil {
		return false, err
	}
	if err := s.begun(ctx); err != nil {
		return false, err
	}
	if s.tx.readOnly || r.engine != nil && s.tx.lake.Isolation() != writer.ReadCommitted {
		return false, nil
	}
	ctx, stop := s.timed(ctx)
	defer stop()
	sp := s.tx.lake.Savepoint()
	defer s.tx.lake.Release(sp)
	if err := s.lockFor(ctx, r); err != nil {
		s.tx.lake.RollbackTo(sp)
		if isExact(err) {
			err = nil
		}
		return false, err
	}
	if in.checks, err = s.newKeyChecks(r); err != nil {
		s.tx.lake.RollbackTo(sp)
		if isExact(err) {
			err = nil
		}
		return false, err
	}
	if err := in.run(ctx); err != nil {
		s.tx.lake.RollbackTo(sp)
		return true, err
	}
	tag := wire.AppendCommandComplete(nil, "COPY "+strconv.FormatInt(in.rows, 10))
	s.tx.answered(tag)
	s.complete(tag)
	return true, nil
}

// copyFrom is one COPY FROM STDIN under way.
type copyFrom struct {
	s      *session
	rel    *rel
	named  []int
	rest   []int
	parser *copyfmt.Parser
	format byte // 0 text, 1 binary, for CopyInResponse
	cols   int
	rows   int64
	checks *keyChecks
}

// newCopy compiles the COPY; nil if a column or an option is Postgres' business.
func (s *session) newCopy(ctx context.Context, c *sql.Copy, r *rel) (*copyFrom, error) {
	opts, ok := copyOptions(c.Options)
	if !ok {
		return nil, nil
	}
	n := 0
	for i := range r.Columns {
		if !r.Columns[i].Generated {
			n++
		}
	}
	cols := r.places(c.Columns, n)
	if cols == nil || n != len(r.Columns) {
		return nil, nil
	}
	if r.engine != nil && (!r.mayFold(cols) || len(r.Uniques) > 1) {
		return nil, nil
	}
	in := &copyFrom{s: s, rel: r, named: cols, rest: r.others(cols), cols: len(cols)}
	if ok, err := s.mayCopy(ctx, r, in.rest); !ok {
		return nil, err
	}
	target := copyfmt.Target{Table: r.Name, Env: s.env, Resolve: func(col int, text []byte) ([]byte, error) {
		return in.resolve(ctx, cols[col], text)
	}}
	for _, at := range cols {
		c := &r.Columns[at]
		target.Columns = append(target.Columns, copyfmt.Column{Name: c.Name, Index: at, Codec: c.Codec, NotNull: c.attr.NotNull})
	}
	if opts.Format == copyfmt.Binary {
		in.format = 1
		for _, at := range cols {
			if r.Columns[at].Codec.Kept() {
				return nil, nil
			}
		}
	}
	var err error
	if in.parser, err = copyfmt.NewParser(opts, target); err != nil {
		return nil, nil // Postgres says what is wrong with the options
	}
	return in, nil
}

// copyOptions reads the options that the parser knows.
func copyOptions(list []sql.CopyOption) (o copyfmt.Options, ok bool) {
	for _, x := range list {
		switch x.Name {
		case "format":
			f, known := map[string]copyfmt.Format{"text": copyfmt.Text, "csv": copyfmt.CSV, "binary": copyfmt.Binary}[x.Value]
			if !known {
				return o, false
			}
			o.Format = f
		case "delimiter":
			o.Delimiter = x.Value
		case "null":
			null := x.Value
			o.Null = &null
		case "header":
			switch {
			case !x.HasArg || x.Value == "true" || x.Value == "1" || x.Value == "on":
				o.Header = copyfmt.WithHeader
			case x.Value == "match":
				o.Header = copyfmt.MatchHeader
			case x.Value != "false" && x.Value != "0" && x.Value != "off":
				return o, false
			}
		case "quote":
			o.Quote = x.Value
		case "escape":
			o.Escape = x.Value
		case "force_not_null":
			o.ForceNotNull = x.List
		case "force_null":
			o.ForceNull = x.List
		case "encoding":
			o.Encoding = x.Value
		case "freeze": // a hint that means nothing here, as long as Postgres' conditions are not broken: let it judge
			return o, false
		default:
			return o, false
		}
	}
	return o, true
}

// run asks for the data and takes it in.
func (in *copyFrom) run(ctx context.Context) error {
	in.s.release()
	start := wire.AppendCopyInResponse(nil, in.format, in.cols)
	in.s.tx.opened(start)
	in.s.c.Raw(start)
	src := clientCopy{in.s}
	batch, fed := table.NewBatch(in.rel.Schema), 0
	for {
		typ, body, err := src.next()
		if err != nil {
			return err
		}
		switch typ {
		case 'd':
			fed += len(body)
			err = in.parser.Feed(batch, body)
		case 'c':
			if err = in.parser.End(batch); err == nil {
				if err = in.take(ctx, batch); err == nil {
					err = in.checks.end(ctx)
				}
				return err
			}
		default:
			msg, _ := wire.DecodeCopyFail(body)
			e := wire.Errorf(wire.CodeQueryCanceled, "COPY from stdin failed: %s", msg)
			e.Where = fmt.Sprintf("COPY %s, line %d", in.rel.Name, in.parser.Line()+1)
			return e
		}
		if err == nil && batch.Rows > 0 && (batch.Rows >= copyBatch || fed >= copyBytes) {
			if err = in.take(ctx, batch); err == nil {
				batch, fed = table.NewBatch(in.rel.Schema), 0
			}
		}
		if err != nil {
			return in.failed(err, batch)
		}
	}
}

// failed is the error as Postgres words it.
func (in *copyFrom) failed(err error, b *table.Batch) error {
	var null *copyfmt.NullError
	if errors.As(err, &null) {
		return in.notNull(null, b)
	}
	return err
}

// take puts parsed rows into the transaction.
func (in *copyFrom) take(ctx context.Context, b *table.Batch) error {
	if b.Rows == 0 {
		return nil
	}
	if err := in.fill(b, b.Rows); err != nil {
		return err
	}
	err := in.put(ctx, b)
	var unique *writer.UniqueConflict
	if errors.As(err, &unique) {
		e := in.rel.duplicate(unique, b)
		e.Where = fmt.Sprintf("COPY %s, line %d", in.rel.Name, in.parser.Lines[unique.Row])
		return e
	}
	in.parser.Lines = in.parser.Lines[:0]
	in.rows += int64(b.Rows)
	in.s.vitals.loaded(in.rows)
	return err
}

// put adds rows, or merges them.
func (in *copyFrom) put(ctx context.Context, b *table.Batch) (err error) {
	if in.rel.engine != nil {
		_, err = in.rel.fold(ctx, in.s.tx.lake, b, in.named)
		return err
	}
	if _, err = in.s.tx.lake.Insert(ctx, table.ID(in.rel.OID), b); err == nil {
		err = in.checks.add(ctx, b)
	}
	return err
}

// fill gives the columns that the COPY does not name their defaults. All of a COPY is one statement, with one now().
func (in *copyFrom) fill(b *table.Batch, rows int) error {
	if err := in.rel.fill(b, in.rest, rows); err != nil {
		return err
	}
	var empty []int
	for _, c := range in.rest {
		if b.Cols[c].Len < rows {
			empty = append(empty, c)
		}
	}
	return in.s.compute(in.rel, b, empty, rows, true)
}

// notNull is Postgres' error for the NULL that the parser stopped at.
func (in *copyFrom) notNull(null *copyfmt.NullError, b *table.Batch) error {
	if err := in.fill(b, b.Rows+1); err != nil {
		return err
	}
	r, col := in.rel, &in.rel.Columns[null.Column]
	e := wire.Errorf(wire.CodeNotNullViolation, "null value in column \"%s\" of relation \"%s\" violates not-null constraint", col.Name, r.Name)
	e.Schema, e.Table, e.Column, e.Where = r.Namespace, r.Name, col.Name, null.Context
	return e.WithDetail("Failing row contains (%s).", in.rowText(b, b.Rows))
}

// rowText is a row as error messages show it: each value cut at 64 bytes (ExecBuildSlotValueDescription).
func (in *copyFrom) rowText(b *table.Batch, row int) string {
	const limit = 64
	values := make([]string, len(b.Cols))
	for i, v := range b.Cols {
		_, exact := v.ExactText(row)
		if !exact && v.IsNull(row) {
			values[i] = "null"
			continue
		}
		text, err := in.rel.Columns[i].Codec.Text(nil, v, row, in.s.env)
		if err != nil { // only Postgres prints it as the session wants it: as it is stored
			text = v.Bytes(row)
		}
		if values[i] = string(text); len(text) > limit {
			values[i] = strings.ToValidUTF8(string(text[:limit]), "") + "..."
		}
	}
	return strings.Join(values, ", ")
}

// duplicate is Postgres' error for a key that exists.
func (r *rel) duplicate(u *writer.UniqueConflict, b *table.Batch) *wire.Error {
	e := wire.Errorf(wire.CodeUniqueViolation, "duplicate key value violates unique constraint \"%s\"", u.Name)
	e.Schema, e.Table, e.Constraint = r.Namespace, r.Name, u.Name
	i := slices.IndexFunc(r.Uniques, func(x unique) bool { return x.OID == u.Unique })
	if i < 0 {
		return e
	}
	names, vals := r.keyText(r.Uniques[i].Cols, b, u.Row)
	return e.WithDetail("Key (%s)=(%s) already exists.", names, vals)
}

// keyText is the names and values of a key's columns, as the details of errors have them.
func (r *rel) keyText(cols []int, b *table.Batch, row int) (names, vals []byte) {
	for k, c := range cols {
		if k > 0 {
			names, vals = append(names, ", "...), append(vals, ", "...)
		}
		names = append(names, r.Columns[c].Name...)
		vals, _ = r.Columns[c].Codec.Text(vals, b.Cols[c], row, nil)
	}
	return names, vals
}

// resolve lets Postgres read a value that only it can read, as the session's settings say.
func (in *copyFrom) resolve(ctx context.Context, col int, text []byte) ([]byte, error) {
	c := &in.rel.Columns[col]
	rows, err := in.s.be.exec(ctx, "SELECT sluice.canonical($1::pg_catalog.text::"+c.attr.TypeName+")", text)
	var e *wire.Error
	switch {
	case errors.As(err, &e) && !e.Fatal():
		return nil, &pgvalue.Error{Code: e.Code, Message: e.Message, Detail: e.Detail, Hint: e.Hint} // the parser adds the place
	case err != nil:
		return nil, err
	}
	return rows[0][0], nil
}
