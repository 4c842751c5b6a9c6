package server

import (
	"context"
	"errors"
	"strings"
	"unicode/utf8"

	"sluice/planner"
	"sluice/server/wire"
	"sluice/sql"
)

// query works off a simple Query message: one implicit transaction around the whole string, unless it says otherwise itself.
func (s *session) query(ctx context.Context, body []byte) error {
	raw, err := wire.DecodeQuery(body)
	if err != nil {
		return err
	}
	text := string(raw)
	s.release()         // what extended messages without a Sync began goes on
	delete(s.stmts, "") // a Query destroys the unnamed statement and portal
	delete(s.portals, "")
	if err = canceled(ctx); err == nil {
		err = s.queryText(ctx, text)
	}
	if err == nil { // what computed defaults may have left open
		err = s.be.sync(nil)
	}
	if err == nil {
		err = s.endImplicit(ctx)
	}
	if err != nil {
		if err := s.failed(ctx, err); err != nil {
			return err
		}
	}
	return s.readyForQuery()
}

func (s *session) queryText(ctx context.Context, text string) error {
	if err := s.escaped(text); err != nil {
		return err
	}
	if done, err := s.literalInsert(ctx, text); done || err != nil {
		return err
	}
	stmts, err := sql.Parse(text)
	if told := s.srv.textWithBackends(ctx, stmts, text); told != text {
		text = told
		stmts, err = sql.Parse(text)
	}
	switch {
	case err != nil:
		if handled, err := s.foreignText(ctx, text); handled {
			return err
		}
		return s.unparsable(ctx, text)
	case len(stmts) == 0: // how drivers ask whether the session lives: the backend has to
		return s.be.query(text, s.sink(), nil)
	case len(stmts) == 1:
		return s.one(ctx, stmts[0], text)
	}
	return s.several(ctx, stmts, text)
}

// escaped refuses texts that mean one thing to the backend and another to the gateway's parser, which knows backslashes in E'…' only.
func (s *session) escaped(text string) error {
	if !s.backslashes || !strings.Contains(text, `\`) {
		return nil
	}
	return wire.Errorf(wire.CodeFeatureNotSupported, "backslashes are not supported in statements while standard_conforming_strings is off").
		WithHint("Set standard_conforming_strings to on, and write strings with escapes as E'...'.")
}

// unparsable lets Postgres say what is wrong with a text. Parse runs nothing, should the two grammars differ.
func (s *session) unparsable(ctx context.Context, text string) error {
	if err := s.be.check(text); err != nil {
		return err
	}
	return wire.Errorf(wire.CodeFeatureNotSupported, "this statement is not supported").WithHint("Write it in another way: the gateway has to understand it.")
}

// one runs the only statement of a string: relayed as it came if that is all it needs.
func (s *session) one(ctx context.Context, st *sql.Statement, text string) error {
	p, err := s.plan(ctx, st)
	if err != nil {
		return err
	}
	return s.statement(ctx, st, p, text)
}

// several runs a string of statements. A pipeline would change what LOCK TABLE, DECLARE and SET LOCAL say, so each is a Query
// of its own inside a block that is ours (reference lanes 2.3).
func (s *session) several(ctx context.Context, stmts []*sql.Statement, text string) error {
	for _, st := range stmts {
		s.release()
		if s.be.status == 'I' && st.Kind != sql.Begin && st.Kind != sql.Commit && st.Kind != sql.Rollback {
			if err := s.beginImplicit(ctx); err != nil {
				return err
			}
		}
		if s.implicit && st.Kind == sql.Savepoint {
			return wire.Errorf(wire.CodeNoActiveSQLTransaction, "SAVEPOINT can only be used in transaction blocks")
		}
		if s.implicit && st.Kind == sql.Alone {
			return wire.Errorf(wire.CodeActiveSQLTransaction, "%s cannot be executed within a pipeline", firstWord(st.Text))
		}
		if err := s.one(ctx, st, st.Text); err != nil {
			return shift(err, utf8.RuneCountInString(text[:st.At]))
		}
	}
	return nil
}

// shift moves the position in an error from a statement to the string it came in.
func shift(err error, chars int) error {
	var e *wire.Error
	if chars == 0 || !errors.As(err, &e) || e.Position == 0 {
		return err
	}
	moved := *e
	moved.Position += chars
	return &moved
}

func firstWord(text string) string {
	f := strings.Fields(text)
	if len(f) == 0 {
		return ""
	}
	return strings.ToUpper(f[0])
}

// statement runs one statement of a simple Query and answers it.
func (s *session) statement(ctx context.Context, st *sql.Statement, p planner.Plan, text string) error {
	if handled, err := s.control(ctx, st, text); handled {
		return err
	}
	if err := s.gatewayCalls(ctx, st, func() params { return params{} }); err != nil {
		return err
	}
	if out, err := s.again(ctx, st, p, text, nil); out != nil || err != nil {
		if out != nil {
			s.send(out)
		}
		return err
	}
	if p.Lane == planner.Relay && (s.tx == nil || !s.tx.readOnly) {
		s.release()
		if err := canceled(ctx); err != nil {
			return err
		}
		err := s.be.query(text, s.sink(), clientCopy{s})
		s.afterRelay(st)
		return err
	}
	if p.Lane == planner.Fast {
		if done, err := s.fastStatement(ctx, st, p); done || err != nil {
			return err
		}
	}
	if st.Kind == sql.CopyTo {
		if done, err := s.largeCopy(ctx, st, p); done || err != nil {
			return err
		}
	}
	if p.Lane == planner.Scan {
		if out, done, err := s.scanQuery(ctx, st, p, params{}, nil); done || err != nil {
			if done {
				s.send(out)
			}
			return err
		}
	}
	if s.be.status == 'I' {
		if err := s.beginImplicit(ctx); err != nil {
			return err
		}
	}
	out, err := s.guarded(ctx, st, p, text, params{}, s.roleRun(ctx, st, s.simpleRun()))
	if err != nil {
		return err
	}
	s.tx.answered(out.frames...)
	s.send(out)
	return nil
}

// simpleRun sends the text of a guarded statement as a Query.
func (s *session) simpleRun() runner {
	data := &copySpool{s: s}
	return func(text string) (*spool, error) {
		out := &spool{}
		return out.done(s.be.query(text, data.sink(out), data.start()))
	}
}

// sink passes an answer of the backend on to the client; the last CommandComplete of an implicit transaction waits for the decider.
func (s *session) sink() sink {
	return func(typ byte, frame []byte) {
		if typ == 'C' && s.implicit {
			s.hold(frame)
			return
		}
		s.c.Raw(frame)
	}
}

// send answers the client with a spooled result.
func (s *session) send(out *spool) {
	s.release()
	for _, f := range out.frames {
		if f[0] == 'C' {
			s.complete(f)
			continue
		}
		s.c.Raw(f)
	}
}

// sendNotices sends the notices of a statement whose answer is not sent. They come before the CommandComplete that is held back.
func (s *session) sendNotices(out *spool) {
	for _, f := range out.frames {
		if f[0] == 'N' {
			s.c.Raw(f)
		}
	}
}
