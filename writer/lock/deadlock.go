package lock

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Edge says that one owner waits for another.
type Edge struct {
	Waiter, Blocker OwnerID
	Key             Key
	Mode            Mode // that the waiter wants
	Queued          bool // the blocker does not hold the key, it only waits in front
	Outside         bool // a wait that is not one of this package: Key and Mode say nothing

	behind, ahead *Waiting // Queued: the two in the queue
}

// Outside tells the waits that this package does not see, of owners whose sessions wait elsewhere for those of others. It is asked about by
// waits that last longer than the deadlock timeout, each time that passes again, and without a lock held.
type Outside func(ctx context.Context) []Edge

// SetOutside joins the waits of fn with those of this package in the search for deadlocks.
func (m *Locks) SetOutside(fn Outside) { m.outside.Store(&fn) }

// DeadlockError is an ErrDeadlock. The owner that got it is out of the queue and still has its locks.
type DeadlockError struct {
	Cycle []Edge // each one's blocker is the next one's waiter; the first waiter is the victim
}

func (e *DeadlockError) Error() string { return ErrDeadlock.Error() }

// Unwrap makes it an ErrDeadlock.
func (e *DeadlockError) Unwrap() error { return ErrDeadlock }

// Detail is the text that Postgres sends as DETAIL; name says what an owner is called, for example its process id.
func (e *DeadlockError) Detail(name func(OwnerID) string) string {
	var lines []string
	for _, c := range e.Cycle {
		what := fmt.Sprintf("%v on %v", c.Mode, c.Key)
		if c.Outside {
			what = "a lock in the catalog"
		}
		lines = append(lines, fmt.Sprintf("Process %s waits for %s; blocked by process %s.", name(c.Waiter), what, name(c.Blocker)))
	}
	return strings.Join(lines, "\n")
}

// checkDeadlock looks for a way from w's owner back to itself. Whoever closes a cycle waits last, and so looks after all
// of it is there: one look at each wait is enough, where all of them are of this package. A cycle that only a queue's order makes is undone by
// changing the order, as in Postgres. Waits outside are looked at twice: the first look may be older than what it is joined with.
func (o *Owner) checkDeadlock(ctx context.Context, w *Waiting) error {
	if err := o.look(w, nil, true); err != nil {
		return err
	}
	fn := o.locks.outside.Load()
	if fn == nil {
		return nil
	}
	if edges := (*fn)(ctx); len(edges) == 0 || o.look(w, edges, false) == nil {
		return nil
	}
	return o.look(w, (*fn)(ctx), true)
}

// look is one look. With act, the owner leaves the queue of a deadlock.
func (o *Owner) look(w *Waiting, outside []Edge, act bool) error {
	o.locks.lockAll()
	defer o.locks.unlockAll()
	if w.granted {
		return nil
	}
	g := o.locks.graph(outside)
	cycle := g.cycle(node{o.id, o}, o.id, map[OwnerID]bool{})
	if cycle == nil || g.untangle(cycle) {
		return nil
	}
	if act {
		o.leave(w)
	}
	for i := range cycle {
		cycle[i].behind, cycle[i].ahead = nil, nil
	}
	return &DeadlockError{Cycle: cycle}
}

// graph is the waits at one moment. The caller holds all shards as long as it is used.
type graph struct {
	outside map[OwnerID][]Edge
	waiting map[OwnerID]*Owner // of this package; only where there are waits outside
}

// node is an owner; o is nil if it does not wait in this package.
type node struct {
	id OwnerID
	o  *Owner
}

func (m *Locks) graph(outside []Edge) *graph {
	g := &graph{}
	if len(outside) == 0 {
		return g
	}
	g.outside, g.waiting = map[OwnerID][]Edge{}, map[OwnerID]*Owner{}
	for _, e := range outside {
		g.outside[e.Waiter] = append(g.outside[e.Waiter], e)
	}
	for i := range m.shards {
		for _, e := range m.shards[i].entries {
			for _, w := range e.queue() {
				g.waiting[w.owner.id] = w.owner
			}
		}
	}
	return g
}

// untangle lets one who is in the cycle only for its place in a queue pass the one in front of it, if that makes no other
// cycle.
func (g *graph) untangle(cycle []Edge) bool {
	for _, c := range cycle {
		if !c.Queued {
			continue
		}
		e := c.behind.entry
		before := slices.Clone(e.queue())
		e.dequeue(c.behind)
		e.setQueue(slices.Insert(e.queue(), slices.Index(e.queue(), c.ahead), c.behind))
		if !g.tangled(e.queue()) {
			e.wake()
			return true
		}
		e.setQueue(before)
	}
	return false
}

// tangled says whether one of the queue is in a cycle.
func (g *graph) tangled(queue []*Waiting) bool {
	return slices.ContainsFunc(queue, func(w *Waiting) bool {
		return g.cycle(node{w.owner.id, w.owner}, w.owner.id, map[OwnerID]bool{}) != nil
	})
}

// cycle is the path from n to target along the waits, nil if there is none.
func (g *graph) cycle(n node, target OwnerID, seen map[OwnerID]bool) []Edge {
	if seen[n.id] {
		return nil
	}
	seen[n.id] = true
	var path []Edge
	g.blockers(n, func(b node, e Edge) bool {
		if b.id == target {
			path = []Edge{e}
		} else if rest := g.cycle(b, target, seen); rest != nil {
			path = append([]Edge{e}, rest...)
		}
		return path == nil
	})
	return path
}

// blockers yields whom n waits for.
func (g *graph) blockers(n node, yield func(node, Edge) bool) {
	more := true
	if n.o != nil {
		n.o.blockers(func(b *Owner, e Edge) bool {
			more = yield(node{b.id, b}, e)
			return more
		})
	}
	for _, e := range g.outside[n.id] {
		if !more {
			return
		}
		more = yield(node{e.Blocker, g.waiting[e.Blocker]}, e)
	}
}

// blockers yields whom o waits for: holders first, then those in front of it in the queue.
func (o *Owner) blockers(yield func(*Owner, Edge) bool) {
	w := o.waiting
	if w == nil {
		return
	}
	edge := func(b *Owner, ahead *Waiting) Edge {
		return Edge{Waiter: o.id, Blocker: b.id, Key: w.entry.key, Mode: w.mode, Queued: ahead != nil, behind: w, ahead: ahead}
	}
	for _, g := range w.entry.grants() {
		if g.owner != o && g.modes&conflicts[w.mode] != 0 && !yield(g.owner, edge(g.owner, nil)) {
			return
		}
	}
	for _, ahead := range w.entry.queue() {
		if ahead == w {
			return
		}
		if ahead.owner != o && Conflicts(w.mode, ahead.mode) && !yield(ahead.owner, edge(ahead.owner, ahead)) {
			return
		}
	}
}

// Waiters is the wait graph as it is now, by waiter.
func (m *Locks) Waiters() []Edge {
	m.lockAll()
	defer m.unlockAll()
	var edges []Edge
	for i := range m.shards {
		for _, e := range m.shards[i].entries {
			for _, w := range e.queue() {
				w.owner.blockers(func(_ *Owner, e Edge) bool {
					e.behind, e.ahead = nil, nil // they mean something only while everything is locked
					edges = append(edges, e)
					return true
				})
			}
		}
	}
	slices.SortStableFunc(edges, func(a, b Edge) int { return compare(uint64(a.Waiter), uint64(b.Waiter)) })
	return edges
}

// Lock is a line of Snapshot.
type Lock struct {
	Key     Key
	Owner   OwnerID
	Mode    Mode
	Granted bool
}

// Snapshot is all locks, held and waited for, as pg_locks shows them: by key, then owner, then mode. Unique keys are in it while
// somebody waits, or has waited, for them.
func (m *Locks) Snapshot() []Lock {
	m.lockAll()
	defer m.unlockAll()
	var locks []Lock
	for i := range m.shards {
		for _, e := range m.shards[i].entries {
			locks = append(locks, e.lines()...)
		}
	}
	slices.SortFunc(locks, compareLocks)
	return locks
}

func (e *entry) lines() []Lock {
	var locks []Lock
	for _, g := range e.grants() {
		for m := range modes {
			if g.modes&(1<<m) != 0 {
				locks = append(locks, Lock{Key: e.key, Owner: g.owner.id, Mode: m, Granted: true})
			}
		}
	}
	for _, w := range e.queue() {
		locks = append(locks, Lock{Key: e.key, Owner: w.owner.id, Mode: w.mode})
	}
	return locks
}

func compareLocks(a, b Lock) int {
	for _, c := range [...]int{
		compare(uint64(a.Key.Table), uint64(b.Key.Table)), compare(uint64(a.Key.Space), uint64(b.Key.Space)),
		compare(a.Key.A, b.Key.A), compare(a.Key.B, b.Key.B), compare(uint64(a.Owner), uint64(b.Owner)),
		compare(uint64(a.Mode), uint64(b.Mode)),
	} {
		if c != 0 {
			return c
		}
	}
	return 0
}

func compare(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
