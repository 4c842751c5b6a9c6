package writer

import (
	"context"
	"fmt"
	"time"

	"sluice/writer/catalog"
	"sluice/writer/commit"
	"sluice/writer/format"
	"sluice/writer/table"
)

// An expiry takes old snapshots out of a table's metadata by a flip, and then deletes what only they reached:
//
//	list the metadata to be written, write it   a crash: swept, as after any flip that did not happen
//	flip                                        a crash: nothing reaches the old objects any more, and they leak
//	list them for a flip that will never be     a crash: the next start deletes them, as what such a flip left
//	delete them
//
// Nothing is deleted before the flip is known to have happened. Snapshots that a transaction of this process may still read stay.

// Expired is what an expiry did.
type Expired struct {
	Objects int // that were deleted: data, delete and metadata files
}

// Expire removes the snapshots of a table that are older than age, but for the current one and those of branches and tags, and then the
// objects that only they reach. A negative age is what the table's properties say, five days if nothing.
func (w *Writer) Expire(ctx context.Context, id table.ID, age time.Duration) (Expired, error) {
	release, err := take(ctx, w.compacting) // it reads files of older snapshots
	if err != nil {
		return Expired{}, err
	}
	defer release()
	gone, err := w.expire(ctx, id, age)
	if err != nil {
		return Expired{}, fmt.Errorf("expire snapshots of table %d: %w", id, err)
	}
	w.sweepAbandoned(ctx)
	return Expired{len(gone)}, nil
}

func (w *Writer) expire(ctx context.Context, id table.ID, age time.Duration) ([]string, error) {
	release, err := w.takeTurn(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := w.settle(ctx); err != nil {
		return nil, err
	}
	tv, ok := w.store.View().Table(id)
	if !ok {
		return nil, ErrUnknownTable
	}
	at := w.committer.Place(id).Pointer
	if at.Location == "" {
		return nil, nil
	}
	flip := w.unique()
	if err := w.opts.Catalog.Stage(ctx, flip, []string{format.Root(at) + "/"}); err != nil {
		return nil, fmt.Errorf("list files: %w", err)
	}
	edit := &commit.Edit{Def: tv.Def, Expire: &format.Expiry{FlushID: flip, Age: age, Since: w.oldestRead(id)}}
	f, err := w.committer.Stage(ctx, flip, w.Progress(), []*commit.Edit{edit})
	if err != nil {
		w.abandon(flip)
		return nil, err
	}
	if f.Tables[0].To == at {
		w.forget(ctx, f) // nothing was written
		return nil, nil
	}
	return edit.Gone, w.flip(ctx, &attempt{position: w.Progress(), flip: f, gone: edit.Gone})
}

// bin lists objects that nothing reaches any more for a flip that will never be, so that a sweep deletes them.
func (w *Writer) bin(ctx context.Context, gone []string) {
	if len(gone) == 0 {
		return
	}
	flip := w.unique()
	if err := w.opts.Catalog.Stage(ctx, flip, gone); err != nil {
		w.opts.Log.Warn("list expired files", "files", len(gone), "error", err) // they leak
		return
	}
	w.abandon(flip)
}

// shown says that a table's newest state in memory is of this snapshot since a generation of the store.
type shown struct {
	generation uint64
	snapshot   int64
}

// showSnapshots notes which snapshots the tables of a flip have from now on.
func (w *Writer) showSnapshots(generation uint64, f *catalog.Flip) {
	w.mu.Lock()
	defer w.mu.Unlock()
	oldest := w.oldestOpen()
	for i := range f.Tables {
		t := &f.Tables[i]
		w.shown[t.Table] = readable(append(w.shown[t.Table], shown{generation, t.Snapshot}), oldest)
	}
}

// oldestOpen is the generation that the oldest open transaction began in. The caller holds mu.
func (w *Writer) oldestOpen() uint64 {
	oldest := ^uint64(0)
	for t := range w.open {
		oldest = min(oldest, t.began)
	}
	return oldest
}

// readable is what transactions that began in generation oldest or later may read.
func readable(list []shown, oldest uint64) []shown {
	for len(list) > 1 && list[1].generation <= oldest {
		list = list[1:]
	}
	return list
}

// oldestRead is the oldest snapshot of a table that an open transaction may read; 0: it had none then.
func (w *Writer) oldestRead(id table.ID) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := readable(w.shown[id], w.oldestOpen())
	if len(list) == 0 {
		return 0
	}
	return list[0].snapshot
}

// expireAll is a round of background expiry, table by table.
func (w *Writer) expireAll(ctx context.Context) {
	for _, id := range w.store.View().Tables() {
		if ctx.Err() != nil || w.paused.Load() > 0 {
			return
		}
		done, err := w.Expire(ctx, id, -1)
		if err != nil && ctx.Err() == nil {
			w.opts.Log.Warn("expire snapshots", "table", id, "error", err) // the next round tries again
		} else if done.Objects > 0 {
			w.opts.Log.Info("expire snapshots", "table", id, "objects", done.Objects)
		}
	}
}
