package writer

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"sluice/writer/invariants"
	"sluice/writer/realtime"
	"sluice/writer/table"
	"sluice/writer/wal"
)

// CommitOptions of one commit.
type CommitOptions struct {
	WaitFlip bool // also wait until a flush has moved the transaction into the lake tables (synchronous_commit = remote_apply)
}

// Commit makes the transaction durable and visible and returns its position; a transaction that wrote nothing takes none and
// gets that of the newest. The order of events:
//
//	names of deleted rows are made current, own rows that died are dropped, the frame is encoded
//	sequencer: SERIALIZABLE check, position, row numbers, the frame joins the group
//	the group is appended and synced          a crash before this: the transaction never was. After it: replay brings it back
//	the store gets its rows, in order         a view made from now on sees it
//	locks fall, and the call returns
//
// Once it has joined the group a commit cannot be cancelled.
func (t *Txn) Commit(ctx context.Context, opts CommitOptions) (table.Position, error) {
	if err := t.check(ctx); err != nil {
		return 0, fmt.Errorf("commit: %w", err)
	}
	defer t.end()
	if len(t.changes) > 0 {
		return 0, fmt.Errorf("commit: the transaction changed tables: CommitDDL ends it")
	}
	switch {
	case t.repeats != nil:
		return t.commitAgain(ctx, opts)
	case !t.Wrote() && !t.Remembered():
		return t.w.Visible(), nil
	case t.flip != "":
		return t.commitFiles(ctx)
	}
	e, err := t.w.place(ctx, t, wal.Commit)
	if err != nil {
		return 0, err
	}
	if err := t.w.wait(e); err != nil {
		return e.position, err
	}
	t.end()
	if opts.WaitFlip {
		return e.position, t.w.flushTo(ctx, e.position)
	}
	return e.position, nil
}

// commitAgain is Commit of a repeat: the first one's.
func (t *Txn) commitAgain(ctx context.Context, opts CommitOptions) (table.Position, error) {
	invariants.Check(!t.Wrote(), "a repeat has written")
	t.end()
	if opts.WaitFlip {
		return t.repeats.Position, t.w.flushTo(ctx, t.repeats.Position)
	}
	return t.repeats.Position, nil
}

// Prepare makes the transaction durable without deciding it. From here on nothing is published until Resolve: the caller
// holds the gate exclusively and lets Postgres decide in between. A crash leaves the question to catalog.Decision(ID).
func (t *Txn) Prepare(ctx context.Context) (table.Position, error) {
	if err := t.check(ctx); err != nil {
		return 0, fmt.Errorf("prepare: %w", err)
	}
	switch {
	case t.prepared != nil || len(t.changes) > 0:
		return 0, fmt.Errorf("prepare: the transaction is prepared, or changed tables")
	case t.flip != "":
		return 0, fmt.Errorf("prepare: rows of the transaction are in files already: %w", ErrMemory)
	}
	e, err := t.w.place(ctx, t, wal.Prepared)
	if err != nil {
		return 0, err
	}
	if err := t.w.waitDurable(e); err != nil {
		t.end()
		return e.position, err
	}
	t.prepared = e
	return e.position, nil
}

// Resolve ends a prepared transaction as it was decided. It returns when the transaction is published.
func (t *Txn) Resolve(_ context.Context, committed bool) error {
	if t.prepared == nil || t.done {
		return fmt.Errorf("resolve: %w", ErrDone)
	}
	defer t.end()
	return t.w.resolve(t.prepared, t.id, committed)
}

// resolve decides a prepared entry.
func (w *Writer) resolve(e *entry, id [16]byte, committed bool) error {
	w.seq.mu.Lock()
	e.open, e.aborted = false, !committed
	w.seq.mu.Unlock()
	w.drain()
	<-e.done
	if e.claim != nil {
		e.claim.ReleaseAll()
	}
	if e.err != nil {
		return e.err
	}
	w.remember(e, id, committed)
	return nil
}

// remember logs the fate of a prepared frame, so that replay need not ask. Nobody waits for it: without it replay asks.
func (w *Writer) remember(e *entry, id [16]byte, committed bool) {
	r := &wal.Txn{Kind: wal.Resolved, ID: id, Time: w.now().UnixMicro(), Resolves: e.position, Committed: committed}
	_, _ = w.tryPlace(nil, newEntry(r), w.store.Generation())
}

// entry is the transaction for the sequencer.
func (t *Txn) entry(kind wal.Kind, now int64) *entry {
	e := newEntry(t.frame(kind, now))
	e.keys = make([][]realtime.Keys, len(e.txn.Tables))
	for i := range e.txn.Tables {
		o := t.tables[e.txn.Tables[i].Table]
		if e.txn.Tables[i].Rows == o.rows && o.base == 0 {
			e.keys[i] = o.allKeys()
		}
		if places := o.versions(); places != nil {
			if e.versions == nil {
				e.versions = make([][]int, len(e.txn.Tables))
			}
			e.versions[i] = places
		}
	}
	return e
}

// header is the transaction for the log, without what it does to tables.
func (t *Txn) header(kind wal.Kind, now int64) *wal.Txn {
	f := &wal.Txn{Kind: kind, ID: t.id, Time: now}
	if t.Remembered() {
		f.Writer, f.Sequence, f.Answer = t.writer, t.sequence, t.answer
	}
	return f
}

// frame is the transaction for the log, with the names that rows have now.
func (t *Txn) frame(kind wal.Kind, now int64) *wal.Txn {
	f := t.header(kind, now)
	for _, o := range t.tables {
		if op, ok := o.op(t.w); ok {
			f.Tables = append(f.Tables, op)
		}
	}
	slices.SortFunc(f.Tables, func(a, b wal.TableOps) int { return cmp.Compare(a.Table, b.Table) })
	return f
}

// allKeys is the keys of all own rows.
func (o *ownTable) allKeys() []realtime.Keys {
	keys := make([]realtime.Keys, len(o.keys))
	for u := range keys {
		keys[u] = o.keys[u].Keys
	}
	return keys
}

// op is what remains of a transaction's work on one table; false if it is nothing.
func (o *ownTable) op(w *Writer) (wal.TableOps, bool) {
	op := wal.TableOps{Table: o.id, Schema: o.def.Schema.ID, Truncate: o.truncated != 0, Rows: o.written()}
	if o.sync(w); !op.Truncate {
		for _, g := range o.gone {
			op.Deletes = append(op.Deletes, g.ref)
		}
	}
	return op, len(o.spills) > 0 || op.Truncate || op.Rows != nil || len(op.Deletes) > 0
}
