package server

import (
	"context"
	"errors"

	"sluice/server/wire"
	"sluice/sql"
	"sluice/writer"
)

// Two-phase commit (docs/design/0011-two-phase.md). Postgres keeps the prepared transaction and decides it; the lake's part has its state in the catalog
// from before PREPARE TRANSACTION until it has followed the decision. Who may decide, and what is wrong with a name, Postgres says.

func (s *session) twoPhase(ctx context.Context, st *sql.Statement, text string) error {
	verb, gid := st.TwoPhase()
	switch t := s.tx; {
	case verb == "PREPARE" && s.be.status == 'T' && !s.implicit && t != nil && t.lake != nil && t.lake.Holds():
		return s.prepareTransaction(ctx, gid, text)
	case verb == "PREPARE":
		return s.prepareOnly(ctx, text)
	}
	held := s.srv.Writer.Held(gid)
	if held == nil || s.be.status != 'I' {
		return s.relay(ctx, text)
	}
	return s.endPrepared(ctx, gid, held, verb == "COMMIT", text)
}

// prepareOnly is PREPARE TRANSACTION of what the lake has no part in. The block is over, also if it fails.
func (s *session) prepareOnly(ctx context.Context, text string) error {
	implicit := s.implicit
	if err := s.relay(ctx, text); err != nil || implicit {
		return err
	}
	s.forget()
	return nil
}

// prepareTransaction gives the transaction to the catalog, then to Postgres.
func (s *session) prepareTransaction(ctx context.Context, gid, text string) error {
	if err := s.deferred(ctx); err != nil {
		return s.abort(ctx, err)
	}
	t := s.tx.lake
	if err := t.Hold(ctx, gid); err != nil {
		return err
	}
	_, err := s.be.call(s.pg.Load().DecideCall(t.ID()))
	tag := ""
	if err == nil {
		tag, err = s.be.control(text, s.sink(), s.executing)
	}
	if err == nil && tag != "PREPARE TRANSACTION" { // Postgres has rolled it back
		s.tx.lake = nil
		err = t.EndHold(ctx, false, writer.CommitOptions{})
	} else if err != nil {
		s.tx.lake = nil
		return s.notPrepared(ctx, gid, t, err)
	} else {
		t.Keep(gid)
		s.tx.lake = nil
	}
	s.forget()
	if err == nil {
		s.c.CommandComplete(tag)
	}
	return err
}

// notPrepared follows a PREPARE TRANSACTION that failed, or whose answer was lost.
func (s *session) notPrepared(ctx context.Context, gid string, t *writer.Txn, cause error) error {
	ctx = context.WithoutCancel(ctx)
	if e, ok := sqlError(cause); ok && !e.Fatal() {
		if s.be.status != 'I' { // the decision row was refused: the block is still there
			cause = s.abort(ctx, cause)
		}
		return errors.Join(cause, t.EndHold(ctx, false, writer.CommitOptions{}))
	}
	committed, err := s.srv.Catalog.Decided(ctx, t.ID(), gid)
	if err != nil || committed {
		t.Keep(gid) // it is prepared, or may be: whoever decides it finds out, or the next start
		return errors.Join(cause, err)
	}
	return errors.Join(cause, t.EndHold(ctx, false, writer.CommitOptions{}))
}

// endPrepared lets Postgres decide, and follows.
func (s *session) endPrepared(ctx context.Context, gid string, held *writer.Txn, commit bool, text string) error {
	release, err := s.srv.Writer.Gate().Exclusive(ctx)
	if err != nil {
		return err
	}
	defer release()
	s.release()
	tag, err := s.be.control(text, s.sink(), s.executing)
	if err != nil {
		if e, ok := sqlError(err); ok && !e.Fatal() && e.Code != wire.CodeUndefinedObject {
			return err
		}
		return s.lostDecision(ctx, gid, held, err)
	}
	err = s.srv.Writer.EndHeld(context.WithoutCancel(ctx), gid, held, commit, writer.CommitOptions{WaitFlip: s.waits})
	if err := s.unknown(held, err); err != nil {
		return err
	}
	s.c.CommandComplete(tag)
	return nil
}

// lostDecision follows a decision whose answer was lost, now or by whoever tried before, as far as it can be known.
func (s *session) lostDecision(ctx context.Context, gid string, held *writer.Txn, cause error) error {
	ctx = context.WithoutCancel(ctx)
	committed, err := s.srv.Catalog.Decided(ctx, held.ID(), gid)
	if err != nil { // it is still prepared, or the next start finds out
		return errors.Join(cause, err)
	}
	return errors.Join(cause, s.srv.Writer.EndHeld(ctx, gid, held, committed, writer.CommitOptions{}))
}
