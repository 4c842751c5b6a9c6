package wal

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"sync"

	"sluice/writer/invariants"
	"sluice/writer/table"
)

// ownWrite is the size from which a frame is written from its own memory instead of being copied into the group's.
const ownWrite = 256 << 10

// keepBuffer is the capacity up to which a group's buffer is kept for the next group.
const keepBuffer = 4 << 20

// Log is an open log. One sequencer calls Enqueue, one goroutine is in Run; Trim and Stats may be called by anybody.
type Log struct {
	opts   Options
	folder folder
	lock   *os.File // nil without a lock (tests)
	stream [16]byte
	seed   uint32 // checksum of stream: frame headers continue it, so no frame of another log, nor bytes in a row, pass

	wake     chan struct{} // one token: the open group is not empty
	hungry   chan struct{} // one token: a spare was taken
	filling  sync.Mutex    // held while a file is zero-filled
	trimming sync.Mutex    // held by Trim

	// mu is held for the copy of at most ownWrite bytes and never over I/O.
	mu        sync.Mutex
	ready     bool           // Replay has found the end
	err       error          // why nothing can be appended any more
	next      table.Position // the position that Enqueue expects
	time      int64          // commit time of the last frame: the next one's is not before it
	place     place          // where its frame goes
	open      *Group         // nil while pending is empty
	pending   *pending
	segments  []segment // live, in order; the last one is written to
	spares    []string
	lastSpare uint64
	durable   table.Position

	active file     // owned by the committer, before Run by Replay
	idle   *pending // the other of the two buffers, nil while the committer has it
}

// place is the end of what has been planned: the open group may not be written yet.
type place struct {
	number    uint64 // of the segment
	off, size int64
	crc       uint32 // of the last frame header in the segment, 0 if there is none
}

// Group is the transactions that become durable with one append.
type Group struct {
	done chan struct{}
	err  error
}

// Done is closed when the group is durable and published, or has failed.
func (g *Group) Done() <-chan struct{} { return g.done }

// Err is the outcome; it may be called once Done is closed. It is nil, an *UnknownError or ErrClosed.
func (g *Group) Err() error { return g.err }

// pending is the memory of one group.
type pending struct {
	bytes  []byte
	frames []*Frame
	runs   []run
	vec    [][]byte
}

// run is one append: frames that lie one behind the other in one segment.
type run struct {
	opens  bool // this run is the first in its segment
	header segmentHeader
	size   int64
	off    int64
	end    int64
	first  table.Position
	last   table.Position
	pieces []piece
}

// piece is a range of the group's bytes, or the memory of one large frame.
type piece struct {
	own      []byte
	from, to int
}

// Open takes the folder's lock and reads the segment headers; a missing folder is made. If another process has the lock
// the error is a *HeldError. Replay comes next, on a new log too.
func Open(ctx context.Context, dir string, opts Options) (*Log, error) {
	opts = opts.withDefaults()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open wal: %w", err)
	}
	if err := (disk{filepath.Dir(filepath.Clean(dir))}).sync(); err != nil { // so that the folder itself stays
		return nil, fmt.Errorf("open wal: %w", err)
	}
	lock, err := hold(dir, opts.Now())
	if err != nil {
		return nil, fmt.Errorf("open wal: %w", err)
	}
	l, err := openFolder(ctx, disk{dir}, opts)
	if err != nil {
		lock.Close()
		return nil, fmt.Errorf("open wal %s: %w", filepath.Clean(dir), err)
	}
	l.lock = lock
	return l, nil
}

func openFolder(ctx context.Context, d folder, opts Options) (*Log, error) {
	l := &Log{
		opts: opts, folder: d, wake: make(chan struct{}, 1), hungry: make(chan struct{}, 1),
		pending: &pending{}, idle: &pending{},
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := l.load(); err != nil {
		return nil, err
	}
	if len(l.segments) > 0 {
		l.stream = l.segments[0].stream
	} else if _, err := io.ReadFull(opts.Random, l.stream[:]); err != nil {
		return nil, fmt.Errorf("draw stream id: %w", err)
	}
	l.seed = crc32.Update(0, castagnoli, l.stream[:])
	return l, nil
}

// Stream is the random id that the log got when it was made: a folder that was lost and made anew has another one.
func (l *Log) Stream() [16]byte { return l.stream }

// Enqueue gives f its position and the row numbers of its tables (one for each of Txn.Tables) and adds it to the open
// group. A commit time before that of the frame before (a clock was set back, or two transactions overtook each other) becomes that. The caller holds the sequencer, so that positions come without gaps. It never waits for the device.
func (l *Log) Enqueue(f *Frame, pos table.Position, firsts []uint64) *Group {
	l.mu.Lock()
	defer l.mu.Unlock()
	invariants.Check(len(firsts) == len(f.txn.Tables), "I7: %d row numbers for %d tables", len(firsts), len(f.txn.Tables))
	invariants.Check(!l.ready || l.err != nil || pos == l.next, "I7: position %d after %d", pos, l.next-1)
	if l.err == nil && (!l.ready || pos != l.next) {
		l.err = fmt.Errorf("append position %d to a wal that expects %d: %w", pos, l.next, ErrClosed)
	}
	if l.err != nil {
		return failed(l.err)
	}
	l.next++
	l.time = max(l.time, f.txn.Time)
	f.setTime(l.time)
	r := l.runFor(pos, int64(len(f.bytes)))
	l.place.crc = f.patch(l.seed, l.place.number, r.first, pos, firsts)
	l.place.off += int64(len(f.bytes))
	r.end, r.last = l.place.off, pos
	l.pending.add(r, f)
	return l.join()
}

func failed(err error) *Group {
	g := &Group{done: make(chan struct{}), err: err}
	close(g.done)
	return g
}

// runFor is the run that a frame of n bytes at pos belongs to: the last one of the group, or a new one in this segment
// (the group is empty), or one that opens the next segment.
func (l *Log) runFor(pos table.Position, n int64) *run {
	p, b := &l.place, l.pending
	if p.off+n > p.size {
		h := segmentHeader{stream: l.stream, number: p.number + 1, first: pos, prevEnd: p.off, prevCRC: p.crc}
		*p = place{number: h.number, off: blockSize, size: max(l.opts.SegmentSize, roundUp(blockSize+n, blockSize))}
		b.runs = append(b.runs, run{opens: true, header: h, size: p.size, off: p.off, first: pos})
	} else if len(b.runs) == 0 {
		b.runs = append(b.runs, run{off: p.off, first: pos})
	}
	return &b.runs[len(b.runs)-1]
}

func (b *pending) add(r *run, f *Frame) {
	b.frames = append(b.frames, f)
	if len(f.bytes) >= ownWrite {
		r.pieces = append(r.pieces, piece{own: f.bytes})
		return
	}
	from := len(b.bytes)
	b.bytes = append(b.bytes, f.bytes...)
	if n := len(r.pieces); n > 0 && r.pieces[n-1].own == nil {
		r.pieces[n-1].to = len(b.bytes)
		return
	}
	r.pieces = append(r.pieces, piece{from: from, to: len(b.bytes)})
}

// join is the open group; the first one to join wakes the committer. The caller holds mu.
func (l *Log) join() *Group {
	if l.open == nil {
		l.open = &Group{done: make(chan struct{})}
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
	return l.open
}

// Run makes groups durable until ctx ends or the device fails; then it writes the last group and closes the log. For
// each group it swaps the open group out, writes and syncs it, calls publish with the group's frames in order, and only
// then closes the group's channel. publish must not keep the slice.
//
// While it runs, a second goroutine zero-fills the next segment ahead; it has ended when Run returns. An *UnknownError
// means that the process must stop and recover.
func (l *Log) Run(ctx context.Context, publish func([]*Frame)) error {
	if !l.isReady() {
		return errors.New("run wal: not replayed")
	}
	fillCtx, stop := context.WithCancel(ctx)
	var filler sync.WaitGroup
	filler.Go(func() { l.runFiller(fillCtx) })
	defer filler.Wait()
	defer stop()
	for {
		select {
		case <-l.wake:
		case <-ctx.Done():
			l.shut(ErrClosed)
			return l.commit(publish)
		}
		if err := l.commit(publish); err != nil {
			return err
		}
	}
}

func (l *Log) isReady() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ready
}

// shut makes every later Enqueue fail with err.
func (l *Log) shut(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
	}
}

// commit is one round of the committer.
func (l *Log) commit(publish func([]*Frame)) error {
	g, b := l.swap()
	if g == nil {
		return nil
	}
	if err := l.write(b); err != nil {
		return l.fail(g, err)
	}
	publish(b.frames) // before the acknowledgement: who was told must see it
	close(g.done)
	b.reset()
	l.idle = b
	return nil
}

func (l *Log) swap() (*Group, *pending) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g, b := l.open, l.pending
	if g == nil {
		return nil, nil
	}
	l.open, l.pending, l.idle = nil, l.idle, nil
	return g, b
}

func (b *pending) reset() {
	clear(b.frames)
	clear(b.runs)
	clear(b.vec)
	b.bytes, b.frames, b.runs, b.vec = b.bytes[:0], b.frames[:0], b.runs[:0], b.vec[:0]
	if cap(b.bytes) > keepBuffer {
		b.bytes = nil
	}
}

// write makes the group durable, run by run: a segment is synced before the next one is opened, whose header states
// where it ended. A crash in between leaves a prefix of the group, none of which has been acknowledged.
func (l *Log) write(b *pending) error {
	for i := range b.runs {
		r := &b.runs[i]
		if err := l.append(b, r); err != nil {
			return err
		}
		l.mu.Lock()
		l.durable = r.last
		l.segments[len(l.segments)-1].end = r.end
		l.mu.Unlock()
	}
	return nil
}

func (l *Log) append(b *pending, r *run) error {
	if r.opens {
		f, err := l.activate(r.header, r.size)
		if err != nil {
			return fmt.Errorf("open segment %d: %w", r.header.number, err)
		}
		if err := l.active.close(); err != nil {
			f.close()
			return err
		}
		l.active = f
	}
	if err := l.active.writev(b.vectors(r), r.off); err != nil {
		return err
	}
	return l.active.sync()
}

func (b *pending) vectors(r *run) [][]byte {
	b.vec = b.vec[:0]
	for _, p := range r.pieces {
		if p.own == nil {
			p.own = b.bytes[p.from:p.to]
		}
		b.vec = append(b.vec, p.own)
	}
	return b.vec
}

// fail ends the log after a failed write or sync. The kernel may have marked the pages clean though the disk does not
// have them, so a second sync could succeed without meaning anything: nobody may try. The groups behind get the same
// error, for their positions can never be reached: the process must stop and recover.
func (l *Log) fail(g *Group, cause error) error {
	err := &UnknownError{Err: cause}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
	g.err = err
	close(g.done)
	if l.open != nil {
		l.open.err = err
		close(l.open.done)
		l.open = nil
	}
	return err
}

// Close gives the lock back. Run must have returned; a group that is still open fails with ErrClosed.
func (l *Log) Close() error {
	l.shut(ErrClosed)
	l.mu.Lock()
	if l.open != nil {
		l.open.err = ErrClosed
		close(l.open.done)
		l.open = nil
	}
	l.mu.Unlock()
	var errs []error
	if l.active != nil {
		errs = append(errs, l.active.close())
		l.active = nil
	}
	if l.lock != nil {
		errs = append(errs, l.lock.Close())
		l.lock = nil
	}
	return errors.Join(errs...)
}

// Stats is what the log holds.
type Stats struct {
	Segments int            // live segments
	Spares   int            // files waiting to become segments
	Bytes    int64          // size of all of them on disk
	Held     int64          // bytes of durable frames in live segments
	First    table.Position // lowest position that can be replayed; above Last if there is none
	Last     table.Position // highest durable position
}

// Stats reports what the log holds, after Replay.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Stats{Segments: len(l.segments), Spares: len(l.spares), Last: l.durable}
	s.Bytes = int64(len(l.spares)) * l.opts.SegmentSize
	for i := range l.segments {
		s.Bytes += l.segments[i].size
		s.Held += l.segments[i].end - blockSize
	}
	if len(l.segments) > 0 {
		s.First = l.segments[0].first
	}
	return s
}
