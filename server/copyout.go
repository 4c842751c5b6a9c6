package server

import (
	"context"
	"errors"
	"strconv"

	"sluice/planner"
	"sluice/server/wire"
	"sluice/sql"
	"sluice/sql/pgvalue/copyfmt"
	"sluice/writer"
	"sluice/writer/lock"
	"sluice/writer/table"
)

// COPY TO STDOUT of large tables: a table straight from its view, a query from the scan lane. Neither needs a copy of the rows in Postgres.

// copyChunk is about how many bytes of rows are written at a time.
const copyChunk = 64 << 10

// errFallBack sends a COPY TO to the exact lane; nothing was sent yet.
var errFallBack = errors.New("copy needs the exact lane")

// largeCopy runs a COPY TO whose rows the exact lane would not take. done is false if it does not know how.
func (s *session) largeCopy(ctx context.Context, st *sql.Statement, p planner.Plan) (done bool, err error) {
	if p.User || p.Keep || len(p.Lake) == 0 || !s.large(ctx, p) {
		return false, nil
	}
	if q := st.CopyQuery(); q != nil {
		return s.copyQuery(ctx, st, q)
	}
	c := st.CopyTable()
	if c == nil || len(p.Lake) != 1 || !p.Readable || s.rel(p.Lake[0]).stored() {
		return false, nil
	}
	return s.copyTableOut(ctx, c, s.rel(p.Lake[0]))
}

// large reports whether one of the plan's tables is over the exact lane's limit.
func (s *session) large(ctx context.Context, p planner.Plan) bool {
	for _, oid := range p.Lake {
		rows, size, err := s.Size(ctx, oid)
		if err != nil {
			continue
		}
		if fits, err := s.fitsExact(ctx, rows, size); err == nil && !fits {
			return true
		}
	}
	return false
}

// copyTableOut prints the rows of a table as the transaction sees them.
func (s *session) copyTableOut(ctx context.Context, c *sql.Copy, r *rel) (done bool, err error) {
	opts, ok := copyOptions(c.Options)
	if !ok || opts.Check(false) != nil {
		return false, nil // Postgres says what is wrong
	}
	var cols []copyfmt.Column
	names := c.Columns
	if names == nil {
		for i := range r.Columns {
			if !r.Columns[i].Generated {
				names = append(names, r.Columns[i].Name)
			}
		}
	}
	for _, name := range names {
		at := r.Schema.Index(name)
		if at < 0 || r.Columns[at].Codec.Kept() || r.Columns[at].Generated {
			return false, nil
		}
		cols = append(cols, copyfmt.Column{Name: name, Index: at, Codec: r.Columns[at].Codec})
	}
	w, err := copyfmt.NewWriter(opts, cols, s.env)
	if err != nil {
		return false, nil
	}
	if err := s.begun(ctx); err != nil {
		return false, err
	}
	if err := s.tx.lake.LockTable(ctx, table.ID(r.OID), lock.AccessShare, s.lockWait()); err != nil {
		return false, s.lockFailed(err, r.OID, "relation")
	}
	if s.rel(r.OID) != r { // who was waited for has changed it
		return false, nil
	}
	out := &copyOut{s: s, w: w, binary: opts.Format == copyfmt.Binary, cols: len(cols)}
	err = s.tx.lake.Statement().Scan(ctx, table.ID(r.OID), out.rows)
	if errors.Is(err, errFallBack) {
		return false, nil
	}
	if err != nil {
		return true, err
	}
	out.end()
	return true, nil
}

// copyOut is one COPY TO under way.
type copyOut struct {
	s      *session
	w      *copyfmt.Writer
	binary bool
	cols   int
	begun  bool
	n      int
	row    []byte
}

// begin sends what comes before the first row.
func (o *copyOut) begin() {
	if o.begun {
		return
	}
	o.begun = true
	format := byte(0)
	if o.binary {
		format = 1
	}
	o.s.release()
	o.s.c.CopyOutResponse(format, o.cols)
	if head := o.w.Head(nil); len(head) > 0 {
		o.s.c.CopyData(head)
	}
}

// rows sends the live rows of a piece. What only Postgres can print shows at the first row: then the exact lane has to do it.
func (o *copyOut) rows(r writer.Rows) error {
	for k := range r.Live() {
		i := k
		if r.Sel != nil {
			i = int(r.Sel[k])
		}
		var err error
		if o.row, err = o.w.Row(o.row[:0], r.Batch, i); err != nil {
			if !o.begun {
				return errFallBack
			}
			return err
		}
		o.begin()
		o.s.c.CopyData(o.row)
		if o.n++; o.s.c.Pending() > copyChunk {
			if o.s.c.Flush() != nil {
				return errGone
			}
		}
	}
	return nil
}

func (o *copyOut) end() {
	o.begin()
	if tail := o.w.Tail(nil); len(tail) > 0 {
		o.s.c.CopyData(tail)
	}
	o.s.c.CopyDone()
	o.s.complete(wire.AppendCommandComplete(nil, "COPY "+strconv.Itoa(o.n)))
}

// copyQuery prints what the scan lane answers to the query of a COPY.
func (s *session) copyQuery(ctx context.Context, st, q *sql.Statement) (done bool, err error) {
	opts, ok := copyOptions(st.CopyOptions())
	if !ok || opts.Format == copyfmt.Binary || opts.Check(false) != nil {
		return false, nil
	}
	p, err := s.plan(ctx, q)
	if err != nil || p.Lane != planner.Scan {
		return false, err
	}
	spooled, done, err := s.scanQuery(ctx, q, p, params{}, nil)
	if !done || err != nil {
		return false, err
	}
	out := &copyOut{s: s}
	var values [][]byte
	for _, f := range spooled.frames {
		switch f[0] {
		case 'T':
			fields, err := wire.DecodeRowDescription(f[5:])
			if err != nil {
				return false, err
			}
			cols := make([]copyfmt.Column, len(fields))
			for i := range fields {
				cols[i].Name = fields[i].Name
			}
			if out.w, err = copyfmt.NewWriter(opts, cols, s.env); err != nil {
				return false, nil
			}
			out.cols = len(cols)
		case 'D':
			if values, err = wire.DecodeDataRow(f[5:], values[:0]); err != nil {
				return false, err
			}
			out.begin()
			s.c.CopyData(out.w.Fields(nil, values))
			out.n++
		}
	}
	out.end()
	return true, nil
}
