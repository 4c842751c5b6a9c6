package writer_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"sluice/writer"
	"sluice/writer/table"
)

// BenchmarkCommit is one-row transactions from many goroutines.
func BenchmarkCommit(b *testing.B) {
	for _, keyed := range []bool{false, true} {
		b.Run(fmt.Sprintf("keyed=%v", keyed), func(b *testing.B) {
			x := newWorld(b)
			x.open()
			x.create(kv(1, "a", keyed))
			s := x.defs[1].Schema
			var k atomic.Int64
			b.ReportAllocs()
			b.SetParallelism(64)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					tx := x.begin()
					if _, err := tx.Insert(context.Background(), 1, rows(s, int(k.Add(1)), "text")); err != nil {
						b.Error(err)
					}
					if _, err := tx.Commit(context.Background(), writer.CommitOptions{}); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

// BenchmarkBulk is one transaction of many rows, then the flush of it.
func BenchmarkBulk(b *testing.B) {
	for _, keyed := range []bool{false, true} {
		for _, step := range []string{"commit", "flush"} {
			b.Run(fmt.Sprintf("keyed=%v/%s", keyed, step), func(b *testing.B) {
				const n = 500_000
				for range b.N {
					b.StopTimer()
					x := newWorld(b)
					x.open()
					x.create(kv(1, "a", keyed))
					batch := table.NewBatch(x.defs[1].Schema)
					for i := range n {
						batch.Cols[0].AppendInt64(int64(i))
						batch.Cols[1].AppendString("some text")
					}
					batch.Rows = n
					b.StartTimer()
					tx := x.begin()
					if _, err := tx.Insert(b.Context(), 1, batch); err != nil {
						b.Fatal(err)
					}
					if _, err := tx.Commit(b.Context(), writer.CommitOptions{}); err != nil {
						b.Fatal(err)
					}
					if step == "flush" {
						b.StopTimer()
						b.StartTimer()
						if _, err := x.w.Flush(b.Context()); err != nil {
							b.Fatal(err)
						}
					}
					b.StopTimer()
					x.close()
				}
				b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
			})
		}
	}
}
