package keyindex

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"github.com/FastFilter/xorfilter"

	"sluice/writer/table"
)

// The layout; docs/format/keyindex.md.
const (
	magic         = "SLUICKEY"
	version       = 1
	blockSize     = 4096
	blockHead     = 16
	entrySize     = 16
	blockEntries  = (blockSize - blockHead) / entrySize
	sectionBlocks = 256 // of one filter: what is built at a time, and what a lookup of keys in order stays in
	filterHead    = 16
	placeSize     = 16 // of a section in the directory
	flagLoose     = 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Run is an open run. It never changes. Any number of goroutines may read it, none while it is closed.
type Run struct {
	Meta
	name     string // for messages
	file     *os.File
	head     header
	seed     uint32
	last     []uint64 // hash of the last entry, per block
	sections []section
	fuses    int64 // bytes of all filters
}

// section is up to sectionBlocks blocks and the filter of their hashes.
type section struct {
	place
	last   uint64 // hash of the last entry
	filter xorfilter.BinaryFuse[uint8]
}

// place is where a section is.
type place struct {
	offset uint64 // of the first block
	fuse   uint32 // bytes of the filter, which stands behind the blocks; 0: there is none
	crc    uint32 // of the filter up to the end of its last page
}

// header is the first page of a run.
type header struct {
	flags              uint32
	count              uint64
	blocks, sections   uint32
	dirAt, dirLen      uint64
	files, label, dCRC uint32
}

// Open opens the run at path and checks all but its blocks, which are checked when they are read. Errors wrap fs.ErrNotExist or
// ErrCorrupt where the run has to be built anew.
func Open(path string) (*Run, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open key index: %w", err)
	}
	r, err := load(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return r, nil
}

// load makes a run of an open file, which is the run's from then on if there is no error.
func load(f *os.File) (*Run, error) {
	r := &Run{name: f.Name(), file: f}
	for _, step := range []func() error{r.loadHeader, r.loadDirectory, r.loadFilters} {
		if err := step(); err != nil {
			return nil, fmt.Errorf("load key index %s: %w", r.name, err)
		}
	}
	return r, nil
}

// Close closes the file; it stays where it is.
func (r *Run) Close() error { return r.file.Close() }

// Len is the number of entries.
func (r *Run) Len() uint64 { return r.head.count }

// Size is the size of the file in bytes.
func (r *Run) Size() int64 { return int64(r.head.dirAt + r.head.dirLen) }

// Bytes is the memory it holds.
func (r *Run) Bytes() int64 { return r.fuses + int64(len(r.last))*8 + int64(len(r.sections))*128 }

func (r *Run) loadHeader() error {
	b := make([]byte, blockSize)
	if err := r.read(b, 0); err != nil {
		return err
	}
	if string(b[:8]) != magic || crc32.Checksum(b[:blockSize-4], castagnoli) != binary.LittleEndian.Uint32(b[blockSize-4:]) {
		return fmt.Errorf("header: %w", ErrCorrupt)
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != version {
		return fmt.Errorf("version %d, want %d: %w", v, version, ErrCorrupt)
	}
	r.head.decode(b)
	stat, err := r.file.Stat()
	if err != nil {
		return err
	}
	if !r.head.fits() || stat.Size() != r.Size() {
		return fmt.Errorf("size %d: %w", stat.Size(), ErrCorrupt)
	}
	return nil
}

// fits reports whether the counts agree with each other: a header whose checksum is right was written by somebody, but he may err.
func (h *header) fits() bool {
	blocks, sections := uint64(h.blocks), uint64(h.sections)
	return blocks == (h.count+blockEntries-1)/blockEntries && sections == (blocks+sectionBlocks-1)/sectionBlocks &&
		h.dirLen == blocks*8+sections*placeSize+uint64(h.files)*4+uint64(h.label)
}

func (h *header) encode() []byte {
	b := make([]byte, blockSize)
	copy(b, magic)
	le := binary.LittleEndian
	le.PutUint32(b[8:], version)
	le.PutUint32(b[12:], h.flags)
	le.PutUint64(b[16:], h.count)
	le.PutUint32(b[24:], h.blocks)
	le.PutUint32(b[28:], h.sections)
	le.PutUint64(b[32:], h.dirAt)
	le.PutUint64(b[40:], h.dirLen)
	le.PutUint32(b[48:], h.files)
	le.PutUint32(b[52:], h.label)
	le.PutUint32(b[56:], h.dCRC)
	le.PutUint32(b[blockSize-4:], crc32.Checksum(b[:blockSize-4], castagnoli))
	return b
}

func (h *header) decode(b []byte) {
	le := binary.LittleEndian
	*h = header{flags: le.Uint32(b[12:]), count: le.Uint64(b[16:]), blocks: le.Uint32(b[24:]), sections: le.Uint32(b[28:]),
		dirAt: le.Uint64(b[32:]), dirLen: le.Uint64(b[40:]), files: le.Uint32(b[48:]), label: le.Uint32(b[52:]), dCRC: le.Uint32(b[56:])}
}

func (r *Run) loadDirectory() error {
	b := make([]byte, r.head.dirLen)
	if err := r.read(b, r.head.dirAt); err != nil {
		return err
	}
	if crc32.Checksum(b, castagnoli) != r.head.dCRC {
		return fmt.Errorf("directory: %w", ErrCorrupt)
	}
	r.Loose = r.head.flags&flagLoose != 0
	for range r.head.blocks {
		r.last = append(r.last, binary.LittleEndian.Uint64(b))
		b = b[8:]
	}
	for i := range int(r.head.sections) {
		end := min(len(r.last), (i+1)*sectionBlocks)
		r.sections = append(r.sections, section{place: decodePlace(b), last: r.last[end-1]})
		b = b[placeSize:]
	}
	for range r.head.files {
		r.Files = append(r.Files, table.FileID(binary.LittleEndian.Uint32(b)))
		b = b[4:]
	}
	r.Label = string(b)
	r.seed = r.Meta.seed()
	return nil
}

func (p place) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, p.offset)
	b = binary.LittleEndian.AppendUint32(b, p.fuse)
	return binary.LittleEndian.AppendUint32(b, p.crc)
}

func decodePlace(b []byte) place {
	le := binary.LittleEndian
	return place{offset: le.Uint64(b), fuse: le.Uint32(b[8:]), crc: le.Uint32(b[12:])}
}

// seed is what the checksums of a run's blocks begin with, so that a block of another run is none of this one.
func (m *Meta) seed() uint32 {
	crc := crc32.Checksum([]byte(m.Label), castagnoli)
	for _, f := range m.Files {
		crc = crc32.Update(crc, castagnoli, binary.LittleEndian.AppendUint32(nil, uint32(f)))
	}
	return crc
}

func (r *Run) loadFilters() error {
	for i := range r.sections {
		if err := r.loadFilter(i); err != nil {
			return fmt.Errorf("filter %d: %w", i, err)
		}
	}
	return nil
}

func (r *Run) loadFilter(i int) error {
	s := &r.sections[i]
	if s.fuse == 0 {
		return nil
	}
	blocks := min(len(r.last)-i*sectionBlocks, sectionBlocks)
	b := make([]byte, pages(int(s.fuse)))
	if err := r.read(b, s.offset+uint64(blocks)*blockSize); err != nil {
		return err
	}
	if crc32.Checksum(b, castagnoli) != s.crc || s.fuse < filterHead {
		return ErrCorrupt
	}
	r.fuses += int64(len(b))
	return decodeFilter(&s.filter, b[:s.fuse])
}

func appendFilter(b []byte, f *xorfilter.BinaryFuse[uint8]) []byte {
	b = binary.LittleEndian.AppendUint64(b, f.Seed)
	b = binary.LittleEndian.AppendUint32(b, f.SegmentLength)
	b = binary.LittleEndian.AppendUint32(b, f.SegmentCount)
	return append(b, f.Fingerprints...)
}

// decodeFilter checks what Contains relies on: with other numbers it would look behind the fingerprints.
func decodeFilter(f *xorfilter.BinaryFuse[uint8], b []byte) error {
	f.Seed = binary.LittleEndian.Uint64(b)
	f.SegmentLength = binary.LittleEndian.Uint32(b[8:])
	f.SegmentCount = binary.LittleEndian.Uint32(b[12:])
	f.SegmentLengthMask = f.SegmentLength - 1
	f.SegmentCountLength = f.SegmentCount * f.SegmentLength
	f.Fingerprints = b[filterHead:]
	if f.SegmentLength == 0 || f.SegmentLength&f.SegmentLengthMask != 0 || (uint64(f.SegmentCount)+2)*uint64(f.SegmentLength) != uint64(len(f.Fingerprints)) {
		return ErrCorrupt
	}
	return nil
}

// pages is n rounded up to whole pages.
func pages(n int) int { return (n + blockSize - 1) / blockSize * blockSize }

// read fills b from the file; one that ends too early is corrupt.
func (r *Run) read(b []byte, at uint64) error {
	_, err := r.file.ReadAt(b, int64(at))
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%d bytes at %d: the file ends: %w", len(b), at, ErrCorrupt)
	}
	return err
}

// block is one block of a run in memory.
type block struct {
	bytes [blockSize]byte
	at    int // its number; -1: none
	n     int
}

func (b *block) hash(i int) uint64 {
	return binary.LittleEndian.Uint64(b.bytes[blockHead+i*entrySize:])
}

func (b *block) entry(i int) Entry {
	e := b.bytes[blockHead+i*entrySize:][:entrySize]
	return Entry{Hash: binary.LittleEndian.Uint64(e), Row: binary.LittleEndian.Uint32(e[8:]), File: table.FileID(binary.LittleEndian.Uint32(e[12:]))}
}

// load reads block number at, unless it is there.
func (b *block) load(r *Run, at int) error {
	if b.at == at {
		return nil
	}
	b.at = -1
	if err := r.read(b.bytes[:], r.sections[at/sectionBlocks].offset+uint64(at%sectionBlocks)*blockSize); err != nil {
		return fmt.Errorf("read block %d of key index %s: %w", at, r.name, err)
	}
	b.n = int(binary.LittleEndian.Uint32(b.bytes[4:]))
	if blockCRC(b.bytes[:], r.seed, at) != binary.LittleEndian.Uint32(b.bytes[:]) || b.n != r.entries(at) {
		return fmt.Errorf("block %d of key index %s: %w", at, r.name, ErrCorrupt)
	}
	b.at = at
	return nil
}

// entries is how many entries block number at has: all are full but the last.
func (r *Run) entries(at int) int {
	return int(min(r.head.count-uint64(at)*blockEntries, blockEntries))
}

func blockCRC(b []byte, seed uint32, at int) uint32 {
	var number [4]byte
	binary.LittleEndian.PutUint32(number[:], uint32(at))
	return crc32.Update(crc32.Update(seed, castagnoli, number[:]), castagnoli, b[4:])
}
