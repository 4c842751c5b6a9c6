package writer

import (
	"sync"
	"time"

	"sluice/writer/table"
	"sluice/writer/wal"
)

// What the writer tells about itself, for views and metrics. Nothing here waits for a lock that is held over I/O.

// LogStats is what the log holds.
func (w *Writer) LogStats() wal.Stats { return w.log.Stats() }

// Flips counts the catalog transactions since Open: flushes, schema changes, large transactions.
func (w *Writer) Flips() uint64 { return w.committer.Flips() }

// OpenBytes is what rows of open transactions take in memory.
func (w *Writer) OpenBytes() int64 { return w.own.Load() }

// Failed is why nothing can be committed any more, or nil: the log failed or was closed.
func (w *Writer) Failed() error {
	w.seq.mu.Lock()
	defer w.seq.mu.Unlock()
	return w.seq.failed
}

// TableStats counts what a table consists of.
type TableStats struct {
	Rows                int64 // live rows, estimated
	Files               []FileStats
	TailRows, TailBytes int64
}

// FileStats is one data file of the flushed state.
type FileStats struct {
	ID       table.FileID
	Location string
	Rows     int64
	Deleted  int64 // of them
	Bytes    int64
}

// Stats counts a table as the view sees it, without the transaction's own rows. It reads no row, so it is no read for SERIALIZABLE. ok is
// false for a table that is not committed.
func (v *View) Stats(id table.ID) (st TableStats, ok bool) {
	t, ok := v.base.Table(id)
	if !ok {
		return st, false
	}
	st.Rows, _ = t.Size()
	st.TailRows, st.TailBytes = t.TailSize()
	for _, f := range t.Files {
		st.Files = append(st.Files, FileStats{ID: f.ID, Location: f.Location, Rows: int64(f.Rows), Deleted: t.Deleted(f), Bytes: f.Bytes})
	}
	return st, true
}

// Flushing is a flush under way: what the tail held when it began.
type Flushing struct {
	Started     time.Time
	Position    table.Position
	Rows, Bytes int64
}

// flushes notes what flushes do.
type flushes struct {
	mu   sync.Mutex // guards the rest, for the span of a copy
	now  *Flushing
	last error // of the last one that ended; nil: it committed
}

// begin notes that a flush begins and returns what notes its end.
func (f *flushes) begin(w *Writer, pos table.Position) func() {
	g := w.Gauges()
	f.set(&Flushing{Started: w.now(), Position: pos, Rows: g.TotalRows, Bytes: g.TotalBytes})
	return func() { f.set(nil) }
}

func (f *flushes) set(now *Flushing) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = now
}

// ended notes how a flush ended and hands that through.
func (f *flushes) ended(err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = err
	return err
}

// Flushing is the flush under way, or nil.
func (w *Writer) Flushing() *Flushing {
	w.flushes.mu.Lock()
	defer w.flushes.mu.Unlock()
	return w.flushes.now
}

// FlushError is why the last flush failed; nil if it did not.
func (w *Writer) FlushError() error {
	w.flushes.mu.Lock()
	defer w.flushes.mu.Unlock()
	return w.flushes.last
}
