package keyindex

import (
	"slices"
	"sort"
	"sync"

	"sluice/writer/invariants"
)

var blocks = sync.Pool{New: func() any { return &block{at: -1} }}

// Lookup finds the entries that have one of the hashes, which are in order: it calls fn with the place of the hash and each entry,
// newest first, until fn returns false, and then goes on with the next hash. It may have called fn when it fails.
func (r *Run) Lookup(hashes []uint64, fn func(i int, e Entry) bool) error {
	invariants.Check(slices.IsSorted(hashes), "%d hashes looked up out of order", len(hashes))
	b := blocks.Get().(*block)
	b.at = -1
	defer blocks.Put(b)
	rest := r.sections
	for i, h := range hashes {
		if len(rest) > 0 && rest[0].last < h {
			rest = rest[sort.Search(len(rest), func(i int) bool { return rest[i].last >= h }):]
		}
		if len(rest) == 0 {
			return nil
		}
		if rest[0].fuse > 0 && !rest[0].filter.Contains(h) {
			continue
		}
		if err := r.offer(b, len(r.sections)-len(rest), h, func(e Entry) bool { return fn(i, e) }); err != nil {
			return err
		}
	}
	return nil
}

// offer calls fn with the entries that have hash h, which begin in the given section if there are any.
func (r *Run) offer(b *block, section int, h uint64, fn func(Entry) bool) error {
	first := section * sectionBlocks
	last := r.last[first:min(len(r.last), first+sectionBlocks)]
	at := first + sort.Search(len(last), func(i int) bool { return last[i] >= h })
	for ; at < len(r.last); at++ {
		if err := b.load(r, at); err != nil {
			return err
		}
		i := sort.Search(b.n, func(i int) bool { return b.hash(i) >= h })
		for ; i < b.n; i++ {
			if e := b.entry(i); e.Hash != h || !fn(e) {
				return nil
			}
		}
	}
	return nil
}

// All calls fn with all entries, in order, until it fails. It reads every byte of the blocks: with Open it proves the whole file.
func (r *Run) All(fn func(Entry) error) error {
	for c := newCursor(r); ; {
		e, ok, err := c.next()
		if err != nil || !ok {
			return err
		}
		if err := fn(e); err != nil {
			return err
		}
	}
}

// cursor reads a run in order.
type cursor struct {
	run   *Run
	block block
	at, i int // the next entry
}

func newCursor(r *Run) *cursor { return &cursor{run: r, block: block{at: -1}} }

// next is the next entry; false at the end.
func (c *cursor) next() (Entry, bool, error) {
	if c.block.at != c.at || c.i == c.block.n {
		if c.block.at == c.at {
			c.at, c.i = c.at+1, 0
		}
		if c.at == len(c.run.last) {
			return Entry{}, false, nil
		}
		if err := c.block.load(c.run, c.at); err != nil {
			return Entry{}, false, err
		}
	}
	c.i++
	return c.block.entry(c.i - 1), true, nil
}
