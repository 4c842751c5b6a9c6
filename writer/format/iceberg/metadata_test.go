package iceberg_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/RoaringBitmap/roaring/v2"
	ice "github.com/apache/iceberg-go"
	iceio "github.com/apache/iceberg-go/io"
	icetable "github.com/apache/iceberg-go/table"
	"github.com/apache/iceberg-go/table/dv"

	"sluice/writer/datafile"
	"sluice/writer/format"
	"sluice/writer/format/formattest"
	"sluice/writer/format/iceberg"
	"sluice/writer/objstore"
	"sluice/writer/table"
)

// world is a table with the pieces it is made of, for tests that look below formattest.
type world struct {
	t      testing.TB
	store  objstore.Store
	f      *iceberg.Format
	schema *table.Schema
	p      table.Pointer
	next   table.FileID
	clock  time.Time
}

func newWorld(t testing.TB, s *table.Schema, o format.Options) *world {
	t.Helper()
	d, err := objstore.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, store: d, schema: s, next: 1, clock: time.UnixMilli(1700000000000)}
	w.f = iceberg.Open(d, iceberg.Options{Now: func() time.Time { return w.clock }})
	if w.p, err = w.f.Create(context.Background(), objstore.Join(d.Root(), "t"), s, o); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) file(b *table.Batch) format.DataFile {
	w.t.Helper()
	id := w.next
	w.next++
	f, err := datafile.Write(context.Background(), w.store, format.DataLocation(w.p, id), b.Schema, datafile.All(b),
		datafile.WriteOptions{Exact: datafile.ExactColumns(b)})
	if err != nil {
		w.t.Fatal(err)
	}
	return format.DataFile{ID: id, File: f}
}

func (w *world) commit(e format.Edit) {
	w.t.Helper()
	e.Schema = w.schema
	p, err := w.f.Stage(context.Background(), w.p, e)
	if err != nil {
		w.t.Fatal(err)
	}
	w.p = p
}

func (w *world) metadata() (m map[string]any) {
	w.t.Helper()
	text, err := w.f.Metadata(context.Background(), w.p)
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

func (w *world) table() *icetable.Table {
	w.t.Helper()
	tbl, err := icetable.NewFromLocation(context.Background(), icetable.Identifier{"t"}, w.p.Location,
		func(context.Context) (iceio.IO, error) { return iceio.LocalFS{}, nil }, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return tbl
}

func text(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	return strings.TrimSpace(b.String())
}

// TestMetadata looks at the bytes: field ids as given, reserved ids covered, docs, keys, defaults, names, times.
//
// claims: H30
func TestMetadata(t *testing.T) {
	s := &table.Schema{ID: 1, Key: []int{0}, Columns: []table.Column{
		{Name: "id", FieldID: 5, Type: table.Type{Kind: table.Int64}, NotNull: true, Doc: "bigint"},
		{Name: "tags", FieldID: 9, ElemID: 10, Type: table.ListOf(table.Type{Kind: table.String}), Doc: "text[]"},
		{Name: "n", FieldID: 11, ExactID: 12, Exact: true, NotNull: true, Type: table.DecimalType(38, 18), Doc: "numeric"},
	}, Spec: []table.PartitionField{{Source: 5, FieldID: 1004, Name: "id_bucket", Transform: "bucket[16]"}}}
	w := newWorld(t, s, format.Options{Properties: map[string]string{"owner": "lake"}})
	m := w.metadata()
	for key, want := range map[string]string{
		"format-version": "3", "last-column-id": "12", "last-partition-id": "1004", "next-row-id": "0", "last-sequence-number": "0",
		"last-updated-ms": "1700000000000",
		"schemas": `[{"fields":[{"doc":"bigint","id":5,"name":"id","required":true,"type":"long"},` +
			`{"doc":"text[]","id":9,"name":"tags","required":false,"type":{"element":"string","element-id":10,"element-required":false,"type":"list"}},` +
			`{"doc":"numeric","id":11,"name":"n","required":false,"type":"decimal(38, 18)"}],"identifier-field-ids":[5],"schema-id":0,"type":"struct"}]`,
		"partition-specs": `[{"fields":[{"field-id":1004,"name":"id_bucket","source-id":5,"transform":"bucket[16]"}],"spec-id":0}]`,
		"sort-orders":     `[{"fields":[],"order-id":0}]`,
		"properties": `{"owner":"lake","write.delete.mode":"merge-on-read","write.format.default":"parquet","write.merge.mode":"merge-on-read",` +
			`"write.metadata.previous-versions-max":"20","write.parquet.compression-codec":"zstd","write.update.mode":"merge-on-read"}`,
	} {
		if got := text(m[key]); got != want {
			t.Errorf("%s is %s, want %s", key, got, want)
		}
	}
	if !strings.HasPrefix(w.p.Location, w.store.Root()+"/t/metadata/00000-") || format.Root(w.p) != w.store.Root()+"/t" {
		t.Errorf("created %s, root %s", w.p.Location, format.Root(w.p))
	}

	w.clock = w.clock.Add(-time.Hour) // a clock that goes back: metadata's time must not
	b := table.NewBatch(s)
	b.Rows = 1
	b.Cols[0].AppendInt64(34)
	b.Cols[1].AppendNull()
	b.Cols[2].AppendExact("NaN")
	part, err := iceberg.PartitionValues(s, b, 0)
	if err != nil || text(part) != fmt.Sprintf("[%d]", 2017239379%16) { // the spec's test vector for bucket
		t.Fatalf("partition %v, %v", part, err)
	}
	df := w.file(b)
	df.Partition = part
	before := w.p
	w.commit(format.Edit{Position: 77, FlushID: "f-1", Added: []format.DataFile{df}, Properties: map[string]string{"owner": "other"}})
	m = w.metadata()
	snap := m["snapshots"].([]any)[0].(map[string]any)
	for _, c := range []struct{ what, got, want string }{
		{"time", text(m["last-updated-ms"]), "1700000000001"},
		{"next row", text(m["next-row-id"]), "1"},
		{"companion", text(m["schemas"].([]any)[1].(map[string]any)["fields"].([]any)[3]),
			`{"doc":"exact text of n where its type cannot hold the value","id":12,"name":"n__text","required":false,"type":"string"}`},
		{"schema of snapshot", text(snap["schema-id"]), "1"},
		{"row ids", text([]any{snap["first-row-id"], snap["added-rows"]}), "[0,1]"},
		{"owner", text(m["properties"].(map[string]any)["owner"]), `"other"`},
		{"log", text(m["metadata-log"]), `[{"metadata-file":"` + before.Location + `","timestamp-ms":1700000000000}]`},
		{"summary", text(snap["summary"]), fmt.Sprintf(`{"added-data-files":"1","added-files-size":"%d","added-records":"1","operation":"append",`+
			`"sluice.flush-id":"f-1","sluice.position":"77","total-data-files":"1","total-delete-files":"0","total-equality-deletes":"0",`+
			`"total-files-size":"%d","total-position-deletes":"0","total-records":"1"}`, df.File.Size, df.File.Size)},
	} {
		if c.got != c.want {
			t.Errorf("%s is %s, want %s", c.what, c.got, c.want)
		}
	}
	if h, err := w.f.Head(context.Background(), w.p); err != nil || h.Position != 77 || h.FlushID != "f-1" {
		t.Errorf("head %+v, %v", h, err)
	}
}

func ids(begin, end int) *table.Batch { return formattest.Rows(idSchema, begin, end) }

var idSchema = &table.Schema{ID: 1, Columns: formattest.Wide().Columns[:1]}

// TestLineage: _row_id is unique and stays with its row while manifests are rewritten and merged.
func TestLineage(t *testing.T) {
	w := newWorld(t, idSchema, format.Options{})
	seen := map[string]string{} // id → _row_id
	for n := range 80 {
		e := format.Edit{Added: []format.DataFile{w.file(ids(10*n, 10*n+10))}}
		if n > 0 {
			e.Deletes = map[table.FileID]*roaring.Bitmap{table.FileID(n): roaring.BitmapOf(uint32(n % 10))}
		}
		if n%9 == 8 {
			e.Removed = []table.FileID{table.FileID(n - 3)}
		}
		w.commit(e)
		if n%13 != 12 && n != 79 {
			continue
		}
		taken := map[string]string{}
		for id, row := range w.lineage() {
			if other, ok := taken[row]; ok {
				t.Fatalf("commit %d: rows %s and %s have _row_id %s", n, id, other, row)
			}
			taken[row] = id
			if before, ok := seen[id]; ok && before != row {
				t.Fatalf("commit %d: _row_id of row %s went from %s to %s", n, id, before, row)
			}
			seen[id] = row
		}
	}
}

func (w *world) lineage() map[string]string {
	w.t.Helper()
	_, recs, err := w.table().Scan(icetable.WithRowLineage()).ToArrowRecords(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	rows := map[string]string{}
	for rec, err := range recs {
		if err != nil {
			w.t.Fatal(err)
		}
		at := rec.Schema().FieldIndices("_row_id")[0]
		for i := range int(rec.NumRows()) {
			rows[rec.Column(0).ValueStr(i)] = rec.Column(at).ValueStr(i)
		}
	}
	return rows
}

// TestManifestsStayFew: many small commits keep few manifests, and a commit reads none of them from the store.
func TestManifestsStayFew(t *testing.T) {
	w := newWorld(t, idSchema, format.Options{})
	counted := &countingStore{Store: w.store}
	w.f = iceberg.Open(counted, iceberg.Options{Now: time.Now, MergeManifests: 10})
	for n := range 60 {
		e := format.Edit{Added: []format.DataFile{w.file(ids(10*n, 10*n+10))}}
		if n > 0 {
			e.Deletes = map[table.FileID]*roaring.Bitmap{table.FileID(n): roaring.BitmapOf(3), table.FileID(n/2 + 1): roaring.BitmapOf(uint32(n % 10))}
		}
		counted.reads = 0
		w.commit(e)
		files, err := w.table().CurrentSnapshot().Manifests(iceio.LocalFS{})
		if err != nil {
			t.Fatal(err)
		}
		if len(files) > 2*10+2 || counted.reads > 7 {
			t.Fatalf("commit %d: %d manifests, %d reads", n, len(files), counted.reads)
		}
	}
}

// countingStore counts reads.
type countingStore struct {
	objstore.Store
	reads int
}

func (c *countingStore) Get(ctx context.Context, location string) ([]byte, error) {
	c.reads++
	return c.Store.Get(ctx, location)
}

func (c *countingStore) GetRange(ctx context.Context, location string, off, n int64) ([]byte, error) {
	c.reads++
	return c.Store.GetRange(ctx, location, off, n)
}

// TestForeignVectors goes on from a commit of another writer, which put several vectors without bounds into one Puffin file
// and added a data file of its own. Replacing one vector must replace all of that file.
func TestForeignVectors(t *testing.T) {
	w := newWorld(t, idSchema, format.Options{})
	w.commit(format.Edit{Added: []format.DataFile{w.file(ids(0, 10)), w.file(ids(10, 20)), w.file(ids(20, 30))}})
	w.foreignCommit(map[table.FileID][]int64{1: {1, 2}, 2: {3}})
	deleted := func() string {
		s, err := w.f.Snapshot(context.Background(), w.p)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, f := range s.Files {
			name := fmt.Sprint(f.ID)
			if f.ID >= format.Foreign {
				name = "other"
			}
			out = append(out, fmt.Sprintf("%s:%v", name, f.Deleted))
		}
		return strings.Join(out, " ")
	}
	if got := deleted(); got != "1:{1,2} 2:{3} 3:<nil> other:<nil>" {
		t.Fatalf("after the foreign commit: %s", got)
	}
	w.commit(format.Edit{Deletes: map[table.FileID]*roaring.Bitmap{1: roaring.BitmapOf(7)}})
	if got := deleted(); got != "1:{1,2,7} 2:{3} 3:<nil> other:<nil>" {
		t.Fatalf("after our commit: %s", got)
	}
	tasks, err := w.table().Scan().PlanFiles(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var puffins []string
	for _, task := range tasks {
		for _, d := range task.DeletionVectorFiles {
			puffins = append(puffins, d.FilePath())
		}
	}
	if len(puffins) != 2 || puffins[0] != puffins[1] {
		t.Errorf("vectors are in %v, want one Puffin file of ours", puffins)
	}
}

// foreignCommit deletes rows and adds a file as iceberg-go would by itself.
func (w *world) foreignCommit(deletes map[table.FileID][]int64) {
	w.t.Helper()
	ctx := context.Background()
	tbl := w.table()
	vw := dv.NewDVWriter(iceio.LocalFS{}, func(id int32) *ice.PartitionSpec { return tbl.Metadata().PartitionSpecByID(int(id)) })
	tasks, err := tbl.Scan().PlanFiles(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, task := range tasks {
		if rows := deletes[format.FileID(task.File.FilePath())]; rows != nil {
			if err := vw.Add(task.File.FilePath(), rows, task.File.SpecID(), task.File.Partition()); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	dels, err := vw.Flush(ctx, tbl.Location()+"/data/foreign-deletes.puffin")
	if err != nil {
		w.t.Fatal(err)
	}
	f, err := datafile.Write(ctx, w.store, tbl.Location()+"/data/00000-0-foreign-00001.parquet", idSchema, datafile.All(ids(90, 95)), datafile.WriteOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	b, err := ice.NewDataFileBuilder(tbl.Spec(), ice.EntryContentData, f.Location, ice.ParquetFile, nil, nil, nil, f.Rows, f.Size)
	if err != nil {
		w.t.Fatal(err)
	}
	tx := tbl.NewTransaction()
	if err := tx.NewRowDelta(nil).AddRows(b.Build()).AddDeletes(dels...).Commit(ctx); err != nil {
		w.t.Fatal(err)
	}
	staged, err := tx.StagedTable()
	if err != nil {
		w.t.Fatal(err)
	}
	body, err := json.Marshal(staged.Metadata())
	if err != nil {
		w.t.Fatal(err)
	}
	w.p = table.Pointer{Location: tbl.Location() + "/metadata/00002-foreign.metadata.json"}
	if err := w.store.Put(ctx, w.p.Location, body); err != nil {
		w.t.Fatal(err)
	}
}

// TestSpecRefusals: specs that cannot be written are refused at once.
func TestSpecRefusals(t *testing.T) {
	s := formattest.Wide()
	f := iceberg.Open(objstore.NewMemory("memory:///lake"), iceberg.Options{Now: time.Now})
	for name, spec := range map[string][]table.PartitionField{
		"two decimals": {{Source: 60, FieldID: 1000, Name: "a", Transform: "identity"}, {Source: 70, FieldID: 1001, Name: "b", Transform: "identity"}},
		"name":         {{Source: 10, FieldID: 1000, Name: "größe", Transform: "identity"}},
		"transform":    {{Source: 10, FieldID: 1000, Name: "a", Transform: "half"}},
		"source":       {{Source: 99, FieldID: 1000, Name: "a", Transform: "identity"}},
		"type":         {{Source: 20, FieldID: 1000, Name: "a", Transform: "hour"}},
	} {
		s.Spec = spec
		if p, err := f.Create(context.Background(), "memory:///lake/t", s, format.Options{}); err == nil {
			t.Errorf("%s: created %v", name, p)
		}
	}
}

func BenchmarkStage(b *testing.B) {
	w := newWorld(b, formattest.Wide(), format.Options{})
	rows := formattest.Rows(w.schema, 0, 22)
	n := 0
	w.commit(format.Edit{Added: []format.DataFile{w.file(rows)}})
	for b.Loop() {
		b.StopTimer()
		df := w.file(rows)
		b.StartTimer()
		n++
		w.commit(format.Edit{Added: []format.DataFile{df}, Deletes: map[table.FileID]*roaring.Bitmap{
			table.FileID(n): roaring.BitmapOf(uint32(n % 22)), table.FileID(n/2 + 1): roaring.BitmapOf(uint32(n % 20))}})
	}
}
