package writer_test

import (
	"errors"
	"slices"
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
	x.rewrite(t, id, func(b *table.Batch) *table.Batch { return b })
}

// rewrite is compact of what change makes of the rows.
func (x *world) rewrite(t *testing.T, id table.ID, change func(*table.Batch) *table.Batch) {
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
	file, err := datafile.Write(t.Context(), x.objects, location, edit.Schema, datafile.All(change(all)), datafile.WriteOptions{})
	must(t, err)
	edit.Added = []format.DataFile{{ID: format.FileID(location), File: file}}
	next, err := f.Stage(t.Context(), at.Pointer, edit)
	must(t, err)
	_, err = x.catalog.Flip(t.Context(), catalog.Flip{ID: "compaction", Tables: []catalog.TableFlip{{Table: id, From: at.Pointer, To: next, NextFile: at.NextFile,
		NextRow: at.NextRow, RowMap: at.RowMap, Snapshot: at.Snapshot}}}) // a CAS on iceberg_tables leaves the gateway's own row alone
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
	if _, s := x.table(1); len(s.Files) != 2 || s.Files[0].ID >= format.Foreign || s.Files[0].File.Rows != 1 || s.Files[1].ID < format.Foreign || s.Files[1].File.Rows != 4 {
		t.Errorf("files %+v", s.Files)
	}
	check(t, x, 1, want...)
	x.close()
	x.open()
	check(t, x, 1, want...)
}

// TestDeletesOverForeignCompaction: rows are updated and deleted in the tail alone when another engine merges their files. Whether the gateway
// hears of it by a conflict or at a start, the old versions stay dead, keys are found in the new file, and an open transaction and a prepared one
// find their rows.
//
// claims: P56 H26
func TestDeletesOverForeignCompaction(t *testing.T) {
	for _, keyed := range []bool{true, false} {
		for _, restart := range []bool{true, false} {
			x := icebergWorld(t)
			x.open()
			x.create(kv(1, "a", keyed))
			must(t, x.commitTables([]any{1, "x", 2, "x", 6, "x"}, 1))
			must(t, x.commitTables([]any{3, "x", 4, "x", 5, "x"}, 1))
			commitTxn(t, x.change(t, 1, "new"))
			commitTxn(t, x.remove(t, 1, "3"))
			open := x.remove(t, 1, "5")
			x.compact(t, 1)
			want := []string{"1 new", "2 x", "4 x", "5 x", "6 x"}
			check(t, x, 1, want...)
			if restart {
				x.close()
				x.open()
			} else {
				_, err := x.w.Flush(t.Context())
				if !errors.Is(err, catalog.ErrConflict) {
					t.Errorf("flush on a pointer that has moved: %v", err)
				}
				commitTxn(t, open)
				want = slices.DeleteFunc(want, func(s string) bool { return s == "5 x" })
			}
			check(t, x, 1, want...)
			if _, err := x.begin().Insert(t.Context(), 1, rows(x.defs[1].Schema, 6, "again")); keyed && err == nil {
				t.Error("key 6 was inserted twice")
			}
			commitTxn(t, x.remove(t, 1, "6"))
			want = slices.DeleteFunc(want, func(s string) bool { return s == "6 x" })
			check(t, x, 1, want...)
			x.close() // the log has names from before and from behind the other engine's commit
			x.open()
			check(t, x, 1, want...)
			_, err := x.w.Flush(t.Context())
			must(t, err)
			check(t, x, 1, want...)
			x.close()
			x.open()
			check(t, x, 1, want...)
			done, err := x.w.Compact(t.Context(), 1)
			must(t, err)
			if check(t, x, 1, want...); done.Added != 1 {
				t.Errorf("%+v", done)
			}
			x.fsck()
		}
	}
}

// TestForeignDelete: another engine deletes a row, adds one and merges the files while the first row's delete is in the tail. It is done, and the
// added row's key is taken.
func TestForeignDelete(t *testing.T) {
	x := icebergWorld(t)
	x.open()
	x.create(kv(1, "a", true))
	must(t, x.commitTables([]any{1, "x", 2, "x"}, 1))
	must(t, x.commitTables([]any{3, "x", 4, "x"}, 1))
	commitTxn(t, x.remove(t, 1, "1"))
	x.rewrite(t, 1, func(b *table.Batch) *table.Batch {
		out := rows(b.Schema, 9, "theirs")
		for i := range b.Rows {
			if k := b.Cols[0].Int64(i); k != 1 && k != 4 {
				out.AppendRow(b, i)
			}
		}
		return out
	})
	if _, err := x.w.Flush(t.Context()); !errors.Is(err, catalog.ErrConflict) {
		t.Errorf("flush on a pointer that has moved: %v", err)
	}
	want := []string{"2 x", "3 x", "9 theirs"}
	check(t, x, 1, want...)
	if _, err := x.begin().Insert(t.Context(), 1, rows(x.defs[1].Schema, 9, "ours")); err == nil {
		t.Error("key 9 was inserted twice")
	}
	x.put(1, 1, "again", 4, "again")
	want = []string{"1 again", "2 x", "3 x", "4 again", "9 theirs"}
	check(t, x, 1, want...)
	_, err := x.w.Flush(t.Context())
	must(t, err)
	x.close()
	x.open()
	check(t, x, 1, want...)
	x.fsck()
}
