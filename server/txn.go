package server

import (
	"context"
	"errors"
	"maps"

	"sluice/planner"
	"sluice/server/backend"
	"sluice/server/wire"
	"sluice/sql"
	"sluice/writer"
	"sluice/writer/catalog"
	"sluice/writer/invariants"
	"sluice/writer/lock"
)

// txn is the lake side of the session's open transaction. The backend owns its status and its savepoints' names; this follows.
type txn struct {
	lake     *writer.Txn
	stale    bool            // its settings may have changed
	readOnly bool            // READ ONLY: kept from Postgres, since filling writes, and set again around each statement
	ran      bool            // a statement that takes a snapshot has run
	wait     bool            // synchronous_commit = remote_apply
	ddlRan   bool            // a statement may have changed the schema
	defers   bool            // there may be deferred triggers in Postgres
	kept     bool            // a statement's effects in Postgres must stay
	once     *once           // the retry identity; nil: none, or not yet
	looked   bool            // it has written, with or without an identity
	half     bool            // half an identity is set: nothing may be written
	ddl      map[uint32]*rel // relations as this transaction's DDL left them; nil = dropped
	owed     map[uint32]bool // tables whose deferrable foreign keys are to be looked at before COMMIT
	marks    []mark
}

// mark is a savepoint of the user.
type mark struct {
	name     string
	lake     writer.Savepoint
	kept     bool
	readOnly bool
	ddl      map[uint32]*rel
}

// begun makes sure that the open block has a lake side.
func (s *session) begun(ctx context.Context) error {
	if s.tx == nil {
		s.tx = &txn{}
	}
	if s.tx.lake != nil && !s.tx.stale {
		return nil
	}
	o, err := s.options(ctx)
	if err != nil {
		return err
	}
	s.tx.wait, s.tx.stale = s.waits, false
	s.tx.readOnly = s.tx.readOnly || s.be.status == 'I' && s.readsOnly
	if s.tx.lake == nil {
		s.tx.lake = s.srv.Writer.Begin(o)
		s.vitals.owns(s.tx.lake.LockOwner())
	}
	s.tx.lake.SetWait(s.lockWait())
	return nil
}

func (s *session) lockWait() lock.Wait { return lock.Wait{Timeout: s.lockTimeout} }

// options is the options of the open transaction. Those of an implicit one without a block are the session's, and change only with it.
func (s *session) options(ctx context.Context) (writer.TxnOptions, error) {
	if s.defaults != nil && (s.be.status == 'I' || s.be.lazy) {
		return *s.defaults, nil
	}
	shown, err := s.be.batch(showOptions...)
	if err != nil {
		return writer.TxnOptions{}, err
	}
	o := s.readOptions(shown)
	s.defaults = nil
	if s.be.status == 'I' {
		s.defaults = &o
	}
	return o, nil
}

// showOptions asks for the settings of transactions. SHOW takes no snapshot, after which a transaction's modes could not be set any more.
var showOptions = []backend.Statement{backend.Text("SHOW transaction_isolation"), backend.Text("SHOW synchronous_commit"), backend.Text("SHOW lock_timeout"),
	backend.Text("SHOW idle_in_transaction_session_timeout"), backend.Text("SHOW default_transaction_read_only"), backend.Text("SHOW statement_timeout"),
	backend.Text("SHOW idle_session_timeout")}

// readOptions takes the answers to showOptions.
func (s *session) readOptions(shown []*backend.Result) writer.TxnOptions {
	o := writer.TxnOptions{Isolation: writer.ReadCommitted}
	setting := func(i int) string { return string(shown[i].Rows[0][0]) }
	switch setting(0) {
	case "repeatable read":
		o.Isolation = writer.RepeatableRead
	case "serializable":
		o.Isolation = writer.Serializable
	}
	s.waits = setting(1) == "remote_apply"
	s.lockTimeout = duration(setting(2))
	s.readsOnly = setting(4) == "on"
	s.lazily = setting(3) == "0" && !s.readsOnly
	s.timeout = duration(setting(5))
	s.idles = setting(3) != "0" || setting(6) != "0"
	return o
}

func (t *txn) rollback() {
	if t.lake != nil {
		t.lake.Rollback()
	}
}

// fail gives up what the aborted part of the transaction holds: everything since its last savepoint. Locks go at once, as in Postgres.
func (t *txn) fail() {
	switch {
	case t == nil || t.lake == nil:
	case len(t.marks) > 0:
		t.lake.RollbackTo(t.marks[len(t.marks)-1].lake)
	default:
		t.lake.Rollback()
		t.lake = nil
	}
}

// forget drops the lake side: the transaction is over.
func (s *session) forget() {
	if s.tx != nil {
		if s.tx.ddlRan {
			s.names.clear()
		}
		s.tx.rollback()
		s.tx = nil
	}
}

// beginImplicit opens a block that stands for an implicit transaction: guarded statements need savepoints.
func (s *session) beginImplicit(ctx context.Context) error {
	if s.implicit {
		return nil
	}
	o, err := s.options(ctx)
	if err != nil {
		return err
	}
	if s.readsOnly { // what was parsed before has taken a snapshot: too late for READ WRITE in the same transaction
		if err := s.be.sync(nil); err != nil {
			return err
		}
	}
	if err := s.be.do(ctx, "BEGIN READ WRITE"); err != nil {
		return err
	}
	s.implicit = true
	if s.tx == nil {
		s.tx = &txn{lake: s.srv.Writer.Begin(o)}
		s.tx.readOnly = s.readsOnly
		s.vitals.owns(s.tx.lake.LockOwner())
		s.tx.wait = s.waits
		s.tx.lake.SetWait(s.lockWait())
	}
	return nil
}

// endImplicit decides an implicit transaction that has not failed.
func (s *session) endImplicit(ctx context.Context) error {
	if !s.implicit && (s.tx == nil || s.be.status != 'I') {
		s.release()
		return nil
	}
	s.implicit = false
	if err := s.commit(ctx, "COMMIT", nil); err != nil {
		return err
	}
	s.release()
	return nil
}

// failed answers a statement's error and leaves the transaction as Postgres would: an implicit one is gone, a block is aborted. It
// returns an error only if the session cannot go on.
func (s *session) failed(ctx context.Context, err error) error {
	e, ok := sqlError(err)
	if !ok {
		if errors.Is(err, errGone) || s.be.be.Err() != nil {
			return err
		}
		s.srv.Log.Error("statement failed inside the gateway", "pid", s.pid, "error", err)
		e = wire.Errorf(wire.CodeInternalError, "%v", err)
	}
	if s.held = s.held[:0]; e.Code == wire.CodeQueryCanceled {
		s.work.Store(nil) // the request is carried out
	}
	s.tx.answered(wire.AppendErrorResponse(nil, e))
	if s.lost != nil {
		s.lost.Where = e.Where // the COPY's line
		e = s.lost
	}
	s.c.ErrorResponse(e)
	if e.Severity == "FATAL" {
		return errors.Join(errGone, s.c.Flush())
	}
	if err := s.be.sync(nil); err != nil {
		if _, ok := sqlError(err); !ok {
			return err
		}
	}
	switch {
	case s.implicit:
		s.implicit = false
		s.forget()
		return s.be.do(ctx, "ROLLBACK")
	case s.be.status == 'T':
		if err := s.poison(ctx, e); err != nil {
			return err
		}
		s.tx.fail()
	case s.be.status == 'E':
		s.tx.fail()
	case s.be.status == 'I':
		s.forget()
	}
	return nil
}

// poison puts the backend's block into the failed state, so that all later answers in it are the backend's own.
func (s *session) poison(ctx context.Context, e *wire.Error) error {
	err := s.be.do(ctx, "SELECT sluice.fail($1, $2)", e.Code, e.Message)
	if _, ok := sqlError(err); ok && s.be.status == 'E' {
		return nil
	}
	if err == nil {
		err = errors.New("the backend did not fail")
	}
	return err
}

// control runs transaction control statements; handled is false for every other statement.
func (s *session) control(ctx context.Context, st *sql.Statement, text string) (handled bool, err error) {
	switch st.Kind {
	case sql.Begin:
		return true, s.begin(ctx, st, text)
	case sql.Commit:
		return true, s.commitStatement(ctx, st, text)
	case sql.Rollback:
		return true, s.rollbackStatement(ctx, st, text)
	case sql.Savepoint, sql.Release, sql.RollbackTo:
		return true, s.savepoint(ctx, st, text)
	case sql.Set:
		if handled, err := s.setMode(ctx, st); handled {
			return true, err
		}
	case sql.TwoPhase:
		return true, s.twoPhase(ctx, st, text)
	}
	if s.tx != nil && st.Kind != sql.Show {
		s.tx.ran = true
	}
	return s.refused(st)
}

func (s *session) begin(ctx context.Context, st *sql.Statement, text string) error {
	if s.implicit { // BEGIN inside a string: the implicit block becomes explicit
		s.implicit = false
		s.release()
		s.c.CommandComplete("BEGIN")
		return nil
	}
	fresh := s.be.status == 'I'
	if fresh {
		if _, err := s.options(ctx); err != nil {
			return err
		}
		if st.Bare() && s.lazily {
			s.release()
			s.be.lazy, s.be.status = true, 'T'
			s.c.CommandComplete(st.BeginTag())
			return nil
		}
	}
	stripped, readOnly := st.BeginReadWrite(text)
	if fresh && s.readsOnly && st.BeginMode() == sql.NoMode {
		stripped, readOnly = st.Text+"\nREAD WRITE", true
	}
	if err := s.relay(ctx, stripped); err != nil {
		return err
	}
	if fresh && readOnly {
		s.tx = &txn{readOnly: true}
	}
	return nil
}

// setMode takes READ ONLY and READ WRITE of an open block out of a SET: the backend's block stays writable, since it has to be filled.
func (s *session) setMode(ctx context.Context, st *sql.Statement) (handled bool, err error) {
	mode, rest := st.SetMode()
	if mode == sql.NoMode || s.be.status != 'T' {
		return false, nil
	}
	if s.tx == nil {
		s.tx = &txn{}
	}
	switch t := s.tx; {
	case mode == sql.ReadWrite && t.readOnly && t.ran:
		return true, wire.Errorf(wire.CodeActiveSQLTransaction, "transaction read-write mode must be set before any query")
	case mode == sql.ReadWrite && t.readOnly && len(t.marks) > 0 && t.marks[len(t.marks)-1].readOnly:
		return true, wire.Errorf(wire.CodeActiveSQLTransaction, "cannot set transaction read-write mode inside a read-only transaction")
	}
	if rest != "" {
		err = s.relay(ctx, rest)
	} else {
		s.complete(wire.AppendCommandComplete(nil, "SET"))
	}
	if err == nil {
		s.tx.readOnly = mode == sql.ReadOnly
	}
	return true, err
}

// relay runs a control statement on the backend under the gateway's own statement name and answers the client with the outcome.
func (s *session) relay(ctx context.Context, text string) error {
	s.release()
	tag, err := s.be.control(text, s.sink(), s.executing)
	if err != nil {
		return err
	}
	s.c.CommandComplete(tag)
	return nil
}

func (s *session) savepoint(ctx context.Context, st *sql.Statement, text string) error {
	if s.be.status == 'T' {
		if err := s.begun(ctx); err != nil {
			return err
		}
	}
	if err := s.relay(ctx, text); err != nil {
		return err
	}
	t := s.tx
	if t == nil || t.lake == nil {
		return nil
	}
	name := st.SavepointName()
	if st.Kind == sql.Savepoint {
		t.marks = append(t.marks, mark{name: name, lake: t.lake.Savepoint(), kept: t.kept, readOnly: t.readOnly, ddl: maps.Clone(t.ddl)})
		return nil
	}
	for i := len(t.marks) - 1; i >= 0; i-- {
		if m := t.marks[i]; m.name == name {
			if st.Kind == sql.Release {
				t.lake.Release(m.lake)
				t.marks = t.marks[:i]
				return nil
			}
			t.lake.RollbackTo(m.lake)
			t.kept, t.readOnly, t.ddl, t.marks = m.kept, m.readOnly, maps.Clone(m.ddl), t.marks[:i+1]
			s.names.clear()
			return nil
		}
	}
	return nil
}

// commitStatement runs a COMMIT of the user.
func (s *session) commitStatement(ctx context.Context, st *sql.Statement, text string) error {
	implicit := s.implicit
	if s.be.lazy && !st.Bare() {
		if err := s.be.ready(); err != nil {
			return err
		}
	}
	s.implicit = false
	s.release()
	defer s.chained()()
	var tag string
	if err := s.commit(ctx, text, &tag); err != nil {
		return err
	}
	s.endedNone(implicit)
	s.c.CommandComplete(tag)
	return nil
}

// rollbackStatement runs a ROLLBACK of the user.
func (s *session) rollbackStatement(ctx context.Context, st *sql.Statement, text string) error {
	implicit := s.implicit
	s.implicit = false
	s.release()
	defer s.chained()()
	s.forget()
	if s.be.lazy && st.Bare() {
		s.be.lazy, s.be.status = false, 'I'
		s.c.CommandComplete("ROLLBACK")
		return nil
	}
	tag, err := s.be.control(text, s.sink(), s.executing)
	if err != nil {
		return err
	}
	s.endedNone(implicit)
	s.c.CommandComplete(tag)
	return nil
}

// chained returns what is to be done after the end of a block: AND CHAIN begins another one with the same modes, of which Postgres does not
// know READ ONLY.
func (s *session) chained() func() {
	readOnly := s.tx != nil && s.tx.readOnly
	return func() {
		if readOnly && s.tx == nil && s.be.status == 'T' {
			s.tx = &txn{readOnly: true}
		}
	}
}

// endedNone warns as Postgres does of a COMMIT or ROLLBACK that ended an implicit transaction: its block is the gateway's.
func (s *session) endedNone(implicit bool) {
	if implicit {
		s.c.NoticeResponse(&wire.Error{Severity: "WARNING", Code: wire.CodeNoActiveSQLTransaction, Message: "there is no transaction in progress"})
	}
}

// commit ends the open block through the one decider of its transaction (DESIGN section 4).
func (s *session) commit(ctx context.Context, text string, tag *string) error {
	defer s.forget()
	open := s.be.status == 'T'
	var lake *writer.Txn
	if s.tx != nil {
		lake = s.tx.lake
	}
	err := s.unknown(lake, s.decide(ctx, text, tag))
	if err == nil && open && s.tx != nil {
		s.tell()
	}
	return err
}

// tell tells all sessions of what the transaction's DDL did, once Postgres has committed it. It comes before the rows are published and the locks
// fall: who waits for them then plans by the new definitions.
func (s *session) tell() {
	if s.tx.ddlRan {
		s.srv.rels.merge(s.tx.ddl)
		s.tx.ddlRan, s.names = false, resolution{}
	}
}

func (s *session) decide(ctx context.Context, text string, tag *string) error {
	end := func(context.Context) error {
		t, err := s.be.control(text, s.sink(), s.executing)
		if tag != nil {
			*tag = t
		}
		return err
	}
	t := s.tx
	if err := s.finishOnce(); err != nil {
		return s.unended(ctx, err)
	}
	if s.be.lazy { // the backend never heard of the block
		s.be.lazy, s.be.status = false, 'I'
		if tag != nil {
			*tag = "COMMIT"
		}
		if t == nil || t.lake == nil {
			return nil
		}
	}
	if t != nil && t.lake != nil && s.be.status == 'I' { // the fast lane only: there is no block to end
		_, err := t.lake.Commit(ctx, writer.CommitOptions{WaitFlip: t.wait})
		return err
	}
	if t == nil || t.lake == nil || s.be.status != 'T' {
		return end(ctx)
	}
	if err := s.deferred(ctx); err != nil {
		return s.abort(ctx, err)
	}
	switch {
	case t.lake.HasDDL():
		return s.commitDDL(ctx, end)
	case !t.lake.Wrote() && !t.lake.Remembered() && !t.once.repeats():
		return end(ctx)
	case (t.kept || t.lake.Isolation() == writer.Serializable) && !t.once.repeats(): // Postgres may say no to a serializable block
		return s.commitMixed(ctx, end)
	}
	// Only lake rows: the frame in the log decides.
	if _, err := t.lake.Commit(ctx, writer.CommitOptions{WaitFlip: t.wait}); err != nil {
		return s.abort(ctx, err)
	}
	s.ended(end(ctx), tag)
	return nil
}

// ended follows the end of a backend's block after the frame has decided: whatever became of it, a cancel request or a lost connection, the
// transaction is committed, and the client is told so. The block held nothing that could be lost but session settings; a lost connection tells itself.
func (s *session) ended(err error, tag *string) {
	if err == nil {
		return
	}
	s.srv.Log.Warn("the block of a committed transaction failed to end", "pid", s.pid, "error", err)
	s.c.NoticeResponse(&wire.Error{Severity: "WARNING", Code: wire.CodeWarning, Message: "the transaction is committed, but settings of the session that it made are lost"})
	if tag != nil {
		*tag = "COMMIT"
	}
	if s.be.be.Err() != nil {
		s.be.status = 'I'
	}
}

// unended gives up a block, or a transaction without one, that is not to be decided.
func (s *session) unended(ctx context.Context, err error) error {
	switch {
	case s.be.lazy:
		s.be.lazy, s.be.status = false, 'I'
	case s.be.status == 'T':
		return s.abort(ctx, err)
	}
	return err
}

// abort rolls the block back because its end failed, and hands the reason through.
func (s *session) abort(ctx context.Context, err error) error {
	if rerr := s.be.do(ctx, "ROLLBACK"); rerr != nil {
		return rerr
	}
	return err
}

// deferred runs what Postgres would run inside COMMIT, where the guard could not see it, and checks the foreign keys that are owed.
func (s *session) deferred(ctx context.Context) error {
	if s.tx.defers {
		st := &sql.Statement{Kind: sql.Call}
		out, err := s.guarded(ctx, st, planner.Plan{Lane: planner.Exact, Keep: true}, "SET CONSTRAINTS ALL IMMEDIATE", params{}, s.hiddenRun())
		if err != nil {
			return err
		}
		s.sendNotices(out)
	}
	return s.checkOwed(ctx, nil)
}

// commitDDL lets the Postgres COMMIT decide, with the flip as one more statement of the user's own transaction.
func (s *session) commitDDL(ctx context.Context, end func(context.Context) error) error {
	_, err := s.tx.lake.CommitDDL(ctx, func(ctx context.Context, f *catalog.Flip) error {
		call, err := s.pg.Load().FlipCall(*f)
		if err != nil {
			return err
		}
		if _, err := s.be.call(call); err != nil {
			return err
		}
		invariants.Here("ddl: flip in the transaction")
		if err := end(ctx); err != nil {
			return err
		}
		s.tell()
		return nil
	})
	if err != nil {
		if s.be.status != 'I' {
			return s.abort(ctx, err)
		}
		return err
	}
	return nil
}

// hiddenRun runs a statement of the gateway's own under the guard.
func (s *session) hiddenRun() runner {
	return func(text string) (*spool, error) {
		out := &spool{}
		_, err := s.be.control(text, out.add, nil)
		return out.done(err)
	}
}

// commitMixed lets the Postgres COMMIT decide over lake rows too: the frame is durable before, and published after it.
func (s *session) commitMixed(ctx context.Context, end func(context.Context) error) error {
	t := s.tx.lake
	release, err := s.srv.Writer.Gate().Exclusive(ctx)
	if err != nil {
		return s.abort(ctx, err)
	}
	defer func() { release() }()
	if _, err := t.Prepare(ctx); err != nil {
		return s.abort(ctx, err)
	}
	invariants.Here("mixed: frame prepared")
	id := t.ID()
	if _, err := s.be.call(s.pg.Load().DecideCall(id)); err != nil {
		return s.abort(ctx, errors.Join(err, t.Resolve(ctx, false)))
	}
	invariants.Here("mixed: decision in the transaction")
	if err := end(ctx); err != nil {
		return s.settle(ctx, err, &release)
	}
	invariants.Here("mixed: committed")
	s.tell()
	err = t.Resolve(ctx, true)
	invariants.Here("mixed: published")
	return err
}

// settle asks the decision row after a COMMIT that did not answer with success, and hands the question over if there is no answer: then the gate stays
// closed, since whoever wants a Postgres snapshot and a position together would see half of the transaction.
func (s *session) settle(ctx context.Context, cause error, release *func()) error {
	t := s.tx.lake
	committed, err := s.srv.Catalog.Decision(context.WithoutCancel(ctx), t.ID())
	if err != nil {
		t.Leave(*release)
		*release = func() {}
		return errors.Join(writer.ErrOutcomeUnknown, cause, err)
	}
	if err := t.Resolve(ctx, committed); err != nil {
		return err
	}
	if committed { // the reply was lost, and nothing else
		return errors.Join(writer.ErrOutcomeUnknown, cause)
	}
	return cause
}
