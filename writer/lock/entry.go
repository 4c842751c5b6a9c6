package lock

import (
	"slices"
	"sync/atomic"

	"sluice/writer/invariants"
)

// entry is one locked key: there while somebody holds it or waits for it. All of it is guarded by the shard's mutex; a
// journal may point to an entry of which it does not know the shard, which is why shard is atomic.
type entry struct {
	shard atomic.Pointer[shard]
	key   Key
	first grant // most locks have one holder
	crowd *crowd
}

// crowd is what few entries need: a table of rows locked by one transaction is millions of the others.
type crowd struct {
	more    []grant // the holders but first
	waiters []*Waiting
}

// grant is what one owner holds.
type grant struct {
	owner *Owner
	modes set
}

// Waiting is a request in a queue. granted is set together with the closing of ready.
type Waiting struct {
	owner   *Owner
	entry   *entry
	mode    Mode
	upgrade bool // the owner holds the key already
	granted bool
	ready   chan struct{}
}

// entry finds or makes the entry of k.
func (s *shard) entry(k Key) *entry {
	if e := s.entries[k]; e != nil {
		return e
	}
	var e *entry
	if n := len(s.unused); n > 0 {
		e, s.unused = s.unused[n-1], s.unused[:n-1]
	} else {
		e = &entry{}
		e.shard.Store(s)
	}
	e.key = k
	s.entries[k] = e
	if k.unique() {
		s.contested++
	}
	s.peak = max(s.peak, len(s.entries))
	return e
}

const (
	keepEntries = 1 << 8  // a shard keeps so many entries for reuse
	keepMap     = 1 << 12 // a map that held more and is empty is given back: maps do not shrink
)

// others are the holders but the first.
func (e *entry) others() []grant {
	if e.crowd == nil {
		return nil
	}
	return e.crowd.more
}

func (e *entry) setOthers(more []grant) {
	if e.crowd == nil {
		e.crowd = &crowd{}
	}
	e.crowd.more = more
}

// queue is the requests that wait, in order.
func (e *entry) queue() []*Waiting {
	if e.crowd == nil {
		return nil
	}
	return e.crowd.waiters
}

func (e *entry) setQueue(waiters []*Waiting) {
	if e.crowd == nil {
		e.crowd = &crowd{}
	}
	e.crowd.waiters = waiters
}

// drop forgets e if nobody holds it or waits for it.
func (s *shard) drop(e *entry) {
	if e.first.owner != nil || len(e.queue()) > 0 {
		return
	}
	invariants.Check(len(e.others()) == 0 && s.entries[e.key] == e, "I12: lock entry %v dropped", e.key)
	delete(s.entries, e.key)
	if e.key.unique() {
		s.contested--
	}
	if len(s.entries) == 0 && s.peak > keepMap {
		s.entries, s.peak = map[Key]*entry{}, 0
	}
	if len(s.unused) < keepEntries && cap(e.others()) <= 4 && cap(e.queue()) <= 4 && e.shard.Load() == s {
		s.unused = append(s.unused, e)
	}
}

// lock locks the shard that the entry is in now.
func (e *entry) lock() *shard {
	for {
		s := e.shard.Load()
		s.mu.Lock()
		if e.shard.Load() == s {
			return s
		}
		s.mu.Unlock() // Rename came in between
	}
}

// held is what o holds.
func (e *entry) held(o *Owner) set {
	if g := e.grantOf(o); g != nil {
		return g.modes
	}
	return 0
}

func (e *entry) grantOf(o *Owner) *grant {
	if e.first.owner == o {
		return &e.first
	}
	more := e.others()
	for i := range more {
		if more[i].owner == o {
			return &more[i]
		}
	}
	return nil
}

// free says that no other owner holds a mode that conflicts.
func (e *entry) free(o *Owner, mode Mode) bool {
	bad := conflicts[mode]
	if e.first.modes&bad != 0 && e.first.owner != o {
		return false
	}
	for _, g := range e.others() {
		if g.modes&bad != 0 && g.owner != o {
			return false
		}
	}
	return true
}

// awaited says that a request in the queue, in front of stop, conflicts with mode.
func (e *entry) awaited(mode Mode, stop *Waiting) bool {
	for _, w := range e.queue() {
		if w == stop {
			return false
		}
		if Conflicts(mode, w.mode) {
			return true
		}
	}
	return false
}

func (e *entry) grant(o *Owner, mode Mode) {
	if mode == Fate {
		return
	}
	if g := e.grantOf(o); g != nil {
		g.modes |= 1 << mode
		return
	}
	g := grant{owner: o, modes: 1 << mode}
	if e.first.owner == nil {
		e.first = g
		return
	}
	e.setOthers(append(e.others(), g))
}

// revoke takes one mode from o; whoever holds nothing is no holder any more.
func (e *entry) revoke(o *Owner, mode Mode) {
	g := e.grantOf(o)
	invariants.Check(g != nil && g.modes&(1<<mode) != 0, "I12: %v on %v released but not held", mode, e.key)
	if g == nil {
		return
	}
	if g.modes &^= 1 << mode; g.modes != 0 {
		return
	}
	more := e.others()
	last := len(more) - 1
	if last < 0 {
		e.first = grant{}
		return
	}
	*g = more[last]
	more[last] = grant{}
	e.setOthers(more[:last])
}

// enqueue puts w at the end, or behind the other upgrades if its owner holds the key: everybody else there waits for
// that owner too, so standing behind them would be a deadlock.
func (e *entry) enqueue(w *Waiting) {
	queue := e.queue()
	at := len(queue)
	if w.upgrade {
		at = 0
		for at < len(queue) && queue[at].upgrade {
			at++
		}
	}
	e.setQueue(slices.Insert(queue, at, w))
}

func (e *entry) dequeue(w *Waiting) {
	if i := slices.Index(e.queue(), w); i >= 0 {
		e.setQueue(slices.Delete(e.queue(), i, i+1))
	}
}

// wake grants, from the front, every request that conflicts with no holder and with nobody who goes on waiting before it.
func (e *entry) wake() {
	queue := e.queue()
	if len(queue) == 0 {
		return
	}
	var ahead set
	left := queue[:0]
	for _, w := range queue {
		if conflicts[w.mode]&ahead == 0 && e.free(w.owner, w.mode) {
			e.admit(w)
			continue
		}
		ahead |= 1 << w.mode
		left = append(left, w)
	}
	clear(queue[len(left):])
	e.setQueue(left)
}

func (e *entry) admit(w *Waiting) {
	e.grant(w.owner, w.mode)
	w.owner.waiting = nil
	w.granted = true
	close(w.ready)
}

func (e *entry) grants() []grant {
	if e.first.owner == nil {
		return nil
	}
	return append([]grant{e.first}, e.others()...)
}
