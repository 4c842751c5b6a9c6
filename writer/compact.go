package writer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"sluice/writer/commit"
	"sluice/writer/compact"
	"sluice/writer/format"
	"sluice/writer/realtime"
	"sluice/writer/table"
)

// A compaction reads and writes files while flushes go on, and only its flip takes their turn:
//
//	choose from the newest metadata
//	list, read, write                a crash: listed files that no flip names, which the next start sweeps
//	the turn; rows that flushes deleted meanwhile are deleted in the new files too
//	metadata, flip                   a crash before it: as above. After it: the catalog has the new files and the map of names, and
//	                                 replay follows the map
//	store, locks and key maps take the new names
//
// docs/design/0008-moves.md has more.

const (
	// compactFiles is how many small files of a partition make a background compaction worth it.
	compactFiles = 8
	// compactBytes bounds the files that one flip of a compaction replaces.
	compactBytes = 512 << 20
	// compactTries bounds how often a compaction begins anew because its files went away under it.
	compactTries = 5
)

// Compacted is what a compaction did.
type Compacted = compact.Done

// errOvertaken says that files went away while they were rewritten.
var errOvertaken = errors.New("files of the table were changed meanwhile")

// Compact merges small files of a table and files with many dead rows, until there is nothing to gain. Rows not yet in files stay where they
// are. One compaction is at a time; nobody else waits for it but flushes, for the time of a flip.
func (w *Writer) Compact(ctx context.Context, id table.ID) (done Compacted, err error) {
	release, err := take(ctx, w.compacting)
	if err != nil {
		return done, err
	}
	defer release()
	for tries := 0; ; {
		step, err := w.compactStep(ctx, id, 2)
		switch done = done.Add(step); {
		case err == nil && step.Rewritten == 0:
			return done, nil
		case err == nil:
		case tries < compactTries && (errors.Is(err, errOvertaken) || errors.Is(err, commit.ErrNotCommitted)):
			tries++
		default:
			return done, fmt.Errorf("compact table %d: %w", id, err)
		}
	}
}

// compactStep is one flip of a compaction. The caller has compacting.
func (w *Writer) compactStep(ctx context.Context, id table.ID, minFiles int) (done Compacted, err error) {
	p, size, err := w.planCompaction(ctx, id, minFiles)
	if p == nil || err != nil {
		return done, err
	}
	if err := w.reserve(ctx, size); err != nil {
		return done, err
	}
	defer w.own.Add(-size)
	flip := w.unique()
	if err := w.rewrite(ctx, flip, p); err != nil {
		w.abandon(flip)
		return done, err
	}
	if err := w.replace(ctx, flip, p); err != nil {
		return done, err
	}
	return p.Done(), nil
}

// planCompaction is nil if there is nothing to do. size is the memory that its writing takes, about: a file in the making.
func (w *Writer) planCompaction(ctx context.Context, id table.ID, minFiles int) (p *compact.Plan, size int64, err error) {
	tv, ok := w.store.View().Table(id)
	if !ok {
		return nil, 0, ErrUnknownTable
	}
	at := w.committer.Place(id).Pointer
	if at.Location == "" {
		return nil, 0, nil
	}
	s, err := w.opts.Format.Snapshot(ctx, at)
	if err != nil {
		return nil, 0, err
	}
	bins := compact.Choose(&s, compact.Options{FileSize: fileSize(tv.Def), MinFiles: minFiles, Bytes: compactBytes})
	if len(bins) == 0 {
		return nil, 0, nil
	}
	for _, b := range bins {
		size = max(size, b.Bytes())
	}
	return compact.NewPlan(tv.Def, &s, bins, w.target(tv.Def)), size, nil
}

// rewrite lists the files of a compaction and writes them.
func (w *Writer) rewrite(ctx context.Context, flip string, p *compact.Plan) error {
	root := format.Root(w.committer.Place(p.Table.Def.ID).Pointer) + "/"
	if err := w.opts.Catalog.Stage(ctx, flip, append(p.Locations(), root)); err != nil {
		return fmt.Errorf("list files: %w", err)
	}
	return p.Write(ctx, w.opts.Objects)
}

// replace makes the flip of a compaction whose files are there.
func (w *Writer) replace(ctx context.Context, flip string, p *compact.Plan) error {
	release, err := w.takeTurn(ctx)
	if err != nil {
		w.abandon(flip)
		return err
	}
	defer release()
	a, err := w.stageReplace(ctx, flip, p)
	if err != nil {
		w.abandon(flip)
		return err
	}
	return w.flip(ctx, a)
}

func (w *Writer) stageReplace(ctx context.Context, flip string, p *compact.Plan) (*attempt, error) {
	if err := w.settle(ctx); err != nil {
		return nil, err
	}
	tv, _ := w.store.View().Table(p.Table.Def.ID)
	if !p.Catch(tv) {
		return nil, errOvertaken
	}
	pos := w.Progress() // the lake stays where it is: only rows that are in files move
	maps := tv.MapsFor(p.Table.Map, w.needed(pos))
	f, err := w.committer.Stage(ctx, flip, pos, []*commit.Edit{{Def: tv.Def, Rows: p.Table, Moved: true, Maps: maps, Rewrite: true}})
	return &attempt{tables: []realtime.Flushed{p.Table.Published()}, position: pos, flip: f}, err
}

// runMaintenance compacts and expires, one table at a time.
func (w *Writer) runMaintenance(ctx context.Context) error {
	compact, expire := w.every(w.opts.CompactAge), w.every(w.opts.ExpireAge)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-expire:
			w.expireAll(ctx)
			expire = w.every(w.opts.ExpireAge)
			continue
		case <-compact:
		}
		view := w.store.View()
		for _, id := range view.Tables() {
			if tv, _ := view.Table(id); ctx.Err() == nil && manySmall(tv) {
				w.compactQuietly(ctx, id)
			}
		}
		compact = w.every(w.opts.CompactAge)
	}
}

// every is a tick after d, or never if that is negative.
func (w *Writer) every(d time.Duration) <-chan time.Time {
	if d <= 0 {
		return nil
	}
	return w.opts.After(d)
}

// PauseMaintenance keeps files and snapshots as they are, but for what is asked for, until resume is called, which may be called twice. It
// returns when none is under way.
func (w *Writer) PauseMaintenance(ctx context.Context) (resume func(), err error) {
	w.paused.Add(1)
	resume = sync.OnceFunc(func() { w.paused.Add(-1) })
	release, err := take(ctx, w.compacting)
	if err != nil {
		resume()
		return nil, err
	}
	release()
	return resume, nil
}

func (w *Writer) compactQuietly(ctx context.Context, id table.ID) {
	release, err := take(ctx, w.compacting)
	if err != nil {
		return
	}
	defer release()
	if w.paused.Load() > 0 {
		return
	}
	done, err := w.compactStep(ctx, id, compactFiles)
	switch {
	case err != nil && ctx.Err() == nil:
		w.opts.Log.Warn("compact", "table", id, "error", err) // the next round tries again
	case done.Rewritten > 0:
		w.opts.Log.Info("compact", "table", id, "rewritten", done.Rewritten, "added", done.Added, "bytes", done.Bytes)
	}
}

// manySmall is a look without I/O at whether there may be something to do in the background.
func manySmall(tv realtime.TableView) bool {
	size, n := fileSize(tv.Def), 0
	for _, f := range tv.Files {
		if f.Bytes*4 < size*3 || f.Deleted != nil && f.Deleted.GetCardinality()*10 >= f.Rows*3 {
			n++
		}
	}
	return n >= compactFiles
}
