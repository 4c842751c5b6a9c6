package wal

import (
	"context"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/writer/table"
)

func fourColumns(rows int) *Txn {
	s := &table.Schema{ID: 1, Columns: []table.Column{
		{Type: table.Type{Kind: table.Int64}}, {Type: table.Type{Kind: table.Int32}},
		{Type: table.Type{Kind: table.String}}, {Type: table.Type{Kind: table.TimestampTZ}},
	}}
	b := table.NewBatch(s)
	for i := range rows {
		b.Cols[0].AppendInt64(int64(i))
		b.Cols[1].AppendInt32(int32(i))
		b.Cols[2].AppendString("eighteen bytes abc")
		b.Cols[3].AppendInt64(int64(i) * 1e6)
		b.Rows++
	}
	return &Txn{Kind: Commit, Tables: []TableOps{{Table: 1, Schema: 1, Rows: b}}}
}

// cpu reports the processor time of the process an operation: on a shared machine the elapsed time says little.
func cpu(b *testing.B) func() {
	used := func() int64 {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return u.Utime.Nano() + u.Stime.Nano()
	}
	before := used()
	return func() { b.ReportMetric(float64(used()-before)/float64(b.N), "cpu-ns/op") }
}

func benchEncode(b *testing.B, rows int) {
	x := fourColumns(rows)
	b.ReportAllocs()
	defer cpu(b)()
	for b.Loop() {
		Encode(x)
	}
	b.ReportMetric(float64(Encode(x).Size())/float64(rows), "B/row")
}

func BenchmarkEncode1(b *testing.B)     { benchEncode(b, 1) }
func BenchmarkEncode10(b *testing.B)    { benchEncode(b, 10) }
func BenchmarkEncode10000(b *testing.B) { benchEncode(b, 10000) }

func benchDecode(b *testing.B, rows int) {
	x := fourColumns(rows)
	f := Encode(x)
	f.patch(0, 1, 1, 1, []uint64{1})
	h, _ := readHeader(f.bytes, int64(len(f.bytes)))
	schemas := schemaOf(x.Tables[0].Rows.Schema)
	b.ReportAllocs()
	defer cpu(b)()
	for b.Loop() {
		if _, err := decode(f.bytes, &h, schemas, false); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode1(b *testing.B)     { benchDecode(b, 1) }
func BenchmarkDecode10000(b *testing.B) { benchDecode(b, 10000) }

// BenchmarkEnqueue is what a transaction does under the sequencer.
func BenchmarkEnqueue(b *testing.B) {
	l, err := reopen(newMemFolder(), 1<<20, 1, nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	f, firsts := Encode(fourColumns(1)), []uint64{1}
	b.ReportAllocs()
	defer cpu(b)()
	for b.Loop() {
		l.Enqueue(f, l.next, firsts)
		if len(l.pending.frames) == 256 {
			_, done := l.swap()
			done.reset()
			l.idle, l.place.off = done, blockSize
		}
	}
}

// benchCommit is whole commits of one row from so many writers, on the disk of the temporary folder.
func benchCommit(b *testing.B, writers int) {
	ctx, cancel := context.WithCancel(context.Background())
	l, err := Open(ctx, b.TempDir(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	if err := l.Replay(ctx, 1, nil, nil); err != nil {
		b.Fatal(err)
	}
	var run sync.WaitGroup
	groups := 0
	run.Go(func() { l.Run(ctx, func([]*Frame) { groups++ }) })
	var mu sync.Mutex
	next := table.Position(1)
	var work sync.WaitGroup
	b.ResetTimer()
	report := cpu(b)
	for w := range writers {
		work.Go(func() {
			for i := w; i < b.N; i += writers {
				f := Encode(fourColumns(1))
				mu.Lock()
				g := l.Enqueue(f, next, []uint64{uint64(next)})
				next++
				mu.Unlock()
				<-g.Done()
			}
		})
	}
	work.Wait()
	b.StopTimer()
	report()
	cancel()
	run.Wait()
	b.ReportMetric(float64(b.N)/float64(groups), "txns/group")
	l.Close()
}

func BenchmarkCommit1(b *testing.B)   { benchCommit(b, 1) }
func BenchmarkCommit64(b *testing.B)  { benchCommit(b, 64) }
func BenchmarkCommit256(b *testing.B) { benchCommit(b, 256) }
