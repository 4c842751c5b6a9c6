// Package window remembers what transactions with a retry identity answered, so that a repeat of one changes nothing and is told the same.
//
// An identity is a writer and a sequence. A writer's window is its last Results answers of the last Age; whatever is below it may have
// happened or not, and nobody knows any more. A window whose newest answer is older than Age is forgotten: its writer is new.
//
// It owns this memory and nothing else. Start with New, then Put (in the order of positions) and Find. What is to be stored with a flip is
// Unsaved; once that flip has happened, Saved. It does no I/O, knows no clock, and does not look into answers.
package window

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"sluice/writer/catalog"
	"sluice/writer/invariants"
	"sluice/writer/table"
	"sluice/writer/wal"
)

const (
	// Results is how many answers a writer's window holds.
	Results = 1024
	// Tokens is how many transactions are remembered that are no writer's but had a token asked for, per name before the slash.
	Tokens = 1 << 16
	// Age is how long an answer is kept, by commit time.
	Age = 7 * 24 * time.Hour
)

// Replayed is the writer under which a replay puts transactions without an identity, for those whose commit had an unknown outcome. It is
// never stored.
const Replayed = ""

// Windows is the windows of all writers.
type Windows struct {
	mu        sync.Mutex // guards all below, for single look-ups and insertions
	by        map[string]*window
	fresh     []*catalog.Result // put since the last Saved, in the order of positions
	moved     map[string]bool   // writers whose low is not as stored
	dropped   map[string]bool   // writers that are stored and were forgotten
	forgotten table.Position    // no answer above it was ever forgotten with its window
	bytes     int64
}

// window is what is kept of one writer.
type window struct {
	list []*catalog.Result // by sequence
	low  int64             // answers up to here may have been given and are gone; -1: none
}

// New makes the windows of what is stored.
func New(saved catalog.Results) *Windows {
	w := &Windows{by: map[string]*window{}, moved: map[string]bool{}, dropped: map[string]bool{}, forgotten: saved.Forgotten}
	for writer, low := range saved.Low {
		w.of(writer).low = low
	}
	slices.SortFunc(saved.List, func(a, b catalog.Result) int { return cmp.Compare(a.Position, b.Position) })
	for i := range saved.List {
		w.put(&saved.List[i])
	}
	return w
}

func (w *Windows) of(writer string) *window {
	x := w.by[writer]
	if x == nil {
		x = &window{low: -1}
		w.by[writer] = x
	}
	return x
}

// Of is the answer of a committed transaction, nil if it has no identity.
func Of(t *wal.Txn) *catalog.Result {
	if t.Writer == "" {
		return nil
	}
	r := &catalog.Result{Writer: t.Writer, Sequence: t.Sequence, ID: t.ID, Position: t.Position, Time: t.Time, Answer: t.Answer}
	if r.Sequence == wal.Unnumbered {
		r.Sequence = int64(t.Position)
	}
	return r
}

// Put remembers an answer; nil does nothing. The oldest of its writer may go for it.
func (w *Windows) Put(r *catalog.Result) {
	if r == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.put(r)
	if r.Writer != Replayed {
		w.fresh = append(w.fresh, r)
	}
}

func (w *Windows) put(r *catalog.Result) {
	x := w.of(r.Writer)
	i, twice := x.find(r.Sequence)
	if twice { // a replay of what is stored
		invariants.Check(x.list[i].ID == r.ID, "I8: two results for %q, %d", r.Writer, r.Sequence)
		return
	}
	x.list = slices.Insert(x.list, i, r)
	w.bytes += size(r)
	n := max(0, len(x.list)-limit(r.Writer))
	for n < len(x.list) && older(x.list[n], r.Time) {
		n++
	}
	w.cut(r.Writer, x, n)
}

// size is about the memory that an answer takes.
func size(r *catalog.Result) int64 { return int64(128 + len(r.Answer)) }

func limit(writer string) int {
	if catalog.Tokens(writer) {
		return Tokens
	}
	return Results
}

func older(r *catalog.Result, now int64) bool { return r.Time < now-Age.Microseconds() }

// cut lets the n lowest answers of a window go.
func (w *Windows) cut(writer string, x *window, n int) {
	if n == 0 {
		return
	}
	x.low = x.list[n-1].Sequence
	for _, r := range x.list[:n] {
		w.bytes -= size(r)
	}
	clear(x.list[:n])
	x.list = x.list[n:] // not moved down: a full window would be at every commit
	if writer != Replayed {
		w.moved[writer] = true
	}
}

// find is where a sequence is, or would be.
func (x *window) find(sequence int64) (int, bool) {
	if n := len(x.list); n == 0 || x.list[n-1].Sequence < sequence { // the usual case: sequences grow
		return n, false
	}
	return slices.BinarySearchFunc(x.list, sequence, func(r *catalog.Result, s int64) int { return cmp.Compare(r.Sequence, s) })
}

// Find is the answer that was given under an identity, or nil. below says that the sequence is below its writer's window: whether there was
// one is not known. now is microseconds since 1970.
func (w *Windows) Find(writer string, sequence, now int64) (r *catalog.Result, below bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	x := w.by[writer]
	if x == nil {
		return nil, false
	}
	if x.idle(now) {
		w.forget(writer, x)
		return nil, false
	}
	i, found := x.find(sequence)
	if !found {
		return nil, sequence <= x.low
	}
	return x.list[i], false
}

// Knows reports whether the transaction with this id answered under the identity. certain is false if it may have, some time ago: its answer
// is not kept. after is a position below that of its commit, if it has one.
func (w *Windows) Knows(id [16]byte, writer string, sequence int64, after table.Position) (committed, certain bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	x := w.by[writer]
	if x == nil {
		return false, after >= w.forgotten && writer != Replayed
	}
	if sequence == wal.Unnumbered {
		if slices.ContainsFunc(x.list, func(r *catalog.Result) bool { return r.ID == id }) {
			return true, true
		}
		return false, after >= w.forgotten && int64(after) >= x.low
	}
	if i, found := x.find(sequence); found {
		return x.list[i].ID == id, true // if it is another's, there was only room for that one
	}
	return false, after >= w.forgotten && sequence > x.low
}

// ReplayedFrom says that all transactions above pos that are in the log have been put.
func (w *Windows) ReplayedFrom(pos table.Position) {
	w.mu.Lock()
	defer w.mu.Unlock()
	x := w.of(Replayed)
	x.low = max(x.low, int64(pos))
}

// idle reports whether even the newest answer is too old. It is the last one unless the writer fills gaps.
func (x *window) idle(now int64) bool {
	for i := len(x.list) - 1; i >= 0; i-- {
		if !older(x.list[i], now) {
			return false
		}
	}
	return true
}

func (w *Windows) forget(writer string, x *window) {
	for _, r := range x.list {
		w.bytes -= size(r)
		w.forgotten = max(w.forgotten, r.Position)
	}
	delete(w.by, writer)
	delete(w.moved, writer)
	w.dropped[writer] = true
}

// Sweep forgets the windows of writers that have been idle for longer than Age.
func (w *Windows) Sweep(now int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for writer, x := range w.by {
		if writer != Replayed && x.idle(now) {
			w.forget(writer, x)
		}
	}
}

// Bytes is about the memory that the answers take.
func (w *Windows) Bytes() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bytes
}

// Unsaved is what a flip with progress pos has to store. It stays unsaved until Saved.
func (w *Windows) Unsaved(pos table.Position) catalog.Results {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := catalog.Results{Forgotten: w.forgotten, Low: map[string]int64{}}
	for _, r := range w.fresh[:w.upTo(pos)] {
		if x := w.by[r.Writer]; x != nil && r.Sequence > x.low {
			out.List = append(out.List, *r)
		}
	}
	for writer := range w.moved {
		out.Low[writer] = w.by[writer].low
	}
	for writer := range w.dropped {
		out.Dropped = append(out.Dropped, writer)
	}
	return out
}

// upTo is how many of the fresh answers are of positions up to pos.
func (w *Windows) upTo(pos table.Position) int {
	n, _ := slices.BinarySearchFunc(w.fresh, pos+1, func(r *catalog.Result, p table.Position) int { return cmp.Compare(r.Position, p) })
	return n
}

// Saved says that what Unsaved answered for pos is stored.
func (w *Windows) Saved(pos table.Position, done catalog.Results) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fresh = slices.Delete(w.fresh, 0, w.upTo(pos))
	for writer, low := range done.Low {
		if x := w.by[writer]; x == nil || x.low == low {
			delete(w.moved, writer)
		}
	}
	for _, writer := range done.Dropped {
		delete(w.dropped, writer)
	}
}

// Fresh reports whether there are answers of positions up to pos that are not stored.
func (w *Windows) Fresh(pos table.Position) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.upTo(pos) > 0
}
