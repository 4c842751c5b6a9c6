package writer_test

import (
	"testing"
	"time"

	"sluice/writer/format/iceberg"
	"sluice/writer/table"
)

// TestPartitions: a partitioned table's rows go to files of one partition each, and names of rows still follow them.
func TestPartitions(t *testing.T) {
	x := newWorld(t)
	x.opts.Format, x.opts.Partition = iceberg.Open(x.objects, iceberg.Options{Now: time.Now}), iceberg.PartitionValues
	x.open()
	d := kv(1, "a", true)
	d.Schema.Spec = []table.PartitionField{{Source: 1, FieldID: 1000, Name: "k_bucket", Transform: "bucket[3]"}}
	x.create(d)
	var want []string
	for i := range 8 {
		x.put(1, i, "first")
	}
	tx := x.begin()
	refs, err := find(tx.Statement(), 1, "*")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	files, err := x.begin().Statement().Files(1)
	if err != nil || len(files) != 3 {
		t.Errorf("%d files, want 3: %v", len(files), err)
	}
	for _, ref := range refs {
		if cur, live := tx.Current(1, ref); !live || cur.File == 0 {
			t.Errorf("row %v is called %v live %v", ref, cur, live)
		}
	}
	tx.Rollback()
	for i := range 8 {
		want = append(want, string('0'+rune(i))+" first")
	}
	check(t, x, 1, want...)
	x.close()
	x.open()
	check(t, x, 1, want...)
}
