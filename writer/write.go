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
	if err := t.takeKeys(ctx, o, b); err != nil {
		return 0, fmt.Errorf("insert: %w", err)
	}
	return t.add(o, b), nil
}

// takeKeys makes the keys of b those of the own rows that come next.
func (t *Txn) takeKeys(ctx context.Context, o *ownTable, b *table.Batch) error {
	for {
		mark := t.locks.Mark()
		keys, err := t.lockKeys(ctx, o, b)
		if err != nil {
			return err
		}
		conflict := t.claimKeys(o, keys)
		if conflict == nil {
			return nil
		}
		switch again, err := t.awaitFate(ctx, o.id, conflict.Refs[0], mark); {
		case err != nil:
			return err
		case !again:
			return conflict
		}
	}
}

func (t *Txn) add(o *ownTable, b *table.Batch) uint64 {
	n := o.rows.Rows
	at := o.insert(b, len(t.log))
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

func (t *Txn) fits(ctx context.Context, o *ownTable, b *table.Batch) error {
	if b.Schema.ID != o.def.Schema.ID || len(b.Cols) != len(o.def.Schema.Columns) {
		return fmt.Errorf("table %d has schema %d, rows have %d: %w", o.id, o.def.Schema.ID, b.Schema.ID, ErrSchemaChanged)
	}
	n := int64(b.Size())
	if err := t.w.reserve(ctx, n); err != nil {
		return err
	}
	t.bytes += n
	return nil
}

// lockKeys locks the keys of the rows, in the order of the rows.
func (t *Txn) lockKeys(ctx context.Context, o *ownTable, b *table.Batch) ([]realtime.Keys, error) {
	keys := make([]realtime.Keys, len(o.def.Uniques))
	for u := range keys {
		keys[u] = realtime.KeysOf(o.def.Uniques[u].Key, b)
		for i := 0; i < b.Rows && !o.fresh; i++ { // nobody else sees a fresh table
			if key, ok := keys[u].At(i); ok {
				if err := t.lockKey(ctx, o.id, o.def.Uniques[u].ID, key); err != nil {
					return nil, err
				}
			}
		}
	}
	return keys, nil
}

// claimKeys makes the keys those of the rows that come next, or finds the first row whose key another row has: in the batch,
// of the transaction, or in the newest committed state.
func (t *Txn) claimKeys(o *ownTable, keys []realtime.Keys) *UniqueConflict {
	for u := range keys {
		if len(o.keys[u]) == 0 && keys[u].Len() > 1 {
			o.keys[u] = make(map[string]int, keys[u].Len())
		}
		for i := range keys[u].Len() {
			key, ok := keys[u].At(i)
			if !ok {
				continue
			}
			if ref, taken := t.holder(o, u, key); taken {
				t.unclaim(o, keys, u, i)
				return &UniqueConflict{Table: o.id, Unique: o.def.Uniques[u].ID, Name: o.def.Uniques[u].Name, Row: i, Refs: []table.Ref{ref}}
			}
			o.keys[u][key] = o.rows.Rows + i
		}
	}
	return nil
}

// unclaim takes back what claimKeys did before row i of constraint u.
func (t *Txn) unclaim(o *ownTable, keys []realtime.Keys, u, i int) {
	for v := range u + 1 {
		n := keys[v].Len()
		if v == u {
			n = i
		}
		for k := range n {
			if key, ok := keys[v].At(k); ok {
				delete(o.keys[v], key)
			}
		}
	}
}

// holder is the row that has the key: an own one, or one of the newest committed state that this transaction leaves alone.
func (t *Txn) holder(o *ownTable, u int, key string) (table.Ref, bool) {
	if row, ok := o.keys[u][key]; ok {
		return table.Ref{File: table.Own, Row: uint64(row)}, true
	}
	if o.fresh || o.truncated != 0 {
		return table.Ref{}, false
	}
	if keys, ok := t.added(o.id, o.def.Uniques[u].ID); ok {
		return t.holderOfNew(o, keys, key)
	}
	var ref table.Ref
	var ok bool
	t.w.stable(func() {
		o.sync(t.w)
		ref, ok = t.w.store.Live(o.id, o.def.Uniques[u].ID, key)
		ok = ok && !o.deleted(ref, len(t.log))
	})
	return ref, ok
}

// added is the keys of a constraint that this transaction adds to a table that has rows.
func (t *Txn) added(id table.ID, unique uint32) (map[string]table.Ref, bool) {
	c := t.changes[id]
	if c == nil {
		return nil, false
	}
	keys, ok := c.added[unique]
	return keys, ok
}

func (t *Txn) holderOfNew(o *ownTable, keys map[string]table.Ref, key string) (table.Ref, bool) {
	ref, ok := keys[key]
	if !ok {
		return ref, false
	}
	return t.Current(o.id, ref)
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
	if err := t.takeKeys(ctx, o, b); err != nil {
		t.revert(mark)
		return 0, fmt.Errorf("update: %w", err)
	}
	first = t.add(o, b)
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
			o.dead[i] = int32(len(t.log) + 1)
			o.forget(i)
			t.log = append(t.log, event{kind: eventKill, table: o, n: i})
			continue
		}
		t.log = append(t.log, event{kind: eventDelete, table: o, n: len(o.gone)})
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
	var own []table.Ref
	for i, d := range o.dead {
		if d == 0 {
			own = append(own, table.Ref{File: table.Own, Row: uint64(i)})
		}
	}
	t.remove(o, own)
	before := o.truncated
	if before == 0 {
		o.truncated = len(t.log) + 1
	}
	t.log = append(t.log, event{kind: eventOther, table: o, undo: func() { o.truncated = before }})
	return nil
}
