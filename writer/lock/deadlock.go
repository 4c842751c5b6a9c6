package lock

import (
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

	behind, ahead *waiter // Queued: the two in the queue
}

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
		lines = append(lines, fmt.Sprintf("Process %s waits for %v on %v; blocked by process %s.", name(c.Waiter), c.Mode, c.Key, name(c.Blocker)))
	}
	return strings.Join(lines, "\n")
}

// checkDeadlock looks for a way from w's owner back to itself. Whoever closes a cycle waits last, and so looks after all
// of it is there: one look at each wait is enough. A cycle that only a queue's order makes is undone by changing the
// order, as in Postgres.
//
// Waits outside this package (a session's backend that waits in Postgres) are not seen here: Waiters gives the edges to
// join with pg_blocking_pids.
func (o *Owner) checkDeadlock(w *waiter) error {
	o.locks.lockAll()
	defer o.locks.unlockAll()
	if w.granted {
		return nil
	}
	cycle := findCycle(o, o, map[*Owner]bool{})
	if cycle == nil || untangle(cycle) {
		return nil
	}
	o.leave(w)
	for i := range cycle {
		cycle[i].behind, cycle[i].ahead = nil, nil
	}
	return &DeadlockError{Cycle: cycle}
}

// untangle lets one who is in the cycle only for its place in a queue pass the one in front of it, if that makes no other
// cycle.
func untangle(cycle []Edge) bool {
	for _, c := range cycle {
		if !c.Queued {
			continue
		}
		e := c.behind.entry
		before := slices.Clone(e.waiters)
		e.dequeue(c.behind)
		e.waiters = slices.Insert(e.waiters, slices.Index(e.waiters, c.ahead), c.behind)
		if !tangled(e.waiters) {
			e.wake()
			return true
		}
		e.waiters = before
	}
	return false
}

// tangled says whether one of the queue is in a cycle.
func tangled(queue []*waiter) bool {
	return slices.ContainsFunc(queue, func(w *waiter) bool {
		return findCycle(w.owner, w.owner, map[*Owner]bool{}) != nil
	})
}

// findCycle is the path from o to target along the waits, nil if there is none. The caller holds all shards.
func findCycle(o, target *Owner, seen map[*Owner]bool) []Edge {
	if seen[o] {
		return nil
	}
	seen[o] = true
	var path []Edge
	o.blockers(func(b *Owner, e Edge) bool {
		if b == target {
			path = []Edge{e}
		} else if rest := findCycle(b, target, seen); rest != nil {
			path = append([]Edge{e}, rest...)
		}
		return path == nil
	})
	return path
}

// blockers yields whom o waits for: holders first, then those in front of it in the queue.
func (o *Owner) blockers(yield func(*Owner, Edge) bool) {
	w := o.waiting
	if w == nil {
		return
	}
	edge := func(b *Owner, ahead *waiter) Edge {
		return Edge{Waiter: o.id, Blocker: b.id, Key: w.entry.key, Mode: w.mode, Queued: ahead != nil, behind: w, ahead: ahead}
	}
	for _, g := range w.entry.grants() {
		if g.owner != o && g.modes&conflicts[w.mode] != 0 && !yield(g.owner, edge(g.owner, nil)) {
			return
		}
	}
	for _, ahead := range w.entry.waiters {
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
			for _, w := range e.waiters {
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
	for _, w := range e.waiters {
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
