package writer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"sluice/writer/catalog"
	"sluice/writer/commit"
	"sluice/writer/flush"
	"sluice/writer/format"
	"sluice/writer/invariants"
	"sluice/writer/lock"
	"sluice/writer/objstore"
	"sluice/writer/realtime"
	"sluice/writer/table"
	"sluice/writer/wal"
	"sluice/writer/window"
)

// Decide runs the flip inside the Postgres transaction that holds the rest of the schema change, and commits that. nil means
// that it committed. After any other answer the catalog is asked about the flip's id.
type Decide func(ctx context.Context, f *catalog.Flip) error

// CommitDDL ends a transaction that Postgres decides because it changed tables; rows that it wrote become files of the same
// flip. A schema change is a flush (DESIGN section 4):
//
//	ordinary flush                    what is in the tail of changed tables, or of all if the transaction has rows
//	gate, exclusively                 no other Postgres-decided transaction is on its way
//	[rows] empty prepared frame at p  everything below p is published; what is above waits
//	[rows] flush of the rest          so that the flip's progress can be p: every catalog state is a prefix of the log
//	files and metadata staged
//	decide: flip and COMMIT           a crash before this: the frame at p has no decision, is void, and files leak
//	                                  after it: the catalog has everything, replay starts behind p
//	store changes, p and what waits is published
//
// A transaction without rows takes no position: tables that only change their definition have an empty tail, so the state is
// the same prefix as before.
func (t *Txn) CommitDDL(ctx context.Context, decide Decide) (table.Position, error) {
	if err := t.check(ctx); err != nil {
		return 0, fmt.Errorf("commit: %w", err)
	}
	defer t.end()
	if err := t.finishSpills(ctx); err != nil {
		return 0, fmt.Errorf("commit: %w", err)
	}
	d := &ddl{t: t, w: t.w, wrote: t.wroteRows()}
	invariants.Here("ddl: begun")
	pos, err := d.run(ctx, decide)
	if err != nil {
		return pos, fmt.Errorf("commit schema change: %w", err)
	}
	return pos, nil
}

// HasDDL reports whether CommitDDL has to end the transaction.
func (t *Txn) HasDDL() bool { return len(t.changes) > 0 }

// wroteRows lists the tables that have rows or deletes of this transaction and are there after it.
func (t *Txn) wroteRows() []*ownTable {
	var list []*ownTable
	for id, o := range t.tables {
		if c := t.changes[id]; c != nil && c.def == nil {
			continue
		}
		if op, ok := o.op(t.w); ok {
			o.result = op
			list = append(list, o)
		}
	}
	slices.SortFunc(list, func(a, b *ownTable) int { return int(int64(a.id) - int64(b.id)) })
	return list
}

// ddl is one CommitDDL under way.
type ddl struct {
	t     *Txn
	w     *Writer
	wrote []*ownTable
	entry *entry // if it takes a position: the prepared frame
	steps []*step
}

// step is one table's part.
type step struct {
	edit    *commit.Edit
	own     *ownTable // nil: no rows
	old     *realtime.State
	uniques []*realtime.Unique // as the table has them from now on
}

func (d *ddl) run(ctx context.Context, decide Decide) (table.Position, error) {
	if err := d.flushFirst(ctx); err != nil {
		return 0, err
	}
	invariants.Here("ddl: old rows flushed")
	leave, err := d.w.gate.Exclusive(ctx)
	if err != nil {
		return 0, err
	}
	defer leave()
	release, err := d.w.takeTurn(ctx)
	if err != nil {
		return 0, err
	}
	defer release()
	if err := d.place(ctx); err != nil {
		return 0, err
	}
	invariants.Here("ddl: rest flushed")
	f, err := d.stage(ctx)
	if err == nil {
		err = d.index()
	}
	if err != nil {
		return 0, errors.Join(err, d.abort())
	}
	invariants.Here("ddl: metadata staged")
	return d.decide(ctx, decide, f)
}

// flushFirst does what can be done before anybody has to wait.
func (d *ddl) flushFirst(ctx context.Context) error {
	pos := d.stale()
	if d.placed() {
		pos = d.w.Visible()
	}
	return d.w.advance(ctx, pos)
}

// placed reports whether the transaction takes a position: for its rows, or for its answer.
func (d *ddl) placed() bool { return len(d.wrote) > 0 || d.t.Remembered() }

// stale is the newest position that changed one of the tables whose definition changes. Everything up to it has to be flushed:
// the log may not hold frames of an older schema. The tables are locked, so it does not move.
func (d *ddl) stale() (pos table.Position) {
	d.w.seq.mu.Lock()
	defer d.w.seq.mu.Unlock()
	for id, c := range d.t.changes {
		if !c.created {
			pos = max(pos, d.w.seq.wrote[id])
		}
	}
	return pos
}

// advance moves progress to pos at least, which has to be visible, if need be without a row.
func (w *Writer) advance(ctx context.Context, pos table.Position) error {
	if w.Progress() >= pos {
		return nil
	}
	release, err := w.takeTurn(ctx)
	if err != nil {
		return err
	}
	defer release()
	if w.Progress() >= pos {
		return nil
	}
	return w.flush(ctx, true)
}

// place takes the transaction's position, if it needs one, and flushes everything below.
func (d *ddl) place(ctx context.Context) error {
	if err := d.w.settle(ctx); err != nil || !d.placed() {
		return err
	}
	e, err := d.w.placeEntry(ctx, d.t, d.frame)
	if err != nil {
		return err
	}
	d.entry = e
	if err := d.w.waitDurable(e); err != nil {
		return err
	}
	invariants.Here("ddl: frame prepared")
	if d.w.Visible() != e.position-1 {
		return errors.Join(errors.New("a prepared transaction is not resolved"), d.abort())
	}
	if err := d.w.flush(ctx, true); err != nil {
		return errors.Join(err, d.abort())
	}
	return nil
}

// frame is the transaction's place in the log. It has no rows: the decider's flip has them.
func (d *ddl) frame() *entry {
	e := newEntry(d.t.header(wal.Prepared, d.w.now().UnixMicro()))
	for _, own := range d.wrote {
		e.touches = append(e.touches, own.id)
	}
	return e
}

// abort lets go of the position.
func (d *ddl) abort() error {
	if d.entry == nil {
		return nil
	}
	return d.w.resolve(d.entry, d.t.id, false)
}

// stage writes the own rows as files, and the metadata of all tables.
func (d *ddl) stage(ctx context.Context) (*catalog.Flip, error) {
	if err := d.plan(); err != nil {
		return nil, err
	}
	var edits []*commit.Edit
	var prefixes []string
	plan := &flush.Plan{}
	for _, s := range d.steps {
		edits = append(edits, s.edit)
		if root := cmp.Or(s.edit.Location, format.Root(d.w.committer.Place(s.edit.Def.ID).Pointer)); root != "" && !s.edit.Drop {
			prefixes = append(prefixes, root+"/")
		}
		if s.edit.Rows != nil {
			plan.Tables = append(plan.Tables, s.edit.Rows)
		}
	}
	id := d.t.listFor()
	if err := d.w.writeFiles(ctx, id, plan, prefixes...); err != nil {
		return nil, err
	}
	invariants.Here("ddl: files written")
	var progress table.Position
	if d.entry != nil {
		progress = d.entry.position
	}
	f, err := d.w.committer.Stage(ctx, id, progress, edits)
	if err == nil && d.entry != nil {
		f.Results = d.w.windows.Unsaved(progress)
		if r := window.Of(d.entry.txn); r != nil {
			f.Results.List = append(f.Results.List, *r)
		}
	}
	return f, err
}

// plan makes one step a table that changes. A table that came and went in the transaction never was.
func (d *ddl) plan() error {
	view := d.w.store.View()
	for id, c := range d.t.changes {
		s := &step{edit: &commit.Edit{Def: c.def, Create: c.created, Drop: c.def == nil, Alter: c.altered}}
		if tv, ok := view.Table(id); ok {
			s.old = tv.State
		}
		switch {
		case c.created && c.def == nil:
			continue
		case c.def == nil:
			s.edit.Def = s.old.Def
		case c.created:
			s.edit.Location = d.w.location(c.def, d.t.listFor())
		}
		d.steps = append(d.steps, s)
	}
	for _, o := range d.wrote {
		if err := d.planRows(view, o); err != nil {
			return err
		}
	}
	return nil
}

// location is where a new table's objects go: no text of a user, never used twice. All that is below it is the flip's.
func (w *Writer) location(def *Def, flip string) string {
	if def.Location != "" {
		return def.Location
	}
	return objstore.Join(w.opts.Objects.Root(), fmt.Sprintf("%08x-%s", uint32(def.ID), format.Name(flip)))
}

func (d *ddl) planRows(view realtime.View, o *ownTable) (err error) {
	i := slices.IndexFunc(d.steps, func(s *step) bool { return s.edit.Def.ID == o.id })
	if i < 0 {
		tv, _ := view.Table(o.id)
		d.steps = append(d.steps, &step{edit: &commit.Edit{Def: tv.Def}, old: tv.State})
		i = len(d.steps) - 1
	}
	s := d.steps[i]
	s.own = o
	target := d.w.target(o.def)
	if s.edit.Create {
		at := table.Pointer{Location: s.edit.Location + "/metadata/"}
		target.Location = func(id table.FileID) string { return format.DataLocation(at, id) }
	}
	op, _ := o.op(d.w) // names again: a flush was in between
	if len(o.spills) > 0 {
		s.edit.Rows = o.staged(target.NextFile)
	} else if s.edit.Rows, err = flush.PlanRows(o.def, target, d.w.opts.Partition, op.Rows); err != nil {
		return err
	}
	if s.old != nil {
		planDeletes(s.edit.Rows, s.old, &op)
	}
	o.result = op
	return nil
}

// planDeletes turns the transaction's deletes, which are all of file rows by now, into changes of files.
func planDeletes(t *flush.Table, old *realtime.State, op *wal.TableOps) {
	if t.Truncated = op.Truncate; op.Truncate {
		t.Removed = old.Files
		return
	}
	fresh := map[table.FileID]*roaring.Bitmap{}
	for _, ref := range op.Deletes {
		if fresh[ref.File] == nil {
			fresh[ref.File] = roaring.New()
		}
		fresh[ref.File].Add(uint32(ref.Row))
	}
	for _, f := range old.Files {
		bm := fresh[f.ID]
		if bm == nil {
			continue
		}
		all := bm.Clone()
		if f.Deleted != nil {
			all.Or(f.Deleted)
		}
		if all.GetCardinality() == f.Rows {
			t.Removed = append(t.Removed, f)
		} else {
			t.Deletions = append(t.Deletions, flush.Deletion{File: f, Fresh: bm, All: all})
		}
	}
}

// decide lets Postgres decide, finds out what it decided, and follows.
func (d *ddl) decide(ctx context.Context, decide Decide, f *catalog.Flip) (table.Position, error) {
	err := decide(ctx, f)
	if err != nil {
		// The caller's context may be what ended it; the answer is needed all the same.
		err = d.w.committer.Settle(context.WithoutCancel(ctx), f.ID, err)
	}
	switch {
	case errors.Is(err, commit.ErrNotCommitted):
		return 0, errors.Join(err, d.abort())
	case err != nil:
		// Nobody knows whether the schema changed, so nothing can be published from here on: only a start can tell.
		d.w.fail(err)
		return 0, fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	d.t.flip = ""
	d.w.committer.Flipped(f)
	d.w.startRows(f)
	invariants.Here("ddl: committed")
	pos, err := d.publish()
	if d.entry != nil {
		d.w.windows.Saved(f.Progress, f.Results)
	}
	invariants.Here("ddl: published")
	d.w.showSnapshots(d.w.store.Generation(), f)
	d.w.forget(ctx, f)
	invariants.Here("ddl: staging forgotten")
	if perr := d.w.committer.Publish(ctx, f); perr != nil {
		d.w.opts.Log.Warn("publish pointers", "error", perr)
	}
	return pos, err
}

// startRows sets the first row number of new tables.
func (w *Writer) startRows(f *catalog.Flip) {
	w.seq.mu.Lock()
	defer w.seq.mu.Unlock()
	for i := range f.Tables {
		t := &f.Tables[i]
		w.seq.rows[t.Table] = max(w.seq.rows[t.Table], t.NextRow)
	}
}

// publish changes the store, at the transaction's place in the order of commits if it has one.
func (d *ddl) publish() (table.Position, error) {
	if d.entry == nil {
		d.w.seq.pump.Lock()
		defer d.w.seq.pump.Unlock()
		return d.w.Visible(), d.apply(0)
	}
	e := d.entry
	d.w.seq.mu.Lock()
	e.open, e.direct = false, func() error { return d.apply(e.position) }
	d.w.seq.mu.Unlock()
	d.w.drain()
	<-e.done
	d.w.progress.Store(uint64(e.position))
	d.w.trim(context.Background(), e.position)
	return e.position, e.err
}

func (d *ddl) apply(pos table.Position) error {
	var seeds []realtime.Seed
	var dropped []table.ID
	for _, s := range d.steps {
		if s.edit.Drop {
			dropped = append(dropped, s.edit.Def.ID)
		} else {
			seeds = append(seeds, d.seed(s))
		}
	}
	d.w.names.Lock()
	defer d.w.names.Unlock()
	for _, s := range d.steps {
		if s.own != nil {
			d.moveLocks(s)
		}
	}
	return d.w.store.Change(pos, seeds, dropped)
}

// moveLocks is Writer.moveLocks for rows that go to files at once.
func (d *ddl) moveLocks(s *step) {
	for k, place := range s.own.versions() {
		if place <= 0 {
			continue
		}
		if to, ok := s.edit.Rows.Map.Find(table.Ref{Row: uint64(place) - 1}); ok {
			d.w.locks.Move(lock.Row(s.own.id, s.own.result.Deletes[k]), lock.Row(s.own.id, to))
		}
	}
}

// seed is the table as it is from now on.
func (d *ddl) seed(s *step) realtime.Seed {
	seed := realtime.Seed{Def: s.edit.Def, NextRow: 1}
	if s.old != nil {
		seed.Files, seed.NextRow, seed.Maps = s.old.Files, s.old.Next(), s.old.Maps()
	}
	if s.edit.Rows != nil {
		f := s.edit.Rows.Published()
		seed.Files = f.After(seed.Files)
	}
	seed.Uniques = s.uniques
	return seed
}

// index makes the key maps that tables have from now on. Nobody finds a row in them before its file is the store's, and rows of files that
// come to nothing never.
func (d *ddl) index() error {
	for _, s := range d.steps {
		if s.edit.Drop {
			continue
		}
		for i := range s.edit.Def.Uniques {
			u, err := d.unique(s, &s.edit.Def.Uniques[i])
			if err != nil {
				return fmt.Errorf("index rows of table %d: %w", s.edit.Def.ID, err)
			}
			s.uniques = append(s.uniques, u)
		}
	}
	return nil
}

// unique is the key map of a constraint: the old one, or one of all rows if it is new, with the own rows.
func (d *ddl) unique(s *step, def *UniqueDef) (*realtime.Unique, error) {
	var u *realtime.Unique
	if s.old != nil {
		u = s.old.Unique(def.ID)
	}
	if u == nil {
		u = realtime.NewUnique()
		keys, _ := d.t.added(s.edit.Def.ID, def.ID)
		for key, ref := range keys {
			if cur, live := d.w.store.Current(s.edit.Def.ID, ref); live {
				hash, exact := def.HashOf([]byte(key))
				u.Put(hash, exact, cur)
			}
		}
	}
	switch {
	case s.own == nil:
	case len(s.own.spills) > 0:
		return u, s.own.putKeys(u, def.ID, s.edit.Rows.Map)
	case s.own.result.Rows != nil:
		putOwn(u, def, s.own.result.Rows, s.edit.Rows.Map)
	}
	return u, nil
}

func putOwn(u *realtime.Unique, def *UniqueDef, b *table.Batch, m *realtime.RowMap) {
	keys := realtime.KeysOf(def, b)
	for i := range b.Rows {
		if key, ok := keys.At(i); ok {
			if ref, ok := m.Find(table.Ref{Row: uint64(i)}); ok {
				u.Put(key, !keys.Loose(), ref)
			}
		}
	}
}
