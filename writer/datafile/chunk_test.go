package datafile_test

import (
	"context"
	"fmt"
	"testing"

	"sluice/writer/datafile"
	"sluice/writer/objstore"
	"sluice/writer/table"
)

// TestChunks: no batch is longer than asked, or than 8,192 rows, whatever the row groups; together they are the file, in order.
//
// claims: P21
func TestChunks(t *testing.T) {
	store := objstore.NewMemory("memory:///lake")
	s := &table.Schema{Columns: manyColumns}
	b := manyRows(s, 20_000)
	want := showRows(b)
	for _, group := range []int{0, 100_000} {
		f := write(t, store, s, group, b)
		for _, limit := range []int{0, 1, 7, 1024, 100_000} {
			most, next := limit, uint64(0)
			if limit == 0 {
				most = 8192
			}
			var got []string
			for c, err := range datafile.Read(context.Background(), store, f, s, datafile.ReadOptions{BatchRows: limit}) {
				if err != nil {
					t.Fatal(err)
				}
				if c.First != next || c.Rows.Rows == 0 || c.Rows.Rows > most {
					t.Fatalf("limit %d: %d rows from %d, expected from %d", limit, c.Rows.Rows, c.First, next)
				}
				next += uint64(c.Rows.Rows)
				got = append(got, showRows(c.Rows)...)
			}
			same(t, fmt.Sprintf("row groups of %d bytes, batches of %d", group, limit), got, want)
		}
	}
}
