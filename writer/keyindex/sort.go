package keyindex

import (
	"fmt"
	"slices"
)

// sortEntries orders entries by hash, and those with one hash as they are: a radix sort, eight bits at a time from the lowest. scratch is
// as long as entries; the result is in one of the two.
func sortEntries(entries, scratch []Entry) []Entry {
	var counts [8][256]uint32
	for i := range entries {
		h := entries[i].Hash
		for d := range counts {
			counts[d][byte(h>>(8*d))]++
		}
	}
	for d := range counts {
		if len(entries) > 0 && int(counts[d][byte(entries[0].Hash>>(8*d))]) == len(entries) {
			continue // all have the same here
		}
		scatter(entries, scratch, d, &counts[d])
		entries, scratch = scratch, entries
	}
	return entries
}

func scatter(from, to []Entry, digit int, count *[256]uint32) {
	var next [256]uint32
	sum := uint32(0)
	for i, c := range count {
		next[i] = sum
		sum += c
	}
	for i := range from {
		d := byte(from[i].Hash >> (8 * digit))
		to[next[d]] = from[i]
		next[d]++
	}
}

// newestFirst is entries, which came in this order, as a run has them. It uses the memory of entries and as much again.
func newestFirst(entries []Entry) []Entry {
	slices.Reverse(entries)
	return sortEntries(entries, make([]Entry, len(entries)))
}

// Sorter makes a run of entries that come in any order. Beyond its memory they wait in nameless files. One goroutine uses it; Close it.
type Sorter struct {
	dir    string
	limit  int // entries
	buf    []Entry
	chunks []*Run // oldest first
}

const minSort = 1 << 12

// NewSorter makes one that holds at most about memory bytes, and a block for each of its files, which are in dir.
func NewSorter(dir string, memory int64) *Sorter {
	return &Sorter{dir: dir, limit: max(int(memory/(2*entrySize)), minSort)}
}

// Add takes an entry. Of entries with one hash the newest comes last.
func (s *Sorter) Add(e Entry) error {
	if len(s.buf) == s.limit {
		if err := s.spill(); err != nil {
			return fmt.Errorf("sort keys: %w", err)
		}
	}
	s.buf = append(s.buf, e)
	return nil
}

func (s *Sorter) spill() error {
	r, err := writeNameless(s.dir, true, newestFirst(s.buf))
	if err != nil {
		return err
	}
	s.chunks = append(s.chunks, r)
	s.buf = s.buf[:0]
	return nil
}

// writeNameless makes a nameless run of entries in order.
func writeNameless(dir string, plain bool, entries []Entry) (*Run, error) {
	w, err := nameless(dir, plain)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if err := w.Add(e); err != nil {
			w.Abort()
			return nil, err
		}
	}
	return w.run()
}

// Write adds everything to w. Nothing can be added to s after it.
func (s *Sorter) Write(w *Writer) error {
	if len(s.chunks) > 0 {
		if err := s.spill(); err != nil {
			return fmt.Errorf("sort keys: %w", err)
		}
		slices.Reverse(s.chunks)
		return Merge(w, s.chunks, nil)
	}
	for _, e := range newestFirst(s.buf) {
		if err := w.Add(e); err != nil {
			return err
		}
	}
	return nil
}

// Close frees memory and disk.
func (s *Sorter) Close() {
	for _, r := range s.chunks {
		r.Close()
	}
	s.chunks, s.buf = nil, nil
}
