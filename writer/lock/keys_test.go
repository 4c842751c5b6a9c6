package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/writer/lock"
)

// spread makes hashes of small numbers.
func spread(n uint64) uint64 { return (n + 1) * 0x9e3779b97f4a7c15 }

// TestKeysStress: owners take few or many keys, roll back to savepoints and end. No key ever has two holders, and nothing stays; nor does
// it where owners with many keys have them in files.
func TestKeysStress(t *testing.T) {
	for name, opts := range map[string]lock.Options{"memory": {}, "files": {Dir: t.TempDir(), SpillKeys: 20}, "all in files": {Dir: t.TempDir(), SpillKeys: 1}} {
		t.Run(name, func(t *testing.T) { stressKeys(t, opts) })
	}
}

func stressKeys(t *testing.T, opts lock.Options) {
	opts.DeadlockTimeout = time.Millisecond
	m := lock.New(opts)
	holders := make([]atomic.Int64, 300)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			o := m.NewOwner()
			for range 300 {
				if err := useKeys(m, o, r, holders); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if err := m.Audit(); err != nil || m.Len() != 0 {
		t.Errorf("%d keys left, %v", m.Len(), err)
	}
}

func useKeys(m *lock.Locks, o *lock.Owner, r *rand.Rand, holders []atomic.Int64) error {
	mine := map[int]bool{}
	defer func() {
		for n := range mine {
			holders[n].Add(-1)
		}
		o.ReleaseAll()
	}()
	for range 1 + r.IntN(4) {
		mark := o.Mark()
		var picked []int
		var hashes []uint64
		for range 1 + r.IntN(3)*r.IntN(60) {
			n := r.IntN(len(holders))
			picked, hashes = append(picked, n), append(hashes, spread(uint64(n)))
		}
		_, err := o.AcquireKeys(context.Background(), 1, 2, hashes, lock.Wait{Policy: lock.Policy(r.IntN(2))})
		switch {
		case errors.Is(err, lock.ErrDeadlock):
			return nil
		case errors.Is(err, lock.ErrNotAvailable), err == nil && r.IntN(5) == 0:
			o.ReleaseTo(mark)
			continue
		case err != nil:
			return err
		}
		for _, n := range picked {
			if !mine[n] && holders[n].Add(1) != 1 {
				return fmt.Errorf("key %d has two holders", n)
			}
			mine[n] = true
		}
		if err := m.Audit(); err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkKeys takes keys and gives them back: so many at a time.
func BenchmarkKeys(b *testing.B) {
	for _, n := range []int{1, 100, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m := lock.New(lock.Options{})
			o := m.NewOwner()
			hashes := make([]uint64, n)
			for i := range hashes {
				hashes[i] = spread(uint64(i))
			}
			b.ReportAllocs()
			for range b.N {
				if _, err := o.AcquireKeys(context.Background(), 1, 2, hashes, lock.Wait{}); err != nil {
					b.Fatal(err)
				}
				o.ReleaseAll()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/key")
		})
	}
}

// TestSpilledKeys: keys in files are locked like others: who wants one waits, also to find a deadlock, until the owner goes back to a
// savepoint from before, or ends; and nothing stays of the files.
func TestSpilledKeys(t *testing.T) {
	dir := t.TempDir()
	m := lock.New(lock.Options{DeadlockTimeout: time.Millisecond, Dir: dir, SpillKeys: 1})
	ctx, wait := t.Context(), make(chan error, 1)
	take := func(o *lock.Owner, w lock.Wait, keys ...uint64) error {
		var hashes []uint64
		for _, k := range keys {
			hashes = append(hashes, spread(k))
		}
		_, err := o.AcquireKeys(ctx, 1, 2, hashes, w)
		return err
	}
	many, few := m.NewOwner(), m.NewOwner()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(take(many, lock.Wait{}, 1, 2, 3))
	mark := many.Mark()
	must(take(many, lock.Wait{}, 4, 5, 2))
	if m.Len() != 0 {
		t.Fatalf("%d keys are in memory", m.Len())
	}
	for _, k := range []uint64{1, 2, 3, 4, 5} {
		if err := take(few, lock.Wait{Policy: lock.NoWait}, k); !errors.Is(err, lock.ErrNotAvailable) {
			t.Errorf("key %d is taken twice: %v", k, err)
		}
	}
	must(take(few, lock.Wait{Policy: lock.NoWait}, 9))
	waits := make(chan struct{}, 10)
	m.OnWait(func(*lock.Owner) { waits <- struct{}{} })
	go func() { wait <- take(few, lock.Wait{}, 2) }()
	<-waits
	if err := take(many, lock.Wait{}, 9); !errors.Is(err, lock.ErrDeadlock) {
		t.Errorf("deadlock: %v", err)
	}
	many.ReleaseTo(mark) // 2 was taken before, too
	must(take(few, lock.Wait{Policy: lock.NoWait}, 100))
	many.ReleaseAll()
	must(<-wait)
	must(take(many, lock.Wait{Policy: lock.NoWait}, 4, 5, 3))
	few.ReleaseAll()
	many.ReleaseAll()
	if err := m.Audit(); err != nil || m.Len() != 0 {
		t.Errorf("%d keys left, %v", m.Len(), err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("%d files left, %v", len(left), err)
	}
}

// TestSpilledKeysBack: a savepoint that goes back gives keys in files to whoever waits for one, and only those.
func TestSpilledKeysBack(t *testing.T) {
	m := lock.New(lock.Options{Dir: t.TempDir(), SpillKeys: 1})
	waits := make(chan struct{}, 10)
	m.OnWait(func(*lock.Owner) { waits <- struct{}{} })
	many, few := m.NewOwner(), m.NewOwner()
	take := func(o *lock.Owner, w lock.Wait, keys ...uint64) error {
		_, err := o.AcquireKeys(t.Context(), 1, 2, keys, w)
		return err
	}
	for range 3 {
		if err := take(many, lock.Wait{}, 10, 20); err != nil {
			t.Fatal(err)
		}
		mark := many.Mark()
		if err := take(many, lock.Wait{}, 30, 40); err != nil {
			t.Fatal(err)
		}
		got := make(chan error, 1)
		go func() { got <- take(few, lock.Wait{}, 30) }()
		<-waits
		many.ReleaseTo(mark)
		if err := <-got; err != nil {
			t.Fatal(err)
		}
		if err := take(few, lock.Wait{Policy: lock.NoWait}, 40); err != nil {
			t.Errorf("a key that was given back: %v", err)
		}
		if err := take(few, lock.Wait{Policy: lock.NoWait}, 10); !errors.Is(err, lock.ErrNotAvailable) {
			t.Errorf("a key that was kept: %v", err)
		}
		few.ReleaseAll()
		many.ReleaseAll()
	}
	if err := m.Audit(); err != nil || m.Len() != 0 {
		t.Errorf("%d keys left, %v", m.Len(), err)
	}
}
