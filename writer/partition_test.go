package writer_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"sluice/writer"
	"sluice/writer/datafile"
	"sluice/writer/format/iceberg"
	"sluice/writer/lock"
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

// parts is the rows of each live file of a table: its partition, then its keys.
func (x *world) parts(id table.ID) map[string][]string {
	x.t.Helper()
	out := map[string][]string{}
	_, s := x.table(id)
	for _, f := range s.Files {
		for c, err := range datafile.Read(context.Background(), x.objects, f.File, x.defs[id].Schema, datafile.ReadOptions{}) {
			if err != nil {
				x.t.Fatal(err)
			}
			for i := range c.Rows.Rows {
				if f.Deleted == nil || !f.Deleted.Contains(uint32(c.First)+uint32(i)) {
					part := fmt.Sprint(f.Partition)
					out[part] = append(out[part], row(c.Rows, i))
				}
			}
		}
	}
	return out
}

// TestBuckets: one INSERT of 1,000 keys is dealt out to the table's buckets: every row is in exactly one, the rule is the hash of the key
// alone, so a row that comes again after a restart goes where it was. An INSERT whose keys are of one bucket leaves the other
// buckets' files alone.
//
// The writer's callers never name a bucket: it routes. M2's bucket-addressed write is a batch whose rows hash to that bucket.
//
// claims: M2 M3 M4 P31
func TestBuckets(t *testing.T) {
	const n, buckets = 1000, 4
	x := icebergWorld(t)
	x.open()
	d := kv(1, "a", true)
	d.Schema.Spec = []table.PartitionField{{Source: 1, FieldID: 1000, Name: "k_bucket", Transform: fmt.Sprintf("bucket[%d]", buckets)}}
	x.create(d)
	var pairs []any
	for k := range n {
		pairs = append(pairs, k, "v")
	}
	must(t, x.commitTables(pairs, 1))
	if _, s := x.table(1); len(s.Files) != buckets {
		t.Errorf("one INSERT made %d files, want %d", len(s.Files), buckets)
	}
	bucketOf, sum := map[string]string{}, 0
	for part, rows := range x.parts(1) {
		sum += len(rows)
		for _, r := range rows {
			if other, twice := bucketOf[r]; twice {
				t.Errorf("row %s is in %s and %s", r, other, part)
			}
			bucketOf[r] = part
		}
	}
	if sum != n || len(bucketOf) != n {
		t.Errorf("%d rows, %d keys in files, want %d", sum, len(bucketOf), n)
	}
	x.close()
	x.open()
	want := bucketOf["0 v"]
	tx := x.begin()
	var again []any
	for k := range n {
		if bucketOf[fmt.Sprint(k, " v")] == want {
			must(t, tx.Delete(t.Context(), 1, refsOf(t, tx, fmt.Sprint(k)), lock.ForUpdate))
			again = append(again, k, "v")
		}
	}
	_, err := tx.Insert(t.Context(), 1, rows(d.Schema, again...))
	must(t, err)
	_, err = tx.Commit(t.Context(), writer.CommitOptions{WaitFlip: true})
	must(t, err)
	_, s := x.table(1)
	for _, f := range s.Files {
		if touched := f.ID > buckets; touched != (fmt.Sprint(f.Partition) == want) {
			t.Errorf("file %d of bucket %v after a write to bucket %s", f.ID, f.Partition, want)
		}
	}
	for part, rows := range x.parts(1) {
		for _, r := range rows {
			if bucketOf[r] != part {
				t.Errorf("row %s moved from bucket %s to %s", r, bucketOf[r], part)
			}
		}
	}
	x.fsck()
}

// TestPartitionsOnDemand: the values of one batch make its partitions, a value that is new makes one more, and writers who bring the same
// new value at once make it once. NULL is a value like any other; in a bucket's key it cannot come, since the option wants a NOT NULL
// column (TestLakeOptions).
//
// claims: M6 M7 M40 S16
func TestPartitionsOnDemand(t *testing.T) {
	x := icebergWorld(t)
	x.open()
	d := kv(1, "a", true)
	d.Schema.Spec = []table.PartitionField{{Source: 2, FieldID: 1000, Name: "v", Transform: "identity"}}
	x.create(d)
	want := func(when string, partitions ...string) {
		t.Helper()
		if got := slices.Sorted(maps.Keys(x.parts(1))); !slices.Equal(got, partitions) {
			t.Errorf("%s: partitions %q, want %q", when, got, partitions)
		}
	}
	b := rows(d.Schema, 1, "x", 2, "y", 3, "z", 4, "x", 5, "")
	b.Cols[0].AppendInt64(6)
	b.Cols[1].AppendNull()
	b.Rows++
	tx := x.begin()
	_, err := tx.Insert(t.Context(), 1, b)
	must(t, err)
	_, err = tx.Commit(t.Context(), writer.CommitOptions{WaitFlip: true})
	must(t, err)
	want("one batch", "[<nil>]", "[]", "[x]", "[y]", "[z]")
	var g errgroup.Group
	for i := range 8 {
		g.Go(func() error { return x.commitTables([]any{10 + i, "new"}, 1) })
	}
	must(t, g.Wait())
	want("first writers of a value", "[<nil>]", "[]", "[new]", "[x]", "[y]", "[z]")
	check(t, x, 1, "1 x", "10 new", "11 new", "12 new", "13 new", "14 new", "15 new", "16 new", "17 new", "2 y", "3 z", "4 x", "5 ", "6 NULL")
	x.fsck()
}

// TestRoundRobin: the transactions of a table without a key go to its buckets in turns, each whole, within a flush and from one flush to the
// next.
//
// claims: M10
func TestRoundRobin(t *testing.T) {
	x := newWorld(t)
	x.open()
	d := kv(1, "a", false)
	d.Options = map[string]string{"buckets": "4"}
	x.create(d)
	var want []string
	for batch := range 8 {
		x.put(1, batch, "a", batch, "b", batch, "c")
		for _, v := range []string{"a", "b", "c"} {
			want = append(want, fmt.Sprint(batch, " ", v))
		}
	}
	if _, err := x.w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	perFile, files := x.batches(1), 0
	for file, batches := range perFile {
		files++
		if len(batches) != 2 {
			t.Errorf("file %d holds batches %v, want two", file, batches)
		}
		for batch, n := range batches {
			if n != 3 {
				t.Errorf("file %d holds %d rows of batch %s, want all 3", file, n, batch)
			}
		}
	}
	if files != 4 {
		t.Errorf("%d files, want 4", files)
	}
	check(t, x, 1, want...)
	x.put(1, 8, "a")
	if _, err := x.w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	x.close()
	x.open()
	check(t, x, 1, append(want, "8 a")...)
}

// batches counts, per file, the rows of each batch, whose number is the key.
func (x *world) batches(id table.ID) map[table.FileID]map[string]int {
	x.t.Helper()
	tx := x.begin()
	defer tx.Rollback()
	list, err := scan(tx.Statement(), id)
	if err != nil {
		x.t.Fatal(err)
	}
	out := map[table.FileID]map[string]int{}
	for _, r := range list {
		if out[r.ref.File] == nil {
			out[r.ref.File] = map[string]int{}
		}
		out[r.ref.File][strings.Fields(r.text)[0]]++
	}
	return out
}
