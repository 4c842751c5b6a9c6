package writer_test

import (
	"flag"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"sluice/writer"
	"sluice/writer/table"
)

var (
	flatSmall = flag.Int("flat-small", 20_000, "rows of the small table of TestFlatCost")
	flatLarge = flag.Int("flat-large", 400_000, "rows of the large one")
	flatBound = flag.Float64("flat-bound", 2.0, "how many times as much an upsert may cost in the large one; on a quiet machine, with 100 thousand and 10 million rows, 1.3")
)

// TestFlatCost: an upsert of 1,000 random keys costs the same processor time in a small and in a large table (flush excluded). Where it needs the
// values of the rows that it replaces this holds as long as the cache of decoded rows does: that is logged.
func TestFlatCost(t *testing.T) {
	for _, old := range []bool{false, true} {
		small, large := upsertCost(t, *flatSmall, old), upsertCost(t, *flatLarge, old)
		t.Logf("old rows read: %v: %v in %d rows, %v in %d rows: %.2f×", old, small, *flatSmall, large, *flatLarge, float64(large)/float64(small))
		if !old && float64(large) > *flatBound*float64(small) {
			t.Errorf("an upsert of 1,000 keys costs %v in a table of %d rows and %v in one of %d", small, *flatSmall, large, *flatLarge)
		}
	}
}

// upsertCost is the median processor time of an upsert of 1,000 random keys into a flushed table of so many rows.
func upsertCost(t *testing.T, rows int, old bool) time.Duration {
	t.Helper()
	x := newWorld(t)
	x.opts.WAL.SegmentSize = 64 << 20
	x.open()
	defer x.close()
	x.create(wide(1, true))
	s := x.defs[1].Schema
	for first := 0; first < rows; first += 100_000 {
		commitBy(t, x, func(tx *writer.Txn) error {
			_, err := tx.Insert(t.Context(), 1, wideRows(s, first, min(100_000, rows-first)))
			return err
		})
		if first%1_000_000 == 900_000 || first+100_000 >= rows {
			if _, err := x.w.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	runtime.GC()
	rng := rand.New(rand.NewPCG(1, uint64(rows)))
	var costs []time.Duration
	for range 41 {
		b := table.NewBatch(s)
		for _, k := range rng.Perm(rows)[:1000] {
			b.Cols[0].AppendInt64(int64(k))
			b.Cols[1].AppendString("newer text")
			b.Cols[2].AppendInt32(1)
			b.Cols[3].AppendFloat64(1)
		}
		b.Rows = 1000
		merge := &writer.Merge{Old: old, Rows: func(_, proposed *table.Batch) (*table.Batch, error) { return proposed, nil }}
		before := processCPU()
		commitBy(t, x, func(tx *writer.Txn) error {
			_, merged, err := tx.Upsert(t.Context(), 1, x.defs[1].Uniques[0].ID, b, merge)
			if err == nil && len(merged) != 1000 {
				t.Errorf("%d of 1,000 keys were merged", len(merged))
			}
			return err
		})
		costs = append(costs, processCPU()-before)
	}
	slices.Sort(costs)
	return costs[len(costs)/2]
}

func commitBy(t *testing.T, x *world, fn func(tx *writer.Txn) error) {
	t.Helper()
	tx := x.begin()
	err := fn(tx)
	if err == nil {
		_, err = tx.Commit(t.Context(), writer.CommitOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}
