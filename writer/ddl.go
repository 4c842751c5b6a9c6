package writer

import (
	"context"
	"fmt"

	"sluice/writer/lock"
	"sluice/writer/table"
)

// ChangeKind is what happens to a table.
type ChangeKind uint8

// The kinds. Alter is any change of columns, constraints or options; Rename of name or namespace only.
const (
	Create ChangeKind = iota + 1
	Alter
	Rename
	Drop
)

// TableChange is one schema change. Def is the whole table as it is afterwards; for Drop only its ID counts.
type TableChange struct {
	Kind ChangeKind
	Def  TableDef
}

// change is what a transaction made of one table's definition so far.
type change struct {
	def     *Def // nil: dropped
	created bool // by this transaction
	altered bool
	// added are the constraints that are new on an existing table, with the keys of all rows there were.
	added map[uint32]map[string]table.Ref
}

// Define changes a table for this transaction: its later statements see the change, others after CommitDDL. It takes the
// table's lock AccessExclusive. A new constraint is checked at once: *UniqueConflict. It goes back with its savepoint.
func (t *Txn) Define(ctx context.Context, c TableChange) error {
	if err := t.check(ctx); err != nil {
		return fmt.Errorf("define: %w", err)
	}
	id := c.Def.ID
	if err := t.LockTable(ctx, id, lock.AccessExclusive, t.wait); err != nil {
		return fmt.Errorf("define: %w", err)
	}
	if c.Kind == Create {
		return t.create(c.Def.def())
	}
	old, err := t.newest(id)
	if err != nil {
		return fmt.Errorf("define: %w", err)
	}
	if c.Kind == Drop {
		t.become(id, &change{created: t.wasCreated(id)})
		return nil
	}
	return t.alter(ctx, old, c.Def.def())
}

func (t *Txn) wasCreated(id table.ID) bool {
	c := t.changes[id]
	return c != nil && c.created
}

// become replaces what the transaction made of a table, until the savepoint goes back.
func (t *Txn) become(id table.ID, c *change) {
	before, had := t.changes[id]
	t.changes[id] = c
	t.log = append(t.log, event{kind: eventOther, undo: func() {
		if t.changes[id] = before; !had {
			delete(t.changes, id)
		}
	}})
}

func (t *Txn) create(def *Def) error {
	if _, err := t.newest(def.ID); err == nil {
		return fmt.Errorf("create table %d: it exists", def.ID)
	}
	t.become(def.ID, &change{def: def, created: true})
	o := newOwnTable(def.ID, def, t.w.store.Generation())
	o.fresh = true
	t.setOwn(o)
	return nil
}

// alter brings own rows under the new schema and checks new constraints.
func (t *Txn) alter(ctx context.Context, old, def *Def) error {
	next := &change{def: def, altered: true, added: map[uint32]map[string]table.Ref{}}
	if c := t.changes[def.ID]; c != nil {
		next.created = c.created
		for id, keys := range c.added {
			next.added[id] = keys
		}
	}
	mark := len(t.log)
	t.become(def.ID, next)
	if err := t.convert(def); err != nil {
		t.revert(mark)
		return fmt.Errorf("alter table %d: %w", def.ID, err)
	}
	for i := range def.Uniques {
		if err := t.addUnique(ctx, old, next, &def.Uniques[i]); err != nil {
			t.revert(mark)
			return err
		}
	}
	return nil
}

// convert makes own rows rows of def.
func (t *Txn) convert(def *Def) error {
	o := t.tables[def.ID]
	if o == nil {
		return nil
	}
	if o.noted > 0 {
		return fmt.Errorf("rows of the transaction are in files already: %w", ErrMemory)
	}
	rows, err := Adapt(o.rows.Snap(), def.Schema)
	if err != nil {
		return err
	}
	before := *o
	t.log = append(t.log, event{kind: eventOther, undo: func() {
		n := o.count()
		o.def, o.rows, o.keys = before.def, before.rows, before.keys
		o.dead.unvoid(o.count(), n) // rows inserted since were rolled back before this
		_, _, _ = o.rekey()
	}})
	o.def, o.rows = def, rows
	o.resetKeys()
	if u, i, dup := o.rekey(); dup {
		return &UniqueConflict{Table: o.id, Unique: def.Uniques[u].ID, Name: def.Uniques[u].Name,
			Refs: []table.Ref{{File: table.Own, Row: uint64(i)}}}
	}
	return nil
}

// addUnique checks a constraint that the table did not have, and keeps the keys for the transaction's later inserts.
func (t *Txn) addUnique(ctx context.Context, old *Def, c *change, u *UniqueDef) error {
	if c.created || c.added[u.ID] != nil {
		return nil
	}
	for i := range old.Uniques {
		if old.Uniques[i].ID == u.ID {
			return nil
		}
	}
	keys := map[string]table.Ref{}
	v := &View{t: t, base: t.w.store.View(), time: len(t.log)} // under the lock the newest state is everybody's
	err := v.Scan(ctx, c.def.ID, func(r Rows) error { return collect(keys, &r, c.def.ID, u) })
	if err != nil {
		return fmt.Errorf("add constraint %s: %w", u.Name, err)
	}
	for key, ref := range keys {
		if ref.File == table.Own {
			delete(keys, key) // o.keys has these
		}
	}
	c.added[u.ID] = keys
	return nil
}

func collect(keys map[string]table.Ref, r *Rows, id table.ID, u *UniqueDef) error {
	return r.each(func(i int) error {
		key, null := u.Key(nil, r.Batch, i)
		if null {
			return nil
		}
		if other, dup := keys[string(key)]; dup {
			return &UniqueConflict{Table: id, Unique: u.ID, Name: u.Name, Refs: []table.Ref{other, r.Ref(i)}}
		}
		keys[string(key)] = r.Ref(i)
		return nil
	})
}
