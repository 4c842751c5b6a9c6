package keyindex

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/FastFilter/xorfilter"

	"sluice/writer/invariants"
)

// Writer writes one run. It holds one section in memory and eight bytes for each block of the run.
type Writer struct {
	meta  Meta
	path  string // where the run will be; "": nowhere, the file has no name
	file  *os.File
	out   *bufio.Writer
	seed  uint32
	plain bool // without filters: for what is read once, in order

	block    [blockSize]byte
	n        int // entries in block
	count    uint64
	prev     uint64   // hash of the last entry
	hashes   []uint64 // of the section, each once
	fuse     xorfilter.BinaryFuseBuilder
	last     []uint64
	sections []place
	offset   uint64
}

// Suffix of a run that is not complete. A crash leaves it; whoever owns the folder removes such files at the start.
const Suffix = ".tmp"

// Create begins a run. It is at path only once Finish has returned.
func Create(path string, m Meta) (*Writer, error) {
	f, err := os.Create(path + Suffix)
	if err != nil {
		return nil, fmt.Errorf("create key index: %w", err)
	}
	w := newWriter(f, m)
	w.path = path
	return w, nil
}

// nameless begins a run that nobody else sees and that ends with the process: a crash leaves at most an empty file with Suffix.
func nameless(dir string, plain bool) (*Writer, error) {
	f, err := os.CreateTemp(dir, "keys-*"+Suffix)
	if err != nil {
		return nil, fmt.Errorf("create key index: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(fmt.Errorf("create key index: %w", err), f.Close())
	}
	w := newWriter(f, Meta{})
	w.plain = plain
	return w, nil
}

func newWriter(f *os.File, m Meta) *Writer {
	invariants.Check(slices.IsSorted(m.Files), "key index of files %v", m.Files)
	w := &Writer{meta: m, file: f, out: bufio.NewWriterSize(f, 1<<18), seed: m.seed()}
	w.write(make([]byte, blockSize)) // the header comes last; without it this is no run
	return w
}

// write keeps its error in out: Flush returns it.
func (w *Writer) write(b []byte) {
	n, _ := w.out.Write(b)
	w.offset += uint64(n)
}

// Add appends an entry. Hashes come in order; of entries with one hash the newest comes first.
func (w *Writer) Add(e Entry) error {
	if w.count > 0 && e.Hash < w.prev {
		return fmt.Errorf("key index: hash %x after %x", e.Hash, w.prev)
	}
	if !w.plain && (len(w.hashes) == 0 || e.Hash != w.prev) {
		w.hashes = append(w.hashes, e.Hash)
	}
	if w.count%(blockEntries*sectionBlocks) == 0 {
		w.sections = append(w.sections, place{offset: w.offset})
	}
	at := w.block[blockHead+w.n*entrySize:][:entrySize]
	binary.LittleEndian.PutUint64(at, e.Hash)
	binary.LittleEndian.PutUint32(at[8:], e.Row)
	binary.LittleEndian.PutUint32(at[12:], uint32(e.File))
	w.n++
	w.count++
	w.prev = e.Hash
	if w.n < blockEntries {
		return nil
	}
	return w.endBlock()
}

func (w *Writer) endBlock() error {
	binary.LittleEndian.PutUint32(w.block[4:], uint32(w.n))
	binary.LittleEndian.PutUint32(w.block[:], blockCRC(w.block[:], w.seed, len(w.last)))
	w.write(w.block[:])
	w.last = append(w.last, w.prev)
	clear(w.block[:])
	w.n = 0
	if len(w.last)%sectionBlocks == 0 {
		return w.endSection()
	}
	return nil
}

func (w *Writer) endSection() error {
	if w.plain {
		return nil
	}
	f, err := xorfilter.BuildBinaryFuse[uint8](&w.fuse, w.hashes)
	if err != nil {
		return fmt.Errorf("filter of %d hashes: %w", len(w.hashes), err)
	}
	w.hashes = w.hashes[:0]
	b := appendFilter(nil, &f)
	s := &w.sections[len(w.sections)-1]
	s.fuse = uint32(len(b))
	b = append(b, make([]byte, pages(len(b))-len(b))...)
	s.crc = crc32.Checksum(b, castagnoli)
	w.write(b)
	return nil
}

// Finish completes the run: when it returns nil the run is at its path, durable. After an error it may be there, whole, or not.
func (w *Writer) Finish() error {
	if err := w.complete(); err != nil {
		return errors.Join(err, w.Abort())
	}
	if err := w.place(); err != nil {
		return errors.Join(fmt.Errorf("finish key index: %w", err), w.Abort())
	}
	return nil
}

// place gives a complete file its name. A crash before the rename leaves a file with Suffix, one after it the run.
func (w *Writer) place() error {
	if err := w.file.Sync(); err != nil {
		return err
	}
	if err := os.Rename(w.file.Name(), w.path); err != nil {
		return err
	}
	return errors.Join(syncFolder(filepath.Dir(w.path)), w.file.Close())
}

// syncFolder makes the names in a folder durable, and that others are gone.
func syncFolder(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Abort gives the run up and removes what there is of it.
func (w *Writer) Abort() error {
	w.file.Close()
	if w.path == "" {
		return nil
	}
	return os.Remove(w.file.Name())
}

// complete writes what is left, the directory and the header.
func (w *Writer) complete() error {
	if w.n > 0 {
		if err := w.endBlock(); err != nil {
			return err
		}
	}
	if len(w.last)%sectionBlocks != 0 {
		if err := w.endSection(); err != nil {
			return err
		}
	}
	h, dir := w.directory()
	w.write(dir)
	if err := w.out.Flush(); err != nil {
		return fmt.Errorf("write key index: %w", err)
	}
	if _, err := w.file.WriteAt(h.encode(), 0); err != nil {
		return fmt.Errorf("write key index: %w", err)
	}
	return nil
}

func (w *Writer) directory() (*header, []byte) {
	var b []byte
	for _, last := range w.last {
		b = binary.LittleEndian.AppendUint64(b, last)
	}
	for _, s := range w.sections {
		b = s.append(b)
	}
	for _, f := range w.meta.Files {
		b = binary.LittleEndian.AppendUint32(b, uint32(f))
	}
	b = append(b, w.meta.Label...)
	h := &header{count: w.count, blocks: uint32(len(w.last)), sections: uint32(len(w.sections)), dirAt: w.offset, dirLen: uint64(len(b)),
		files: uint32(len(w.meta.Files)), label: uint32(len(w.meta.Label)), dCRC: crc32.Checksum(b, castagnoli)}
	if w.meta.Loose {
		h.flags |= flagLoose
	}
	return h, b
}

// run completes a nameless run and opens it.
func (w *Writer) run() (*Run, error) {
	err := w.complete()
	if err == nil {
		_, err = w.file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, w.Abort())
	}
	r, err := load(w.file)
	if err != nil {
		return nil, errors.Join(err, w.Abort())
	}
	return r, nil
}
