package writer_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/writer"
	"sluice/writer/datafile"
	"sluice/writer/format/iceberg"
	"sluice/writer/lock"
	"sluice/writer/objstore"
	"sluice/writer/table"
)

// putFlush puts each pair into a file of its own.
func (x *world) putFlush(t *testing.T, id table.ID, pairs ...any) {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		x.put(id, pairs[i], pairs[i+1])
		_, err := x.w.Flush(t.Context())
		must(t, err)
	}
}

// remove deletes the rows with key k in a transaction that is left open.
func (x *world) remove(t *testing.T, id table.ID, k string) *writer.Txn {
	t.Helper()
	tx := x.begin()
	refs, err := find(tx.Statement(), id, k)
	must(t, err)
	must(t, tx.Delete(t.Context(), id, refs, lock.ForUpdate))
	return tx
}

func commitTxn(t *testing.T, tx *writer.Txn) {
	t.Helper()
	_, err := tx.Commit(t.Context(), writer.CommitOptions{})
	must(t, err)
}

// lineage is _row_id and _last_updated_sequence_number of the live rows, by the text of their second column.
func (x *world) lineage(id table.ID) map[string]string {
	x.t.Helper()
	_, s := x.table(id)
	schema := *x.defs[id].Schema
	n := len(schema.Columns)
	schema.Columns = append(schema.Columns[:n:n], s.Lineage...)
	ids := map[string]string{}
	for _, f := range s.Files {
		for c, err := range datafile.Read(context.Background(), x.objects, f.File, &schema, datafile.ReadOptions{}) {
			if err != nil {
				x.t.Fatal(err)
			}
			for i := range c.Rows.Rows {
				row := c.First + uint64(i)
				if f.Deleted != nil && f.Deleted.Contains(uint32(row)) {
					continue
				}
				rowID, sequence := *f.FirstRow+int64(row), f.Sequence
				if !c.Rows.Cols[n].IsNull(i) {
					rowID, sequence = c.Rows.Cols[n].Int64(i), c.Rows.Cols[n+1].Int64(i)
				}
				ids[string(c.Rows.Cols[1].Bytes(i))] = fmt.Sprint(rowID, " ", sequence)
			}
		}
	}
	return ids
}

// TestCompact: small files become one, without dead rows, by one snapshot of operation replace. Rows keep their identity in Iceberg; views,
// keys, locks and open transactions find them; a second compaction finds nothing to do.
//
// claims: H28
func TestCompact(t *testing.T) {
	x := icebergWorld(t)
	x.open()
	x.create(kv(1, "a", true))
	x.putFlush(t, 1, 1, "one", 2, "two", 3, "three", 4, "four")
	x.put(1, 5, "five", 6, "six")
	commitTxn(t, x.remove(t, 1, "6"))
	commitTxn(t, x.remove(t, 1, "2"))
	_, err := x.w.Flush(t.Context())
	must(t, err)
	commitTxn(t, x.change(t, 3, "drei")) // is in the tail
	before := x.lineage(1)
	old, open := x.begin(), x.remove(t, 1, "4")
	view := old.Statement()
	done, err := x.w.Compact(t.Context(), 1)
	must(t, err)
	at, s := x.table(1)
	if done.Rewritten != 4 || done.Added != 1 || len(s.Files) != 1 || s.Files[0].Deleted != nil || s.Files[0].File.Rows != 4 {
		t.Errorf("%+v made %+v", done, s.Files)
	}
	past, err := x.opts.Format.(*iceberg.Format).History(t.Context(), at.Pointer)
	must(t, err)
	if h := past[len(past)-1]; h.Operation != "replace" || h.Summary["deleted-data-files"] != "4" || h.Summary["total-records"] != "4" {
		t.Errorf("snapshot %+v", h)
	}
	if after := x.lineage(1); !maps.Equal(before, after) || len(after) != 4 {
		t.Errorf("row ids and sequence numbers were %v, are %v", before, after)
	}
	want := []string{"1 one", "3 drei", "4 four", "5 five"}
	if list, err := scan(view, 1); err != nil || len(list) != 4 {
		t.Errorf("an old view has %v: %v", list, err)
	}
	old.Rollback()
	check(t, x, 1, want...)
	if _, err := x.begin().Insert(t.Context(), 1, rows(x.defs[1].Schema, 5, "again")); err == nil {
		t.Error("key 5 was inserted twice")
	}
	commitTxn(t, open)
	if done, err := x.w.Compact(t.Context(), 1); err != nil || done.Rewritten != 0 {
		t.Errorf("again: %+v, %v", done, err)
	}
	x.close()
	x.open()
	check(t, x, 1, "1 one", "3 drei", "5 five")
	_, err = x.w.Flush(t.Context())
	must(t, err)
	check(t, x, 1, "1 one", "3 drei", "5 five")
	x.fsck()
}

// hookedObjects runs something before the next data file is put.
type hookedObjects struct {
	objstore.Store
	hook func()
}

func (o *hookedObjects) Put(ctx context.Context, location string, body []byte) error {
	if hook := o.hook; hook != nil && strings.HasSuffix(location, ".parquet") {
		o.hook = nil
		hook()
	}
	return o.Store.Put(ctx, location, body)
}

// TestWritersDuringCompaction: while files are rewritten, a file goes away because a flush deletes its last row. The compaction begins anew
// and leaves nothing of the first try.
//
// claims: P63
func TestWritersDuringCompaction(t *testing.T) {
	x := icebergWorld(t)
	hooked := &hookedObjects{Store: x.objects}
	x.opts.Objects = hooked
	x.iceberg()
	x.open()
	x.create(kv(1, "a", true))
	x.putFlush(t, 1, 1, "one", 2, "two", 3, "three", 4, "four")
	hooked.hook = func() {
		commitTxn(t, x.remove(t, 1, "2"))
		_, err := x.w.Flush(t.Context())
		must(t, err)
		commitTxn(t, x.change(t, 3, "drei"))
	}
	done, err := x.w.Compact(t.Context(), 1)
	must(t, err)
	want := []string{"1 one", "3 drei", "4 four"}
	check(t, x, 1, want...)
	if _, s := x.table(1); done.Rewritten != 3 || len(s.Files) != 1 || s.Files[0].File.Rows != 3 {
		t.Errorf("%+v, files %+v", done, s.Files)
	}
	x.close()
	x.open()
	check(t, x, 1, want...)
	x.sweep()
	_, err = x.w.Flush(t.Context())
	must(t, err)
	check(t, x, 1, want...)
	x.fsck()
}

// TestDeletedDuringCompaction: a row is deleted and the delete flushed while its file is rewritten. It is dead in the new file by a vector of
// the same snapshot.
func TestDeletedDuringCompaction(t *testing.T) {
	x := icebergWorld(t)
	hooked := &hookedObjects{Store: x.objects}
	x.opts.Objects = hooked
	x.iceberg()
	x.open()
	x.create(kv(1, "a", true))
	must(t, x.commitTables([]any{1, "one", 2, "two"}, 1))
	must(t, x.commitTables([]any{3, "three", 4, "four"}, 1))
	hooked.hook = func() {
		commitTxn(t, x.remove(t, 1, "2"))
		_, err := x.w.Flush(t.Context())
		must(t, err)
	}
	_, err := x.w.Compact(t.Context(), 1)
	must(t, err)
	if _, s := x.table(1); len(s.Files) != 1 || s.Files[0].File.Rows != 4 || s.Files[0].Deleted.String() != "{1}" {
		t.Errorf("files %+v", s.Files)
	}
	check(t, x, 1, "1 one", "3 three", "4 four")
	x.close()
	x.open()
	check(t, x, 1, "1 one", "3 three", "4 four")
	x.fsck()
}

// TestNamesOverCompactions: a frame that is not published names a row as it was called two compactions ago. Replay finds it.
func TestNamesOverCompactions(t *testing.T) {
	x := icebergWorld(t)
	x.open()
	x.create(kv(2, "measure", true))
	x.putFlush(t, 2, 1, "one")
	d := kv(1, "a", true)
	_, s := x.table(2)
	d.Options = map[string]string{"target_file_size": fmt.Sprint(s.Files[0].File.Size * 13 / 2)} // six files fill one, at first
	x.create(d)
	var want []string
	for k := range 12 {
		x.putFlush(t, 1, k, "x")
		if k != 1 {
			want = append(want, fmt.Sprint(k, " x"))
		}
	}
	slices.Sort(want)
	prepared := x.remove(t, 1, "1")
	_, err := prepared.Prepare(t.Context())
	must(t, err)
	open, flips := x.remove(t, 1, "2"), x.flips()
	defer open.Rollback()
	done, err := x.w.Compact(t.Context(), 1)
	must(t, err)
	if n := x.flips() - flips; n != 2 || done.Rewritten != 14 || done.Added != 3 {
		t.Errorf("%d flips, %+v", n, done)
	}
	if list, err := scan(open.Statement(), 1); err != nil || len(list) != 11 {
		t.Errorf("the open transaction sees %v: %v", list, err)
	}
	x.catalog.Decide(prepared.ID(), true)
	x.close()
	x.open()
	check(t, x, 1, want...)
	_, err = x.w.Flush(t.Context())
	must(t, err)
	check(t, x, 1, want...)
	x.fsck()
}

// TestBackgroundCompaction: with the tail flushed again and again, files stay few; a table with fewer than eight small files is left alone,
// and pausing leaves all alone.
//
// claims: H28
func TestBackgroundCompaction(t *testing.T) {
	x := icebergWorld(t)
	tick := make(chan time.Time)
	x.opts.CompactAge, x.opts.After = time.Second, func(time.Duration) <-chan time.Time { return tick }
	x.open()
	x.create(kv(1, "a", true))
	round := func() { // a tick is taken when the round before has ended
		tick <- time.Time{}
		tick <- time.Time{}
	}
	files := func() int {
		_, s := x.table(1)
		return len(s.Files)
	}
	most := 0
	for i := range 1000 {
		x.put(1, i, "x")
		if i%10 == 0 {
			_, err := x.w.Flush(t.Context())
			must(t, err)
			round()
			most = max(most, files())
		}
	}
	if most > 8 {
		t.Errorf("1,000 inserts made up to %d files", most)
	}
	resume, err := x.w.PauseMaintenance(t.Context())
	must(t, err)
	for i := range 10 {
		x.putFlush(t, 1, 2000+i, "x")
		round()
	}
	if n := files(); n < 10 {
		t.Errorf("%d files while compaction was paused", n)
	}
	resume()
	round()
	if n := files(); n > 2 {
		t.Errorf("%d files after the pause", n)
	}
	x.fsck()
}
