package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/writer/lock"
)

// spread makes hashes of small numbers.
func spread(n uint64) uint64 { return (n + 1) * 0x9e3779b97f4a7c15 }

// TestKeysStress: owners take few or many keys, roll back to savepoints and end. No key ever has two holders, and nothing stays.
func TestKeysStress(t *testing.T) {
	m := lock.New(lock.Options{DeadlockTimeout: time.Millisecond})
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
