package wal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"slices"
	"strings"

	"sluice/writer/table"
)

// The segment header is the first block of a segment, little-endian. It is written and synced before the file gets its
// name, so a file with a segment's name always has one, and no append ever touches its block again.
const (
	segMagic   = 0  // 8 bytes
	segVersion = 8  // u32
	segFlags   = 12 // u32, zero
	segStream  = 16 // 16 bytes, random for every new log
	segNumber  = 32 // u64, from 1, never used twice in a stream: the epoch of the file
	segFirst   = 40 // u64, the first position that is in it or will be
	segPrevEnd = 48 // u64, where the frames of the segment before end
	segPrevCRC = 56 // u32, checksum in the last frame header of the segment before
	segCRC     = 4092

	blockSize     = 4096
	segmentMagic  = "SLUICWAL"
	formatVersion = 1
)

// segmentHeader is the content of a segment's first block.
type segmentHeader struct {
	stream  [16]byte
	number  uint64
	first   table.Position
	prevEnd int64
	prevCRC uint32
}

func (h *segmentHeader) encode() []byte {
	b := make([]byte, blockSize)
	copy(b[segMagic:], segmentMagic)
	le.PutUint32(b[segVersion:], formatVersion)
	copy(b[segStream:], h.stream[:])
	le.PutUint64(b[segNumber:], h.number)
	le.PutUint64(b[segFirst:], uint64(h.first))
	le.PutUint64(b[segPrevEnd:], uint64(h.prevEnd))
	le.PutUint32(b[segPrevCRC:], h.prevCRC)
	le.PutUint32(b[segCRC:], crc32.Checksum(b[:segCRC], castagnoli))
	return b
}

func decodeSegmentHeader(b []byte) (h segmentHeader, err error) {
	if len(b) < blockSize || string(b[:len(segmentMagic)]) != segmentMagic {
		return h, &CorruptError{Reason: "no segment header"}
	}
	if v := le.Uint32(b[segVersion:]); v != formatVersion {
		return h, fmt.Errorf("segment of version %d: %w", v, ErrVersion)
	}
	if want, got := le.Uint32(b[segCRC:]), crc32.Checksum(b[:segCRC], castagnoli); want != got {
		return h, &CorruptError{Reason: fmt.Sprintf("segment header checksum %08x, expected %08x", got, want)}
	}
	if f := le.Uint32(b[segFlags:]); f != 0 {
		return h, fmt.Errorf("segment with flags %#x: %w", f, ErrVersion)
	}
	copy(h.stream[:], b[segStream:])
	h.number = le.Uint64(b[segNumber:])
	h.first = table.Position(le.Uint64(b[segFirst:]))
	h.prevEnd = int64(le.Uint64(b[segPrevEnd:]))
	h.prevCRC = le.Uint32(b[segPrevCRC:])
	return h, nil
}

// segment is one live file of the log.
type segment struct {
	segmentHeader
	size int64 // of the file
	end  int64 // where its frames end, as far as they are durable
}

func (s *segment) name() string { return segmentName(s.number) }

const (
	segmentSuffix = ".wal"
	sparePrefix   = "spare."
	fillPrefix    = "fill."
)

func segmentName(n uint64) string { return fmt.Sprintf("%016x%s", n, segmentSuffix) }

// load finds the live segments and the spares, and removes what a crash left half made.
func (l *Log) load() error {
	names, err := l.folder.list()
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		switch {
		case strings.HasPrefix(name, fillPrefix):
			err = l.folder.remove(name)
		case strings.HasPrefix(name, sparePrefix):
			err = l.loadSpare(name)
		case strings.HasSuffix(name, segmentSuffix):
			err = l.loadSegment(name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *Log) loadSpare(name string) error {
	var n uint64
	if _, err := fmt.Sscanf(name, sparePrefix+"%d", &n); err == nil {
		l.lastSpare = max(l.lastSpare, n)
	}
	size, err := sizeOf(l.folder, name)
	if err != nil {
		return err
	}
	if size != l.opts.SegmentSize || len(l.spares) >= l.opts.Spares {
		return l.folder.remove(name)
	}
	l.spares = append(l.spares, name)
	return nil
}

func (l *Log) loadSegment(name string) error {
	s, err := readSegment(l.folder, name)
	if err != nil {
		return err
	}
	if n := len(l.segments); n > 0 {
		if err := s.follows(&l.segments[n-1]); err != nil {
			return err
		}
	}
	l.segments = append(l.segments, s)
	return nil
}

// readSegment reads the header of a segment file.
func readSegment(d folder, name string) (s segment, err error) {
	f, err := d.open(name)
	if err != nil {
		return s, err
	}
	defer f.close()
	b := make([]byte, blockSize)
	n, _ := f.ReadAt(b, 0) // a short file fails below
	if s.segmentHeader, err = decodeSegmentHeader(b[:n]); err != nil {
		return s, in(name, err)
	}
	if s.name() != name {
		return s, &CorruptError{Segment: name, Reason: fmt.Sprintf("header of segment %d", s.number)}
	}
	s.size, err = f.size()
	s.end = blockSize
	return s, err
}

// in names the segment in a CorruptError, and around any other error.
func in(name string, err error) error {
	var c *CorruptError
	if errors.As(err, &c) {
		c.Segment = name
		return c
	}
	return fmt.Errorf("segment %s: %w", name, err)
}

func (s *segment) follows(p *segment) error {
	if s.stream != p.stream || s.number != p.number+1 || s.first < p.first {
		return &CorruptError{Segment: s.name(), Reason: fmt.Sprintf("segment %d of stream %x from position %d does not follow segment %d of stream %x from position %d",
			s.number, s.stream, s.first, p.number, p.stream, p.first)}
	}
	return nil
}

func sizeOf(d folder, name string) (int64, error) {
	f, err := d.open(name)
	if err != nil {
		return 0, err
	}
	n, err := f.size()
	return n, errors.Join(err, f.close())
}

// activate makes the next segment the one that is written to. Everything in the segments before is durable.
//
// A crash before the rename leaves a spare or a file to remove; between rename and folder sync either that or an empty
// segment; after it an empty segment, which replay continues. Only then are frames written.
func (l *Log) activate(h segmentHeader, size int64) (file, error) {
	name, err := l.blank(size)
	if err != nil {
		return nil, err
	}
	f, err := l.folder.open(name)
	if err != nil {
		return nil, err
	}
	if err := l.name(f, name, &h); err != nil {
		f.close()
		return nil, err
	}
	l.mu.Lock()
	l.segments = append(l.segments, segment{segmentHeader: h, size: size, end: blockSize})
	l.mu.Unlock()
	l.wakeFiller()
	return f, nil
}

func (l *Log) name(f file, spare string, h *segmentHeader) error {
	if err := f.writev([][]byte{h.encode()}, 0); err != nil {
		return err
	}
	if err := f.sync(); err != nil {
		return err
	}
	if err := l.folder.rename(spare, segmentName(h.number)); err != nil {
		return err
	}
	return l.folder.sync()
}

// blank is the name of a file to make a segment of. An oversized segment (one frame larger than a segment) is an empty
// file: it is written once, so zero-filling it would be the same work twice.
func (l *Log) blank(size int64) (string, error) {
	l.filling.Lock() // the filler may be half way through the very file that is needed
	defer l.filling.Unlock()
	if size != l.opts.SegmentSize {
		return l.fill(context.Background(), 0)
	}
	if name, ok := l.popSpare(); ok {
		return name, nil
	}
	return l.fill(context.Background(), size)
}

func (l *Log) popSpare() (string, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.spares) == 0 {
		return "", false
	}
	name := l.spares[0]
	l.spares = l.spares[1:]
	return name, true
}

func (l *Log) spareName() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastSpare++
	return fmt.Sprintf("%s%d", sparePrefix, l.lastSpare)
}

// fillStep is how much is zero-filled between two syncs, so that a commit's sync never waits behind a whole segment.
const fillStep = 4 << 20

var zeroStep = make([]byte, 1<<20)

// fill makes a file of size zero bytes, really written: appending into it then moves no metadata. The caller holds filling.
func (l *Log) fill(ctx context.Context, size int64) (string, error) {
	spare := l.spareName()
	name := fillPrefix + strings.TrimPrefix(spare, sparePrefix)
	f, err := l.folder.create(name)
	if err != nil {
		return "", err
	}
	err = errors.Join(zeroFill(ctx, f, size), f.close())
	if err == nil {
		err = l.folder.rename(name, spare)
	}
	if err != nil {
		return "", errors.Join(err, l.folder.remove(name))
	}
	return spare, nil
}

func zeroFill(ctx context.Context, f file, size int64) error {
	for off := int64(0); off < size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		stop := min(off+fillStep, size)
		if err := writeZeroes(f, off, stop); err != nil {
			return err
		}
		if err := f.sync(); err != nil {
			return err
		}
		off = stop
	}
	return nil
}

func writeZeroes(f file, off, stop int64) error {
	for off < stop {
		n := min(int64(len(zeroStep)), stop-off)
		if err := f.writev([][]byte{zeroStep[:n]}, off); err != nil {
			return err
		}
		off += n
	}
	return nil
}

// runFiller keeps one spare ahead of the committer. A failure here (a full disk) is not fatal: the committer tries
// again when it needs the file.
func (l *Log) runFiller(ctx context.Context) {
	for {
		l.refill(ctx)
		select {
		case <-l.hungry:
		case <-ctx.Done():
			return
		}
	}
}

func (l *Log) refill(ctx context.Context) {
	l.filling.Lock()
	defer l.filling.Unlock()
	l.mu.Lock()
	enough := len(l.spares) > 0
	l.mu.Unlock()
	if enough {
		return
	}
	if name, err := l.fill(ctx, l.opts.SegmentSize); err == nil {
		l.pushSpare(name)
	}
}

func (l *Log) pushSpare(name string) {
	l.mu.Lock()
	l.spares = append(l.spares, name)
	l.mu.Unlock()
}

func (l *Log) wakeFiller() {
	select {
	case l.hungry <- struct{}{}:
	default:
	}
}

// Trim gives back the segments whose positions are all below the given one: the first few become spares by a rename, the
// rest is deleted. The segment that is written to always stays, so the log knows its end for ever.
//
// A crash in between leaves fewer segments at the front, never a hole: each rename is durable before the next.
func (l *Log) Trim(ctx context.Context, below table.Position) error {
	l.trimming.Lock()
	defer l.trimming.Unlock()
	for {
		s, ok := l.oldest(below)
		if !ok {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := l.retire(&s); err != nil {
			return fmt.Errorf("trim segment %s: %w", s.name(), err)
		}
	}
}

func (l *Log) oldest(below table.Position) (segment, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.segments) < 2 || l.segments[1].first > below {
		return segment{}, false
	}
	return l.segments[0], true
}

func (l *Log) retire(s *segment) error {
	spare, err := l.putAway(s)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	// Before this sync a crash may bring the old name back: the file must not be overwritten as a spare yet.
	if err := l.folder.sync(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.segments = slices.Delete(l.segments, 0, 1)
	if spare != "" {
		l.spares = append(l.spares, spare)
	}
	return nil
}

func (l *Log) putAway(s *segment) (spare string, err error) {
	l.mu.Lock()
	room := len(l.spares) < l.opts.Spares
	l.mu.Unlock()
	if s.size != l.opts.SegmentSize || !room {
		return "", l.folder.remove(s.name())
	}
	spare = l.spareName()
	return spare, l.folder.rename(s.name(), spare)
}

var blankBlock = make([]byte, blockSize)

// isBlank says whether b is all zero.
func isBlank(b []byte) bool {
	for len(b) > blockSize {
		if !bytes.Equal(b[:blockSize], blankBlock) {
			return false
		}
		b = b[blockSize:]
	}
	return bytes.Equal(b, blankBlock[:len(b)])
}
