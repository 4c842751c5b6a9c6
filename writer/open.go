package writer

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"sluice/writer/catalog"
	"sluice/writer/commit"
	"sluice/writer/datafile"
	"sluice/writer/keyindex"
	"sluice/writer/lock"
	"sluice/writer/realtime"
	"sluice/writer/recovery"
	"sluice/writer/table"
	"sluice/writer/wal"
	"sluice/writer/window"
)

// Open recovers and returns a writer that is ready for Run. It takes the log's folder: a *wal.HeldError says who has it.
func Open(ctx context.Context, opts Options) (*Writer, error) {
	w := &Writer{opts: opts.withDefaults(), gate: newGate(), settler: settler{kick: make(chan struct{}, 1)}, open: map[*Txn]struct{}{}, held: map[string]*Txn{}, files: map[table.ID]table.FileID{}, shown: map[table.ID][]shown{}}
	w.flusher, w.compacting = newFlusher(), newTurn()
	w.rows = datafile.NewCache(opts.Objects, w.opts.Memory/8)
	w.seq.rows, w.seq.wrote = map[table.ID]uint64{}, map[table.ID]table.Position{}
	log, err := wal.Open(ctx, opts.Dir, opts.WAL)
	if err != nil {
		return nil, fmt.Errorf("open writer: %w", err)
	}
	w.log = log
	if err := keyindex.Clear(w.opts.Keys); err != nil {
		return nil, errors.Join(fmt.Errorf("open writer: %w", err), log.Close())
	}
	stream := log.Stream()
	w.stream = hex.EncodeToString(stream[:])
	w.locks = lock.New(w.opts.Locks)
	w.committer = &commit.Committer{Catalog: opts.Catalog, Format: opts.Format, Stream: w.stream, Workers: w.opts.Workers}
	if err := w.recover(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open writer: %w", err), log.Close())
	}
	return w, nil
}

// recover is the start: where things stand, what the files hold, what the log holds beyond.
func (w *Writer) recover(ctx context.Context) error {
	state, err := w.opts.Catalog.Load(ctx)
	if err != nil {
		return fmt.Errorf("load catalog: %w", err)
	}
	if w.left, err = w.opts.Catalog.Staged(ctx); err != nil {
		return fmt.Errorf("load catalog: %w", err)
	}
	defs, err := w.opts.Tables(ctx, state)
	if err != nil {
		return fmt.Errorf("load tables: %w", err)
	}
	results, err := w.opts.Catalog.Results(ctx, w.stream)
	if err != nil {
		return fmt.Errorf("load catalog: %w", err)
	}
	w.windows = window.New(results)
	progress := state.Progress[w.stream]
	w.store = realtime.New(progress)
	w.progress.Store(uint64(progress))
	w.committer.Load(state.Tables)
	at := map[table.ID]catalog.Table{}
	for _, t := range state.Tables {
		at[t.ID] = t
		w.shown[t.ID] = []shown{{0, t.Snapshot}}
	}
	moved := false // another writer's commit is to be followed
	for i := range defs {
		t := recovery.Table{Def: defs[i].def(), At: at[defs[i].ID]}
		moved = moved || w.movedAway(ctx, &t.At)
		seed, err := recovery.Load(ctx, w.opts.Objects, w.lister(t.At.Snapshot), t)
		if err != nil {
			return err
		}
		if err := w.store.Define(seed); err != nil {
			return err
		}
	}
	w.store.Weigh()
	w.publishAll(ctx, state.Tables)
	r, err := recovery.Replay(ctx, w.log, w.store, w.windows, w.opts.Catalog)
	if err != nil {
		return err
	}
	if err := w.resume(r); err != nil {
		return err
	}
	if err := w.restoreHeld(ctx); err != nil || !moved {
		return err
	}
	return w.adoptAll(ctx, state.Tables)
}

// resume makes the sequencer go on where the log ended.
func (w *Writer) resume(r *recovery.Replayed) error {
	s := &w.seq
	s.last, s.durable, s.rows = r.Last, r.Last, r.Rows
	w.flusher.eras = []era{{0, r.Last}} // the maps that the catalog had
	for id := range r.Wrote {
		s.wrote[id] = r.Last
	}
	for _, t := range r.Ready {
		e := &entry{position: t.Position, txn: t, done: make(chan struct{}), open: t.Kind == wal.Prepared, claim: w.claim(t)}
		s.queue = append(s.queue, e)
	}
	return nil
}

// publishAll repeats what a crash may have cut off between a flip and its publication. It is idempotent.
func (w *Writer) publishAll(ctx context.Context, tables []catalog.Table) {
	for _, t := range tables {
		if t.Pointer.Location == "" {
			continue
		}
		if err := w.opts.Format.Publish(ctx, t.Pointer); err != nil {
			w.opts.Log.Warn("publish pointer", "table", t.ID, "error", err)
		}
	}
}

// movedAway reports whether a table's pointer is not where the gateway put it.
func (w *Writer) movedAway(ctx context.Context, t *catalog.Table) bool {
	if t.Pointer.Location == "" {
		return false
	}
	head, err := w.opts.Format.Head(ctx, t.Pointer)
	return err == nil && head.ID != t.Snapshot
}

// lister lists the files of the snapshot that the log goes on from. If another writer has expired it meanwhile, names in the log mean nothing
// any more: then the table is what he made of it.
func (w *Writer) lister(snapshot int64) recovery.Snapshots {
	return func(ctx context.Context, def *Def, p table.Pointer) ([]*realtime.File, error) {
		s, err := w.opts.Format.SnapshotAt(ctx, p, snapshot)
		if err != nil {
			w.opts.Log.Error("the snapshot before another writer's commit is gone", "table", def.ID, "error", err)
			s, err = w.opts.Format.Snapshot(ctx, p)
		}
		return commit.Files(&s), err
	}
}
