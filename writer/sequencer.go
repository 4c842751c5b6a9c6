package writer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"sluice/writer/invariants"
	"sluice/writer/lock"
	"sluice/writer/realtime"
	"sluice/writer/recovery"
	"sluice/writer/table"
	"sluice/writer/wal"
	"sluice/writer/window"
)

// sequencer gives transactions their place. What has a place stands in queue until it is published, in order.
type sequencer struct {
	// mu is the sequencer's lock. It is held for the time of the checks and the Enqueue of one transaction, never over I/O.
	mu      sync.Mutex
	last    table.Position
	rows    map[table.ID]uint64         // next tail row number
	wrote   map[table.ID]table.Position // last position that changed the table, durable or not
	queue   []*entry
	durable table.Position
	failed  error // nothing gets a place any more

	// pump is held while a run of the queue's front is published.
	pump sync.Mutex
}

// entry is one transaction with a place.
type entry struct {
	position table.Position
	txn      *wal.Txn
	frame    *wal.Frame
	versions [][]int           // per table of the frame and row that it deletes: see ownTable.versions; nil: no updates
	keys     [][]realtime.Keys // per table of the frame: of its rows, where they are at hand
	touches  []table.ID        // tables that it changes beside those of its frame
	open     bool              // prepared, its fate is not known yet
	aborted  bool              // prepared, then rolled back
	direct   func() error      // publishes it instead of Store.Apply (schema changes)
	claim    *lock.Owner       // holds its identity, if it is from before a restart
	group    *wal.Group
	done     chan struct{} // closed when published, or failed with err
	err      error
}

func newEntry(t *wal.Txn) *entry {
	return &entry{txn: t, frame: wal.Encode(t), done: make(chan struct{}), open: t.Kind == wal.Prepared}
}

// place gives a transaction the next position: its rows get their numbers, its refs are the newest names.
func (w *Writer) place(ctx context.Context, t *Txn, kind wal.Kind) (*entry, error) {
	return w.placeEntry(ctx, t, func() *entry { return t.entry(kind, w.now().UnixMicro()) })
}

// placeEntry builds the frame outside the lock; when a flush is published meanwhile, names are old and it is built again.
func (w *Writer) placeEntry(ctx context.Context, t *Txn, build func() *entry) (*entry, error) {
	for {
		g := w.store.Generation()
		e := build()
		switch ok, err := w.tryPlace(t, e, g); {
		case err != nil:
			return nil, err
		case ok:
			return e, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		}
	}
}

func (w *Writer) tryPlace(t *Txn, e *entry, generation uint64) (bool, error) {
	s := &w.seq
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return false, s.failed
	}
	if w.store.Generation() != generation {
		return false, nil
	}
	if err := s.serializable(t); err != nil {
		return false, err
	}
	s.enqueue(w.log, e)
	return true, nil
}

// serializable refuses when a table that t read was changed by others since t's snapshot.
func (s *sequencer) serializable(t *Txn) error {
	if t == nil || t.reads == nil || t.snapshot == nil {
		return nil
	}
	for id := range t.reads {
		if s.wrote[id] > t.snapshot.Position() {
			return fmt.Errorf("commit: table %d was changed: %w", id, ErrSerialization)
		}
	}
	return nil
}

// enqueue gives e its place. The caller holds mu.
func (s *sequencer) enqueue(log *wal.Log, e *entry) {
	s.last++
	e.position = s.last
	firsts := make([]uint64, len(e.txn.Tables))
	for i := range e.txn.Tables {
		op := &e.txn.Tables[i]
		firsts[i] = s.rows[op.Table]
		if op.Rows != nil {
			s.rows[op.Table] += uint64(op.Rows.Rows)
		}
		s.wrote[op.Table] = e.position
	}
	for _, id := range e.touches {
		s.wrote[id] = e.position
	}
	s.queue = append(s.queue, e)
	e.group = log.Enqueue(e.frame, e.position, firsts)
}

// wait is the acknowledgement: the entry is durable and published. It cannot be cancelled: the outcome is out of our hands.
func (w *Writer) wait(e *entry) error {
	if err := w.waitDurable(e); err != nil {
		return err
	}
	<-e.done
	return e.err
}

// waitDurable waits until the entry's group is in the log; it may not be published yet.
func (w *Writer) waitDurable(e *entry) error {
	<-e.group.Done()
	if err := e.group.Err(); err != nil {
		w.fail(err)
		return outcome(err)
	}
	return nil
}

// outcome says what a failed group means for its transactions.
func outcome(err error) error {
	if errors.Is(err, wal.ErrClosed) {
		return fmt.Errorf("commit: %w", ErrStopped)
	}
	// The process must stop: memory may be behind the log from here on, and only a replay knows how far.
	return fmt.Errorf("commit: %w: %w", ErrOutcomeUnknown, err)
}

// fail ends sequencing. Entries that can not be published any more are told.
func (w *Writer) fail(err error) {
	s := &w.seq
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return
	}
	s.failed = outcome(err)
	for _, e := range s.queue {
		if e.position > s.durable {
			continue // its group says so itself
		}
		// Durable, but behind a prepared transaction whose fate this process will not learn: committed or not is for the replay.
		e.err = fmt.Errorf("commit: %w: %w", ErrOutcomeUnknown, err)
		close(e.done)
	}
	s.queue = nil
}

// published is the log's callback: these frames are durable.
func (w *Writer) published(frames []*wal.Frame) {
	w.seq.mu.Lock()
	w.seq.durable = frames[len(frames)-1].Txn().Position
	w.seq.mu.Unlock()
	w.drain()
}

// drain publishes the front of the queue as far as it is durable and decided, and wakes those who wait for it.
func (w *Writer) drain() {
	w.seq.pump.Lock()
	defer w.seq.pump.Unlock()
	for {
		ready := w.seq.take()
		if len(ready) == 0 {
			return
		}
		w.publish(ready)
		for _, e := range ready {
			close(e.done)
		}
	}
}

// take cuts the publishable front off the queue. An entry that publishes itself stands alone.
func (s *sequencer) take() []*entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for n < len(s.queue) && s.queue[n].position <= s.durable && !s.queue[n].open {
		n++
		if s.queue[n-1].direct != nil {
			n = max(1, n-1)
			break
		}
	}
	ready := s.queue[:n:n]
	s.queue = s.queue[n:]
	return ready
}

func (w *Writer) publish(ready []*entry) {
	for _, e := range ready {
		if !e.aborted && e.txn.Kind != wal.Resolved {
			w.windows.Put(window.Of(e.txn))
		}
	}
	if e := ready[0]; e.direct != nil && !e.aborted {
		if e.err = e.direct(); e.err != nil {
			// The catalog has it and memory has not: views would be wrong from here on. The process must stop and recover.
			w.fail(e.err)
		}
		return
	}
	commits := make([]realtime.Commit, len(ready))
	for i, e := range ready {
		commits[i].Position = e.position
		commits[i].Ops = recovery.Ops(e.txn, !e.aborted)
		e.complete(commits[i].Ops)
	}
	w.show(ready, commits)
	if w.store.TailBytes() > w.opts.FlushBytes {
		select {
		case w.flusher.kick <- struct{}{}:
		default:
		}
	}
	invariants.Check(w.store.Visible() == ready[len(ready)-1].position, "I7: published up to %d, visible is %d",
		ready[len(ready)-1].position, w.store.Visible())
}

// show makes commits visible. Rows die, get their newer versions, and their locks follow as one step for requestRow.
func (w *Writer) show(ready []*entry, commits []realtime.Commit) {
	if slices.ContainsFunc(ready, (*entry).kills) {
		w.names.Lock()
		defer w.names.Unlock()
		w.moveLocks(ready)
	}
	w.store.Apply(commits...)
}

// kills reports whether rows die by the commit.
func (e *entry) kills() bool {
	return e.versions != nil || slices.ContainsFunc(e.txn.Tables, func(op wal.TableOps) bool { return len(op.Deletes) > 0 })
}

// complete adds what the log does not have: which deleted rows have newer versions, and keys.
func (e *entry) complete(ops []realtime.Op) {
	if len(ops) == 0 {
		return
	}
	for i := range e.keys {
		ops[i].Keys = e.keys[i]
	}
	for i, places := range e.versions {
		if places == nil {
			continue
		}
		ops[i].Updated = make([]bool, len(places))
		for k, place := range places {
			ops[i].Updated[k] = place != noVersion
		}
	}
}
