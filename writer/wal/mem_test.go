package wal

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
)

// memFolder is a folder in memory that knows what is durable and can be copied as after a power failure.
type memFolder struct {
	mu      sync.Mutex
	names   map[string]*memFile
	durable map[string]*memFile               // names as of the last sync
	pending []func(map[string]*memFile)       // name changes since, in order
	hook    func(op, name string) (err error) // may fail an operation; see memFile for what a failure leaves
}

// memFile is a file with a page cache. A failed write may have happened in part; after a failed sync the cache is clean
// though the disk has nothing, as Linux does it.
type memFile struct {
	folder *memFolder
	name   string
	cache  []byte
	disk   []byte
	dirty  map[int64]bool // sectors
}

const sector = 512

func newMemFolder() *memFolder {
	return &memFolder{names: map[string]*memFile{}, durable: map[string]*memFile{}}
}

func (d *memFolder) call(op, name string) error {
	if d.hook == nil {
		return nil
	}
	return d.hook(op, name)
}

func (d *memFolder) change(fn func(map[string]*memFile)) {
	fn(d.names)
	d.pending = append(d.pending, fn)
}

func (d *memFolder) list() ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var names []string
	for n := range d.names {
		names = append(names, n)
	}
	return names, nil
}

func (d *memFolder) open(name string) (file, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f, ok := d.names[name]
	if !ok {
		return nil, &os.PathError{Op: "open", Path: name, Err: os.ErrNotExist}
	}
	return f, nil
}

func (d *memFolder) create(name string) (file, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.names[name] != nil {
		return nil, &os.PathError{Op: "create", Path: name, Err: os.ErrExist}
	}
	if err := d.call("create", name); err != nil {
		return nil, err
	}
	f := &memFile{folder: d, name: name, dirty: map[int64]bool{}}
	d.change(func(m map[string]*memFile) { m[name] = f })
	return f, nil
}

func (d *memFolder) rename(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.names[from]
	if f == nil {
		return &os.PathError{Op: "rename", Path: from, Err: os.ErrNotExist}
	}
	if err := d.call("rename", from); err != nil {
		return err
	}
	f.name = to
	d.change(func(m map[string]*memFile) { delete(m, from); m[to] = f })
	return nil
}

func (d *memFolder) remove(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.names[name] == nil {
		return &os.PathError{Op: "remove", Path: name, Err: os.ErrNotExist}
	}
	if err := d.call("remove", name); err != nil {
		return err
	}
	d.change(func(m map[string]*memFile) { delete(m, name) })
	return nil
}

func (d *memFolder) sync() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.call("syncdir", ""); err != nil {
		return err
	}
	for _, fn := range d.pending {
		fn(d.durable)
	}
	d.pending = nil
	return nil
}

// crash is the folder as a power failure may leave it: some prefix of the name changes, some of the unsynced sectors.
func (d *memFolder) crash(rng *rand.Rand) *memFolder {
	d.mu.Lock()
	defer d.mu.Unlock()
	names := map[string]*memFile{}
	for n, f := range d.durable {
		names[n] = f
	}
	for _, fn := range d.pending[:rng.IntN(len(d.pending)+1)] {
		fn(names)
	}
	c := newMemFolder()
	for n, f := range names {
		g := &memFile{folder: c, name: n, disk: f.torn(rng), dirty: map[int64]bool{}}
		g.cache = slices.Clone(g.disk)
		c.names[n], c.durable[n] = g, g
	}
	return c
}

func (f *memFile) torn(rng *rand.Rand) []byte {
	disk := slices.Clone(f.disk)
	if rng.IntN(2) == 0 && len(f.cache) > len(disk) {
		disk = append(disk, make([]byte, len(f.cache)-len(disk))...)
	}
	for s := range f.dirty {
		if b := s * sector; rng.IntN(2) == 0 && b < int64(len(disk)) {
			copy(disk[b:min(b+sector, int64(len(disk)))], f.cache[b:])
		}
	}
	return disk
}

func (f *memFile) ReadAt(b []byte, off int64) (int, error) {
	f.folder.mu.Lock()
	defer f.folder.mu.Unlock()
	if off >= int64(len(f.cache)) {
		return 0, io.EOF
	}
	n := copy(b, f.cache[off:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) writev(bufs [][]byte, off int64) error {
	f.folder.mu.Lock()
	defer f.folder.mu.Unlock()
	err := f.folder.call("write", f.name)
	if err == errNothing {
		return err
	}
	for _, b := range bufs {
		f.write(b, off)
		off += int64(len(b))
	}
	return err
}

func (f *memFile) write(b []byte, off int64) {
	if n := off + int64(len(b)); n > int64(len(f.cache)) {
		f.cache = append(f.cache, make([]byte, n-int64(len(f.cache)))...)
	}
	copy(f.cache[off:], b)
	for s := off / sector; s*sector < off+int64(len(b)); s++ {
		f.dirty[s] = true
	}
}

func (f *memFile) sync() error {
	f.folder.mu.Lock()
	defer f.folder.mu.Unlock()
	err := f.folder.call("sync", f.name)
	if err == errCrashed {
		return err
	}
	if err == nil {
		f.persist()
	}
	clear(f.dirty)
	return err
}

func (f *memFile) persist() {
	if n := len(f.cache) - len(f.disk); n > 0 {
		f.disk = append(f.disk, make([]byte, n)...)
	}
	for s := range f.dirty {
		b := s * sector
		copy(f.disk[b:min(b+sector, int64(len(f.disk)))], f.cache[b:])
	}
}

func (f *memFile) size() (int64, error) {
	f.folder.mu.Lock()
	defer f.folder.mu.Unlock()
	return int64(len(f.cache)), nil
}

func (f *memFile) close() error { return nil }

var (
	errNothing = fmt.Errorf("device: no effect")        // a write that did nothing
	errEffect  = fmt.Errorf("device: after effect")     // a write that happened, a sync that lost the pages
	errCrashed = fmt.Errorf("device: the power is off") // every operation from here on
)

// raw is the content of a segment, for tests that damage it.
func (d *memFolder) raw(name string) []byte { return d.names[name].cache }

// copyOf is the folder with everything in the cache durable.
func (d *memFolder) copyOf() *memFolder {
	c := newMemFolder()
	for n, f := range d.names {
		g := &memFile{folder: c, name: n, disk: slices.Clone(f.cache), cache: slices.Clone(f.cache), dirty: map[int64]bool{}}
		c.names[n], c.durable[n] = g, g
	}
	return c
}
