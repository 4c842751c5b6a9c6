package writer_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"sluice/writer"
	"sluice/writer/lock"
	"sluice/writer/table"
)

// TestUpsertCounters lets several writers upsert, delete and insert a few keys while the tail moves into files: each upsert adds one
// character to the value it found, or begins one, so that the characters there are and those deleted are the upserts that were acknowledged.
func TestUpsertCounters(t *testing.T) {
	x := newWorld(t)
	x.open()
	x.create(kv(1, "a", true))
	const workers, rounds = 6, 60
	counts := make(chan int, workers)
	flushed := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(flushed)
		for {
			select {
			case <-done:
				return
			default:
				if _, err := x.w.Flush(context.Background()); err != nil {
					t.Error(err)
					return
				}
			}
		}
	}()
	var group sync.WaitGroup
	for worker := range workers {
		group.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(worker)))
			n := 0
			for range rounds {
				n += upsertOnce(t, x.w, random)
			}
			counts <- n
		})
	}
	group.Wait()
	close(done)
	<-flushed
	want := 0
	for range workers {
		want += <-counts
	}
	tx := x.w.Begin(writer.TxnOptions{})
	defer tx.Rollback()
	list, err := scan(tx.Statement(), 1)
	if err != nil {
		t.Fatal(err)
	}
	have := 0
	for _, r := range list {
		have += strings.Count(r.text, "+")
	}
	if have != want {
		t.Errorf("%d characters in %d rows, %d were acknowledged", have, len(list), want)
	}
}

// upsertOnce upserts two keys, or deletes one, and returns how many characters that added.
func upsertOnce(t *testing.T, w *writer.Writer, random *rand.Rand) int {
	ctx := context.Background()
	tx := w.Begin(writer.TxnOptions{})
	defer tx.Rollback()
	def, _ := tx.Statement().Table(1)
	n := 0
	if random.IntN(4) == 0 {
		key := random.IntN(4)
		r, found, err := tx.Statement().ByKey(ctx, 1, def.Uniques[0].ID, keyOf(int64(key)))
		if !found || err != nil {
			return 0
		}
		var moved *writer.RowMoved
		if err := tx.Delete(ctx, 1, []table.Ref{r.Ref(0)}, lock.ForUpdate); errors.As(err, &moved) || errors.Is(err, lock.ErrDeadlock) {
			return 0
		} else if err != nil {
			t.Error(err)
		}
		n = -strings.Count(row(r.Batch, 0), "+")
	} else {
		a := random.IntN(3)
		if _, _, err := tx.Upsert(ctx, 1, def.Uniques[0].ID, rows(def.Schema, a, "+", a+1, "+"), appendValues(def.Schema)); errors.Is(err, lock.ErrDeadlock) {
			return 0
		} else if err != nil {
			t.Error(err)
		}
		n = 2
	}
	if _, err := tx.Commit(ctx, writer.CommitOptions{}); err != nil {
		t.Error(err)
	}
	return n
}
