package writer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"sluice/writer/lock"
	"sluice/writer/realtime"
	"sluice/writer/table"
)

// Merge makes the newer versions of rows that are in the way of an upsert. Rows is called with the rows that were proposed and, if Old,
// with those in their way: row i of both belong together. What it makes has the keys of the old rows.
type Merge struct {
	Old  bool
	Rows func(old, proposed *table.Batch) (*table.Batch, error)
	// Same, if there is one, says after Rows which of the rows it made are as they were: those stay, locked, and are not written again.
	Same func(row int) bool
}

// ErrTwice says that two rows of one Upsert have the same key, so that one of them would be merged twice.
var ErrTwice = errors.New("two rows have the same key")

// upsert is one Upsert under way.
type upsert struct {
	t       *Txn
	o       *ownTable
	rows    *table.Batch
	unique  int // index of the constraint
	keys    realtime.Keys
	merge   *Merge
	holders []table.Ref // of the rows in way
	way     []int32     // rows of the batch that have a holder
	free    []int32     // and those that have none
}

// Upsert inserts rows. Where a row has the key of one in the unique constraint, that one is merged, or, without a merge, left as it is. A
// row that another transaction inserts, deletes or updates is waited for, as in Postgres at READ COMMITTED, which is the only
// isolation level it is for. Rows with one key are an ErrTwice, or, without a merge, the first of them counts. It returns which rows of
// b were inserted, and which were merged, both in order. After an error a part may have been done: take a savepoint.
func (t *Txn) Upsert(ctx context.Context, id table.ID, unique uint32, b *table.Batch, merge *Merge) (inserted, merged []int32, err error) {
	o, err := t.write(ctx, id)
	if err != nil {
		return nil, nil, fmt.Errorf("upsert: %w", err)
	}
	u := &upsert{t: t, o: o, rows: b, merge: merge}
	if u.unique = slices.IndexFunc(o.def.Uniques, func(d UniqueDef) bool { return d.ID == unique }); u.unique < 0 {
		return nil, nil, fmt.Errorf("upsert: table %d has no constraint %d: %w", id, unique, ErrSchemaChanged)
	}
	u.keys = realtime.KeysOf(&o.def.Uniques[u.unique], b)
	again := true
	for again && err == nil {
		again, err = u.settle(ctx)
	}
	if err == nil && merge != nil && len(u.way) > 0 {
		err = u.update(ctx)
	}
	if err == nil && len(u.free) > 0 {
		_, err = t.Insert(ctx, id, pick(b, u.free))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("upsert: %w", err)
	}
	if merge == nil {
		return u.free, nil, nil
	}
	return u.free, u.way, nil
}

// settle finds the rows that are in the way and makes sure that they stay, and then that nobody brings more. Rows are waited for before
// keys are locked: who deletes a row may want its key. again says that something changed meanwhile.
func (u *upsert) settle(ctx context.Context) (again bool, err error) {
	if err := u.find(ctx); err != nil {
		return false, err
	}
	if again, err = u.hold(ctx); again || err != nil {
		return again, err
	}
	mark := u.t.locks.Mark()
	if err := u.lockFree(ctx); err != nil {
		return false, err
	}
	more, err := u.taken(ctx)
	if more {
		u.t.locks.ReleaseTo(mark)
	}
	return more, err
}

// find tells the rows that have a holder from the others.
func (u *upsert) find(ctx context.Context) error {
	u.way, u.free, u.holders = u.way[:0], u.free[:0], u.holders[:0]
	w, err := u.t.want(u.o, u.unique, u.rows, &u.keys)
	if err != nil {
		return err
	}
	same := twins{w: w}
	for i := range u.keys.Len() {
		h, ok := u.keys.At(i)
		if !ok {
			u.free = append(u.free, int32(i))
			continue
		}
		if same.seen(h, i) {
			if u.merge != nil {
				return ErrTwice
			}
			continue
		}
		ref, taken, err := w.holder(ctx, h, i)
		if err != nil {
			return err
		}
		if !taken {
			u.free = append(u.free, int32(i))
			continue
		}
		u.way, u.holders = append(u.way, int32(i)), append(u.holders, ref)
	}
	return nil
}

// twins finds rows of one batch with equal keys.
type twins struct {
	w      *wanted
	hashes map[uint64]struct{}
	keys   map[string]struct{} // where equal hashes prove nothing
}

// seen reports whether a row before row i had its key, whose hash is h.
func (t *twins) seen(h uint64, i int) (was bool) {
	if t.w.keys.Len() == 1 {
		return false
	}
	if t.w.keys.Loose() {
		if t.keys == nil {
			t.keys = make(map[string]struct{}, t.w.keys.Len())
		}
		key, _ := t.w.def.Key(nil, t.w.rows, i)
		_, was = t.keys[string(key)]
		t.keys[string(key)] = struct{}{}
		return was
	}
	if t.hashes == nil {
		t.hashes = make(map[uint64]struct{}, t.w.keys.Len())
	}
	_, was = t.hashes[h]
	t.hashes[h] = struct{}{}
	return was
}

// hold waits for the fate of the rows in the way, and locks them if they are to be merged.
func (u *upsert) hold(ctx context.Context) (again bool, err error) {
	if u.merge != nil {
		_, err = u.t.claim(ctx, u.o, u.holders, lock.ForNoKeyUpdate)
		var moved *RowMoved
		if errors.As(err, &moved) {
			return true, nil
		}
		return false, err
	}
	for _, ref := range u.holders {
		if again, err = u.t.awaitFate(ctx, u.o.id, ref, u.t.locks.Mark()); again || err != nil {
			return again, err
		}
	}
	return false, nil
}

// lockFree locks the keys of the rows that nothing is in the way of: from now on nobody else inserts them.
func (u *upsert) lockFree(ctx context.Context) error {
	if u.o.fresh {
		return nil
	}
	hashes := make([]uint64, 0, len(u.free))
	for _, i := range u.free {
		if h, ok := u.keys.At(int(i)); ok {
			hashes = append(hashes, h)
		}
	}
	waited, err := u.t.locks.AcquireKeys(ctx, u.o.id, u.o.def.Uniques[u.unique].ID, hashes, u.t.wait)
	u.t.noteWait(waited)
	return err
}

// taken reports whether a row came in the way of one of the others before its key was locked.
func (u *upsert) taken(ctx context.Context) (bool, error) {
	w, err := u.t.want(u.o, u.unique, u.rows, &u.keys)
	if err != nil {
		return false, err
	}
	for _, i := range u.free {
		if h, ok := u.keys.At(int(i)); ok {
			if _, taken, err := w.holder(ctx, h, int(i)); taken || err != nil {
				return taken, err
			}
		}
	}
	return false, nil
}

func (u *upsert) update(ctx context.Context) error {
	var old *table.Batch
	if u.merge.Old {
		var err error
		if old, err = u.t.newestRows(ctx, u.o.id, u.holders); err != nil {
			return err
		}
	}
	b, err := u.merge.Rows(old, pick(u.rows, u.way))
	if err != nil {
		return err
	}
	holders, changed := u.changed(b)
	if len(holders) == 0 {
		return nil
	}
	_, err = u.t.Update(ctx, u.o.id, holders, changed, lock.ForNoKeyUpdate)
	return err
}

// changed leaves the rows out that are as they were.
func (u *upsert) changed(b *table.Batch) ([]table.Ref, *table.Batch) {
	if u.merge.Same == nil {
		return u.holders, b
	}
	var holders []table.Ref
	var rows []int32
	for i, ref := range u.holders {
		if !u.merge.Same(i) {
			holders, rows = append(holders, ref), append(rows, int32(i))
		}
	}
	return holders, pick(b, rows)
}

// newestRows reads rows by any of their names; the transaction has locked them, so they stay as they are.
func (t *Txn) newestRows(ctx context.Context, id table.ID, refs []table.Ref) (*table.Batch, error) {
	return t.Statement().fetchNamed(ctx, id, refs)
}

// fetchNamed is Fetch of rows by any of their names.
func (v *View) fetchNamed(ctx context.Context, id table.ID, refs []table.Ref) (*table.Batch, error) {
	tv, _ := v.base.Table(id)
	names := make([]table.Ref, len(refs))
	for i, ref := range refs {
		if names[i] = ref; ref.File == table.Own {
			continue
		}
		var ok bool
		if names[i], ok = v.t.w.store.NameAt(tv, ref); !ok {
			return nil, fmt.Errorf("read locked row %v of table %d: it is not there", ref, id)
		}
	}
	return v.Fetch(ctx, id, names)
}

// pick is the given rows of b: b itself if these are all.
func pick(b *table.Batch, rows []int32) *table.Batch {
	if len(rows) == b.Rows {
		return b
	}
	out := table.NewBatch(b.Schema)
	for _, r := range rows {
		out.AppendRow(b, int(r))
	}
	return out
}
