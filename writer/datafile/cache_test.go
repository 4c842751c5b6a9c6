package datafile_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"sluice/writer/datafile"
	"sluice/writer/objstore"
	"sluice/writer/table"
)

// countedStore counts reads, and fails them while down.
type countedStore struct {
	objstore.Store
	reads atomic.Int64
	down  atomic.Bool
}

var errDown = errors.New("store is down")

func (s *countedStore) GetRange(ctx context.Context, location string, offset, length int64) ([]byte, error) {
	s.reads.Add(1)
	if s.down.Load() {
		return nil, errDown
	}
	return s.Store.GetRange(ctx, location, offset, length)
}

// TestCache reads the same rows from many goroutines: each block is read once while there is room, what does not fit goes, and a read that
// failed is tried again.
func TestCache(t *testing.T) {
	store := &countedStore{Store: objstore.NewMemory("memory:///lake")}
	s := &table.Schema{Columns: manyColumns}
	b := manyRows(s, 50_000)
	want := showRows(b)
	f := write(t, store, s, 1<<20, b)

	large := datafile.NewCache(store, 64<<20)
	store.down.Store(true)
	if _, err := large.ReadRows(context.Background(), f, s, []uint64{1}); !errors.Is(err, errDown) {
		t.Fatalf("a read from a store that is down: %v", err)
	}
	store.down.Store(false)
	readAll(t, large, f, s, want)
	if n, size := large.Bytes(), int64(b.Size()); n < size || n > 2*size {
		t.Errorf("it keeps %d bytes of %d", n, size)
	}
	before := store.reads.Load()
	readAll(t, large, f, s, want)
	if n := store.reads.Load(); n != before {
		t.Errorf("%d reads of a file that is kept", n-before)
	}
	if large.Clear(); large.Bytes() != 0 {
		t.Errorf("%d bytes after Clear", large.Bytes())
	}

	small := datafile.NewCache(store, 300<<10)
	readAll(t, small, f, s, want)
	if n := small.Bytes(); n == 0 || n > 300<<10 {
		t.Errorf("it keeps %d bytes, limit %d", n, 300<<10)
	}
	if _, err := small.ReadRows(context.Background(), f, s, []uint64{50_000}); err == nil {
		t.Error("read a row behind the end")
	}
}

// readAll reads random rows in eight goroutines.
func readAll(t *testing.T, c *datafile.Cache, f datafile.File, s *table.Schema, want []string) {
	t.Helper()
	var group sync.WaitGroup
	for worker := range uint64(8) {
		group.Go(func() {
			random := rand.New(rand.NewPCG(1, worker))
			for range 50 {
				rows := []uint64{random.Uint64N(uint64(f.Rows)), random.Uint64N(uint64(f.Rows)), uint64(worker)}
				got, err := c.ReadRows(context.Background(), f, s, rows)
				if err != nil {
					t.Error(err)
					return
				}
				for i, text := range showRows(got) {
					if text != want[rows[i]] {
						t.Errorf("row %d is %s, want %s", rows[i], text, want[rows[i]])
					}
				}
			}
		})
	}
	group.Wait()
}
