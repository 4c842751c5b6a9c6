package copyfmt_test

import (
	"bytes"
	"fmt"
	"syscall"
	"testing"
	"time"

	"sluice/sql/pgvalue"
	"sluice/sql/pgvalue/copyfmt"
	"sluice/writer/table"
)

// narrow is the table of the benchmarks: bigint, text, double precision, timestamptz.
func narrow(b *testing.B) (*table.Schema, []copyfmt.Column) {
	s := &table.Schema{}
	var cols []copyfmt.Column
	for i, oid := range []uint32{pgvalue.OIDInt8, pgvalue.OIDText, pgvalue.OIDFloat8, pgvalue.OIDTimestampTZ} {
		typ, exact, _ := pgvalue.Lake(oid, -1)
		c, err := pgvalue.NewCodec(oid, -1, typ)
		if err != nil {
			b.Fatal(err)
		}
		name := string(rune('a' + i))
		s.Columns = append(s.Columns, table.Column{Name: name, Type: typ, Exact: exact})
		cols = append(cols, copyfmt.Column{Name: name, Index: i, Codec: c})
	}
	return s, cols
}

const benchRows = 20_000

func narrowBatch(b *testing.B, s *table.Schema, cols []copyfmt.Column) *table.Batch {
	batch := table.NewBatch(s)
	for i := range benchRows {
		for k, text := range []string{fmt.Sprint(1_000_000 + i*7), fmt.Sprintf("customer number %d", i), fmt.Sprintf("%d.%02d", i%1000, i%100),
			fmt.Sprintf("2024-05-%02d %02d:%02d:%02d.%06d+00", 1+i%28, i%24, i%60, i%60, i)} {
			if err := cols[k].Codec.AppendText(batch.Cols[k], []byte(text), nil); err != nil {
				b.Fatal(err)
			}
		}
		batch.Rows++
	}
	return batch
}

func benchmarkParser(b *testing.B, o copyfmt.Options) {
	s, cols := narrow(b)
	from := narrowBatch(b, s, cols)
	w, err := copyfmt.NewWriter(o, cols, nil)
	if err != nil {
		b.Fatal(err)
	}
	head := w.Head(nil)
	var data []byte
	for i := range from.Rows {
		if data, err = w.Row(data, from, i); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(int64(len(data) / benchRows))
	b.ReportAllocs()
	batch := table.NewBatch(s)
	p, err := copyfmt.NewParser(o, copyfmt.Target{Table: "t", Columns: cols})
	if err != nil {
		b.Fatal(err)
	}
	if err := p.Feed(batch, head); err != nil {
		b.Fatal(err)
	}
	chunks := bytes.Clone(data)
	b.ResetTimer()
	begin := cpu()
	for n := b.N; n > 0; n -= benchRows {
		batch.Truncate(0)
		for at := 0; at < len(chunks); at += 64 << 10 {
			if err := p.Feed(batch, chunks[at:min(at+64<<10, len(chunks))]); err != nil {
				b.Fatal(err)
			}
		}
		if batch.Rows != benchRows {
			b.Fatalf("%d rows", batch.Rows)
		}
	}
	b.ReportMetric(float64(cpu()-begin)/float64((b.N+benchRows-1)/benchRows*benchRows), "cpu-ns/row")
}

// cpu is the processor time of the process so far; unlike the clock it does not count other programs.
func cpu() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// One operation is one row.
func BenchmarkParseText(b *testing.B)   { benchmarkParser(b, copyfmt.Options{}) }
func BenchmarkParseCSV(b *testing.B)    { benchmarkParser(b, copyfmt.Options{Format: copyfmt.CSV}) }
func BenchmarkParseBinary(b *testing.B) { benchmarkParser(b, copyfmt.Options{Format: copyfmt.Binary}) }

// BenchmarkWriteText prints the same rows.
func BenchmarkWriteText(b *testing.B) {
	s, cols := narrow(b)
	batch := narrowBatch(b, s, cols)
	w, err := copyfmt.NewWriter(copyfmt.Options{}, cols, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	var dst []byte
	b.ResetTimer()
	for i := range b.N {
		if dst, err = w.Row(dst[:0], batch, i%benchRows); err != nil {
			b.Fatal(err)
		}
	}
}
