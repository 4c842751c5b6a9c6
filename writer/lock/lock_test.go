package lock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sluice/writer/invariants"
	"sluice/writer/lock"
	"sluice/writer/table"
)

// TestMain fails the package if a test leaves a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Postgres 15 manual, tables 13.2 and 13.3, as printed there: X is a conflict.
const tableConflicts = `
                       ACCESS SHARE | ROW SHARE | ROW EXCL. | SHARE UPDATE EXCL. | SHARE | SHARE ROW EXCL. | EXCL. | ACCESS EXCL.
ACCESS SHARE           |   |   |   |   |   |   |   | X
ROW SHARE              |   |   |   |   |   |   | X | X
ROW EXCL.              |   |   |   |   | X | X | X | X
SHARE UPDATE EXCL.     |   |   |   | X | X | X | X | X
SHARE                  |   |   | X | X |   | X | X | X
SHARE ROW EXCL.        |   |   | X | X | X | X | X | X
EXCL.                  |   | X | X | X | X | X | X | X
ACCESS EXCL.           | X | X | X | X | X | X | X | X
`

const rowConflicts = `
                       FOR KEY SHARE | FOR SHARE | FOR NO KEY UPDATE | FOR UPDATE
FOR KEY SHARE          |   |   |   | X
FOR SHARE              |   |   | X | X
FOR NO KEY UPDATE      |   | X | X | X
FOR UPDATE             | X | X | X | X
`

func TestConflictTables(t *testing.T) {
	for _, c := range []struct {
		text  string
		first lock.Mode
		key   lock.Key
	}{{rowConflicts, lock.ForKeyShare, lock.Row(1, table.Ref{Row: 1})}, {tableConflicts, lock.AccessShare, lock.Table(1)}} {
		for i, line := range strings.Split(strings.TrimSpace(c.text), "\n")[1:] {
			for j, cell := range strings.Split(line, "|")[1:] {
				a, b := c.first+lock.Mode(i), c.first+lock.Mode(j)
				want := strings.TrimSpace(cell) == "X"
				if lock.Conflicts(a, b) != want || conflictInFact(t, c.key, a, b) != want {
					t.Errorf("%v and %v: conflict expected: %v", a, b, want)
				}
			}
		}
	}
}

func conflictInFact(t *testing.T, k lock.Key, a, b lock.Mode) bool {
	m := lock.New(lock.Options{})
	x, y := m.NewOwner(), m.NewOwner()
	must(t, x, k, a)
	_, err := y.Acquire(context.Background(), k, b, lock.Wait{Policy: lock.NoWait})
	if err != nil && !errors.Is(err, lock.ErrNotAvailable) {
		t.Fatal(err)
	}
	return err != nil
}

func must(t testing.TB, o *lock.Owner, k lock.Key, mode lock.Mode) {
	t.Helper()
	if waited, err := o.Acquire(context.Background(), k, mode, lock.Wait{Policy: lock.NoWait}); err != nil || waited {
		t.Fatalf("%v on %v: waited %v, %v", mode, k, waited, err)
	}
}

func row(n uint64) lock.Key { return lock.Row(7, table.Ref{Row: n}) }

// names is what rows are called at the moment: all are in one file. Whoever asks for a row holds it shared, as the writer does.
type names struct {
	sync.RWMutex
	file table.FileID
}

func (n *names) acquire(o *lock.Owner, row uint64, mode lock.Mode, w lock.Wait) error {
	n.RLock()
	wt, err := o.Request(lock.Row(7, table.Ref{File: n.file, Row: row}), mode, w.Policy)
	n.RUnlock()
	if wt == nil || err != nil {
		return err
	}
	return o.Await(context.Background(), wt, w.Timeout)
}

// TestStress has many owners take, upgrade, roll back and release few keys, some with short timeouts, while keys are
// renamed; an owner counter per exclusively held key finds two at once. Timeouts come from a clock that always fires.
func TestStress(t *testing.T) {
	m := lock.New(lock.Options{DeadlockTimeout: time.Nanosecond})
	const keys = 6
	var exclusive [keys]atomic.Int32
	var deadlocks, timeouts atomic.Int32
	var rows names
	var work sync.WaitGroup
	for g := range 8 {
		work.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 4))
			for range 400 {
				stressTxn(t, m, &rows, rng, exclusive[:], &deadlocks, &timeouts)
			}
		})
	}
	stop := make(chan struct{})
	var audits sync.WaitGroup
	audits.Go(func() {
		for shift := uint64(1); ; shift++ {
			select {
			case <-stop:
				return
			default:
			}
			rows.Lock() // all rows move to another file: their identity for the test is B
			rows.file = table.FileID(shift % 3)
			m.Rename(func(k lock.Key) (lock.Key, bool) { k.A = uint64(rows.file); return k, true })
			rows.Unlock()
			if err := m.Audit(); err != nil {
				t.Error(err)
				return
			}
			_ = m.Waiters()
			runtime.Gosched()
		}
	})
	work.Wait()
	close(stop)
	audits.Wait()
	if n := m.Len(); n != 0 {
		t.Fatalf("%d entries left", n)
	}
	t.Logf("%d deadlocks, %d timeouts", deadlocks.Load(), timeouts.Load())
}

func stressTxn(t *testing.T, m *lock.Locks, rows *names, rng *rand.Rand, exclusive []atomic.Int32, deadlocks, timeouts *atomic.Int32) {
	o := m.NewOwner()
	type mine struct {
		key  int
		mark lock.Mark
	}
	var held []mine
	drop := func(to lock.Mark) {
		for len(held) > 0 && held[len(held)-1].mark >= to {
			exclusive[held[len(held)-1].key].Add(-1)
			held = held[:len(held)-1]
		}
		o.ReleaseTo(to)
	}
	defer func() { drop(0); o.ReleaseAll() }()
	var savepoint lock.Mark
	for range 1 + rng.IntN(5) {
		if rng.IntN(4) == 0 {
			savepoint = o.Mark()
		}
		n, mode := rng.IntN(len(exclusive)), lock.Mode(rng.IntN(4))
		w := lock.Wait{Policy: lock.Policy(rng.IntN(3))}
		if rng.IntN(3) == 0 {
			w.Timeout = time.Microsecond
		}
		mark := o.Mark()
		err := rows.acquire(o, uint64(n), mode, w)
		switch {
		case errors.Is(err, lock.ErrDeadlock):
			deadlocks.Add(1)
			return
		case errors.Is(err, lock.ErrTimeout):
			timeouts.Add(1)
		case errors.Is(err, lock.ErrNotAvailable):
		case err != nil:
			t.Error(err)
		case mode == lock.ForUpdate && o.Mark() > mark:
			if exclusive[n].Add(1) != 1 {
				t.Errorf("key %d held twice", n)
			}
			held = append(held, mine{n, mark})
		}
		if rng.IntN(5) == 0 {
			drop(savepoint)
		}
	}
}

// TestRandomAgainstModel runs one owner's history of acquire, mark and release against a stack of sets.
func TestRandomAgainstModel(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 9))
		m := lock.New(lock.Options{})
		o := m.NewOwner()
		type state map[lock.Key]map[lock.Mode]bool
		now := state{}
		clone := func() state {
			c := state{}
			for k, v := range now {
				c[k] = map[lock.Mode]bool{}
				for mode := range v {
					c[k][mode] = true
				}
			}
			return c
		}
		var marks []lock.Mark
		var states []state
		for range 60 {
			switch rng.IntN(4) {
			case 0:
				marks, states = append(marks, o.Mark()), append(states, clone())
			case 1:
				if n := len(marks); n > 0 {
					i := rng.IntN(n)
					o.ReleaseTo(marks[i])
					now = states[i]
					marks, states = marks[:i], states[:i]
				}
			default:
				k, mode := row(uint64(rng.IntN(4))), lock.Mode(rng.IntN(4))
				must(t, o, k, mode)
				covered := false
				for held := range now[k] {
					covered = covered || held >= mode
				}
				if !covered {
					if now[k] == nil {
						now[k] = map[lock.Mode]bool{}
					}
					now[k][mode] = true
				}
			}
			n := 0
			for k, v := range now {
				for mode := range v {
					n++
					_ = k
					_ = mode
				}
			}
			if got := m.Snapshot(); len(got) != n {
				t.Fatalf("seed %d: %d locks, want %d", seed, len(got), n)
			}
			for _, l := range m.Snapshot() {
				if !now[l.Key][l.Mode] {
					t.Fatalf("seed %d: %v held on %v", seed, l.Mode, l.Key)
				}
			}
		}
	}
}

func TestAcquireAllocatesNothing(t *testing.T) {
	if invariants.Enabled {
		t.Skip("the arguments of checks are allocated")
	}
	m := lock.New(lock.Options{})
	o := m.NewOwner()
	round := func() {
		for i := range uint64(100) {
			must(t, o, row(i), lock.ForUpdate)
		}
		o.ReleaseAll()
	}
	round()
	if n := testing.AllocsPerRun(20, round); n > 0 {
		t.Fatalf("%v allocations for 100 locks", n)
	}
}

// BenchmarkAcquire is one uncontended row lock, taken and given back.
func BenchmarkAcquire(b *testing.B) {
	m := lock.New(lock.Options{})
	o := m.NewOwner()
	ctx := context.Background()
	b.ReportAllocs()
	for i := uint64(0); b.Loop(); i++ {
		if _, err := o.Acquire(ctx, row(i&1023), lock.ForUpdate, lock.Wait{}); err != nil {
			b.Fatal(err)
		}
		if i&127 == 127 {
			o.ReleaseAll()
		}
	}
}

// BenchmarkMemory reports the bytes of a held lock.
func BenchmarkMemory(b *testing.B) {
	for b.Loop() {
		b.ReportMetric(float64(held(b, 1<<20))/(1<<20), "B/lock")
	}
}

// TestRowLocksFit: the row locks of an UPDATE of a million rows take less than 200 MB.
func TestRowLocksFit(t *testing.T) {
	if n := held(t, 1_000_000); n > 200_000_000 {
		t.Errorf("a million row locks take %d bytes", n)
	}
}

// held is the memory that n row locks of one owner take.
func held(t testing.TB, n uint64) int64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	m := lock.New(lock.Options{})
	o := m.NewOwner()
	for i := range n {
		must(t, o, row(i), lock.ForUpdate)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	o.ReleaseAll()
	return int64(after.HeapAlloc) - int64(before.HeapAlloc)
}
