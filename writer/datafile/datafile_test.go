package datafile_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"pgregory.net/rapid"

	"bytes"

	"sluice/writer/datafile"
	"sluice/writer/objstore"
	"sluice/writer/table"
)

var scalars = []table.Type{{Kind: table.Bool}, {Kind: table.Int32}, {Kind: table.Int64}, {Kind: table.Float32}, {Kind: table.Float64},
	table.DecimalType(9, 2), table.DecimalType(18, 5), table.DecimalType(38, 18), {Kind: table.Date}, {Kind: table.Time},
	{Kind: table.Timestamp}, {Kind: table.TimestampTZ}, {Kind: table.UUID}, {Kind: table.String}, {Kind: table.Binary}}

// allKinds has a column of every kind, lists of every kind, and companions.
func allKinds() *table.Schema {
	s := &table.Schema{ID: 1}
	add := func(c table.Column) {
		c.Name = fmt.Sprintf("c%d.x", len(s.Columns))
		c.FieldID = 3*len(s.Columns) + 1
		if c.Type.Kind == table.List {
			c.ElemID = c.FieldID + 1
		}
		if c.Exact {
			c.ExactID = c.FieldID + 2
		}
		s.Columns = append(s.Columns, c)
	}
	add(table.Column{Type: table.Type{Kind: table.Int64}, NotNull: true})
	for _, t := range scalars {
		add(table.Column{Type: t})
		add(table.Column{Type: table.ListOf(t)})
	}
	add(table.Column{Type: table.DecimalType(38, 18), Exact: true, NotNull: true})
	add(table.Column{Type: table.Type{Kind: table.TimestampTZ}, Exact: true})
	return s
}

func drawBatch(t *rapid.T, s *table.Schema, rows int) *table.Batch {
	b := table.NewBatch(s)
	b.Rows = rows
	for i, c := range s.Columns {
		nulls := rapid.IntRange(0, 2).Draw(t, "nulls")
		for range rows {
			switch dice := rapid.IntRange(0, 9).Draw(t, "dice"); {
			case c.Exact && dice == 0:
				b.Cols[i].AppendExact(rapid.SampledFrom([]string{"infinity", "NaN", "4713-01-01 BC", "1e99"}).Draw(t, "exact"))
			case !c.NotNull && dice < 5*nulls:
				b.Cols[i].AppendNull()
			default:
				drawValue(t, b.Cols[i])
			}
		}
	}
	return b
}

func drawValue(t *rapid.T, v *table.Vec) {
	switch v.Type.Kind {
	case table.Bool:
		v.AppendBool(rapid.Bool().Draw(t, "bool"))
	case table.Int32, table.Date:
		v.AppendInt32(rapid.Int32().Draw(t, "int"))
	case table.Float32:
		v.AppendFloat32(float32(drawFloat(t)))
	case table.Float64:
		v.AppendFloat64(drawFloat(t))
	case table.Decimal64:
		limit := int64(math.Pow10(v.Type.Precision)) - 1
		v.AppendInt64(rapid.Int64Range(-limit, limit).Draw(t, "decimal"))
	case table.Decimal128:
		x := rapid.Int64().Draw(t, "decimal")
		b := binary.LittleEndian.AppendUint64(nil, uint64(x))
		v.AppendFixed(binary.LittleEndian.AppendUint64(b, uint64(x>>(rapid.IntRange(8, 63).Draw(t, "shift")))))
	case table.UUID:
		v.AppendFixed(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "uuid"))
	case table.String:
		v.AppendString(rapid.String().Draw(t, "string"))
	case table.Binary:
		v.AppendBytes(rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "bytes"))
	case table.List:
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			if rapid.IntRange(0, 3).Draw(t, "null") == 0 {
				v.Elems.AppendNull()
			} else {
				drawValue(t, v.Elems)
			}
		}
		v.EndList()
	default:
		v.AppendInt64(rapid.Int64().Draw(t, "long"))
	}
}

func drawFloat(t *rapid.T) float64 {
	return rapid.OneOf(rapid.Float64Range(-1e30, 1e30), rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), math.Inf(-1),
		math.Copysign(0, -1), 0})).Draw(t, "float")
}

// show prints a value so that equal text means equal value, bit for bit.
func show(v *table.Vec, i int) string {
	if s, ok := v.ExactText(i); ok {
		return "exact:" + s
	}
	if v.IsNull(i) {
		return "NULL"
	}
	switch {
	case v.Type.Kind == table.List:
		begin, end := v.ListRange(i)
		s := "["
		for k := begin; k < end; k++ {
			s += show(v.Elems, k) + " "
		}
		return s + "]"
	case v.Type.Kind.Width() > 0:
		return fmt.Sprintf("%x", v.FixedAt(i))
	}
	return fmt.Sprintf("%q", v.Bytes(i))
}

func showRow(b *table.Batch, i int) string {
	s := ""
	for _, v := range b.Cols {
		s += show(v, i) + "|"
	}
	return s
}

func showRows(batches ...*table.Batch) (rows []string) {
	for _, b := range batches {
		for i := range b.Rows {
			rows = append(rows, showRow(b, i))
		}
	}
	return rows
}

// tb is what testing and rapid have in common.
type tb interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func write(t tb, store objstore.Store, s *table.Schema, group int, batches ...*table.Batch) datafile.File {
	t.Helper()
	n := 0
	for range store.List(context.Background(), store.Root()) {
		n++
	}
	f, err := datafile.Write(context.Background(), store, objstore.Join(store.Root(), fmt.Sprint("data/", n, ".parquet")), s,
		datafile.All(batches...), datafile.WriteOptions{Exact: datafile.ExactColumns(batches...), GroupBytes: group})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func read(t tb, store objstore.Store, f datafile.File, s *table.Schema, opts datafile.ReadOptions) []string {
	t.Helper()
	var rows []string
	at := opts.Begin
	for c, err := range datafile.Read(context.Background(), store, f, s, opts) {
		if err != nil {
			t.Fatal(err)
		}
		if c.First != at {
			t.Fatalf("chunk begins at %d, want %d", c.First, at)
		}
		at += uint64(c.Rows.Rows)
		rows = append(rows, showRows(c.Rows)...)
	}
	return rows
}

func same(t tb, what string, got, want []string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d rows, want %d", what, len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("%s: row %d is\n%s, want\n%s", what, i, got[i], want[i])
		}
	}
}

// TestRoundTrip writes random batches of all kinds and reads them back whole, by range, by column and by row.
//
// claims: S18
func TestRoundTrip(t *testing.T) {
	s := allKinds()
	rapid.Check(t, func(t *rapid.T) {
		store := objstore.NewMemory("memory:///lake")
		var batches []*table.Batch
		for range rapid.IntRange(1, 3).Draw(t, "batches") {
			batches = append(batches, drawBatch(t, s, rapid.IntRange(1, 12).Draw(t, "rows")))
		}
		f := write(t, store, s, rapid.SampledFrom([]int{0, 1000, 4000}).Draw(t, "group"), batches...)
		want := showRows(batches...)
		n := uint64(len(want))
		opts := datafile.ReadOptions{BatchRows: rapid.IntRange(1, 20).Draw(t, "batch rows")}
		same(t, "all", read(t, store, f, s, opts), want)

		opts.Begin = rapid.Uint64Range(0, n-1).Draw(t, "begin")
		opts.End = rapid.Uint64Range(opts.Begin+1, n).Draw(t, "end")
		same(t, "range", read(t, store, f, s, opts), want[opts.Begin:opts.End])

		rows := rapid.SliceOfN(rapid.Uint64Range(0, n-1), 1, 5).Draw(t, "rows")
		got, err := datafile.NewCache(store, 1<<20).ReadRows(context.Background(), f, s, rows)
		if err != nil {
			t.Fatal(err)
		}
		var picked []string
		for _, r := range rows {
			picked = append(picked, want[r])
		}
		same(t, "rows", showRows(got), picked)
		checkStats(t, f, s, batches)

		cols := []int{rapid.IntRange(0, len(s.Columns)-1).Draw(t, "column")}
		want = nil
		for _, b := range batches {
			want = append(want, showRows(&table.Batch{Rows: b.Rows, Cols: []*table.Vec{b.Cols[cols[0]]}})...)
		}
		same(t, "column", read(t, store, f, s, datafile.ReadOptions{Columns: cols}), want)
	})
}

// checkStats compares counts with the batches and tests that bounds hold.
func checkStats(t *rapid.T, f datafile.File, s *table.Schema, batches []*table.Batch) {
	if f.Rows != int64(len(showRows(batches...))) {
		t.Fatalf("file has %d rows", f.Rows)
	}
	for i, c := range s.Columns {
		st := f.Stats[i]
		if c.Type.Kind == table.List {
			if st.Counted || st.Min != nil || st.FieldID != c.ElemID {
				t.Fatalf("list statistics %+v", st)
			}
			continue
		}
		var nulls, nans int64
		for _, b := range batches {
			nulls += int64(b.Cols[i].Nulls)
			for r := range b.Rows {
				nans += checkBound(t, c, st, b.Cols[i], r)
			}
		}
		if st.FieldID != c.FieldID || st.Values != f.Rows || st.Nulls != nulls || st.NaNs != nans || st.Size <= 0 {
			t.Fatalf("column %s (%s): statistics %+v, want %d nulls, %d NaNs", c.Name, c.Type, st, nulls, nans)
		}
	}
}

func checkBound(t *rapid.T, c table.Column, st datafile.ColumnStats, v *table.Vec, r int) (nan int64) {
	if v.IsNull(r) {
		return 0
	}
	isFloat := c.Type.Kind == table.Float32 || c.Type.Kind == table.Float64
	if isFloat && math.IsNaN(number(c.Type, raw(v, r))) {
		if st.Min != nil || st.Max != nil {
			t.Fatalf("column %s has NaN and bounds", c.Name)
		}
		return 1
	}
	switch x := raw(v, r); {
	case c.Type.Kind == table.String || c.Type.Kind == table.Binary:
		if st.Min == nil || bytes.Compare(x, st.Min) < 0 || st.Max != nil && bytes.Compare(x, st.Max) > 0 {
			t.Fatalf("column %s: %q is outside %q, %q", c.Name, x, st.Min, st.Max)
		}
	case st.Min != nil:
		if n := number(c.Type, x); n < number(c.Type, st.Min) || n > number(c.Type, st.Max) {
			t.Fatalf("column %s: %x is outside %x, %x", c.Name, x, st.Min, st.Max)
		}
	}
	return 0
}

func raw(v *table.Vec, r int) []byte {
	if v.Type.Kind.Width() > 0 {
		return v.FixedAt(r)
	}
	return v.Bytes(r)
}

// number is a value in the layout of table.Vec, near enough to compare.
func number(t table.Type, x []byte) float64 {
	switch {
	case t.Kind == table.Float32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(x)))
	case t.Kind == table.Float64:
		return math.Float64frombits(binary.LittleEndian.Uint64(x))
	case len(x) == 1:
		return float64(x[0])
	case len(x) == 4:
		return float64(int32(binary.LittleEndian.Uint32(x)))
	case len(x) == 8:
		return float64(int64(binary.LittleEndian.Uint64(x)))
	}
	return float64(int64(binary.LittleEndian.Uint64(x[8:])))*math.Pow(2, 64) + float64(binary.LittleEndian.Uint64(x))
}

// TestEvolved reads a file under later schemas: a dropped, a renamed, a widened, two added columns, another order.
func TestEvolved(t *testing.T) {
	store := objstore.NewMemory("memory:///lake")
	old := &table.Schema{ID: 1, Columns: []table.Column{
		{Name: "id", FieldID: 1, Type: table.Type{Kind: table.Int32}, NotNull: true},
		{Name: "gone", FieldID: 2, Type: table.Type{Kind: table.String}},
		{Name: "f", FieldID: 3, Type: table.Type{Kind: table.Float32}},
		{Name: "d", FieldID: 4, Type: table.DecimalType(9, 2)},
	}}
	b := table.NewBatch(old)
	for i := range 3 {
		b.Cols[0].AppendInt32(int32(i - 1))
		b.Cols[1].AppendString("x")
		b.Cols[2].AppendFloat32(1.5)
		b.Cols[3].AppendInt64(int64(-100 * i))
	}
	b.Rows = 3
	f := write(t, store, old, 0, b)
	seven, ts := "7", "2024-02-29 12:34:56.789+00"
	now := &table.Schema{ID: 2, Columns: []table.Column{
		{Name: "wide", FieldID: 4, Type: table.DecimalType(20, 2)},
		{Name: "gone", FieldID: 9, Type: table.Type{Kind: table.Int64}},
		{Name: "seven", FieldID: 10, Type: table.DecimalType(5, 2), Initial: &seven},
		{Name: "f", FieldID: 3, Type: table.Type{Kind: table.Float64}},
		{Name: "key", FieldID: 1, Type: table.Type{Kind: table.Int64}, NotNull: true},
		{Name: "ts", FieldID: 11, Type: table.Type{Kind: table.TimestampTZ}, Initial: &ts},
	}}
	want := table.NewBatch(now)
	for i := range 3 {
		want.Cols[0].AppendFixed(binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(-100*i)), uint64(int64(-100*i)>>63)))
		want.Cols[1].AppendNull()
		want.Cols[2].AppendInt64(700)
		want.Cols[3].AppendFloat64(1.5)
		want.Cols[4].AppendInt64(int64(i - 1))
		want.Cols[5].AppendInt64(1709210096789000)
	}
	want.Rows = 3
	same(t, "evolved", read(t, store, f, now, datafile.ReadOptions{}), showRows(want))
	none := read(t, store, f, now, datafile.ReadOptions{Columns: []int{1, 2}, Begin: 1, BatchRows: 1})
	same(t, "absent columns", none, []string{"NULL|bc02000000000000|", "NULL|bc02000000000000|"})
}

// TestSettings looks at the footer: encodings, integer decimals, required columns, and no statistics where engines misread them. These
// are all columns: nothing of our own is in a file.
//
// claims: P30
func TestSettings(t *testing.T) {
	store := objstore.NewMemory("memory:///lake")
	s := &table.Schema{Columns: []table.Column{
		{Name: "id", FieldID: 1, Type: table.Type{Kind: table.Int64}, NotNull: true},
		{Name: "d", FieldID: 2, Type: table.DecimalType(18, 2)},
		{Name: "f", FieldID: 3, Type: table.Type{Kind: table.Float64}},
		{Name: "u", FieldID: 4, Type: table.Type{Kind: table.UUID}},
		{Name: "l", FieldID: 5, ElemID: 6, Type: table.ListOf(table.Type{Kind: table.String})},
		{Name: "x", FieldID: 7, ExactID: 8, Exact: true, NotNull: true, Type: table.Type{Kind: table.Date}},
	}}
	row := func(f float64) *table.Batch {
		b := table.NewBatch(s)
		b.Rows = 1
		b.Cols[0].AppendInt64(1)
		b.Cols[1].AppendInt64(5)
		b.Cols[2].AppendFloat64(f)
		b.Cols[3].AppendFixed(make([]byte, 16))
		b.Cols[4].Elems.AppendString("a")
		b.Cols[4].EndList()
		b.Cols[5].AppendExact("infinity")
		return b
	}
	f := write(t, store, s, 0, row(1), row(2), row(math.NaN()), row(3))
	body, _ := store.Get(context.Background(), f.Location)
	pf, err := file.NewParquetReader(bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if pf.NumRowGroups() != 2 || len(f.Splits) != 2 || f.Splits[0] != 4 {
		t.Fatalf("%d row groups, splits %v; want a new group at the first NaN", pf.NumRowGroups(), f.Splits)
	}
	var got []string
	for i := range pf.MetaData().Schema.NumColumns() {
		c := pf.MetaData().Schema.Column(i)
		line := fmt.Sprintf("%s id=%d %s def=%d", c.Path(), c.SchemaNode().FieldID(), c.PhysicalType(), c.MaxDefinitionLevel())
		for g := range 2 {
			cc, err := pf.RowGroup(g).MetaData().ColumnChunk(i)
			if err != nil {
				t.Fatal(err)
			}
			set, _ := cc.StatsSet()
			line += fmt.Sprintf(" stats=%v delta=%v dict=%v", set, slices.ContainsFunc(cc.Encodings(), func(e parquet.Encoding) bool {
				return e == parquet.Encodings.DeltaBinaryPacked || e == parquet.Encodings.DeltaLengthByteArray
			}), cc.HasDictionaryPage())
		}
		got = append(got, line)
	}
	same(t, "footer", got, []string{
		"id id=1 INT64 def=0 stats=true delta=true dict=false stats=true delta=true dict=false",
		"d id=2 INT64 def=1 stats=true delta=true dict=false stats=true delta=true dict=false",
		"f id=3 DOUBLE def=1 stats=true delta=false dict=false stats=false delta=false dict=false",
		"u id=4 FIXED_LEN_BYTE_ARRAY def=1 stats=false delta=false dict=false stats=false delta=false dict=false",
		"l.list.element id=6 BYTE_ARRAY def=3 stats=true delta=true dict=false stats=true delta=true dict=false",
		"x id=7 INT32 def=1 stats=true delta=true dict=false stats=true delta=true dict=false",
		"x__text id=8 BYTE_ARRAY def=1 stats=true delta=true dict=false stats=true delta=true dict=false",
	})
}

// TestRefusals: what would be lost is refused.
func TestRefusals(t *testing.T) {
	store := objstore.NewMemory("memory:///lake")
	s := &table.Schema{Columns: []table.Column{{Name: "n", FieldID: 1, ExactID: 2, Exact: true, Type: table.Type{Kind: table.Int32}},
		{Name: "m", FieldID: 3, Type: table.Type{Kind: table.Int32}, NotNull: true}}}
	for name, fill := range map[string]func(b *table.Batch){
		"exact without companion": func(b *table.Batch) { b.Cols[0].AppendExact("NaN"); b.Cols[1].AppendInt32(1) },
		"null in not null":        func(b *table.Batch) { b.Cols[0].AppendNull(); b.Cols[1].AppendNull() },
		"short column":            func(b *table.Batch) { b.Cols[0].AppendNull() },
	} {
		b := table.NewBatch(s)
		b.Rows = 1
		fill(b)
		_, err := datafile.Write(context.Background(), store, objstore.Join(store.Root(), "f"), s, datafile.All(b), datafile.WriteOptions{})
		if err == nil {
			t.Errorf("%s was written", name)
		}
	}
}

// TestCutBounds: bounds of long strings and bytes.
func TestCutBounds(t *testing.T) {
	store := objstore.NewMemory("memory:///lake")
	max17 := string(slices.Repeat([]rune{0x10FFFF}, 17))
	for _, c := range []struct{ value, min, max string }{
		{"short", "short", "short"},
		{"0123456789abcdefg", "0123456789abcdef", "0123456789abcdeg"},
		{"0123456789abcde\uD7FFx", "0123456789abcde\uD7FF", "0123456789abcde\uE000"},
		{"0123456789abcd" + max17, "0123456789abcd\U0010FFFF\U0010FFFF", "0123456789abce"},
		{max17, max17[:64], ""},
	} {
		s := &table.Schema{Columns: []table.Column{{Name: "s", FieldID: 1, Type: table.Type{Kind: table.String}}}}
		b := table.NewBatch(s)
		b.Rows = 1
		b.Cols[0].AppendString(c.value)
		st := write(t, store, s, 0, b).Stats[0]
		if string(st.Min) != c.min || string(st.Max) != c.max {
			t.Errorf("%q: bounds %q, %q, want %q, %q", c.value, st.Min, st.Max, c.min, c.max)
		}
	}
}

// manyRows is rows whose values follow from their position, with NULLs.
func manyRows(s *table.Schema, n int) *table.Batch {
	b := table.NewBatch(s)
	b.Rows = n
	for i := range n {
		b.Cols[0].AppendInt64(int64(i) * 7919 % 1000003)
		if i%5 == 0 {
			b.Cols[1].AppendNull()
		} else {
			b.Cols[1].AppendString(fmt.Sprintf("value %d", i*i%997))
		}
		b.Cols[2].AppendFloat64(float64(i) / 3)
	}
	return b
}

var manyColumns = []table.Column{
	{Name: "id", FieldID: 1, Type: table.Type{Kind: table.Int64}, NotNull: true},
	{Name: "s", FieldID: 2, Type: table.Type{Kind: table.String}},
	{Name: "f", FieldID: 3, Type: table.Type{Kind: table.Float64}},
}

// TestManyPages finds rows in files with many pages and row groups.
func TestManyPages(t *testing.T) {
	store := objstore.NewMemory("memory:///lake")
	s := &table.Schema{Columns: manyColumns}
	b := manyRows(s, 150_000)
	want := showRows(b)
	for _, group := range []int{0, 1 << 20} {
		f := write(t, store, s, group, b)
		if group != 0 && len(f.Splits) < 4 {
			t.Errorf("%d row groups", len(f.Splits))
		}
		rows := []uint64{149_999, 0, 1, 77_777, 77_776, 30_000, 65_536, 3}
		got, err := datafile.NewCache(store, 1<<20).ReadRows(context.Background(), f, s, rows)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range rows {
			same(t, fmt.Sprint("row ", r), showRows(got)[i:i+1], want[r:r+1])
		}
		same(t, "range", read(t, store, f, s, datafile.ReadOptions{Begin: 20_001, End: 120_003}), want[20_001:120_003])
	}
}

func BenchmarkWrite(b *testing.B) {
	s := &table.Schema{Columns: manyColumns}
	rows := manyRows(s, 100_000)
	for b.Loop() {
		write(b, objstore.NewMemory("memory:///lake"), s, 0, rows)
	}
	b.ReportMetric(float64(100_000*b.N)/b.Elapsed().Seconds(), "rows/s")
}

func BenchmarkRead(b *testing.B) {
	store := objstore.NewMemory("memory:///lake")
	s := &table.Schema{Columns: manyColumns}
	f := write(b, store, s, 0, manyRows(s, 100_000))
	for b.Loop() {
		n := 0
		for c, err := range datafile.Read(context.Background(), store, f, s, datafile.ReadOptions{}) {
			if err != nil {
				b.Fatal(err)
			}
			n += c.Rows.Rows
		}
		if n != 100_000 {
			b.Fatal(n)
		}
	}
	b.ReportMetric(float64(100_000*b.N)/b.Elapsed().Seconds(), "rows/s")
}

func BenchmarkReadRow(b *testing.B)     { readRow(b, 64<<20) }
func BenchmarkReadRowCold(b *testing.B) { readRow(b, 4096) } // footers stay

func readRow(b *testing.B, limit int64) {
	store := objstore.NewMemory("memory:///lake")
	s := &table.Schema{Columns: manyColumns}
	f := write(b, store, s, 0, manyRows(s, 100_000))
	c := datafile.NewCache(store, limit)
	for i := 0; b.Loop(); i++ {
		if _, err := c.ReadRows(context.Background(), f, s, []uint64{uint64(i * 7919 % 100_000)}); err != nil {
			b.Fatal(err)
		}
	}
}
