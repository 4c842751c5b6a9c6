package server

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"sluice/catalogpg"
	"sluice/planner"
	"sluice/server/backend"
	"sluice/server/wire"
	"sluice/sql"
	"sluice/writer"
	"sluice/writer/lock"
	"sluice/writer/table"
)

// The exact lane (DESIGN section 2). A guarded statement runs inside a savepoint of the session's own Postgres transaction:
//
//	SAVEPOINT a · copy the rows it can touch into the empty shadows · SAVEPOINT b · the user's statement ·
//	count scans of shadows that were not filled (the guard) · read what changed · ROLLBACK TO a
//
// and then its change is applied as a lake write. If the guard found a scan of a table that was not filled, or a row moved or a
// key was taken meanwhile, the statement runs again with those rows in place. Where rolling back would lose an effect that must
// stay, the copies are deleted instead and savepoint a is released once the change is applied. A crash anywhere leaves nothing: the
// copies are in an open Postgres transaction, the change is in memory until COMMIT.

// maxAttempts bounds the runs of one statement: each run after the first waited for another transaction or filled one more table.
const maxAttempts = 64

// runner sends the user's statement to the backend and spools its answer. It is called once an attempt.
type runner func(text string) (*spool, error)

// spool is a statement's answer, held until its change is applied.
type spool struct {
	frames [][]byte // raw messages in order, without ReadyForQuery and ErrorResponse
	err    *wire.Error
}

func (o *spool) add(_ byte, frame []byte) { o.frames = append(o.frames, slices.Clone(frame)) }

// done takes the end of the answer: what the statement itself did wrong stays in the spool.
func (o *spool) done(err error) (*spool, error) {
	if e, ok := err.(*wire.Error); ok && e.Severity == "ERROR" {
		o.err, err = e, nil
	}
	return o, err
}

// attempt is one guarded statement and what its runs have learnt so far.
type attempt struct {
	st    *sql.Statement
	plan  planner.Plan
	text  string
	opts  []sql.Option
	run   runner
	fill  map[uint32]bool        // tables to fill whole, or as keys says
	keys  map[uint32][]keySet    // the statement's own look-up: the keys of the rows it can touch
	rows  map[uint32][]table.Ref // further rows that stood in the way
	view  *writer.View           // what the copies of the newest run are of
	skip  map[table.Ref]bool     // rows that SKIP LOCKED leaves out, of the one table in question
	merge *merging               // nil: the statement brings no rows for a table with a merge engine
	// overwrite is the table of which the statement replaces partitions, or nil.
	overwrite *rel
	// bound is what the client bound: conditions on large tables are looked at before Postgres sees them.
	bound params
}

// readOnly reports whether the statement cannot have changed a shadow.
func (a *attempt) readOnly() bool {
	return (a.st.Kind == sql.Select || a.st.Kind == sql.CopyTo) && !a.st.Write && !a.st.Locking && !a.plan.Keep
}

// reconciles reports whether the statement may have changed the schema: it is DDL, or user code ran.
func (a *attempt) reconciles() bool {
	return a.plan.DDL || a.plan.Keep && (a.plan.User || a.st.Kind == sql.Truncate) && a.st.Kind != sql.Declare && a.st.Kind != sql.Cursor
}

// tables is the tables with copied rows in this attempt, in the order in which their fill locks are taken.
func (a *attempt) tables() []uint32 {
	out := slices.Collect(maps.Keys(a.fill))
	for oid := range a.rows {
		if !a.fill[oid] {
			out = append(out, oid)
		}
	}
	slices.Sort(out)
	return out
}

// guarded runs a statement in the exact lane inside the open block and applies its change.
func (s *session) guarded(ctx context.Context, st *sql.Statement, p planner.Plan, text string, bound params, run runner) (*spool, error) {
	if s.be.status == 'E' { // Postgres says that the transaction is aborted
		out, err := run(text)
		if err == nil && out.err != nil {
			err = out.err
		}
		return out, err
	}
	if err := s.refuseStatement(st, p); err != nil {
		return nil, err
	}
	if err := s.begun(ctx); err != nil {
		return nil, err
	}
	ctx, stop := s.timed(ctx)
	defer stop()
	p, err := s.settled(ctx, st, p)
	if err != nil {
		return nil, err
	}
	a := &attempt{st: st, plan: p, text: text, run: run, bound: bound, fill: map[uint32]bool{}, rows: map[uint32][]table.Ref{}}
	if st.Kind != sql.Truncate && st.Kind != sql.LockTable {
		for _, oid := range p.Fill {
			a.fill[oid] = true
		}
	}
	if err := s.fillParents(ctx, a); err != nil {
		return nil, err
	}
	if err := s.prepareAttempt(a, bound); err != nil {
		return nil, err
	}
	if err := s.prepareTarget(ctx, a); err != nil {
		return nil, err
	}
	if a.overwrite != nil {
		if err := s.tx.lake.LockTable(ctx, table.ID(a.overwrite.OID), lock.Exclusive, s.lockWait()); err != nil {
			return nil, s.lockFailed(err, a.overwrite.OID, "relation")
		}
	}
	if st.Kind == sql.Declare {
		if err := s.probe(ctx, a); err != nil {
			return nil, err
		}
	}
	wait := fillPatience
	for n := 0; n < maxAttempts; n++ {
		if err := s.awaitFates(ctx, a); err != nil {
			return nil, err
		}
		out, again, err := s.try(ctx, a)
		if errors.Is(err, errEvicted) {
			if err := pause(ctx, wait); err != nil {
				return nil, err
			}
			n, wait = n-1, min(2*wait, time.Second)
			continue
		}
		if again {
			continue
		}
		if err == nil && st.Kind == sql.Declare {
			s.noteCursor(st)
		}
		if err == nil {
			err = s.setConstraints(ctx, st)
		}
		return out, err
	}
	return nil, errConcurrent
}

// fillParents puts the tables in place that the foreign keys of an INSERT look into: the guard would find them missing, and a second run takes
// further numbers from sequences. Large ones are left to the guard: maybe no key is looked for.
func (s *session) fillParents(ctx context.Context, a *attempt) error {
	if a.st.Kind != sql.Insert && a.st.Kind != sql.CopyFrom {
		return nil
	}
	for _, oid := range a.plan.Lake {
		r := s.rel(oid)
		if r == nil {
			continue
		}
		for _, k := range r.desc.Constraints {
			if k.Type != "f" || k.Deferred || s.fillable(k.Ref) == nil {
				continue
			}
			rows, size := s.tx.lake.Statement().Size(table.ID(k.Ref))
			fits, err := s.fitsExact(ctx, rows, size)
			if err != nil {
				return err
			}
			if fits {
				a.fill[k.Ref] = true
			}
		}
	}
	return nil
}

// awaitFates waits, before ON CONFLICT DO NOTHING finds rows in the way, for those who are deleting or updating them. It leaves no trace
// on the rows, so that nothing would be waited for later. Which rows it is about is only known where the statement names their keys.
func (s *session) awaitFates(ctx context.Context, a *attempt) error {
	if !a.st.DoNothing() || s.tx.lake.Isolation() != writer.ReadCommitted {
		return nil
	}
	for oid, sets := range a.keys {
		_, refs, err := s.byKeys(ctx, a, s.tx.lake.Statement(), s.rel(oid), sets)
		if err == nil {
			err = s.tx.lake.AwaitFates(ctx, table.ID(oid), refs)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// settled locks the tables of a statement. Whoever was waited for may have changed what its names stand for: then it is planned again.
func (s *session) settled(ctx context.Context, st *sql.Statement, p planner.Plan) (planner.Plan, error) {
	for range maxAttempts {
		if err := s.lockTables(ctx, st, p); err != nil {
			return p, err
		}
		if len(p.Lake) == 0 || s.names.version == s.srv.rels.version.Load() {
			return p, nil
		}
		var err error
		if p, err = s.plan(ctx, st); err != nil {
			return p, err
		}
	}
	return p, errConcurrent
}

// lockTables takes the gateway's locks of the lake tables that the statement names, before Postgres sees it: a session that waits for one
// holds no lock in Postgres that its holder may need. DDL excludes, everything else shares.
func (s *session) lockTables(ctx context.Context, st *sql.Statement, p planner.Plan) error {
	mode, wait := lock.AccessShare, s.lockWait()
	switch {
	case st.Kind == sql.LockTable:
		m, nowait := st.LockMode()
		mode = lock.AccessShare + lock.Mode(m-1)
		if nowait {
			wait.Policy = lock.NoWait
		}
	case st.Excludes():
		mode = lock.AccessExclusive
	case st.RefreshesConcurrently():
		mode = lock.Exclusive
	case st.Kind == sql.DDL:
		return nil
	case st.Write || st.Kind == sql.CopyFrom:
		mode = lock.RowExclusive
	case st.Locking:
		mode = lock.RowShare
	}
	for _, oid := range p.Lake {
		mode := mode
		if s.overwrites(st, oid) { // nobody may add rows to a partition that is being replaced
			mode = lock.Exclusive
		}
		if err := s.tx.lake.LockTable(ctx, table.ID(oid), mode, wait); err != nil {
			return s.lockFailed(err, oid, "relation")
		}
	}
	return nil
}

// lockFailed says in Postgres' words what could not be locked.
func (s *session) lockFailed(err error, oid uint32, what string) error {
	r := s.rel(oid)
	if r == nil || !errors.Is(err, lock.ErrNotAvailable) {
		return err
	}
	if what == "row" {
		return wire.Errorf(wire.CodeLockNotAvailable, "could not obtain lock on row in relation \"%s\"", r.Name)
	}
	return wire.Errorf(wire.CodeLockNotAvailable, "could not obtain lock on relation \"%s\"", r.Name)
}

// probe finds out which tables a cursor will read, views and functions included: DECLARE itself scans nothing. The cursor that is then
// declared goes on seeing the copies after they were deleted, since its snapshot is older than the deletion.
func (s *session) probe(ctx context.Context, a *attempt) error {
	declare, keep := a.run, a.plan.Keep
	defer func() { a.run, a.plan.Keep = declare, keep }()
	a.plan.Keep = false
	a.run = func(text string) (*spool, error) {
		out, err := declare(text)
		if err != nil || out.err != nil {
			return out, err
		}
		return out.done(s.be.do(ctx, "MOVE FORWARD ALL IN "+sql.QuoteIdent(a.st.CursorName())))
	}
	for range maxAttempts {
		_, again, err := s.try(ctx, a)
		if err == nil && !again && a.plan.User && len(a.fill) > 0 {
			err = unsupported("cursors that run functions or views over lake tables are not supported").WithHint("Use a SELECT, or a cursor over the query itself.")
		}
		if err != nil || !again {
			return err
		}
	}
	return errConcurrent
}

// refuseStatement says no to what cannot be right on copied rows.
func (s *session) refuseStatement(st *sql.Statement, p planner.Plan) error {
	switch {
	case (st.System || st.Sampling) && len(p.Lake) > 0:
		return unsupported("system columns and TABLESAMPLE are not supported on lake tables").WithHint("Use a key, or ORDER BY random() LIMIT.")
	case st.CurrentOf && len(p.Lake) > 0, st.Kind == sql.Declare && st.Locking && len(p.Lake) > 0:
		return unsupported("cursors FOR UPDATE and WHERE CURRENT OF are not supported on lake tables").WithHint("Use SELECT … FOR UPDATE, and change rows by their key.")
	case st.Blind() && (p.DDL || p.User && len(p.Lake) > 0): // a word in a constant is code only for user code
		return unsupported("TABLESAMPLE and ctid cannot be used where lake tables may be read").WithHint("Use a key, or ORDER BY random() LIMIT.")
	case st.ChangesComposite() && s.srv.rels.any(func(r *rel) bool { return r.hasKind("c") }):
		return unsupported("changing the attributes of a composite type is not supported while lake tables have composite columns").WithHint("Make a new type, and ALTER COLUMN … TYPE.")
	case st.RenamesEnumValue() && s.srv.rels.any(func(r *rel) bool { return r.hasKind("e") }):
		return unsupported("renaming a value of an enum is not supported while lake tables have enum columns").WithHint("Add the new value, update the rows to it.")
	}
	return nil
}

// lookAgain reports whether a statement that failed is to run again with the rows of the tables in place into which it inserted, or wanted to: a
// key that exists, which was not seen, may be what Postgres would have complained about first.
func (s *session) lookAgain(ctx context.Context, a *attempt, inserted []uint32) bool {
	if a.st.Kind == sql.Insert {
		inserted = append(inserted, a.plan.Lake...)
	}
	again := false
	view := s.tx.lake.Statement()
	for _, oid := range inserted {
		rows, size := view.Size(table.ID(oid))
		fits, err := s.fitsExact(ctx, rows, size)
		if r := s.rel(oid); err == nil && fits && r != nil && len(r.Uniques) > 0 && !a.fill[oid] && r != a.overwrite {
			a.fill[oid], again = true, true
		}
	}
	return again
}

var errConcurrent = wire.Errorf(wire.CodeSerializationFailure, "could not serialize access due to concurrent update")

// errEvicted sends a statement round again that was cancelled because others wanted the tables on which it waited.
var errEvicted = errors.New("the statement made way for others")

// try runs the statement once. again says that it must run again with more rows in place.
func (s *session) try(ctx context.Context, a *attempt) (out *spool, again bool, err error) {
	before := s.overlay()
	if err := a.refuseOverwrite(); err != nil {
		return nil, false, err
	}
	out, sn, err := s.onCopies(ctx, a)
	switch {
	case errors.Is(err, errEvicted):
		return nil, false, err
	case s.ownerMade(ctx, err):
		return nil, true, nil
	case err != nil:
	case len(sn.missing) > 0:
		if a.st.Kind == sql.Cursor {
			return nil, false, unsupported("a cursor that a function opened cannot read lake tables").WithHint("Return the rows with RETURN QUERY.")
		}
		for _, oid := range sn.missing {
			delete(a.keys, oid)
			if a.fill[oid] = true; a.merge.narrowed(oid) {
				a.merge.keyed = false
			}
		}
		return nil, true, nil
	case out.err != nil && a.merge.twice(out.err) && a.merge.unfold():
		return nil, true, nil
	case out.err != nil:
		if again = s.lookAgain(ctx, a, sn.inserted); !again {
			s.send(out) // what came before the error, rows too
		}
		return nil, again, out.err
	default:
		again, err = s.apply(ctx, a, sn)
	}
	if !a.plan.Keep {
		return out, again, err
	}
	if err != nil || again {
		s.restore(before)
		return out, again, s.undo(ctx, err)
	}
	s.tx.kept, s.defaults = true, nil
	if a.merge != nil { // the setting would stay until the end of the transaction
		if err := s.be.do(ctx, "SET LOCAL sluice.merge = ''"); err != nil {
			return nil, false, err
		}
	}
	s.listens = true // whatever ran may have said LISTEN
	s.tx.defers = s.tx.defers || a.st.Kind != sql.DDL
	return out, false, s.be.do(ctx, "RELEASE SAVEPOINT _sluice_a")
}

// seen is what an attempt did.
type seen struct {
	missing   []uint32 // shadows that were scanned and not filled
	inserted  []uint32 // shadows that got rows, if the statement failed
	refreshed []stored // materialized views that may have other rows now
	changes   []change
	truncated []uint32
	defined   []definition
	anew      []uint32 // tables whose rows are all to be written anew
}

// writes reports whether lake tables are to change.
func (sn *seen) writes() bool {
	return len(sn.truncated)+len(sn.defined) > 0 || slices.ContainsFunc(sn.changes, func(c change) bool {
		return len(c.gone)+len(c.replaced) > 0 || c.added != nil && c.added.Rows > 0
	})
}

// onCopies is the part of an attempt during which copied rows are in place. No gateway lock is waited for in it, except the fill
// locks, which are taken in table order. On return the copies are gone; a kept statement's savepoint is still open.
func (s *session) onCopies(ctx context.Context, a *attempt) (*spool, seen, error) {
	maps.DeleteFunc(a.fill, func(oid uint32, _ bool) bool { return s.fillable(oid) == nil }) // dropped by others: Postgres says so
	if len(a.tables()) > 0 {
		if err := s.refuseEncoding(); err != nil {
			return nil, seen{}, err
		}
	}
	a.view = s.tx.lake.Statement()
	unlock, err := s.srv.fills.lock(ctx, s, s.srv.shadows(a.tables()))
	if err != nil {
		return nil, seen{}, err
	}
	defer unlock()
	g, err := s.openGuard(ctx, a, a.view)
	if err != nil {
		return nil, seen{}, s.undo(ctx, err)
	}
	if err := canceled(ctx); err != nil {
		return nil, seen{}, s.undo(ctx, err)
	}
	s.evict.onRun()
	out, err := a.run(a.text)
	evicted := s.evict.ran()
	if err != nil {
		return nil, seen{}, err
	}
	if evicted && out.err != nil && out.err.Code == wire.CodeQueryCanceled && ctx.Err() == nil {
		return nil, seen{}, s.undo(ctx, errEvicted)
	}
	if g.failed = out.err; out.err != nil { // it may come from a shadow that looked empty: the counters outlive the rollback
		if err := s.be.do(ctx, "ROLLBACK TO SAVEPOINT _sluice_b"); err != nil {
			return nil, seen{}, err
		}
	}
	if a.reconciles() && out.err == nil { // columns may have changed: the change is printed after that is known
		return s.finishDDL(ctx, a, g, out)
	}
	h, rows, err := s.observe(a, g)
	if err != nil {
		return nil, seen{}, s.undo(ctx, err)
	}
	missing, err := s.missing(ctx, a, h)
	if sn := (seen{missing: missing, inserted: h.inserted}); err != nil || a.st.Kind != sql.Truncate && len(sn.missing) > 0 || out.err != nil {
		return out, sn, s.undo(ctx, err)
	}
	var sn seen
	err = s.harvest(ctx, a, g, h, rows, &sn)
	if err != nil || !a.plan.Keep {
		err = s.undo(ctx, err)
	}
	return out, sn, err
}

// finishDDL is the second half of an attempt of a statement that may have changed the schema.
func (s *session) finishDDL(ctx context.Context, a *attempt, g *guard, out *spool) (*spool, seen, error) {
	r, err := s.be.batch(privileged(catalogpg.CountsCall()), privileged(s.pg.Load().ReconcileCall()))
	if err != nil {
		return nil, seen{}, s.undo(ctx, err)
	}
	h, err := g.hits(r[0].Rows[0])
	if err != nil {
		return nil, seen{}, s.undo(ctx, err)
	}
	candidates, err := catalogpg.DecodeCandidates(r[1].Rows)
	if err != nil {
		return nil, seen{}, s.undo(ctx, err)
	}
	missing, err := s.missing(ctx, a, h)
	if sn := (seen{missing: missing}); err != nil || a.st.Kind != sql.Truncate && len(sn.missing) > 0 && !s.promotes(a, sn.missing, candidates) {
		return out, sn, s.undo(ctx, err)
	}
	var sn seen
	before := s.overlay()
	if err := s.reconcile(ctx, a, candidates, h, &sn); err != nil {
		return out, sn, s.undo(ctx, err)
	}
	if unread := g.writeAnew(sn.anew); len(unread) > 0 {
		s.restore(before)
		return out, seen{missing: unread}, s.undo(ctx, nil)
	}
	_, changes, err := s.observe(a, g)
	if err == nil {
		err = s.harvest(ctx, a, g, h, changes, &sn)
	}
	if err != nil {
		err = s.undo(ctx, err)
	}
	return out, sn, err
}

// harvest decodes what the statement did and, where its effects stay, deletes the copied rows.
func (s *session) harvest(ctx context.Context, a *attempt, g *guard, h hits, rows map[uint32][][][]byte, sn *seen) error {
	truncated, err := s.truncated(ctx, a, g)
	if err != nil {
		return err
	}
	sn.truncated = append(sn.truncated, truncated...)
	if sn.changes, err = s.readChanges(a, g, h, rows); err != nil || !a.plan.Keep {
		return err
	}
	var list []backend.Statement
	if s.tx.readOnly { // its end brings back that the block is writable
		list = append(list, backend.Text("RELEASE SAVEPOINT _sluice_b"))
	}
	for _, c := range sn.changes {
		list = append(list, privileged(s.pg.Load().ClearCall(c.rel.OID)))
	}
	if len(sn.changes) > 0 {
		if _, err = s.be.batch(list...); err != nil {
			return err
		}
	}
	return s.readStored(ctx, sn)
}

// undo takes the attempt's savepoint back and hands err through.
func (s *session) undo(ctx context.Context, err error) error {
	_, uerr := s.be.batch(backend.Text("ROLLBACK TO SAVEPOINT _sluice_a"), backend.Text("RELEASE SAVEPOINT _sluice_a"))
	if err == nil {
		err = uerr
	}
	return err
}

// apply makes the change a lake write of the transaction: locks, unique checks, own rows. again says that another transaction was in
// the way: it has ended, or its row is now known, and the statement must run again.
func (s *session) apply(ctx context.Context, a *attempt, sn seen) (again bool, err error) {
	t := s.tx.lake
	sp, waits := t.Savepoint(), t.Waits()
	if err = s.applyAll(ctx, a, sn); err == nil {
		err = s.owe(ctx, sn.changes)
	}
	waited := t.Waits() != waits && !a.st.Locking && len(a.fill) > 1 // what it read of other tables may be stale by now
	if err == nil && t.Isolation() == writer.ReadCommitted {
		if again = waited; !waited {
			again, err = s.newChildren(ctx, a.view, sn.changes)
		}
	}
	var moved *writer.RowMoved
	switch {
	case again:
		t.Retry(sp)
	case errors.As(err, &moved):
		again, err = s.conflict(ctx, a, err)
		t.Retry(sp)
	case err != nil:
		again, err = s.conflict(ctx, a, err)
		t.RollbackTo(sp)
	}
	t.Release(sp)
	return again, err
}

// applyAll takes rows away under the old definitions, then defines, then adds rows.
func (s *session) applyAll(ctx context.Context, a *attempt, sn seen) error {
	t := s.tx.lake
	if s.tx.half && sn.writes() {
		return errHalfIdentity
	}
	for _, oid := range sn.truncated {
		if err := t.Truncate(ctx, table.ID(oid)); err != nil {
			return err
		}
	}
	for _, c := range sn.changes {
		if err := s.applyOld(ctx, a, c); err != nil {
			return err
		}
	}
	for _, d := range sn.defined {
		if err := t.Define(ctx, d.change); err != nil {
			return err
		}
	}
	for _, c := range sn.changes {
		if c.added == nil || c.added.Rows == 0 {
			continue
		}
		if a.overwrite != nil && c.rel.OID == a.overwrite.OID {
			if err := t.Vacate(ctx, table.ID(c.rel.OID), c.added); err != nil {
				return err
			}
		}
		if err := s.addRows(ctx, a, c); err != nil {
			return &insertError{err, c.rel, c.added}
		}
	}
	return nil
}

// addRows inserts what the statement added to a table, or merges it.
func (s *session) addRows(ctx context.Context, a *attempt, c change) (err error) {
	if a.merge.foldsInto(c.rel.OID) {
		_, err = c.rel.fold(ctx, s.tx.lake, c.added, a.merge.named)
		return err
	}
	_, err = s.tx.lake.Insert(ctx, table.ID(c.rel.OID), c.added)
	return err
}

// applyOld locks and deletes rows that the statement found.
func (s *session) applyOld(ctx context.Context, a *attempt, c change) error {
	id := table.ID(c.rel.OID)
	if len(c.locked) > 0 {
		if err := s.lockRows(ctx, a, id, c.locked); err != nil {
			return err
		}
	}
	if a.st.NoWait || a.st.Skip {
		for _, refs := range [][]table.Ref{c.gone, c.replaced} {
			if err := s.lockRows(ctx, a, id, refs); err != nil {
				return err
			}
		}
	}
	if len(c.gone) > 0 {
		if err := s.tx.lake.Delete(ctx, id, c.gone, lock.ForUpdate); err != nil {
			return err
		}
	}
	if len(c.replaced) > 0 {
		if _, err := s.tx.lake.Update(ctx, id, c.replaced, c.versions, lock.ForNoKeyUpdate); err != nil {
			return &insertError{err, c.rel, c.versions}
		}
	}
	return nil
}

// insertError is a failed write with its rows, for the detail of a duplicate key.
type insertError struct {
	error
	rel  *rel
	rows *table.Batch
}

func (e *insertError) Unwrap() error { return e.error }

// errSkipped sends a SKIP LOCKED statement round again without the rows that others hold.
var errSkipped = errors.New("rows are locked by others")

// lockRows locks rows that the statement only locked: by FOR UPDATE and its like, or as a foreign key's check of its parent.
func (s *session) lockRows(ctx context.Context, a *attempt, id table.ID, refs []table.Ref) error {
	mode, wait := lock.ForKeyShare, s.lockWait()
	if a.st.Locking {
		mode = lock.ForKeyShare + lock.Mode(a.st.Strength-1)
	}
	switch {
	case a.st.NoWait:
		wait.Policy = lock.NoWait
	case a.st.Skip:
		wait.Policy = lock.SkipLocked
	}
	locked, err := s.tx.lake.LockRows(ctx, id, refs, mode, wait)
	if err != nil {
		return s.lockFailed(err, uint32(id), "row")
	}
	for i, ok := range locked {
		if !ok {
			if a.skip == nil {
				a.skip = map[table.Ref]bool{}
			}
			a.skip[refs[i]], err = true, errSkipped
		}
	}
	return err
}

// conflict decides what an obstacle at apply means.
func (s *session) conflict(ctx context.Context, a *attempt, err error) (again bool, _ error) {
	var unique *writer.UniqueConflict
	var moved *writer.RowMoved
	snapshot := s.tx.lake.Isolation() != writer.ReadCommitted
	switch {
	case errors.Is(err, errNotFast) && a.merge.unfold():
		return true, nil
	case errors.As(err, &unique):
		return s.keyTaken(ctx, a, unique, err, snapshot)
	case errors.As(err, &moved) && snapshot:
		return false, concurrent(moved)
	case errors.As(err, &moved), errors.Is(err, errSkipped):
		return true, nil
	}
	return false, err
}

// keyTaken waits for the fate of the row that has the key, as Postgres does, and puts it in place for the next run.
func (s *session) keyTaken(ctx context.Context, a *attempt, u *writer.UniqueConflict, cause error, snapshot bool) (again bool, _ error) {
	oid := uint32(u.Table)
	if a.merge.merges(u) {
		return s.mergeTaken(ctx, a, u, cause, snapshot)
	}
	visible, err := s.tx.lake.Statement().Live(u.Table, u.Refs)
	if err != nil {
		return false, err
	}
	snapshot = snapshot && len(visible) == 0 // what its snapshot has the statement could have seen
	var moved *writer.RowMoved
	_, err = s.tx.lake.LockRows(ctx, u.Table, u.Refs, lock.ForKeyShare, s.lockWait())
	switch {
	case errors.As(err, &moved):
		if snapshot {
			return false, concurrent(moved)
		}
		return true, nil
	case err != nil:
		return false, err
	case snapshot && a.st.OnConflict():
		return false, errConcurrent
	}
	seen := slices.ContainsFunc(u.Refs, func(ref table.Ref) bool { return slices.Contains(a.rows[oid], ref) })
	var failed *insertError
	if (snapshot || seen) && errors.As(cause, &failed) { // the snapshot is older than the row: Postgres would not be shown it
		return false, failed.rel.duplicate(u, failed.rows)
	}
	if seen {
		return false, cause
	}
	a.rows[oid] = append(a.rows[oid], u.Refs...)
	return true, nil
}
