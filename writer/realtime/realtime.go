// Package realtime holds the newest state of every table: which rows of which files are live, and the tail, the rows that are
// not in files yet.
//
// It owns the tail's memory, the deaths of rows, the key maps, and the names of rows over flushes. Start with New, then Apply
// (a committed transaction), View (all tables at one position) and Cut and Flushed (a flush). It never reads or writes a
// file, never decides whether something commits, and never waits for anything but its own short mutexes.
//
// A row is visible at position V if it was inserted at or before V and did not die at or before V. Every insert and every death
// carries its position and nothing else ever changes, so a view is a pointer and a position: it costs nothing, it stays
// exact through flushes and schema changes, and it is released by the garbage collector.
package realtime

import (
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"sluice/writer/invariants"
	"sluice/writer/table"
)

// Op is what a transaction did to one table: first the truncation, then the deletes, then the rows.
type Op struct {
	Table    table.ID
	Truncate bool
	Deletes  []table.Ref  // as they were called when the transaction got its position, or later
	Updated  []bool       // as Deletes: the row has a newer version; nil: none has
	First    uint64       // number of the first row
	Rows     *table.Batch // nil: none. The store keeps it: nobody may change it any more
	Keys     []Keys       // of Rows, as Def.Uniques, if somebody has made them already
}

// Commit is a committed transaction.
type Commit struct {
	Position table.Position
	Ops      []Op
}

// instant is what a view is made of. It is never changed once shared.
type instant struct {
	tables     map[table.ID]*State
	position   table.Position
	generation uint64 // grows with every change of tables
	grown      int64  // bytes that Apply added
}

// Store is the newest state of all tables.
type Store struct {
	mu  sync.Mutex // serialises changes: Apply, Cut, Flushed, Define, Drop
	now atomic.Pointer[instant]
	// bytes follows TotalBytes of Gauges: exact after a flush, growing with what is applied.
	bytes    atomic.Int64
	fileKeys atomic.Int64 // and FileKeyBytes
}

// New makes a store that is at position pos and has no tables.
func New(pos table.Position) *Store {
	s := &Store{}
	s.now.Store(&instant{tables: map[table.ID]*State{}, position: pos})
	return s
}

// Visible is the position of the newest transaction that views see.
func (s *Store) Visible() table.Position { return s.now.Load().position }

// Generation changes with every flush and schema change, and so when names of rows may have changed.
func (s *Store) Generation() uint64 { return s.now.Load().generation }

// View is all tables at the newest position.
func (s *Store) View() View { return View{s.now.Load()} }

// Apply publishes committed transactions in position order and makes them visible together. Deletes of rows that are not live
// are ignored in unchecked builds: row locks exclude them (invariant I10).
func (s *Store) Apply(commits ...Commit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now.Load()
	next := &instant{tables: now.tables, position: now.position, generation: now.generation}
	defer func() { s.bytes.Add(next.grown) }()
	for _, c := range commits {
		invariants.Check(c.Position == next.position+1, "I7: position %d is published after %d", c.Position, next.position)
		for i := range c.Ops {
			next.apply(&c.Ops[i], c.Position)
		}
		next.position = c.Position
	}
	s.now.Store(next)
}

func (n *instant) apply(op *Op, pos table.Position) {
	st := n.tables[op.Table]
	if st == nil {
		return // replay of a table that was dropped later
	}
	if op.Truncate {
		st.truncate(pos)
	}
	for i, ref := range op.Deletes {
		ref, ok := st.follow(ref)
		ok = ok && st.kill(ref, pos, op.Updated != nil && op.Updated[i])
		invariants.Check(ok || op.Truncate, "I10: position %d deletes row %v of table %d twice", pos, ref, op.Table)
	}
	n.grown += int64(len(op.Deletes)) * deathBytes
	if op.Rows != nil && op.Rows.Rows > 0 {
		n.grown += st.insert(op.Rows, op.Keys, op.First, pos)
	}
}

// Seed is a table as recovery or DDL puts it into the store.
type Seed struct {
	Def     *Def
	Files   []*File
	NextRow uint64
	Maps    []*RowMap
	Uniques []*Unique // as Def.Uniques; nil: empty ones
}

// Define adds a table or replaces one whose tail is empty: the new schema, constraints and files hold for views made later.
func (s *Store) Define(seeds ...Seed) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.define(seeds, nil, s.now.Load().position)
}

// Change applies a schema-changing transaction at position pos: new and changed tables, and dropped ones, together.
// pos may be the newest position already (a transaction that has no rows takes none).
func (s *Store) Change(pos table.Position, seeds []Seed, dropped []table.ID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.Weigh()
	return s.define(seeds, dropped, pos)
}

func (s *Store) define(seeds []Seed, dropped []table.ID, pos table.Position) error {
	now := s.now.Load()
	next := &instant{tables: maps.Clone(now.tables), position: max(pos, now.position), generation: now.generation + 1}
	for _, seed := range seeds {
		if old := now.tables[seed.Def.ID]; old != nil && old.changed(^table.Position(0)) {
			return fmt.Errorf("change table %d: its tail is not empty", seed.Def.ID)
		}
		next.tables[seed.Def.ID] = seed.state(next.generation)
	}
	for _, id := range dropped {
		delete(next.tables, id)
	}
	s.now.Store(next)
	return nil
}

func (seed *Seed) state(generation uint64) *State {
	st := newState(seed.Def, seed.Files, seed.NextRow, generation)
	st.maps, st.uniques = seed.Maps, seed.Uniques
	for len(st.uniques) < len(seed.Def.Uniques) {
		st.uniques = append(st.uniques, NewUnique())
	}
	return st
}

// Current is the newest name of a row that was seen at any time since the store began, and whether it is live in the newest
// state. Names of dead rows may be anything.
func (s *Store) Current(id table.ID, ref table.Ref) (table.Ref, bool) {
	st := s.now.Load().tables[id]
	if st == nil {
		return ref, false
	}
	cur, ok := st.follow(ref)
	if !ok {
		return ref, false
	}
	return cur, st.live(cur)
}

// Updated reports whether a row that is dead in the newest state had got a newer version. Of rows that nobody in this process
// can still ask for, and of those that a schema-changing transaction changed, it does not know: false.
func (s *Store) Updated(id table.ID, ref table.Ref) bool {
	st := s.now.Load().tables[id]
	if st == nil {
		return false
	}
	for _, m := range st.maps {
		if m.updatedRow(ref) {
			return true
		}
		var ok bool
		if ref, ok = m.Next(ref); !ok {
			return false
		}
	}
	return st.updated(ref)
}
