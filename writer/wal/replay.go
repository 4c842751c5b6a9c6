package wal

import (
	"context"
	"errors"
	"fmt"
	"io"

	"sluice/writer/table"
)

// Replay yields the transactions with Position >= from in order and then makes the log ready for appending behind the
// last one. On a new log it makes the first segment, whose first position is from. It must be called once, before
// Enqueue and Run; after an error the log is of no use.
//
// Every frame is verified. The log may end in the middle of an append (a crash before its sync): that rest is not
// replayed and made unreadable for ever. Anything else that is not right is ErrCorrupt or ErrVersion, never an end.
func (l *Log) Replay(ctx context.Context, from table.Position, schemas Schemas, fn func(*Txn) error) error {
	if len(l.segments) == 0 {
		return l.begin(from)
	}
	if first := l.segments[0].first; from < first {
		return &CorruptError{Segment: l.segments[0].name(), Reason: fmt.Sprintf("the log begins at position %d, %d is needed", first, from)}
	}
	i := l.start(from)
	for ; i < len(l.segments)-1; i++ {
		if err := l.replaySealed(ctx, i, from, schemas, fn); err != nil {
			return err
		}
	}
	return l.replayLast(ctx, from, schemas, fn)
}

func (l *Log) begin(from table.Position) error {
	h := segmentHeader{stream: l.stream, number: 1, first: from}
	f, err := l.activate(h, l.opts.SegmentSize)
	if err != nil {
		return fmt.Errorf("make first segment: %w", err)
	}
	l.resume(f, place{number: 1, off: blockSize, size: l.opts.SegmentSize}, from)
	return nil
}

// start is the index of the segment that holds from: those before it only wait for Trim.
func (l *Log) start(from table.Position) int {
	i := 0
	for i < len(l.segments)-1 && l.segments[i+1].first <= from {
		l.segments[i].end = l.segments[i+1].prevEnd
		i++
	}
	return i
}

func (l *Log) resume(f file, p place, next table.Position) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.active, l.place, l.next, l.durable, l.ready = f, p, next, next-1, true
	l.segments[len(l.segments)-1].end = p.off
}

// replaySealed reads a segment that has a successor, whose header says exactly what there is to find: no frame of it is
// torn, and a rest behind the end that an earlier crash left is never looked at.
func (l *Log) replaySealed(ctx context.Context, i int, from table.Position, schemas Schemas, fn func(*Txn) error) error {
	s, succ := &l.segments[i], &l.segments[i+1]
	f, err := l.folder.open(s.name())
	if err != nil {
		return err
	}
	defer f.close()
	r := newScan(f, s, l.seed, succ.prevEnd)
	for r.off < succ.prevEnd {
		if err := replayFrame(ctx, r, from, schemas, fn); err != nil {
			return r.fatal(err)
		}
	}
	if r.crc != succ.prevCRC || r.next != succ.first {
		return r.fatal(r.corrupt("ends with position %d and checksum %08x, its successor expects %d and %08x", r.next-1, r.crc, succ.first-1, succ.prevCRC))
	}
	s.end, l.time = r.off, max(l.time, r.time)
	return nil
}

func (l *Log) replayLast(ctx context.Context, from table.Position, schemas Schemas, fn func(*Txn) error) error {
	s := &l.segments[len(l.segments)-1]
	f, err := l.folder.open(s.name())
	if err != nil {
		return err
	}
	r := newScan(f, s, l.seed, s.size)
	for err == nil {
		err = replayFrame(ctx, r, from, schemas, fn)
	}
	if errors.Is(err, errNoFrame) {
		err = l.settle(r)
	}
	if err == nil && r.next < from {
		err = &CorruptError{Segment: s.name(), Offset: r.off, Reason: fmt.Sprintf("the log ends with position %d, but everything below %d is known as committed", r.next-1, from)}
	}
	if err != nil {
		f.close()
		return r.fatal(err)
	}
	l.time = max(l.time, r.time)
	l.resume(f, place{number: s.number, off: r.off, size: s.size, crc: r.crc}, r.next)
	return nil
}

func replayFrame(ctx context.Context, r *scan, from table.Position, schemas Schemas, fn func(*Txn) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	at := r.off
	h, frame, own, err := r.frame()
	if err != nil || h.position < from {
		return err
	}
	t, err := decode(frame, &h, schemas, own)
	if c := (*CorruptError)(nil); errors.As(err, &c) {
		c.Offset = at
	}
	if err != nil {
		return fmt.Errorf("read position %d: %w", h.position, err)
	}
	return fn(t)
}

// settle looks at what lies behind the last good frame of the last segment and makes it unreadable.
//
// A frame there that was written after the bad one had been durable proves a damage: a crash cannot undo a sync. Frames of
// the same append prove nothing, since a disk writes the blocks of an unsynced append in any order.
//
// The last append that is good may have been written but never synced, its pages even marked clean by a sync that
// failed. It is about to be acknowledged, so its bytes are written once more, and synced. A crash here changes nothing:
// the next replay finds the same frames, or, of this append, fewer.
func (l *Log) settle(r *scan) error {
	rest, err := r.rest()
	if err != nil {
		return err
	}
	if rest > r.off {
		if err := writeZeroes(r.file, r.off, rest); err != nil {
			return err
		}
	}
	if err := rewrite(r.file, r.appendOff, r.off); err != nil {
		return err
	}
	if err := r.file.sync(); err != nil {
		return err
	}
	// The segment's name may not have reached the disk either.
	return l.folder.sync()
}

func rewrite(f file, off, end int64) error {
	b := make([]byte, min(int64(len(zeroStep)), end-off))
	for off < end {
		b = b[:min(int64(len(b)), end-off)]
		if _, err := f.ReadAt(b, off); err != nil {
			return err
		}
		if err := f.writev([][]byte{b}, off); err != nil {
			return err
		}
		off += int64(len(b))
	}
	return nil
}

// scan reads the frames of one segment.
type scan struct {
	file      file
	segment   *segment
	seed      uint32
	limit     int64          // frames end here at the latest
	off       int64          // of the next frame
	next      table.Position // that it must have
	crc       uint32         // of the last frame's header
	time      int64          // of the last frame
	appendOff int64          // where the last append begins
	window    window
	why       string // why there is no frame at off
}

// errNoFrame means that there is no good frame: the end, a torn append, or a damage.
var errNoFrame = errors.New("no frame")

func newScan(f file, s *segment, seed uint32, limit int64) *scan {
	return &scan{file: f, segment: s, seed: seed, limit: limit, off: blockSize, next: s.first, appendOff: blockSize,
		window: window{file: f, bytes: make([]byte, min(windowSize, max(limit, blockSize)))}}
}

// frame reads the next frame. own says that the bytes are not going to be overwritten by the next call.
func (r *scan) frame() (h header, frame []byte, own bool, err error) {
	h, err = r.header(r.off)
	if err != nil {
		return h, nil, false, err
	}
	if h.position != r.next || h.first > h.position {
		return h, nil, false, r.corrupt("frame of position %d in an append from %d, expected position %d", h.position, h.first, r.next)
	}
	frame, own, err = r.read(r.off, h.length)
	if err == nil && !h.verifyFrame(frame) {
		err = r.none("checksum of the body or the row numbers of position %d", h.position)
	}
	if err != nil {
		return h, nil, false, err
	}
	if h.first == h.position {
		r.appendOff = r.off
	}
	r.off += h.length
	r.next++
	r.crc, r.time = h.crc, int64(le.Uint64(frame[atTime:]))
	return h, frame, own, nil
}

// header reads and verifies the frame header at off: errNoFrame if there is none of this segment.
func (r *scan) header(off int64) (h header, err error) {
	b, _, err := r.read(off, min(fixedHeader, r.limit-off))
	if err != nil {
		return h, err
	}
	h, ok := readHeader(b, r.limit-off)
	if !ok {
		if isBlank(b) {
			return h, r.none("blank")
		}
		return h, r.none("no frame header")
	}
	if !h.verify(b, r.seed) {
		return h, r.none("header checksum is not %08x", h.crc)
	}
	if h.segment != r.segment.number {
		return h, r.none("frame of segment %d", h.segment)
	}
	if !h.known() {
		return h, fmt.Errorf("frame at offset %d: version %d, kind %d, flags %#x: %w", off, h.version, h.kind, h.flags, ErrVersion)
	}
	return h, nil
}

// rest is where the readable frame headers behind the end stop; without any it is the end itself.
func (r *scan) rest() (int64, error) {
	end, why := r.off, r.why
	for off := r.off; off+fixedHeader <= r.limit; off += frameAlign {
		found, err := r.candidate(off)
		if err != nil {
			return 0, err
		}
		if !found {
			continue
		}
		h, err := r.header(off)
		if errors.Is(err, errNoFrame) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if h.first > r.next {
			r.why = why
			return 0, r.corrupt("%s, but position %d at offset %d was appended when position %d was durable", why, h.position, off, h.first-1)
		}
		end = off + fixedHeader
	}
	return end, nil
}

// candidate says whether a frame header could begin at off; it is asked for every 8 bytes of a segment's rest.
func (r *scan) candidate(off int64) (bool, error) {
	b, _, err := r.read(off, frameAlign)
	return err == nil && le.Uint16(b[atMagic:]) == frameMagic, err
}

func (r *scan) read(off, n int64) ([]byte, bool, error) {
	b, own, err := r.window.read(off, int(n))
	if errors.Is(err, io.EOF) {
		err = r.none("the file ends before offset %d", off+n)
	}
	return b, own, err
}

func (r *scan) none(format string, args ...any) error {
	r.why = fmt.Sprintf(format, args...)
	return errNoFrame
}

func (r *scan) corrupt(format string, args ...any) error {
	return &CorruptError{Offset: r.off, Reason: fmt.Sprintf(format, args...)}
}

// fatal names the segment; a frame that is missing where one must be is a damage.
func (r *scan) fatal(err error) error {
	if errors.Is(err, errNoFrame) {
		err = r.corrupt("%s, expected position %d", r.why, r.next)
	}
	return in(r.segment.name(), err)
}

const windowSize = 1 << 20

// window reads a file in large steps.
type window struct {
	file  file
	bytes []byte
	off   int64
	n     int
}

// read is n bytes at off. A range larger than the window gets its own memory.
func (w *window) read(off int64, n int) (b []byte, own bool, err error) {
	if n > len(w.bytes) {
		b = make([]byte, n)
		got, err := w.file.ReadAt(b, off)
		return b, true, short(got, n, err)
	}
	if off < w.off || off+int64(n) > w.off+int64(w.n) {
		got, err := w.file.ReadAt(w.bytes, off)
		w.off, w.n = off, got
		if got < n {
			return nil, false, short(got, n, err)
		}
	}
	at := int(off - w.off)
	return w.bytes[at : at+n : at+n], false, nil
}

func short(got, n int, err error) error {
	if got >= n || err == nil {
		return nil
	}
	return fmt.Errorf("read %d of %d bytes: %w", got, n, err)
}
