// Package lock holds the locks of running transactions on rows, unique keys and tables, in memory.
//
// It owns who holds what, who waits for whom, and the search for deadlocks. Start with Locks.NewOwner (one a transaction) and
// Owner.Acquire. The modes and their conflicts are Postgres'. Locks belong to savepoints: Mark before, ReleaseTo after.
//
// Requests for one key are granted in the order they came; a request that does not conflict with those who wait goes
// through. An owner that already holds the key waits in front of those who do not (it could only wait for them in vain).
//
// Unique keys are taken many at a time (AcquireKeys), and one that nobody else wants is never an entry.
//
// It never looks at rows, never starts a goroutine, and forgets everything with the process: locks are not logged.
//
// Beyond Options.SpillKeys the unique keys of an owner are in files (keyindex.Spill).
//
// Memory: an uncontended lock costs about 170 bytes (BenchmarkMemory): 64 for the entry, 24 in its owner's journal, and its slot in a map
// (32, half of it empty at worst after growth). A further holder of the same key costs 16 plus 24; a waiter about 200 and
// its timers. A unique key costs 8 in the journal and a slot of 16 in a table that is three quarters full at most. Nothing else
// grows; the caller bounds the number of locks of a transaction.
package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sluice/writer/invariants"
	"sluice/writer/table"
)

// TableSpace is the Space of a key that means the table itself.
const TableSpace = ^uint32(0)

// Key names what is locked. Space 0 is a row: A is its Ref.File, B its Ref.Row. From 1 on it is the number of a unique
// index, and A, B the 128-bit hash of the key. TableSpace is the table itself.
type Key struct {
	Table table.ID
	Space uint32
	A, B  uint64
}

// Row is the key of a row.
func Row(t table.ID, r table.Ref) Key { return Key{Table: t, A: uint64(r.File), B: r.Row} }

// Table is the key of a table.
func Table(t table.ID) Key { return Key{Table: t, Space: TableSpace} }

func (k Key) String() string {
	switch k.Space {
	case TableSpace:
		return fmt.Sprintf("table %d", k.Table)
	case 0:
		return fmt.Sprintf("row (%d,%d) of table %d", k.A, k.B, k.Table)
	}
	return fmt.Sprintf("key %016x%016x of unique index %d of table %d", k.A, k.B, k.Space, k.Table)
}

// Errors of Acquire, besides the context's.
var (
	ErrDeadlock     = errors.New("deadlock detected")                       // a *DeadlockError says who and what
	ErrTimeout      = errors.New("canceling statement due to lock timeout") // Wait.Timeout has passed
	ErrNotAvailable = errors.New("could not obtain lock")                   // NoWait, SkipLocked
)

// Policy says what to do when a lock is not free.
type Policy uint8

// The policies.
const (
	Block      Policy = iota
	NoWait            // ErrNotAvailable: the statement fails
	SkipLocked        // ErrNotAvailable: the statement leaves the row out
)

// Wait says how to wait.
type Wait struct {
	Policy  Policy
	Timeout time.Duration // Block: ErrTimeout after it; 0 is no limit
}

// Clock makes a timer: fire gets a value after d unless stop was called before.
type Clock func(d time.Duration) (fire <-chan time.Time, stop func() bool)

func realClock(d time.Duration) (<-chan time.Time, func() bool) {
	t := time.NewTimer(d)
	return t.C, t.Stop
}

// Options of Locks.
type Options struct {
	DeadlockTimeout time.Duration // how long a request waits before it looks for a deadlock, 1 s by default
	Clock           Clock         // time.NewTimer by default

	Dir        string // folder for the keys of owners that have very many; "": they stay in memory
	SpillKeys  int    // so many unique keys of an owner stay in memory, about a million by default
	SpillBytes int64  // memory for the others before they are written, 32 MiB by default
}

const shards = 64

// Locks is all locks of a process.
type Locks struct {
	timeout time.Duration
	clock   Clock
	owners  atomic.Uint64
	shards  [shards]shard
	outside atomic.Pointer[Outside]
	spills  spills

	dir        string
	spillKeys  int
	spillBytes int64

	mu   sync.Mutex // guards open, for one map operation; a shard's mutex may be held
	open map[OwnerID]*Owner

	// Set by tests. They are called without a lock held.
	onWait  func(*Owner)
	onCheck func(*Owner)
}

// New makes an empty set of locks.
func New(o Options) *Locks {
	m := &Locks{timeout: o.DeadlockTimeout, clock: o.Clock, open: map[OwnerID]*Owner{}, dir: o.Dir,
		spillKeys: cmp.Or(o.SpillKeys, 1<<20), spillBytes: cmp.Or(o.SpillBytes, 32<<20)}
	if m.timeout == 0 {
		m.timeout = time.Second
	}
	if m.clock == nil {
		m.clock = realClock
	}
	for i := range m.shards {
		m.shards[i].entries = map[Key]*entry{}
	}
	return m
}

// OwnerID names an owner in the views; ids are never used twice.
type OwnerID uint64

// Owner is a transaction. It is used by one goroutine at a time.
type Owner struct {
	locks   *Locks
	id      OwnerID
	journal []taken
	waiting *Waiting // guarded by the mutex of the entry's shard

	registered bool // in locks.open
	keys       int  // hashes in claims
	spilled    *spilledKeys
}

// taken is one step of the journal: the mode that an Acquire added, or the keys of an AcquireKeys. It points to the entry,
// whose key may change.
type taken struct {
	entry *entry
	claim *claim
	mode  Mode
}

// NewOwner makes an owner without locks.
func (m *Locks) NewOwner() *Owner { return &Owner{locks: m, id: OwnerID(m.owners.Add(1))} }

// ID is the owner's id.
func (o *Owner) ID() OwnerID { return o.id }

// Held is the number of steps in which the owner took what it has: locks, upgrades, and lists of keys.
func (o *Owner) Held() int { return len(o.journal) }

// Acquire takes k in mode, or does nothing if the owner has it in that mode or, for rows and unique keys, in a stronger
// one. waited says that somebody else had it meanwhile: what the caller knows about the row may be out of date, and so
// may the key (see Rename).
func (o *Owner) Acquire(ctx context.Context, k Key, mode Mode, w Wait) (waited bool, err error) {
	wt, err := o.Request(k, mode, w.Policy)
	if wt == nil || err != nil {
		return false, err
	}
	return true, o.Await(ctx, wt, w.Timeout)
}

// Request is the half of Acquire that does not block: a caller whose keys get other names (Rename, Move) may hold what keeps the names as they
// are, and from here on the lock, or the wait for it, follows them. There is nothing to wait for if wt is nil; else Await must be next.
func (o *Owner) Request(k Key, mode Mode, policy Policy) (wt *Waiting, err error) {
	invariants.Check(mode.fits(k), "%v lock on %v", mode, k)
	s := o.locks.shardOf(k)
	s.mu.Lock()
	if k.unique() {
		o.locks.share(s, k)
	}
	e := s.entry(k)
	held := e.held(o)
	if held&covering[mode] != 0 {
		s.mu.Unlock()
		return nil, nil
	}
	if e.free(o, mode) && (held != 0 || !e.awaited(mode, nil)) {
		e.grant(o, mode)
		s.drop(e) // a Fate that is known at once
		s.mu.Unlock()
		o.note(e, mode)
		return nil, nil
	}
	if policy != Block {
		s.mu.Unlock()
		return nil, fmt.Errorf("%w on %v", ErrNotAvailable, k)
	}
	wt = &Waiting{owner: o, entry: e, mode: mode, upgrade: held != 0, ready: make(chan struct{})}
	e.enqueue(wt)
	o.waiting = wt
	s.mu.Unlock()
	return wt, nil
}

// note writes a granted mode down.
func (o *Owner) note(e *entry, mode Mode) {
	if mode != Fate {
		o.journal = append(o.journal, taken{entry: e, mode: mode})
	}
}

// Await is the other half of Acquire: it ends with the lock, or with an error and without a trace in the queue.
func (o *Owner) Await(ctx context.Context, w *Waiting, limit time.Duration) error {
	check, stop := o.locks.clock(o.locks.timeout)
	defer func() { stop() }()
	var late <-chan time.Time
	if limit > 0 {
		var stopLate func() bool
		late, stopLate = o.locks.clock(limit)
		defer stopLate()
	}
	o.locks.called(o.locks.onWait, o)
	for {
		select {
		case <-w.ready:
			o.note(w.entry, w.mode)
			return nil
		case <-check:
			if err := o.checkDeadlock(ctx, w); err != nil {
				return err
			}
			if o.locks.outside.Load() != nil { // what closes a cycle there does not look here
				check, stop = o.locks.clock(o.locks.timeout)
			}
			o.locks.called(o.locks.onCheck, o)
		case <-late:
			return o.giveUp(w, ErrTimeout)
		case <-ctx.Done():
			return o.giveUp(w, context.Cause(ctx))
		}
	}
}

func (m *Locks) called(hook func(*Owner), o *Owner) {
	if hook != nil {
		hook(o)
	}
}

// giveUp leaves the queue. A lock that was granted a moment before is kept and there is no error: the caller finds out
// about the end of its context by itself.
func (o *Owner) giveUp(w *Waiting, cause error) error {
	o.locks.lockAll()
	defer o.locks.unlockAll()
	if w.granted {
		o.note(w.entry, w.mode)
		return nil
	}
	o.leave(w)
	return fmt.Errorf("wait for %v on %v: %w", w.mode, w.entry.key, cause)
}

// leave takes w out of its queue; those behind it may now be granted. The caller holds all shards.
func (o *Owner) leave(w *Waiting) {
	o.waiting = nil
	w.entry.dequeue(w)
	w.entry.wake()
	w.entry.shard.Load().drop(w.entry)
}

// Mark is a place in the owner's history, see ReleaseTo.
type Mark int

// Mark is where the owner is now: a savepoint takes one.
func (o *Owner) Mark() Mark { return Mark(len(o.journal)) }

// Each calls fn with the locks on rows and tables that the owner has, in the order in which it took them. Modes come one by one.
func (o *Owner) Each(fn func(Key, Mode)) {
	for _, t := range o.journal {
		if t.claim != nil {
			continue
		}
		s := t.entry.lock()
		k := t.entry.key
		s.mu.Unlock()
		if !k.unique() {
			fn(k, t.mode)
		}
	}
}

// Sink makes the newest step the owner's first, so that no ReleaseTo of a mark takes it back. Marks from before it have moved up by one.
func (o *Owner) Sink() {
	last := len(o.journal) - 1
	newest := o.journal[last]
	copy(o.journal[1:], o.journal[:last])
	o.journal[0] = newest
}

// ReleaseTo gives back what was taken since the mark, in reverse order; a lock that was upgraded falls back to the mode
// it had.
func (o *Owner) ReleaseTo(k Mark) {
	for i := len(o.journal) - 1; i >= int(k); i-- {
		o.release(i)
	}
	clear(o.journal[k:]) // entries are used again: no pointer may stay
	o.journal = o.journal[:k]
}

// ReleaseKeysTo gives back the locks on keys taken since k, and keeps those on rows and tables.
func (o *Owner) ReleaseKeysTo(k Mark) {
	for i := len(o.journal) - 1; i >= int(k); i-- {
		if o.journal[i].claim != nil {
			o.release(i)
		}
	}
	rest := slices.DeleteFunc(o.journal[k:], func(t taken) bool { return t.claim != nil })
	o.journal = o.journal[:int(k)+len(rest)]
}

// keepJournal is the number of steps up to which an owner's journal is kept for its next transaction.
const keepJournal = 1 << 12

// ReleaseAll gives everything back. The owner can be used again.
func (o *Owner) ReleaseAll() {
	o.endSpill()
	o.ReleaseTo(0)
	o.locks.unregister(o)
	if cap(o.journal) > keepJournal {
		o.journal = nil
	}
}

func (o *Owner) release(i int) {
	t := o.journal[i]
	if t.claim != nil {
		o.unclaim(t.claim)
		return
	}
	e := t.entry
	s := e.lock()
	e.revoke(o, t.mode)
	e.wake()
	s.drop(e)
	s.mu.Unlock()
}

// Rename gives row locks, held and waited for, other keys, because their rows have moved: fn says where to. It is called for
// each row lock there is, with everything locked: it must be quick and must not call into this package. Nobody may have locked a row under a
// name that it does not have yet, or has no more (see Request): two locks on one row would exclude nobody.
func (m *Locks) Rename(fn func(Key) (Key, bool)) {
	m.lockAll()
	defer m.unlockAll()
	var moved []*entry
	var to []Key
	for i := range m.shards {
		for k, e := range m.shards[i].entries {
			if k.Space != 0 {
				continue
			}
			if n, ok := fn(k); ok && n != k {
				moved, to = append(moved, e), append(to, n)
			}
		}
	}
	for _, e := range moved { // all out before any goes in: keys may swap
		delete(e.shard.Load().entries, e.key)
	}
	for i, e := range moved {
		m.rekey(e, to[i])
	}
}

// Move gives a row's lock, held and waited for, to another row that nobody has locked yet: the newer version of the first.
// It does nothing when the lock is one holder's alone, whom the caller knows. The caller keeps others from asking for the first any more.
func (m *Locks) Move(from, to Key) {
	s := m.shardOf(from)
	s.mu.Lock()
	e := s.entries[from]
	shared := e != nil && (len(e.others()) > 0 || len(e.queue()) > 0)
	s.mu.Unlock()
	if !shared {
		return
	}
	m.lockAll()
	defer m.unlockAll()
	if e := s.entries[from]; e != nil {
		delete(s.entries, from)
		m.rekey(e, to)
	}
}

func (m *Locks) rekey(e *entry, k Key) {
	s := m.shardOf(k)
	if s.entries[k] != nil {
		panic(fmt.Sprintf("%v and %v are one row with two locks", e.key, k))
	}
	e.key = k
	e.shard.Store(s)
	s.entries[k] = e
	s.peak = max(s.peak, len(s.entries))
}

func (m *Locks) lockAll() {
	for i := range m.shards {
		m.shards[i].mu.Lock()
	}
}

func (m *Locks) unlockAll() {
	for i := range m.shards {
		m.shards[i].mu.Unlock()
	}
}

func (m *Locks) shardOf(k Key) *shard {
	if k.unique() {
		return &m.shards[k.name()>>58]
	}
	h := (k.A ^ uint64(k.Table)<<32 ^ uint64(k.Space)) * 0x9e3779b97f4a7c15
	h = (h ^ h>>29 ^ k.B) * 0xbf58476d1ce4e5b9
	return &m.shards[h>>58]
}

// shard is the locks whose keys hash to it. Its mutex guards the map, the entries in it, and their waiters.
type shard struct {
	mu        sync.Mutex
	entries   map[Key]*entry
	alone     slots // unique keys with one holder
	contested int   // unique keys among entries
	unused    []*entry
	peak      int
	_         [64]byte // the mutex of the next shard is on another cache line
}
