package writer_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"sluice/writer"
	"sluice/writer/format"
	"sluice/writer/format/iceberg"
	"sluice/writer/lock"
	"sluice/writer/table"
)

// objectsOf is the number of objects of a table.
func (x *world) objectsOf(id table.ID) (all, data int) {
	x.t.Helper()
	at, _ := x.table(id)
	for o, err := range x.objects.List(context.Background(), format.Root(at.Pointer)+"/") {
		if err != nil {
			x.t.Fatal(err)
		}
		if all++; strings.HasSuffix(o.Location, ".parquet") {
			data++
		}
	}
	return all, data
}

func (x *world) history(id table.ID) []format.Past {
	x.t.Helper()
	at, _ := x.table(id)
	past, err := x.opts.Format.(*iceberg.Format).History(context.Background(), at.Pointer)
	if err != nil {
		x.t.Fatal(err)
	}
	return past
}

// aged is a table with four snapshots, of which the newest has one file without dead rows.
func aged(t *testing.T, x *world) {
	x.create(kv(1, "a", true))
	x.putFlush(t, 1, 1, "one", 2, "two")
	tx := x.remove(t, 1, "1")
	commitTxn(t, tx)
	x.putFlush(t, 1, 3, "three")
	_, err := x.w.Compact(t.Context(), 1)
	must(t, err)
}

// TestExpire: old snapshots and what only they reach go, but not while an open transaction may read them. Young ones stay.
func TestExpire(t *testing.T) {
	x := icebergWorld(t)
	x.open()
	aged(t, x)
	want := []string{"2 two", "3 three"}
	x.put(1, 4, "tail")
	want = append(want, "4 tail")
	if done, err := x.w.Expire(t.Context(), 1, -1); err != nil || done.Objects != 0 || len(x.history(1)) != 4 {
		t.Errorf("young snapshots: %+v, %v, %d snapshots", done, err, len(x.history(1)))
	}
	old := x.w.Begin(writer.TxnOptions{Isolation: writer.RepeatableRead})
	view := old.Statement()
	refs, err := find(view, 1, "2")
	must(t, err)
	x.putFlush(t, 1, 5, "five")
	_, err = x.w.Compact(t.Context(), 1)
	must(t, err)
	_, err = x.w.Expire(t.Context(), 1, 0)
	must(t, err)
	list, err := scan(view, 1)
	must(t, err)
	var seen []string
	for _, r := range list {
		seen = append(seen, r.text)
	}
	if !slices.Equal(seen, want) {
		t.Errorf("the open transaction sees %q, want %q", seen, want)
	}
	must(t, old.Delete(t.Context(), 1, refs, lock.ForUpdate))
	commitTxn(t, old)
	want = []string{"3 three", "4 tail", "5 five"}
	if _, data := x.objectsOf(1); data < 2 {
		t.Errorf("%d data files are left", data)
	}
	done, err := x.w.Expire(t.Context(), 1, 0)
	must(t, err)
	all, data := x.objectsOf(1)
	if done.Objects == 0 || data != 1 || len(x.history(1)) != 1 {
		t.Errorf("%+v left %d objects, %d data files, %d snapshots", done, all, data, len(x.history(1)))
	}
	check(t, x, 1, want...)
	if again, err := x.w.Expire(t.Context(), 1, 0); err != nil || again.Objects != 0 {
		t.Errorf("again: %+v, %v", again, err)
	}
	x.close()
	x.open()
	check(t, x, 1, want...)
	x.fsck()
}

// TestExpireCrash: a crash at each write of an expiry leaves a table that reads as before, and nothing is deleted that is reachable. Once the
// flip is known nothing is left that the start cannot find, but for a crash right after the flip, which leaks.
func TestExpireCrash(t *testing.T) {
	const none = 1 << 20
	writes := 0
	for at := 1; at <= max(writes, 1); at++ {
		for mode := range 4 {
			x, f := newWorld(t), &faults{}
			x.opts.Objects, x.opts.Catalog = faultyObjects{x.objects, f}, faultyCatalog{x.catalog, f}
			x.iceberg()
			x.open()
			aged(t, x)
			f.arm(at, mode&1 != 0, mode&2 != 0)
			if writes == 0 {
				f.arm(none, false, false)
			}
			_, err := x.w.Expire(t.Context(), 1, 0)
			n := f.disarm()
			if writes == 0 {
				writes = n
			}
			check(t, x, 1, "2 two", "3 three")
			x.close()
			x.open()
			check(t, x, 1, "2 two", "3 three")
			_, err2 := x.w.Expire(t.Context(), 1, 0)
			must(t, err2)
			if len(x.history(1)) != 1 {
				t.Errorf("write %d mode %d (%v): %d snapshots", at, mode, err, len(x.history(1)))
			}
			check(t, x, 1, "2 two", "3 three")
			x.fsck()
			x.close()
		}
	}
}
