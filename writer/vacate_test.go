package writer_test

import (
	"slices"
	"testing"
	"time"

	"sluice/writer"
	"sluice/writer/format/iceberg"
	"sluice/writer/table"
)

// TestVacate: rows of the partitions that others come for go away, in files, in the tail and the transaction's own; those of other partitions stay,
// and so does everything if it is rolled back.
//
// claims: H8
func TestVacate(t *testing.T) {
	x := newWorld(t)
	x.opts.Format, x.opts.Partition = iceberg.Open(x.objects, iceberg.Options{Now: time.Now}), iceberg.PartitionValues
	x.open()
	d := kv(1, "a", true)
	d.Schema.Spec = []table.PartitionField{{Source: 1, FieldID: 1000, Name: "k_trunc", Transform: "truncate[10]"}}
	x.create(d)
	x.create(kv(2, "b", true))
	for _, k := range []int{1, 2, 11, 21} {
		x.put(1, k, "file")
		x.put(2, k, "file")
	}
	if _, err := x.w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	x.put(1, 3, "tail")
	x.put(1, 12, "tail")

	tx := x.begin()
	vacate := func(id table.ID, b *table.Batch) {
		t.Helper()
		must(t, tx.Vacate(t.Context(), id, b))
		_, err := tx.Insert(t.Context(), id, b)
		must(t, err)
	}
	own := rows(d.Schema, 4, "own")
	_, err := tx.Insert(t.Context(), 1, own)
	must(t, err)
	sp := tx.Savepoint()
	vacate(1, rows(d.Schema, 5, "new", 2, "new", 31, "new"))
	now := func() (out []string) {
		list, err := scan(tx.Statement(), 1)
		must(t, err)
		for _, r := range list {
			out = append(out, r.text)
		}
		slices.Sort(out)
		return out
	}
	if got, want := now(), []string{"11 file", "12 tail", "2 new", "21 file", "31 new", "5 new"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	tx.RollbackTo(sp)
	if got, want := now(), []string{"1 file", "11 file", "12 tail", "2 file", "21 file", "3 tail", "4 own"}; !slices.Equal(got, want) {
		t.Errorf("after the rollback: got %v, want %v", got, want)
	}
	vacate(1, rows(d.Schema, 14, "new"))
	vacate(2, rows(kv(2, "b", true).Schema, 9, "new"))
	_, err = tx.Commit(t.Context(), writer.CommitOptions{})
	must(t, err)
	check(t, x, 1, "1 file", "14 new", "2 file", "21 file", "3 tail", "4 own")
	check(t, x, 2, "9 new")
	x.close()
	x.open()
	check(t, x, 1, "1 file", "14 new", "2 file", "21 file", "3 tail", "4 own")
}
