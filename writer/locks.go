package writer

import (
	"context"
	"errors"
	"fmt"

	"sluice/writer/lock"
	"sluice/writer/realtime"
	"sluice/writer/table"
)

// SetWait says how to wait for locks that are not asked for one by one, from now on (lock_timeout). The zero value waits for ever.
func (t *Txn) SetWait(w lock.Wait) { t.wait = w }

// Waits is how many times the transaction has waited for a lock. What a statement read before a wait may be stale.
func (t *Txn) Waits() int { return t.waits }

func (t *Txn) noteWait(waited bool) {
	if waited {
		t.waits++
	}
}

// LockTable locks a table to the end of the transaction, or until it rolls back to a savepoint from before.
func (t *Txn) LockTable(ctx context.Context, id table.ID, mode lock.Mode, wait lock.Wait) error {
	waited, err := t.locks.Acquire(ctx, lock.Table(id), mode, wait)
	t.noteWait(waited)
	return err
}

// LockRows locks rows that a view found. locked says which; with lock.SkipLocked some may be missing. Rows that are not live in
// the newest state any more make a *RowMoved.
func (t *Txn) LockRows(ctx context.Context, id table.ID, refs []table.Ref, mode lock.Mode, wait lock.Wait) (locked []bool, err error) {
	if err := t.check(ctx); err != nil {
		return nil, fmt.Errorf("lock rows: %w", err)
	}
	if err := t.LockTable(ctx, id, lock.RowShare, t.wait); err != nil {
		return nil, fmt.Errorf("lock rows: %w", err)
	}
	if locked, err = t.lockRows(ctx, id, refs, mode, wait); err != nil {
		return locked, fmt.Errorf("lock rows: %w", err)
	}
	moved := &RowMoved{Table: id}
	for i, ref := range refs {
		if _, live := t.Current(id, ref); locked[i] && !live {
			moved.add(t.w, ref)
		}
	}
	if len(moved.Refs) > 0 {
		return locked, moved
	}
	return locked, nil
}

func (t *Txn) lockRows(ctx context.Context, id table.ID, refs []table.Ref, mode lock.Mode, wait lock.Wait) ([]bool, error) {
	locked := make([]bool, len(refs))
	for i, ref := range refs {
		if ref.File == table.Own {
			locked[i] = true
			continue
		}
		err := t.lockRow(ctx, id, ref, mode, wait)
		if locked[i] = err == nil; err != nil && !(wait.Policy == lock.SkipLocked && errors.Is(err, lock.ErrNotAvailable)) {
			return locked, err
		}
	}
	return locked, nil
}

// lockRow locks a row of the newest state under its name there; one that is dead, or dies before it is locked, it does not lock. It asks while
// nothing gets another name, so the lock, or the wait for it, follows the row from there on: to a file (rename), and to a newer version (moveLocks).
// After a wait the row may be dead: updated, then the lock is on the newer version, which the caller looks for; or deleted, then it is given back.
func (t *Txn) lockRow(ctx context.Context, id table.ID, ref table.Ref, mode lock.Mode, wait lock.Wait) error {
	mark := t.locks.Mark()
	wt, err := t.requestRow(id, ref, mode, wait.Policy)
	if wt == nil || err != nil {
		return err
	}
	t.waits++
	if err := t.locks.Await(ctx, wt, wait.Timeout); err != nil {
		return err
	}
	if _, live := t.w.store.Current(id, ref); !live && !t.w.store.Updated(id, ref) {
		t.locks.ReleaseTo(mark)
	}
	return nil
}

func (t *Txn) requestRow(id table.ID, ref table.Ref, mode lock.Mode, policy lock.Policy) (*lock.Waiting, error) {
	t.w.names.RLock()
	defer t.w.names.RUnlock()
	cur, live := t.w.store.Current(id, ref)
	if !live {
		return nil, nil
	}
	return t.locks.Request(lock.Row(id, cur), mode, policy)
}

// awaitFate waits until it is decided whether the row that has a wanted key stays, if another transaction deletes or updates it,
// and reports that the keys have to be looked at again. The keys locked since mark are given back for the time: the other
// transaction may want them itself, as it may in Postgres, where only an inserted row holds a key.
func (t *Txn) awaitFate(ctx context.Context, id table.ID, holder table.Ref, mark lock.Mark) (again bool, err error) {
	if holder.File == table.Own {
		return false, nil
	}
	err = t.lockRow(ctx, id, holder, lock.Fate, lock.Wait{Policy: lock.NoWait})
	switch {
	case err == nil:
		_, live := t.Current(id, holder)
		return !live, nil // else it died between the two looks
	case !errors.Is(err, lock.ErrNotAvailable):
		return false, err
	}
	t.locks.ReleaseTo(mark)
	return true, t.lockRow(ctx, id, holder, lock.Fate, t.wait)
}

// AwaitFates waits until it is decided whether rows that a view found stay, as far as other transactions delete or update them.
func (t *Txn) AwaitFates(ctx context.Context, id table.ID, refs []table.Ref) error {
	for _, ref := range refs {
		if _, err := t.awaitFate(ctx, id, ref, t.locks.Mark()); err != nil {
			return fmt.Errorf("wait for a row: %w", err)
		}
	}
	return nil
}

// moveLocks gives the locks on updated rows to their newer versions, for all entries about to be published. The caller holds
// names: whoever asks for an old version after that finds it dead.
func (w *Writer) moveLocks(entries []*entry) {
	for _, e := range entries {
		if e.aborted {
			continue
		}
		for i := range e.versions {
			op := &e.txn.Tables[i]
			for k, place := range e.versions[i] {
				if place > 0 {
					from, _ := w.store.Current(op.Table, op.Deletes[k])
					w.locks.Move(lock.Row(op.Table, from), lock.Row(op.Table, table.Ref{Row: op.First + uint64(place) - 1}))
				}
			}
		}
	}
}

// rename publishes a flip of everything up to at in store and locks as one step for requestRow. Who holds or waits for a row does so under
// its new name.
func (w *Writer) rename(at table.Position, tables []realtime.Flushed, keep uint64) (generation uint64) {
	maps := make(map[table.ID]*realtime.RowMap, len(tables))
	for i := range tables {
		maps[tables[i].Table] = tables[i].Map
	}
	w.names.Lock()
	defer w.names.Unlock()
	w.locks.Rename(func(k lock.Key) (lock.Key, bool) {
		m, ref := maps[k.Table], table.Ref{File: table.FileID(k.A), Row: k.B}
		if m == nil || !m.Covers(ref) {
			return k, false
		}
		to, ok := m.Find(ref)
		return lock.Row(k.Table, to), ok
	})
	return w.store.Publish(at, tables, keep)
}
