package writer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sluice/writer/catalog"
	"sluice/writer/commit"
	"sluice/writer/flush"
	"sluice/writer/format"
	"sluice/writer/realtime"
	"sluice/writer/recovery"
	"sluice/writer/table"
)

// flusher moves the tail into lake tables, one flush at a time.
type flusher struct {
	turn chan struct{} // holds one token: whoever has it may flush, flip and change where tables stand
	kick chan struct{} // asks the loop in Run for a flush

	// Owned by whoever has the turn.
	doubt *attempt // its flip's outcome is unknown: settled before anything else
	eras  []era
}

// era says that frames up to last may use row names from before the flush that made the generation.
type era struct {
	generation uint64
	last       table.Position
}

// attempt is one flush, compaction or expiry that is on its way.
type attempt struct {
	tables   []realtime.Flushed
	position table.Position // up to which everything is in files then
	flip     *catalog.Flip
	gone     []string // objects that nothing reaches after it
	index    func()   // keys that come with it; nil: none
	err      error
}

func newFlusher() flusher {
	return flusher{turn: newTurn(), kick: make(chan struct{}, 1)}
}

// newTurn is a channel with its one token.
func newTurn() chan struct{} {
	turn := make(chan struct{}, 1)
	turn <- struct{}{}
	return turn
}

func (w *Writer) takeTurn(ctx context.Context) (release func(), err error) {
	return take(ctx, w.flusher.turn)
}

// take waits for the token in a channel; release puts it back.
func take(ctx context.Context, turn chan struct{}) (release func(), err error) {
	select {
	case <-turn:
		return func() { turn <- struct{}{} }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for flush: %w", ctx.Err())
	}
}

// Flush puts everything that is visible now into files and returns the position up to which everything is. With nothing to do
// it does nothing.
func (w *Writer) Flush(ctx context.Context) (table.Position, error) {
	err := w.flushTo(ctx, w.Visible())
	return w.Progress(), err
}

// flushTo waits until everything up to pos is in files. Callers that wait for the turn meanwhile share the flush.
func (w *Writer) flushTo(ctx context.Context, pos table.Position) error {
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
	return w.flushes.ended(w.flush(ctx, false))
}

// flush is one flush; the caller has the turn. With force progress moves even if no row does. A crash
//
//	before the flip    leaves files that nobody can reach; the log still has the rows
//	after it           start finds the rows in files, progress says so, and the log is replayed from there
func (w *Writer) flush(ctx context.Context, force bool) error {
	if err := w.settle(ctx); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	cut := w.store.Cut()
	if pos := cut.Position(); pos == w.Progress() || len(cut.Tables) == 0 && !force && !w.windows.Fresh(pos) {
		return nil
	}
	defer w.flushes.begin(w, cut.Position())()
	a, err := w.stage(ctx, cut)
	if err != nil {
		return fmt.Errorf("flush up to %d: %w", cut.Position(), err)
	}
	if err := w.flip(ctx, a); err != nil {
		return fmt.Errorf("flush up to %d: %w", cut.Position(), err)
	}
	return nil
}

// stage writes files and metadata.
func (w *Writer) stage(ctx context.Context, cut *realtime.Cut) (*attempt, error) {
	plan, err := flush.NewPlan(cut, flush.Options{Target: w.target, Partition: w.opts.Partition})
	if err != nil {
		return nil, err
	}
	id := w.unique()
	if err := w.writeFiles(ctx, id, plan, w.roots(plan)...); err != nil {
		w.abandon(id)
		return nil, err
	}
	edits := make([]*commit.Edit, len(plan.Tables))
	for i, t := range plan.Tables {
		maps := cut.Tables[i].MapsFor(t.Map, w.needed(cut.Position()))
		edits[i] = &commit.Edit{Def: t.Def, Rows: t, Moved: true, Maps: maps}
	}
	f, err := w.committer.Stage(ctx, id, cut.Position(), edits)
	if err != nil {
		w.abandon(id)
		return nil, err
	}
	w.windows.Sweep(w.now().UnixMicro())
	f.Results = w.windows.Unsaved(cut.Position())
	a := &attempt{position: cut.Position(), flip: f}
	for _, t := range plan.Tables {
		a.tables = append(a.tables, t.Published())
	}
	return a, nil
}

// roots is where the metadata of a flush goes.
func (w *Writer) roots(plan *flush.Plan) (prefixes []string) {
	for _, t := range plan.Tables {
		prefixes = append(prefixes, format.Root(w.committer.Place(t.Def.ID).Pointer)+"/")
	}
	return prefixes
}

// writeFiles lists the files of a flip in the catalog, and the prefixes below which its metadata will be, and then uploads the files. A
// crash in between leaves names without files, a crash before the flip files that the next start sweeps away.
func (w *Writer) writeFiles(ctx context.Context, flip string, plan *flush.Plan, prefixes ...string) error {
	if names := append(plan.Locations(), prefixes...); len(names) > 0 {
		if err := w.opts.Catalog.Stage(ctx, flip, names); err != nil {
			return fmt.Errorf("list files: %w", err)
		}
	}
	return plan.Write(ctx, w.opts.Objects, w.opts.Workers)
}

func (w *Writer) target(def *Def) flush.Target {
	p := w.committer.Place(def.ID)
	return flush.Target{NextFile: w.nextFile(def.ID), NewFile: func() table.FileID { return w.newFile(def.ID) }, FileSize: fileSize(def), Buckets: buckets(def),
		Location: func(id table.FileID) string { return format.DataLocation(p.Pointer, id) }}
}

// newFile takes a file id: flushes and transactions that write files of their own do so at the same time. Ids of files that come
// to nothing are left out; after a crash they are given again, to files with other names.
func (w *Writer) newFile(id table.ID) table.FileID {
	at := max(w.committer.Place(id).NextFile, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	at = max(at, w.files[id])
	w.files[id] = at + 1
	return at
}

// nextFile is an id above all that were taken.
func (w *Writer) nextFile(id table.ID) table.FileID {
	at := max(w.committer.Place(id).NextFile, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(at, w.files[id])
}

// buckets is the table's option buckets where there is no key to tell a row's bucket from: rows go to buckets in turns.
func buckets(def *Def) int {
	if len(def.Schema.Key) > 0 || def.Options["bucket_key"] != "" {
		return 0
	}
	n, _ := strconv.Atoi(def.Options["buckets"])
	return n
}

// fileSize is the table's option target_file_size, in bytes or with a unit.
func fileSize(def *Def) int64 {
	const standard = 128 << 20
	text := strings.ToUpper(strings.TrimSpace(def.Options["target_file_size"]))
	unit := int64(1)
	for suffix, n := range map[string]int64{"KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30} {
		if rest, ok := strings.CutSuffix(text, suffix); ok {
			text, unit = strings.TrimSpace(rest), n
		}
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n > 0 {
		return n * unit
	}
	return standard
}

// flip commits an attempt and publishes it. After an unknown outcome it stays in doubt.
func (w *Writer) flip(ctx context.Context, a *attempt) error {
	err := w.committer.Flip(ctx, a.flip)
	switch {
	case err == nil:
		w.flipped(ctx, a)
	case errors.Is(err, catalog.ErrConflict):
		w.abandon(a.flip.ID)
		return errors.Join(err, w.reload(ctx))
	case errors.Is(err, commit.ErrNotCommitted):
		w.abandon(a.flip.ID)
	default:
		w.flusher.doubt, a.err = a, err
	}
	return err
}

// settle finishes an attempt whose outcome was unknown: as if the answer had come at once, or not at all.
func (w *Writer) settle(ctx context.Context) error {
	a := w.flusher.doubt
	if a == nil {
		return nil
	}
	err := w.committer.Settle(ctx, a.flip.ID, a.err)
	if err != nil && !errors.Is(err, commit.ErrNotCommitted) {
		return err
	}
	if w.flusher.doubt = nil; err == nil {
		w.flipped(ctx, a)
	} else {
		w.abandon(a.flip.ID)
	}
	return nil
}

// flipped makes a committed flush or compaction the newest state.
func (w *Writer) flipped(ctx context.Context, a *attempt) {
	w.committer.Flipped(a.flip)
	w.windows.Saved(a.flip.Progress, a.flip.Results)
	pos := a.position
	if a.index != nil {
		a.index()
	}
	gen := w.rename(pos, a.tables, w.keep(pos))
	w.store.Reindex(a.tables)
	w.showSnapshots(gen, a.flip)
	w.seq.mu.Lock()
	w.flusher.eras = append(w.flusher.eras, era{gen, w.seq.last})
	w.seq.mu.Unlock()
	w.progress.Store(uint64(pos))
	if err := w.committer.Publish(ctx, a.flip); err != nil {
		w.opts.Log.Warn("publish pointers", "error", err)
	}
	w.forget(ctx, a.flip)
	w.bin(ctx, a.gone)
	w.trim(ctx, pos)
}

// forget ends the listing of a committed flip's files. A crash before it costs nothing: the flip is known to have committed.
func (w *Writer) forget(ctx context.Context, f *catalog.Flip) {
	if err := w.opts.Catalog.Forget(ctx, []string{f.ID}); err != nil {
		w.opts.Log.Warn("forget staged files", "flip", f.ID, "error", err)
	}
}

// sweep deletes what flips left that will not be: those of processes before this one (no flip that was listed when Open ran can
// be under way), and those that this one has given up.
func (w *Writer) sweep(ctx context.Context, left []catalog.Staged) {
	if err := recovery.Sweep(ctx, w.opts.Catalog, w.opts.Objects, left); err != nil && ctx.Err() == nil {
		w.opts.Log.Warn("sweep staged files", "error", err) // the next start tries again
	}
}

// abandon gives up a flip that may have files.
func (w *Writer) abandon(flip string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.abandoned = append(w.abandoned, flip)
}

// sweepAbandoned deletes the files of flips that were given up since the last time.
func (w *Writer) sweepAbandoned(ctx context.Context) {
	w.mu.Lock()
	flips := w.abandoned
	w.abandoned = nil
	w.mu.Unlock()
	if len(flips) == 0 {
		return
	}
	staged, err := w.opts.Catalog.Staged(ctx)
	if err != nil {
		w.opts.Log.Warn("list staged files", "error", err)
		return
	}
	w.sweep(ctx, slices.DeleteFunc(staged, func(s catalog.Staged) bool { return !slices.Contains(flips, s.Flip) }))
}

// trim gives the log's space back. What stays too long is only space.
func (w *Writer) trim(ctx context.Context, pos table.Position) {
	if err := w.log.Trim(ctx, pos+1); err != nil {
		w.opts.Log.Warn("trim log", "below", pos+1, "error", err)
	}
}

// needed is the oldest generation whose row maps frames behind pos may use, which replay needs as much as we do.
func (f *flusher) needed(pos table.Position) uint64 {
	for len(f.eras) > 0 && f.eras[0].last <= pos {
		f.eras = f.eras[1:]
	}
	if len(f.eras) == 0 {
		return ^uint64(0)
	}
	return f.eras[0].generation
}

// keep is the oldest generation whose row maps anybody in this process may still use.
func (w *Writer) keep(pos table.Position) uint64 {
	keep := w.needed(pos)
	w.mu.Lock()
	defer w.mu.Unlock()
	for t := range w.open {
		keep = min(keep, t.began+1)
	}
	return keep
}

// runFlusher flushes by age and when kicked.
func (w *Writer) runFlusher(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.every(w.opts.FlushAge):
		case <-w.flusher.kick:
		}
		if _, err := w.Flush(ctx); err != nil && ctx.Err() == nil {
			w.opts.Log.Error("flush", "error", err) // the rows are safe in the log; the next round tries again
		}
		w.sweepAbandoned(ctx)
	}
}

// Progress is the position up to which everything is in files.
func (w *Writer) Progress() table.Position { return table.Position(w.progress.Load()) }
