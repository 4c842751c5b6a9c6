package server

import (
	"context"
	"sync"
	"unicode/utf8"

	"sluice/planner"
	"sluice/sql"
	"sluice/writer/table"
)

// INSERTs of literal rows without the parser: what is around the rows is parsed once, the rows are cut by sql.Literals. Whatever it does not
// know, and whatever the fast lane does not do, goes the ordinary way from the start.

// frames remembers what is around the rows of literal INSERTs.
type frames struct {
	mu   sync.Mutex
	list map[frameKey]*sql.Statement
}

type frameKey struct{ head, tail string }

// maxFrames is how many are remembered; then all are forgotten.
const maxFrames = 1024

// of is l with its first row only, or nil if it is no statement for the fast lane.
func (f *frames) of(l *sql.Literals) *sql.Statement {
	key := frameKey{l.Head, l.Tail}
	f.mu.Lock()
	defer f.mu.Unlock()
	if st, ok := f.list[key]; ok {
		return st
	}
	if len(f.list) >= maxFrames || f.list == nil {
		f.list = map[frameKey]*sql.Statement{}
	}
	st := parseFrame(l)
	f.list[key] = st
	return st
}

func parseFrame(l *sql.Literals) *sql.Statement {
	stmts, err := sql.Parse(l.First())
	if err != nil || len(stmts) != 1 {
		return nil
	}
	if in := stmts[0].Insert(); in == nil || len(in.Rows) != 1 { // read now: sessions share it
		return nil
	}
	return stmts[0]
}

// literalInsert runs a Query that is an INSERT of literal rows in the fast lane, if it can.
func (s *session) literalInsert(ctx context.Context, text string) (done bool, err error) {
	l, ok := sql.CutInsert(text)
	if !ok || !utf8.ValidString(text) {
		return false, nil
	}
	st := s.srv.frames.of(&l)
	if st == nil {
		return false, nil
	}
	p, err := s.plan(ctx, st)
	if err != nil || p.Lane != planner.Fast {
		return false, err
	}
	if out, err := s.again(ctx, st, p, text, nil); out != nil || err != nil {
		if out != nil {
			s.send(out)
		}
		return true, err
	}
	ip, ok := s.compileWrite(st, p).(*insertPlan)
	if !ok {
		return false, nil
	}
	batch, ok := ip.literals(&l, s)
	if !ok {
		return false, nil
	}
	w, err := ip.bindRows(batch, params{}, s.env)
	if err != nil {
		return false, nil
	}
	return s.writeStatement(ctx, w)
}

// literals makes the rows; ok is false if a value is not plain.
func (ip *insertPlan) literals(l *sql.Literals, s *session) (*table.Batch, bool) {
	batch := table.NewBatch(ip.rel.Schema)
	rows, ok := l.Each(len(ip.cols), func(column int, kind sql.ValueKind, text []byte) bool {
		at := ip.cols[column]
		return ip.rel.Columns[at].putText(batch.Cols[at], kind, text, s.env) == nil
	})
	batch.Rows = rows
	return batch, ok && ip.rel.fill(batch, ip.rest, rows) == nil
}
