package writer

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"sluice/writer/realtime"
	"sluice/writer/table"
)

// wanted is the keys of a batch on their way to become those of own rows, under one constraint. Most of them nobody has or ever
// had, which hashes tell; only the others are looked at one by one.
type wanted struct {
	t      *Txn
	o      *ownTable
	unique int
	def    *UniqueDef
	rows   *table.Batch
	keys   *realtime.Keys
	hits   []bool // rows that a row of the shared state may have the key of; nil: none
	// spilled is rows that an own row in a file may have the key of; nil: none.
	spilled []bool
	loose   bool // and whether the keys have to be compared
	added   map[string]table.Ref
}

// takeKeys makes the keys of b those of the own rows that come next, or finds the first row whose key another row has: in the
// batch, of the transaction, or in the newest committed state.
func (t *Txn) takeKeys(ctx context.Context, o *ownTable, b *table.Batch) ([]realtime.Keys, error) {
	keys := make([]realtime.Keys, len(o.def.Uniques))
	for u := range keys {
		keys[u] = realtime.KeysOf(&o.def.Uniques[u], b)
	}
	for {
		mark := t.locks.Mark()
		if err := t.lockKeys(ctx, o, keys); err != nil {
			return nil, err
		}
		conflict, err := t.claimKeys(ctx, o, b, keys)
		if conflict == nil {
			return keys, err
		}
		switch again, err := t.awaitFate(ctx, o.id, conflict.Refs[0], mark); {
		case err != nil:
			return nil, err
		case !again:
			return nil, conflict
		}
	}
}

// lockKeys locks the keys, whether or not a row has them: two transactions that insert one key wait for each other.
func (t *Txn) lockKeys(ctx context.Context, o *ownTable, keys []realtime.Keys) error {
	if o.fresh { // nobody else sees it
		return nil
	}
	for u := range keys {
		waited, err := t.locks.AcquireKeys(ctx, o.id, o.def.Uniques[u].ID, keys[u].Hashes(), t.wait)
		if t.noteWait(waited); err != nil {
			return err
		}
	}
	return nil
}

// claimKeys looks for rows that have the keys, and puts them where the next insert finds them. If there is a conflict or an
// error nothing has changed.
func (t *Txn) claimKeys(ctx context.Context, o *ownTable, b *table.Batch, keys []realtime.Keys) (*UniqueConflict, error) {
	for u := range keys {
		w, err := t.want(o, u, b, &keys[u])
		if err != nil {
			o.unclaim(keys[:u], b.Rows)
			return nil, err
		}
		if w.hits == nil && w.added == nil && w.spilled == nil && o.keys[u].rows.PutNew(&keys[u], uint64(o.count())) {
			continue
		}
		for i := range keys[u].Len() {
			h, ok := keys[u].At(i)
			if !ok {
				continue
			}
			ref, taken, err := w.holder(ctx, h, i)
			if taken || err != nil {
				o.unclaim(keys[:u+1], i)
			}
			if err != nil {
				return nil, err
			}
			if taken {
				return &UniqueConflict{Table: o.id, Unique: w.def.ID, Name: w.def.Name, Row: i, Refs: []table.Ref{ref}}, nil
			}
			o.keys[u].rows.Put(h, uint64(o.count()+i))
		}
	}
	return nil, nil
}

// unclaim takes back what claimKeys did before row i of the last of these constraints.
func (o *ownTable) unclaim(keys []realtime.Keys, i int) {
	for u := len(keys) - 1; u >= 0; u-- {
		for i--; i >= 0; i-- {
			if h, ok := keys[u].At(i); ok {
				o.keys[u].rows.Undo(h)
			}
		}
		i = keys[u].Len()
	}
}

func (t *Txn) want(o *ownTable, u int, b *table.Batch, keys *realtime.Keys) (w *wanted, err error) {
	w = &wanted{t: t, o: o, unique: u, def: &o.def.Uniques[u], rows: b, keys: keys}
	if w.spilled, err = o.spilledHits(u, keys); err != nil || o.fresh || o.truncated != 0 {
		return w, err
	}
	var ok bool
	if w.added, ok = t.added(o.id, w.def.ID); !ok {
		w.hits, w.loose = t.w.store.Hits(o.id, w.def.ID, keys)
	}
	return w, nil
}

// holder is the row that has the key of row i, whose hash is h: one of the batch, an own one, or one of the newest committed state
// that this transaction leaves alone.
func (w *wanted) holder(ctx context.Context, h uint64, i int) (table.Ref, bool, error) {
	if row, ok, err := w.ownHolder(ctx, h, i); ok || err != nil {
		return table.Ref{File: table.Own, Row: uint64(row)}, ok, err
	}
	if w.added != nil {
		key, _ := w.def.Key(nil, w.rows, i)
		ref, ok := w.added[string(key)]
		if ok {
			ref, ok = w.t.Current(w.o.id, ref)
		}
		return ref, ok, nil
	}
	if w.hits == nil || !w.hits[i] {
		return table.Ref{}, false, nil
	}
	return w.sharedHolder(ctx, h, i)
}

// ownHolder looks at the own rows, and at those of the batch before row i, which are numbered behind them. Only the newest row
// with a key can be alive: it came when the older ones were dead, and goes when one of them comes back.
func (w *wanted) ownHolder(ctx context.Context, h uint64, i int) (row int, ok bool, err error) {
	n := w.o.count()
	look := func(r int) bool {
		var same bool
		if row = r; row >= n {
			same = !w.keys.Loose() || w.equal(w.rows, row-n, i)
			ok = same
		} else {
			same, err = w.ownEqual(ctx, row, i)
			ok = same && w.o.died(row) == 0
		}
		return !same && err == nil
	}
	if w.spilled != nil && w.spilled[i] {
		return row, ok, errors.Join(w.o.each(w.unique, h, look), err)
	}
	w.o.keys[w.unique].rows.Rows(h, func(r uint64) bool { return look(int(r)) })
	return row, ok, err
}

func (w *wanted) ownEqual(ctx context.Context, row, i int) (bool, error) {
	if !w.keys.Loose() && !w.o.keys[w.unique].loose {
		return true, nil
	}
	b, at, err := w.o.row(ctx, w.t.w, row)
	if err != nil {
		return false, fmt.Errorf("compare keys: %w", err)
	}
	return w.equal(b, at, i), nil
}

// equal compares the key of a row of some batch with that of row i.
func (w *wanted) equal(b *table.Batch, row, i int) bool {
	x, null := w.def.Key(nil, b, row)
	y, _ := w.def.Key(nil, w.rows, i)
	return !null && bytes.Equal(x, y)
}

// sharedHolder looks at the live rows with the hash. A flush that comes in between renames them: then it looks again.
func (w *wanted) sharedHolder(ctx context.Context, h uint64, i int) (ref table.Ref, ok bool, err error) {
	store := w.t.w.store
	for {
		g := store.Generation()
		w.o.sync(w.t.w)
		ref, ok, err = table.Ref{}, false, nil
		store.Live(w.o.id, w.def.ID, h, func(live table.Ref) bool {
			gone := w.o.deleted(live, len(w.t.log))
			if w.loose && gone && live.File != 0 {
				return true // whatever its key is, it is no conflict, and reading it costs
			}
			var same bool
			if same, err = w.sharedEqual(ctx, live, i); same && !gone {
				ref, ok = live, true
			}
			return !same && err == nil // there is one live row with a key
		})
		if store.Generation() == g {
			return ref, ok, err
		}
	}
}

// sharedEqual compares the key of a row of the newest committed state with that of row i. The row is read only where equal hashes
// prove nothing.
func (w *wanted) sharedEqual(ctx context.Context, ref table.Ref, i int) (bool, error) {
	if !w.loose {
		return true, nil
	}
	tv, ok := w.t.w.store.View().Table(w.o.id)
	if !ok {
		return false, nil
	}
	s := &scan{v: &View{t: w.t}, def: w.o.def, base: tv}
	b, err := s.fetch(ctx, ref.File, []uint64{ref.Row})
	if err != nil {
		return false, fmt.Errorf("compare keys: %w", err)
	}
	return w.equal(b, 0, i), nil
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
