package writer

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"sluice/writer/catalog"
	"sluice/writer/commit"
	"sluice/writer/datafile"
	"sluice/writer/lock"
	"sluice/writer/realtime"
	"sluice/writer/table"
	"sluice/writer/wal"
	"sluice/writer/window"
)

// Writer is the transactional core of one gateway.
type Writer struct {
	opts  Options
	log   *wal.Log
	store *realtime.Store
	rows  *datafile.Cache // of files, for reads by name
	locks *lock.Locks
	names sync.RWMutex // held to rename rows and their locks together
	gate  *Gate
	seq   sequencer

	settler settler
	// windows is what transactions with a retry identity answered.
	windows *window.Windows
	stream  string

	committer *commit.Committer
	flusher   flusher
	// compacting holds one token: whoever has it may rewrite files.
	compacting chan struct{}
	paused     atomic.Int64 // maintenance in the background is, by so many
	flushes    flushes
	left       []catalog.Staged // what processes before this one staged and did not flip
	progress   atomic.Uint64    // position up to which everything is in files

	settled []*Txn // held before the start and decided since, for SettleHeld

	mu        sync.Mutex // guards open, random and all below
	held      map[string]*Txn
	open      map[*Txn]struct{}
	files     map[table.ID]table.FileID // next file id where the catalog's is behind
	abandoned []string                  // flips that will not be, with files that are listed
	shown     map[table.ID][]shown      // what open transactions may read, oldest first

	own atomic.Int64 // bytes of rows that open transactions hold
}

// Visible is the position of the newest transaction that a new view sees.
func (w *Writer) Visible() table.Position { return w.store.Visible() }

// Gate is the commit gate.
func (w *Writer) Gate() *Gate { return w.gate }

// Gauges are the memory and rows of the tail.
func (w *Writer) Gauges() realtime.Gauges { return w.store.Gauges() }

// Locks is the lock table, for its wait graph and its metrics.
func (w *Writer) Locks() *lock.Locks { return w.locks }

// Stream names the log that positions belong to.
func (w *Writer) Stream() string { return w.stream }

// Run commits, flushes and tidies up until ctx ends; then it lets the last group finish. An error means that the process must
// stop: the next start recovers.
func (w *Writer) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		err := w.log.Run(ctx, w.published)
		if err != nil {
			w.fail(err)
			return fmt.Errorf("run committer: %w", err)
		}
		w.fail(wal.ErrClosed)
		return nil
	})
	g.Go(func() error { return w.runFlusher(ctx) })
	g.Go(func() error { return w.runMaintenance(ctx) })
	w.leaveReplayed()
	g.Go(func() error { return w.runSettler(ctx) })
	g.Go(func() error {
		w.sweep(ctx, w.left)
		return nil
	})
	return g.Wait()
}

// Close gives the log back. Run must have returned.
func (w *Writer) Close() error {
	w.fail(wal.ErrClosed)
	if err := w.log.Close(); err != nil {
		return fmt.Errorf("close writer: %w", err)
	}
	return nil
}

func (w *Writer) now() time.Time { return w.opts.Now() }

func (w *Writer) newID() (id [16]byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := io.ReadFull(w.opts.Random, id[:]); err != nil {
		panic(fmt.Sprintf("read random bytes: %v", err)) // as crypto/rand does: nothing works without
	}
	return id
}

// unique is a text that nobody else makes.
func (w *Writer) unique() string {
	id := w.newID()
	return hex.EncodeToString(id[:])
}

// reserve accounts for rows of an open transaction. When there is no room what was kept of files goes, then the tail is flushed; when that
// is not enough, the statement fails.
func (w *Writer) reserve(ctx context.Context, n int64) error {
	if w.own.Add(n); w.fits() {
		return nil
	}
	if w.rows.Clear(); w.fits() {
		return nil
	}
	if _, err := w.Flush(ctx); err != nil {
		w.own.Add(-n)
		return fmt.Errorf("make room in memory: %w", err)
	}
	if !w.fits() {
		w.own.Add(-n)
		return ErrMemory
	}
	return nil
}

func (w *Writer) fits() bool { return w.own.Load()+w.store.Bytes()+w.rows.Bytes() <= w.opts.Memory }
