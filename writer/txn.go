package writer

import (
	"context"
	"fmt"
	"slices"

	"sluice/writer/catalog"
	"sluice/writer/lock"
	"sluice/writer/realtime"
	"sluice/writer/table"
)

// Isolation is what a transaction may see of others.
type Isolation uint8

// The levels. READ UNCOMMITTED is READ COMMITTED, as in Postgres.
const (
	ReadCommitted Isolation = iota
	RepeatableRead
	Serializable
)

// TxnOptions of one transaction.
type TxnOptions struct {
	Isolation Isolation
}

// Txn is one transaction. One goroutine at a time uses it. It ends with Commit, CommitDDL, Resolve or Rollback, whatever they return.
type Txn struct {
	w       *Writer
	id      [16]byte
	opts    TxnOptions
	began   uint64 // generation of the store: row maps since then are kept
	decided bool   // held: somebody ends it
	names   uint64 // held: row maps of this generation and later are stored, until it ends; else notHeld
	locks   *lock.Owner
	tables  map[table.ID]*ownTable
	changes map[table.ID]*change // schema changes
	log     []event
	marks   []savepoint
	bytes   int64     // own rows
	wait    lock.Wait // for locks that are not asked for

	snapshot *realtime.View // RepeatableRead and above: of the first statement
	reads    map[table.ID]struct{}
	prepared *entry
	done     bool
	left     bool // the settler ends it
	waits    int  // locks that were not free

	writer   string // retry identity, "" = none
	sequence int64
	answer   []byte          // for a repeat
	repeats  *catalog.Result // what it repeats: then it writes nothing
	flip     string          // of the commit, once rows are in files that are listed for it
}

// savepoint is a place to go back to.
type savepoint struct {
	events int
	locks  lock.Mark
}

// Begin opens a transaction.
func (w *Writer) Begin(opts TxnOptions) *Txn {
	t := &Txn{w: w, opts: opts, tables: map[table.ID]*ownTable{}, changes: map[table.ID]*change{}, id: w.newID(), names: notHeld}
	t.locks = w.locks.NewOwner()
	if opts.Isolation == Serializable {
		t.reads = map[table.ID]struct{}{}
	}
	w.mu.Lock()
	t.began = w.store.Generation()
	w.open[t] = struct{}{}
	w.mu.Unlock()
	return t
}

// ID names the transaction for ever: in its frame and in the decision row.
func (t *Txn) ID() [16]byte { return t.id }

// Isolation is the level it was begun with.
func (t *Txn) Isolation() Isolation { return t.opts.Isolation }

// LockOwner is who holds the transaction's locks, for locks that the writer does not take itself.
func (t *Txn) LockOwner() *lock.Owner { return t.locks }

// Wrote reports whether Commit would write anything.
func (t *Txn) Wrote() bool {
	return slices.ContainsFunc(t.log, func(e event) bool { return e.kind != eventTouch })
}

// Statement is the view of the next statement.
func (t *Txn) Statement() *View {
	base := t.w.store.View()
	if t.opts.Isolation != ReadCommitted {
		if t.snapshot == nil {
			t.snapshot = &base
		}
		base = *t.snapshot
	}
	return &View{t: t, base: base, time: len(t.log)}
}

// Newest is a view of the newest state at any isolation level: what foreign keys look at when parents go.
func (t *Txn) Newest() *View { return &View{t: t, base: t.w.store.View(), time: len(t.log)} }

// Deleted is the rows that the transaction found committed and deleted or replaced so far. Of a table that it truncated there are none.
func (t *Txn) Deleted(ctx context.Context, id table.ID) (*table.Batch, error) {
	o := t.tables[id]
	if o == nil || o.fresh || o.truncated != 0 {
		return &table.Batch{}, nil
	}
	o.sync(t.w)
	refs := make([]table.Ref, len(o.gone))
	for i, g := range o.gone {
		refs[i] = g.ref
	}
	return t.Newest().fetchNamed(ctx, id, refs)
}

// Current is the newest name of a row that a view of this transaction found, and whether it is live in the newest state.
func (t *Txn) Current(id table.ID, ref table.Ref) (table.Ref, bool) {
	if ref.File == table.Own {
		o := t.tables[id]
		return ref, o != nil && ref.Row < uint64(o.count()) && o.died(int(ref.Row)) == 0
	}
	o := t.tables[id]
	var cur table.Ref
	var live bool
	t.w.stable(func() {
		cur, live = t.w.store.Current(id, ref)
		if o != nil {
			o.sync(t.w)
			live = live && o.truncated == 0 && !o.deleted(cur, len(t.log))
		}
	})
	return cur, live
}

// stable runs fn until no flush renamed rows meanwhile.
func (w *Writer) stable(fn func()) {
	for {
		g := w.store.Generation()
		fn()
		if w.store.Generation() == g {
			return
		}
	}
}

func (t *Txn) read(id table.ID) {
	if t.reads != nil {
		t.reads[id] = struct{}{}
	}
}

// def is the table in base, or as this transaction defined it.
func (t *Txn) def(base realtime.View, id table.ID) (*Def, bool) {
	if c := t.changes[id]; c != nil {
		return c.def, c.def != nil
	}
	tv, ok := base.Table(id)
	if !ok {
		return nil, false
	}
	return tv.Def, true
}

// newest is the table in the newest state, or as this transaction defined it.
func (t *Txn) newest(id table.ID) (*Def, error) {
	def, ok := t.def(t.w.store.View(), id)
	if !ok {
		return nil, fmt.Errorf("table %d: %w", id, ErrUnknownTable)
	}
	return def, nil
}

// own is what the transaction does to a table, from the first time on.
func (t *Txn) own(id table.ID, def *Def) *ownTable {
	o := t.tables[id]
	if o == nil {
		o = newOwnTable(id, def, t.w.store.Generation())
		t.setOwn(o)
	}
	return o
}

// setOwn goes back with its savepoint: so does the lock that keeps the table's definition as it is.
func (t *Txn) setOwn(o *ownTable) {
	t.tables[o.id] = o
	t.log = append(t.log, event{kind: eventTouch, table: o, undo: func() { delete(t.tables, o.id) }})
}

// Savepoint is a place in the transaction to roll back to.
type Savepoint int

// Savepoint marks the place.
func (t *Txn) Savepoint() Savepoint {
	t.marks = append(t.marks, savepoint{events: len(t.log), locks: t.locks.Mark()})
	return Savepoint(len(t.marks) - 1)
}

// RollbackTo takes back everything since sp, its locks included. sp stays; savepoints after it are gone.
func (t *Txn) RollbackTo(sp Savepoint) {
	m := t.marks[sp]
	t.marks = t.marks[:sp+1]
	t.revert(m.events)
	t.locks.ReleaseTo(m.locks)
	t.weigh()
}

// Retry is RollbackTo that keeps the locks on rows and tables: whoever looks again because a row moved stands at the head of the queue for its
// newest version, as in Postgres, and does not starve.
func (t *Txn) Retry(sp Savepoint) {
	m := t.marks[sp]
	t.marks = t.marks[:sp+1]
	t.revert(m.events)
	t.locks.ReleaseKeysTo(m.locks)
	t.weigh()
}

// Release forgets sp and the savepoints after it; what was done since stays, and so do the locks.
func (t *Txn) Release(sp Savepoint) {
	t.marks = t.marks[:sp]
}

func (t *Txn) revert(events int) {
	var grown map[*ownTable]bool
	for i := len(t.log) - 1; i >= events; i-- {
		t.log[i].revert()
		if t.log[i].kind == eventRows {
			if grown == nil {
				grown = map[*ownTable]bool{}
			}
			grown[t.log[i].table] = true
		}
	}
	t.log = t.log[:events]
	for o := range grown {
		t.shrink(context.Background(), o) // it has happened, whatever becomes of the statement
	}
}

// Rollback ends the transaction without effect. After the end, and after Leave, it does nothing.
func (t *Txn) Rollback() {
	if !t.left {
		t.end()
	}
}

// end gives everything back. A transaction that was published ends only after that, so that whoever waited for its locks
// finds its rows.
func (t *Txn) end() {
	if t.done {
		return
	}
	t.done = true
	t.locks.ReleaseAll()
	t.w.mu.Lock()
	delete(t.w.open, t)
	t.w.mu.Unlock()
	t.w.own.Add(-t.bytes)
	if t.flip != "" {
		t.w.abandon(t.flip)
	}
	for _, o := range t.tables {
		o.closeKeys()
	}
	t.tables, t.log = nil, nil
}

func (t *Txn) check(ctx context.Context) error {
	if t.done {
		return ErrDone
	}
	return context.Cause(ctx)
}
