package wal

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"sluice/writer/table"
)

var scalarTypes = []table.Type{
	{Kind: table.Bool}, {Kind: table.Int32}, {Kind: table.Int64}, {Kind: table.Float32}, {Kind: table.Float64},
	table.DecimalType(18, 4), table.DecimalType(38, 18), {Kind: table.Date}, {Kind: table.Time}, {Kind: table.Timestamp},
	{Kind: table.TimestampTZ}, {Kind: table.UUID}, {Kind: table.String}, {Kind: table.Binary},
}

// everyType is a schema with each scalar type and a list of each.
func everyType() *table.Schema {
	s := &table.Schema{ID: 3}
	for i, t := range scalarTypes {
		s.Columns = append(s.Columns, table.Column{Name: fmt.Sprintf("c%d", i), Type: t, Exact: true})
	}
	for i, t := range scalarTypes {
		s.Columns = append(s.Columns, table.Column{Name: fmt.Sprintf("l%d", i), Type: table.ListOf(t)})
	}
	return s
}

// dice decides what a generated value is: rapid in property tests, a seeded source elsewhere.
type dice func(n int) int

func seeded(seed uint64) dice {
	return rand.New(rand.NewPCG(seed, 1)).IntN
}

func (d dice) batch(s *table.Schema, rows int) *table.Batch {
	b := table.NewBatch(s)
	for range rows {
		for _, v := range b.Cols {
			d.value(v)
		}
		b.Rows++
	}
	return b
}

func (d dice) value(v *table.Vec) {
	switch d(8) {
	case 0:
		v.AppendNull()
		return
	case 1:
		v.AppendExact([]string{"", "infinity", "NaN", strings.Repeat("9", 200)}[d(4)])
		return
	}
	switch w := v.Type.Kind.Width(); {
	case w > 0:
		v.AppendFixed(d.bytes(w))
	case v.Type.Kind == table.List:
		for range d(4) {
			d.value(v.Elems)
		}
		v.EndList()
	default:
		v.AppendBytes(d.bytes([]int{0, 1, 7, 8, 130, 300}[d(6)]))
	}
}

func (d dice) bytes(n int) []byte {
	b := make([]byte, n)
	x := uint64(d(1 << 30))
	for i := range b {
		x = x*6364136223846793005 + 1442695040888963407
		b[i] = byte(x >> 56)
	}
	return b
}

// printBatch is every value of the batch as text, through Vec's own accessors.
func printBatch(b *table.Batch) string {
	if b == nil {
		return "none"
	}
	var s strings.Builder
	fmt.Fprintf(&s, "%d rows\n", b.Rows)
	for c, v := range b.Cols {
		fmt.Fprintf(&s, "%d %s len %d nulls %d:", c, v.Type, v.Len, v.Nulls)
		for i := range b.Rows {
			fmt.Fprintf(&s, " %s", printValue(v, i))
		}
		fmt.Fprintln(&s)
	}
	return s.String()
}

func printValue(v *table.Vec, i int) string {
	if t, ok := v.ExactText(i); ok {
		return fmt.Sprintf("exact %q", t)
	}
	if v.IsNull(i) {
		return "NULL"
	}
	if v.Type.Kind == table.List {
		var parts []string
		b, e := v.ListRange(i)
		for k := b; k < e; k++ {
			parts = append(parts, printValue(v.Elems, k))
		}
		return fmt.Sprint(parts)
	}
	if v.Type.Kind.Width() > 0 {
		return fmt.Sprintf("%x", v.FixedAt(i))
	}
	return fmt.Sprintf("%q", v.Bytes(i))
}

func printTxn(t *Txn) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%d %s %x %d %q %d %q %d %v\n", t.Position, t.Kind, t.ID, t.Time, t.Writer, t.Sequence, t.Answer, t.Resolves, t.Committed)
	for _, o := range t.Tables {
		fmt.Fprintf(&s, "table %d %d truncate %v first %d deletes %v %s\n", o.Table, o.Schema, o.Truncate, o.First, o.Deletes, printBatch(o.Rows))
	}
	return s.String()
}

// schemaOf answers with one schema for all tables.
func schemaOf(s *table.Schema) Schemas {
	return func(table.ID, int) (*table.Schema, error) { return s, nil }
}

func (d dice) txn(s *table.Schema) *Txn {
	t := &Txn{Kind: Kind(1 + d(3)), Time: int64(d(1 << 30)), Sequence: int64(d(9)), Writer: string(d.bytes(d(20)))}
	if len(t.Writer) > 0 {
		t.Answer = d.bytes(d(40))
	}
	copy(t.ID[:], d.bytes(16))
	if t.Kind == Resolved {
		t.Resolves, t.Committed = table.Position(d(99)), d(2) == 1
	}
	for i := range d(4) {
		o := TableOps{Table: table.ID(i + 1), Schema: s.ID, Truncate: d(3) == 0}
		for range d(5) {
			o.Deletes = append(o.Deletes, table.Ref{File: table.FileID(d(3)), Row: uint64(d(1 << 20))})
		}
		if d(4) > 0 {
			o.Rows = d.batch(s, []int{1, 2, 9, 15, 16, 17, 40}[d(7)])
		}
		t.Tables = append(t.Tables, o)
	}
	return t
}

// firsts are row numbers for the tables of t.
func firsts(t *Txn, base uint64) []uint64 {
	f := make([]uint64, len(t.Tables))
	for i := range f {
		f[i] = base + uint64(i)
	}
	return f
}

// testOptions make small segments and a fixed stream id.
func testOptions(size int64) Options {
	return Options{SegmentSize: size, Random: bytes.NewReader(bytes.Repeat([]byte{0xab}, 1<<10))}.withDefaults()
}

// reopen opens and replays the folder.
func reopen(d folder, size int64, from table.Position, s *table.Schema, fn func(*Txn) error) (*Log, error) {
	l, err := openFolder(context.Background(), d, testOptions(size))
	if err != nil {
		return nil, err
	}
	return l, l.Replay(context.Background(), from, schemaOf(s), fn)
}

func replayAll(t testing.TB, d folder, size int64, s *table.Schema) (*Log, []string) {
	t.Helper()
	var got []string
	l, err := reopen(d, size, 1, s, func(t *Txn) error { got = append(got, printTxn(t)); return nil })
	if err != nil {
		t.Fatal(err)
	}
	return l, got
}

// appendGroup appends the transactions as one group and returns how they are to be read back.
func appendGroup(t testing.TB, l *Log, txns ...*Txn) []string {
	t.Helper()
	var g *Group
	for _, x := range txns {
		g = l.Enqueue(Encode(x), l.next, firsts(x, uint64(l.next)*10))
	}
	var published []string
	if err := l.commit(func(fs []*Frame) {
		for _, f := range fs {
			published = append(published, printTxn(f.Txn()))
		}
	}); err != nil {
		t.Fatal(err)
	}
	<-g.Done()
	return published
}

func sorted(s []string) []string { slices.Sort(s); return s }

func equal(t testing.TB, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s: got %d transactions, want %d\n got %s\nwant %s", what, len(got), len(want), strings.Join(got, ""), strings.Join(want, ""))
	}
}
