package writer

import (
	"context"
	"errors"
	"fmt"

	"sluice/writer/lock"
	"sluice/writer/realtime"
	"sluice/writer/table"
)

var errStop = errors.New("stop")

// Insert adds rows. Their keys are locked first, so that it waits for the fate of uncommitted rows with the same key, and
// then checked against the newest committed state and the transaction's own rows. A row that has one of the keys and that
// another transaction is deleting or updating is waited for, too. On a *UniqueConflict nothing is inserted.
// The rows are called {table.Own, first+i} from now on.
func (t *Txn) Insert(ctx context.Context, id table.ID, b *table.Batch) (first uint64, err error) {
	o, err := t.write(ctx, id)
	if err != nil {
		return 0, fmt.Errorf("insert: %w", err)
	}
	if err := t.fits(ctx, o, b); err != nil {
		return 0, fmt.Errorf("insert: %w", err)
	}
	keys, err := t.takeKeys(ctx, o, b)
	if err != nil {
		return 0, fmt.Errorf("insert: %w", err)
	}
	return t.add(o, b, keys), nil
}

func (t *Txn) add(o *ownTable, b *table.Batch, keys []realtime.Keys) uint64 {
	n := o.count()
	at := o.insert(b, keys, len(t.log))
	t.log = append(t.log, event{kind: eventRows, table: o, n: n})
	return uint64(at)
}

// write is the beginning of every write: the table lock, and then the table as it is under the lock.
func (t *Txn) write(ctx context.Context, id table.ID) (*ownTable, error) {
	if err := t.check(ctx); err != nil {
		return nil, err
	}
	if o := t.tables[id]; o != nil && o.fresh {
		return o, nil
	}
	if err := t.LockTable(ctx, id, lock.RowExclusive, t.wait); err != nil {
		return nil, err
	}
	def, err := t.newest(id)
	if err != nil {
		return nil, err
	}
	return t.own(id, def), nil
}

// The memory of a key of an open transaction, in bytes and about: its hash and its slot, and with its lock.
const (
	rowKeyCost = 32
	keyCost    = 2 * rowKeyCost
)

// fits accounts for rows that are going to be the transaction's.
func (t *Txn) fits(ctx context.Context, o *ownTable, b *table.Batch) error {
	if b.Schema.ID != o.def.Schema.ID || len(b.Cols) != len(o.def.Schema.Columns) {
		return fmt.Errorf("table %d has schema %d, rows have %d: %w", o.id, o.def.Schema.ID, b.Schema.ID, ErrSchemaChanged)
	}
	size := int64(b.Size())
	limit := t.w.opts.SpillBytes
	if o.base > 0 {
		limit = t.w.pieceBytes()
	}
	if o.bytes > 0 && o.bytes+size > limit && t.canSpill(o) {
		if err := t.spill(ctx, o); err != nil {
			return err
		}
	}
	n := size + int64(b.Rows*len(o.def.Uniques))*keyCost
	err := t.w.reserve(ctx, n)
	if errors.Is(err, ErrMemory) && t.spillAll(ctx) {
		err = t.w.reserve(ctx, n)
	}
	if err != nil {
		return err
	}
	t.bytes += n
	o.bytes += size
	return nil
}

// Delete deletes rows that a view found, after locking them. If some are not live in the newest state any more, nothing is
// deleted and the error is a *RowMoved; the locks stay.
func (t *Txn) Delete(ctx context.Context, id table.ID, refs []table.Ref, mode lock.Mode) error {
	o, err := t.write(ctx, id)
	if err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	names, err := t.claim(ctx, o, refs, mode)
	if err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	t.remove(o, names)
	return nil
}

// Update gives rows newer versions: row i of b is that of refs[i]. Keys that stay, or move among the rows, are no conflict, and
// whoever has locked one of the rows, or waits for it, has or gets the lock on its newer version once this is committed.
// Rows of b beyond refs are inserted, refs beyond the rows of b are deleted.
func (t *Txn) Update(ctx context.Context, id table.ID, refs []table.Ref, b *table.Batch, mode lock.Mode) (first uint64, err error) {
	o, err := t.write(ctx, id)
	if err != nil {
		return 0, fmt.Errorf("update: %w", err)
	}
	if err := t.fits(ctx, o, b); err != nil {
		return 0, fmt.Errorf("update: %w", err)
	}
	names, err := t.claim(ctx, o, refs, mode)
	if err != nil {
		return 0, fmt.Errorf("update: %w", err)
	}
	mark := len(t.log)
	t.remove(o, names)
	keys, err := t.takeKeys(ctx, o, b)
	if err != nil {
		t.revert(mark)
		return 0, fmt.Errorf("update: %w", err)
	}
	first = t.add(o, b, keys)
	o.link(names, int(first), b.Rows)
	return first, nil
}

// claim locks the rows and checks that they are live; it returns their newest names.
func (t *Txn) claim(ctx context.Context, o *ownTable, refs []table.Ref, mode lock.Mode) ([]table.Ref, error) {
	if _, err := t.lockRows(ctx, o.id, refs, mode.Changing(), t.wait); err != nil {
		return nil, err
	}
	names := make([]table.Ref, len(refs))
	moved := &RowMoved{Table: o.id}
	for i, ref := range refs {
		cur, live := t.Current(o.id, ref)
		if names[i] = cur; !live {
			moved.add(t.w, ref)
			moved.Self = moved.Self || ref.File == table.Own || o.truncated != 0 || o.deleted(cur, len(t.log))
		}
	}
	if len(moved.Refs) > 0 {
		return nil, moved
	}
	return names, nil
}

// rename follows flushes that were published since the names were taken. The rows are locked, so they are live.
func (t *Txn) rename(o *ownTable, names []table.Ref) []table.Ref {
	if o.sync(t.w); len(names) == 0 {
		return names
	}
	for i := range names {
		if names[i].File != table.Own {
			names[i], _ = t.w.store.Current(o.id, names[i])
		}
	}
	return names
}

func (t *Txn) remove(o *ownTable, names []table.Ref) {
	for _, ref := range t.rename(o, names) {
		if ref.File == table.Own {
			i := int(ref.Row)
			o.dead.bury(i, len(t.log))
			t.log = append(t.log, event{kind: eventKill, table: o, n: i})
			continue
		}
		t.log = append(t.log, event{kind: eventDelete, table: o, n: len(o.gone)})
		if o.goneAt == nil {
			o.goneAt = map[table.Ref]int{}
		}
		o.goneAt[ref] = len(o.gone)
		o.gone = append(o.gone, gone{ref: ref, time: len(t.log) - 1})
	}
}

// Truncate deletes all rows, those that no view of this transaction sees included, as in Postgres.
func (t *Txn) Truncate(ctx context.Context, id table.ID) error {
	if err := t.check(ctx); err != nil {
		return fmt.Errorf("truncate: %w", err)
	}
	if err := t.LockTable(ctx, id, lock.AccessExclusive, t.wait); err != nil {
		return fmt.Errorf("truncate: %w", err)
	}
	o, err := t.write(ctx, id)
	if err != nil {
		return fmt.Errorf("truncate: %w", err)
	}
	o.dead.cut(o.count(), len(t.log))
	t.log = append(t.log, event{kind: eventCut, table: o})
	before := o.truncated
	if before == 0 {
		o.truncated = len(t.log) + 1
	}
	t.log = append(t.log, event{kind: eventOther, table: o, undo: func() { o.truncated = before }})
	return nil
}
