package reader

import (
	"fmt"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/apache/arrow-go/v18/arrow"

	"sluice/server/scan"
	"sluice/writer/datafile"
	"sluice/writer/objstore"
	"sluice/writer/table"
)

// TestNoMerge reads keys of which older versions are in a file and newer ones in memory, in a sealed and in a building batch: one row a
// key. The plan takes dead rows away by their place and compares no versions, so the filter is in the scan of the file.
//
// claims: P10
func TestNoMerge(t *testing.T) {
	dir := t.TempDir()
	store, err := objstore.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := &table.Schema{ID: 1, Columns: []table.Column{{Name: "k", FieldID: 1, Type: table.Type{Kind: table.Int64}},
		{Name: "v", FieldID: 2, Type: table.Type{Kind: table.String}}}}
	rows := func(v string, keys ...int64) *table.Batch {
		b := table.NewBatch(s)
		for _, k := range keys {
			b.Cols[0].AppendInt64(k)
			b.Cols[1].AppendString(v)
			b.Rows++
		}
		return b
	}
	location := objstore.Join(store.Root(), "1.parquet")
	f, err := datafile.Write(t.Context(), store, location, s, datafile.All(rows("old", 0, 1, 2, 3, 4, 5, 6, 7)), datafile.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	in := scan.Table{Name: "b1", Columns: []scan.Column{{Name: "k", FieldID: 1, Type: "BIGINT"}, {Name: "v", FieldID: 2, Type: "VARCHAR"}},
		Files: []scan.File{{Path: strings.TrimPrefix(location, "file://"), Rows: uint64(f.Rows), Dead: roaring.BitmapOf(2, 3, 5)}},
		Rows:  []arrow.RecordBatch{datafile.ToArrow(rows("sealed", 2, 3), nil), datafile.ToArrow(rows("building", 5), nil)}}
	p := newPool(t, Options{Roots: []string{dir}})
	query := func(where string) string {
		return fmt.Sprintf(`SELECT * FROM "b1" WHERE %s ORDER BY 1`, where)
	}
	tables := []scan.Table{in}
	want(t, p, &scan.Request{SQL: query("true"), Tables: tables}, "0|old|\n1|old|\n2|sealed|\n3|sealed|\n4|old|\n5|building|\n6|old|\n7|old|\n")
	want(t, p, &scan.Request{SQL: query("v = 'old' AND k IN (2, 3, 4)"), Tables: tables}, "4|old|\n")
	want(t, p, &scan.Request{SQL: query("k = 5"), Tables: tables}, "5|building|\n")
	plan, err := ask(t.Context(), p, &scan.Request{SQL: "EXPLAIN " + query("k = 5"), Tables: tables})
	if err != nil {
		t.Fatal(err)
	}
	for part, there := range map[string]bool{"READ_PARQUET": true, "Filters: f0=5": true, "ANTI": true, "AGGREGATE": false, "WINDOW": false, "DISTINCT": false} {
		if strings.Contains(plan, part) != there {
			t.Errorf("the plan has %s: %v, want %v\n%s", part, !there, there, plan)
		}
	}
}
