package writer_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

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

// wide is a table (k bigint, a int, b double precision, v text).
func wide(id table.ID, keyed bool) writer.TableDef {
	d := kv(id, "wide", keyed)
	d.Schema.Columns = append(d.Schema.Columns, table.Column{Name: "a", FieldID: 3, Type: table.Type{Kind: table.Int32}},
		table.Column{Name: "b", FieldID: 4, Type: table.Type{Kind: table.Float64}})
	return d
}

// wideRows makes n rows with the keys from first on, in no order.
func wideRows(s *table.Schema, first, n int) *table.Batch {
	b := table.NewBatch(s)
	for i := range n {
		b.Cols[0].AppendInt64(int64(first + i*7919%n))
		b.Cols[1].AppendString("some text")
		b.Cols[2].AppendInt32(int32(i))
		b.Cols[3].AppendFloat64(float64(i))
	}
	b.Rows = n
	return b
}

// BenchmarkBulk is the second transaction of many rows (in batches, as COPY makes them), then the flush of both.
func BenchmarkBulk(b *testing.B) {
	const n, batch = 500_000, 50_000
	for _, keyed := range []bool{false, true} {
		for _, step := range []string{"commit", "flush"} {
			b.Run(fmt.Sprintf("keyed=%v/%s", keyed, step), func(b *testing.B) {
				var cpu time.Duration
				for range b.N {
					b.StopTimer()
					x := newWorld(b)
					x.open()
					x.create(wide(1, keyed))
					batches := make([]*table.Batch, 2*n/batch)
					for i := range batches {
						batches[i] = wideRows(x.defs[1].Schema, i*batch, batch)
					}
					bulk(b, x, batches[:n/batch])
					last := func() { bulk(b, x, batches[n/batch:]) }
					if step == "flush" {
						last()
						last = func() {
							if _, err := x.w.Flush(b.Context()); err != nil {
								b.Fatal(err)
							}
						}
					}
					before := processCPU()
					b.StartTimer()
					last()
					b.StopTimer()
					cpu += processCPU() - before
					x.close()
				}
				b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
				b.ReportMetric(float64(cpu.Nanoseconds())/float64(n)/float64(b.N), "cpu-ns/row")
			})
		}
	}
}

// processCPU is the processor time of the process, which says more than the clock on a machine that others use.
func processCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func bulk(b *testing.B, x *world, batches []*table.Batch) {
	tx := x.begin()
	for _, rows := range batches {
		if _, err := tx.Insert(b.Context(), 1, rows); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := tx.Commit(b.Context(), writer.CommitOptions{}); err != nil {
		b.Fatal(err)
	}
}
