package writer_test

import (
	"errors"
	"testing"
	"time"

	"sluice/writer/catalog"
	"sluice/writer/datafile"
	"sluice/writer/format"
	"sluice/writer/format/iceberg"
	"sluice/writer/objstore"
	"sluice/writer/table"
)

// compact merges all files of a table into one, as an engine does that knows the catalog and the metadata and nothing of the gateway.
func (x *world) compact(t *testing.T, id table.ID) {
	t.Helper()
	f := iceberg.Open(x.objects, iceberg.Options{Now: time.Now})
	at, _ := x.table(id)
	s, err := f.Snapshot(t.Context(), at.Pointer)
	must(t, err)
	edit := format.Edit{Table: id, Schema: x.defs[id].Schema, Rewrite: true}
	all := table.NewBatch(edit.Schema)
	for _, old := range s.Files {
		edit.Removed = append(edit.Removed, old.ID)
		for c, err := range datafile.Read(t.Context(), x.objects, old.File, edit.Schema, datafile.ReadOptions{}) {
			must(t, err)
			for i := range c.Rows.Rows {
				if old.Deleted == nil || !old.Deleted.Contains(uint32(c.First)+uint32(i)) {
					all.AppendRow(c.Rows, i)
				}
			}
		}
	}
	location := objstore.Join(format.Root(at.Pointer), "data", "00000-0-compacted.parquet")
	file, err := datafile.Write(t.Context(), x.objects, location, edit.Schema, datafile.All(all), datafile.WriteOptions{})
	must(t, err)
	edit.Added = []format.DataFile{{File: file}}
	next, err := f.Stage(t.Context(), at.Pointer, edit)
	must(t, err)
	_, err = x.catalog.Flip(t.Context(), catalog.Flip{ID: "compaction", Tables: []catalog.TableFlip{{Table: id, From: at.Pointer, To: next, NextFile: at.NextFile,
		NextRow: at.NextRow, RowMap: at.RowMap}}})
	must(t, err)
}

// TestForeignCompaction: somebody else merges a table's files while rows are in the tail. They stay, the flush that comes too late moves
// nothing, and the next one goes on from the merged file.
//
// claims: P16
func TestForeignCompaction(t *testing.T) {
	x := icebergWorld(t)
	x.open()
	x.create(kv(1, "a", true))
	must(t, x.commitTables([]any{1, "x", 2, "x"}, 1))
	must(t, x.commitTables([]any{3, "x", 4, "x"}, 1))
	x.put(1, 5, "tail")
	x.compact(t, 1)
	want := []string{"1 x", "2 x", "3 x", "4 x", "5 tail"}
	check(t, x, 1, want...)
	if _, err := x.w.Flush(t.Context()); !errors.Is(err, catalog.ErrConflict) {
		t.Errorf("flush on a pointer that has moved: %v", err)
	}
	check(t, x, 1, want...)
	_, err := x.w.Flush(t.Context())
	must(t, err)
	if _, s := x.table(1); len(s.Files) != 2 || s.Files[0].ID != 0 || s.Files[0].File.Rows != 4 || s.Files[1].File.Rows != 1 {
		t.Errorf("files %+v", s.Files)
	}
	check(t, x, 1, want...)
	x.close()
	x.open()
	check(t, x, 1, want...)
}
