package keyindex

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync"
)

// Spill is the keys of one transaction: entries are put and found by hash, and beyond its memory they are in nameless runs, which
// end with the process or with Close. Nothing is taken out: whoever finds an entry asks whether its row is alive. Any
// number of goroutines may look while one puts.
type Spill struct {
	dir   string
	limit int // entries in memory

	mu   sync.RWMutex
	tail chains
	runs []*Run // newest first
}

const (
	chainedBytes = entrySize + 4 + 8 // of an entry in chains: itself, the older one, and about two slots of four bytes
	sortBytes    = entrySize         // of an entry while a run is made of it, in place of slots and older ones
	minSpill     = 1 << 12
)

// NewSpill makes an empty one that holds about memory bytes at most and, for each key in a run, the nine bits of its filter more. Its files
// are in dir.
func NewSpill(dir string, memory int64) *Spill {
	return &Spill{dir: dir, limit: max(int(memory/(chainedBytes+sortBytes)), minSpill)}
}

// Add puts entries unless one of them has the hash of another, put earlier or before it in the batch, that twin says has its key: then nothing
// is put, and it returns the place of that entry, else -1. twin may be called for a pair of which the second one is no conflict
// after all; it must not use the Spill.
func (s *Spill) Add(entries []Entry, twin func(i int, old Entry) bool) (conflict int, err error) {
	if i := within(entries, twin); i >= 0 {
		return i, nil
	}
	conflict = -1
	err = s.Find(entries, func(i int, old Entry) bool {
		if conflict < 0 && twin(i, old) {
			conflict = i
		}
		return conflict < 0
	})
	if err != nil || conflict >= 0 {
		return conflict, err
	}
	return -1, s.Put(entries)
}

// within finds an entry whose key an earlier one of the batch has.
func within(entries []Entry, twin func(i int, old Entry) bool) int {
	order := inOrder(entries)
	for at := 1; at < len(order); at++ {
		for j := at - 1; j >= 0 && entries[order[j]].Hash == entries[order[at]].Hash; j-- {
			if twin(order[at], entries[order[j]]) {
				return order[at]
			}
		}
	}
	return -1
}

// inOrder is the places of entries by hash, then place.
func inOrder(entries []Entry) []int {
	keys := make([]Entry, len(entries))
	for i := range entries {
		keys[i] = Entry{Hash: entries[i].Hash, Row: uint32(i)}
	}
	keys = sortEntries(keys, make([]Entry, len(keys)))
	order := make([]int, len(keys))
	for i := range keys {
		order[i] = int(keys[i].Row)
	}
	return order
}

// Find calls fn with the place of each of the given entries and those put before that have its hash, newest first, until fn returns false;
// then it goes on with the next.
func (s *Spill) Find(entries []Entry, fn func(i int, old Entry) bool) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	more := make([]bool, len(entries))
	for i := range entries {
		more[i] = s.tail.find(entries[i].Hash, func(old Entry) bool { return fn(i, old) })
	}
	if len(s.runs) == 0 {
		return nil
	}
	order := slices.DeleteFunc(inOrder(entries), func(i int) bool { return !more[i] })
	hashes := make([]uint64, len(order))
	for i, at := range order {
		hashes[i] = entries[at].Hash
	}
	for _, r := range s.runs {
		err := r.Lookup(hashes, func(i int, old Entry) bool {
			at := order[i]
			more[at] = more[at] && fn(at, old)
			return more[at]
		})
		if err != nil {
			return fmt.Errorf("find spilled keys: %w", err)
		}
	}
	return nil
}

// Put puts entries without a look. After an error nothing of what was put before is lost, but some of these may be there.
func (s *Spill) Put(entries []Entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range entries {
		if len(s.tail.entries) >= s.limit {
			if err := s.spill(); err != nil {
				return fmt.Errorf("spill keys: %w", err)
			}
		}
		s.tail.put(e)
	}
	return nil
}

// spill makes a run of the entries in memory. If that fails they are there as before.
func (s *Spill) spill() error {
	sorted := newestFirst(s.tail.entries)
	s.tail = chains{}
	r, err := writeNameless(s.dir, false, sorted)
	if err != nil {
		for _, e := range slices.Backward(sorted) {
			s.tail.put(e)
		}
		return err
	}
	s.runs = slices.Insert(s.runs, 0, r)
	return s.merge()
}

// merge makes one run of the newest ones if there are many.
func (s *Spill) merge() error {
	sizes := make([]uint64, len(s.runs))
	for i, r := range s.runs {
		sizes[i] = r.Len()
	}
	n := Pick(sizes, MaxRuns)
	if len(s.runs) <= MaxRuns || n == 0 {
		return nil // writing them again costs more than their filters, until there are many
	}
	w, err := nameless(s.dir, false)
	if err != nil {
		return err
	}
	if err := Merge(w, s.runs[:n], nil); err != nil {
		return errors.Join(err, w.Abort())
	}
	r, err := w.run()
	if err != nil {
		return err
	}
	closeAll(s.runs[:n])
	s.runs = slices.Replace(s.runs, 0, n, r)
	return nil
}

// Write adds all entries to w, as Merge does: keep gives the rows the names that they have outside the transaction.
func (s *Spill) Write(w *Writer, keep func(Entry) (Entry, bool)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.tail.entries) > 0 {
		if err := s.spill(); err != nil {
			return fmt.Errorf("spill keys: %w", err)
		}
	}
	return Merge(w, s.runs, keep)
}

// Len is the number of entries.
func (s *Spill) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n := len(s.tail.entries)
	for _, r := range s.runs {
		n += int(r.Len())
	}
	return n
}

// All calls fn with all entries, in no order, until it fails. fn must not use the Spill.
func (s *Spill) All(fn func(Entry) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, r := range s.runs {
		if err := r.All(fn); err != nil {
			return fmt.Errorf("read spilled keys: %w", err)
		}
	}
	for _, e := range s.tail.entries {
		if err := fn(e); err != nil {
			return err
		}
	}
	return nil
}

// Bytes is the memory it holds.
func (s *Spill) Bytes() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n := s.tail.bytes()
	for _, r := range s.runs {
		n += r.Bytes()
	}
	return n
}

// Close frees memory and disk; the Spill is empty then.
func (s *Spill) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	closeAll(s.runs)
	s.runs, s.tail = nil, chains{}
}

func closeAll(runs []*Run) {
	for _, r := range runs {
		r.Close() // it was read only, and has no name: nothing can be lost
	}
}

// chains is entries in the order in which they came, found by hash: a table of the newest entry with each hash, the older ones behind it.
type chains struct {
	entries []Entry
	older   []uint32 // the entry before with the same hash, + 1
	slots   []uint32 // entry + 1; a power of two, at most three quarters full
	used    int
}

// slot is where hash is, or the empty slot where it would be.
func (c *chains) slot(hash uint64) *uint32 {
	at := int(hash * 0x9e3779b97f4a7c15 >> (64 - bits.TrailingZeros(uint(len(c.slots)))))
	for c.slots[at] != 0 && c.entries[c.slots[at]-1].Hash != hash {
		at = (at + 1) & (len(c.slots) - 1)
	}
	return &c.slots[at]
}

func (c *chains) put(e Entry) {
	if (c.used+1)*4 > len(c.slots)*3 {
		c.grow()
	}
	s := c.slot(e.Hash)
	if *s == 0 {
		c.used++
	}
	c.entries = append(c.entries, e)
	c.older = append(c.older, *s)
	*s = uint32(len(c.entries))
}

func (c *chains) grow() {
	old := c.slots
	c.slots = make([]uint32, max(16, 2*len(old)))
	for _, at := range old {
		if at != 0 {
			*c.slot(c.entries[at-1].Hash) = at
		}
	}
}

// find calls fn with the entries that have hash, newest first, until it returns false.
func (c *chains) find(hash uint64, fn func(Entry) bool) bool {
	if c.used == 0 {
		return true
	}
	for at := *c.slot(hash); at != 0; at = c.older[at-1] {
		if !fn(c.entries[at-1]) {
			return false
		}
	}
	return true
}

func (c *chains) bytes() int64 {
	return int64(cap(c.entries))*entrySize + int64(cap(c.older)+len(c.slots))*4
}
