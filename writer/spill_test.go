package writer_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/writer"
	"sluice/writer/lock"
)

// bigWorld has little memory and a keyed table with rows in a file and in the tail.
func bigWorld(t *testing.T, bad bool) (*world, *faults) {
	x, f := newWorld(t), &faults{}
	x.opts.Memory, x.opts.SpillBytes = 1<<20, 100<<10
	x.opts.Objects, x.opts.Catalog = faultyObjects{x.objects, f}, faultyCatalog{x.catalog, f}
	x.open()
	d := kv(1, "a", true)
	if bad {
		d.Uniques[0].Hash = func(key []byte) uint64 { return binary.BigEndian.Uint64(key[1:]) >> 1 * 0x9e3779b97f4a7c15 } // pairs collide
	}
	x.create(d)
	x.put(1, 100_001, "file", 100_002, "file")
	_, err := x.w.Flush(t.Context())
	must(t, err)
	x.put(1, 100_003, "tail")
	return x, f
}

var long = strings.Repeat("x", 1000)

// load inserts rows [begin, end), ten at a time.
func load(t *testing.T, x *world, tx *writer.Txn, begin, end int) {
	t.Helper()
	for at := begin; at < end; at += 10 {
		var pairs []any
		for k := at; k < at+10; k++ {
			pairs = append(pairs, k, fmt.Sprint(long, k))
		}
		if _, err := tx.Insert(t.Context(), 1, rows(x.defs[1].Schema, pairs...)); err != nil {
			t.Fatal(err)
		}
	}
}

// counted is the keys that a new statement of tx sees, and checks their values.
func counted(t *testing.T, tx *writer.Txn) map[string]bool {
	t.Helper()
	list, err := scan(tx.Statement(), 1)
	must(t, err)
	keys := map[string]bool{}
	for _, n := range list {
		f := strings.Fields(n.text)
		if keys[f[0]] || strings.HasPrefix(f[1], "x") && f[1] != long+f[0] {
			t.Fatalf("row %s twice, or wrong", f[0])
		}
		keys[f[0]] = true
	}
	return keys
}

func byKey(t *testing.T, tx *writer.Txn, k int) bool {
	t.Helper()
	v := tx.Statement()
	def, _ := v.Table(1)
	_, ok, err := v.ByKey(t.Context(), 1, def.Uniques[0].ID, keyOf(int64(k)))
	must(t, err)
	return ok
}

// TestLargeTransaction: a transaction with several times the memory goes through, with savepoints, deletes and updates of own rows,
// and finds its own rows meanwhile.
func TestLargeTransaction(t *testing.T) {
	for _, bad := range []bool{false, true} {
		n := 4000
		if bad {
			n = 400
		}
		x, _ := bigWorld(t, bad)
		tx := x.begin()
		load(t, x, tx, 0, n)
		sp := tx.Savepoint()
		load(t, x, tx, n, n+500)
		tx.RollbackTo(sp)
		load(t, x, tx, n, n+10)
		var conflict *writer.UniqueConflict
		for _, k := range []int{5, n + 5, 100_001, 100_003} {
			if _, err := tx.Insert(t.Context(), 1, rows(x.defs[1].Schema, k, "again")); !errors.As(err, &conflict) {
				t.Errorf("key %d again: %v", k, err)
			}
		}
		must(t, tx.Delete(t.Context(), 1, append(refsOf(t, tx, "7"), refsOf(t, tx, "100001")...), lock.ForUpdate))
		update(t, tx, 8, "new")
		update(t, tx, 100_003, "new")
		if g := x.w.Gauges(); g.TotalBytes > x.opts.Memory {
			t.Errorf("the tail has %d bytes", g.TotalBytes)
		}
		want := func(tx *writer.Txn, rows int, find, gone []int) {
			t.Helper()
			if got := counted(t, tx); len(got) != rows {
				t.Errorf("%d rows, want %d", len(got), rows)
			}
			for _, k := range find {
				if !byKey(t, tx, k) {
					t.Errorf("key %d is not found", k)
				}
			}
			for _, k := range gone {
				if byKey(t, tx, k) {
					t.Errorf("key %d is found", k)
				}
			}
		}
		find, gone := []int{0, 8, n - 1, n + 9, 100_002, 100_003}, []int{7, n + 10, n + 499, 100_001}
		want(tx, n+10-1+2, find, gone)
		other := x.begin()
		want(other, 3, []int{100_001}, []int{0, n})
		pos, err := tx.Commit(t.Context(), writer.CommitOptions{})
		must(t, err)
		if x.w.Progress() < pos {
			t.Errorf("committed at %d, in files up to %d", pos, x.w.Progress())
		}
		want(other, n+10-1+2, find, gone)
		other.Rollback()
		x.put(1, 100_004, "later")
		x.close()
		x.open()
		again := x.begin()
		want(again, n+10-1+3, append(find, 100_004), gone)
		again.Rollback()
		x.sweep()
		x.fsck()
	}
}

// TestLargeTransactionFails: whatever goes wrong, all of it is there or nothing, and no file stays that nobody needs. Where the process
// is not told to stop, it goes on and the transaction can be repeated.
//
// claims: P57
func TestLargeTransactionFails(t *testing.T) {
	run := func(t *testing.T, x *world) error {
		tx := x.begin()
		defer tx.Rollback()
		for at := 0; at < 400; at += 50 {
			var pairs []any
			for k := at; k < at+50; k++ {
				pairs = append(pairs, k, fmt.Sprint(long, k))
			}
			if _, err := tx.Insert(context.Background(), 1, rows(x.defs[1].Schema, pairs...)); err != nil {
				return err
			}
		}
		if err := tx.Delete(context.Background(), 1, refsOf(t, tx, "7"), lock.ForUpdate); err != nil {
			return err
		}
		_, err := tx.Commit(context.Background(), writer.CommitOptions{})
		return err
	}
	x, f := bigWorld(t, false)
	f.arm(0, false, false)
	must(t, run(t, x))
	for at := 1; at <= f.disarm(); at++ {
		for mode := range 8 {
			after, lost, crash := mode&1 != 0, mode&2 != 0, mode&4 != 0
			t.Run(fmt.Sprintf("write %d after=%v lost=%v crash=%v", at, after, lost, crash), func(t *testing.T) {
				x, f := bigWorld(t, false)
				f.arm(at, after, lost)
				err := run(t, x)
				f.disarm()
				stopped := errors.Is(err, writer.ErrOutcomeUnknown)
				if crash || stopped {
					must(t, x.stop())
					x.w = nil
					x.open()
				}
				want := 3
				if err == nil || stopped && after {
					want += 399
				}
				look := func() {
					t.Helper()
					tx := x.begin()
					defer tx.Rollback()
					if got := counted(t, tx); len(got) != want {
						t.Errorf("after %v there are %d rows, want %d", err, len(got), want)
					}
				}
				look()
				if want == 3 {
					must(t, run(t, x))
					want += 399
					look()
				}
				_, ferr := x.w.Flush(t.Context())
				must(t, ferr)
				x.close()
				x.open()
				look()
				x.sweep()
				x.fsck()
			})
		}
	}
}

// parquets counts the data files in the store.
func (x *world) parquets() (n int) {
	for _, l := range x.list() {
		if strings.HasSuffix(l, ".parquet") {
			n++
		}
	}
	return n
}

// TestSpillGivesMemoryBack: as rows of an open transaction go to files, files come and memory is free again. Prepare writes no file: it
// is for transactions whose rows fit.
//
// claims: P17
func TestSpillGivesMemoryBack(t *testing.T) {
	x, _ := bigWorld(t, false)
	files := x.parquets()
	small := x.begin()
	load(t, x, small, 5000, 5010)
	if x.w.OpenBytes() < 10*1000 || x.parquets() != files {
		t.Errorf("ten rows: %d bytes, %d files more", x.w.OpenBytes(), x.parquets()-files)
	}
	_, err := small.Prepare(t.Context())
	must(t, err)
	if x.parquets() != files {
		t.Errorf("Prepare wrote %d files", x.parquets()-files)
	}
	x.catalog.Decide(small.ID(), true)
	must(t, small.Resolve(t.Context(), true))
	tx := x.begin()
	defer tx.Rollback()
	most := int64(0)
	for at := 0; at < 1000; at += 10 {
		load(t, x, tx, at, at+10)
		most = max(most, x.w.OpenBytes())
	}
	if most < x.opts.SpillBytes/2 || most > x.opts.SpillBytes*2 {
		t.Errorf("a transaction of 1 MB held up to %d bytes, wanted about %d", most, x.opts.SpillBytes)
	}
	if n := x.parquets() - files; n < 5 {
		t.Errorf("%d files more", n)
	}
	if _, err := tx.Prepare(t.Context()); !errors.Is(err, writer.ErrMemory) {
		t.Errorf("prepare: %v", err)
	}
}

// TestSpillLeavesNothing: files of a transaction that was rolled back are deleted, by the same process or by the next.
//
// claims: P58
func TestSpillLeavesNothing(t *testing.T) {
	for _, restart := range []bool{false, true} {
		x, _ := bigWorld(t, false)
		x.close()
		tick, forgot := make(chan time.Time), make(chan struct{}, 100)
		x.opts.FlushAge, x.opts.After = time.Second, func(time.Duration) <-chan time.Time { return tick }
		x.opts.Catalog = forgetfulCatalog{x.catalog, forgot}
		x.open()
		<-forgot // the sweep of the start
		_, err := x.w.Flush(t.Context())
		must(t, err)
		for len(forgot) > 0 {
			<-forgot
		}
		files := x.parquets()
		tx := x.begin()
		load(t, x, tx, 0, 500)
		if x.parquets() == files {
			t.Fatal("no row went to a file")
		}
		tx.Rollback()
		if restart {
			x.close()
			x.open()
		} else {
			tick <- time.Time{}
		}
		<-forgot
		if x.parquets() != files || x.w.OpenBytes() != 0 {
			t.Errorf("restart %v: %d files are left, %d bytes", restart, x.parquets()-files, x.w.OpenBytes())
		}
	}
}

// TestRollbackToGivesBack: a savepoint that goes back gives the memory and the files of its rows back, whether they are in files or not
// and whether the table was touched before it, and their keys are free.
//
// claims: P58
func TestRollbackToGivesBack(t *testing.T) {
	for _, before := range []int{0, 10, 300} {
		for _, n := range []int{50, 500} {
			x, _ := bigWorld(t, false)
			tx := x.begin()
			load(t, x, tx, 0, before)
			held, files := x.w.OpenBytes(), x.parquets()
			sp := tx.Savepoint()
			load(t, x, tx, before, before+n)
			must(t, tx.Delete(t.Context(), 1, refsOf(t, tx, fmt.Sprint(before+1)), lock.ForUpdate))
			most := x.parquets()
			tx.RollbackTo(sp)
			if now := x.w.OpenBytes(); now > held+held/2 { // the rows before may be in files now, and their keys
				t.Errorf("%d rows behind %d: %d bytes are held, before them %d", n, before, now, held)
			}
			if now := x.parquets(); now != files && 2*(now-files) > most-files {
				t.Errorf("%d rows behind %d: %d files of %d are left, before them there were %d", n, before, now, most, files)
			}
			load(t, x, tx, before, before+n)
			if got := counted(t, tx); len(got) != before+n+3 || !byKey(t, tx, before+1) {
				t.Errorf("%d rows behind %d: %d rows", n, before, len(got))
			}
			var conflict *writer.UniqueConflict
			if _, err := tx.Insert(t.Context(), 1, rows(x.defs[1].Schema, before+n-1, "again")); !errors.As(err, &conflict) {
				t.Errorf("a key again: %v", err)
			}
			_, err := tx.Commit(t.Context(), writer.CommitOptions{})
			must(t, err)
			if x.w.OpenBytes() != 0 {
				t.Errorf("%d bytes are held after the commit", x.w.OpenBytes())
			}
			other := x.begin()
			if got := counted(t, other); len(got) != before+n+3 {
				t.Errorf("%d rows behind %d: %d rows are committed", n, before, len(got))
			}
			if _, err := other.Insert(t.Context(), 1, rows(x.defs[1].Schema, before, "again")); !errors.As(err, &conflict) {
				t.Errorf("a committed key again: %v", err)
			}
			other.Rollback()
			x.close()
			x.open()
			x.sweep()
			x.fsck()
			if left, err := os.ReadDir(filepath.Join(x.dir, "keys")); err != nil || len(left) > 0 {
				t.Errorf("%d files of keys are left, %v", len(left), err)
			}
		}
	}
}

// TestSpilledTruncate: TRUNCATE takes rows in files, and its savepoint brings them back.
func TestSpilledTruncate(t *testing.T) {
	x, _ := bigWorld(t, false)
	tx := x.begin()
	load(t, x, tx, 0, 500)
	sp := tx.Savepoint()
	must(t, tx.Truncate(t.Context(), 1))
	load(t, x, tx, 0, 200)
	if got := counted(t, tx); len(got) != 200 || byKey(t, tx, 300) || !byKey(t, tx, 100) {
		t.Errorf("%d rows after TRUNCATE", len(got))
	}
	tx.RollbackTo(sp)
	if got := counted(t, tx); len(got) != 503 || !byKey(t, tx, 300) {
		t.Errorf("%d rows after ROLLBACK TO", len(got))
	}
	must(t, tx.Truncate(t.Context(), 1))
	load(t, x, tx, 400, 600)
	_, err := tx.Commit(t.Context(), writer.CommitOptions{})
	must(t, err)
	x.close()
	x.open()
	again := x.begin()
	if got := counted(t, again); len(got) != 200 || !byKey(t, again, 450) || byKey(t, again, 300) {
		t.Errorf("%d rows are committed", len(got))
	}
	again.Rollback()
	x.sweep()
	x.fsck()
}

// TestKeyFilesFail: when keys cannot be written to files the statement fails, and what was done before it is whole: its keys are taken, those
// of the statement free, and the transaction goes on.
//
// claims: P57
func TestKeyFilesFail(t *testing.T) {
	t.Run("locks", func(t *testing.T) { keyFilesFail(t, 0) })
	t.Run("keys", func(t *testing.T) { keyFilesFail(t, 1<<20) })
}

func keyFilesFail(t *testing.T, locks int) {
	x, _ := bigWorld(t, false)
	x.opts.Memory, x.opts.SpillBytes, x.opts.Locks.SpillKeys = 4<<20, 256<<10, locks
	x.close()
	x.open()
	keys := filepath.Join(x.dir, "keys")
	tx := x.begin()
	load(t, x, tx, 0, 3500) // fewer than go to a file
	must(t, os.RemoveAll(keys))
	var err error
	n := 3500
	var points []writer.Savepoint
	for ; err == nil && n < 7000; n += 10 {
		points = append(points, tx.Savepoint())
		var pairs []any
		for k := n; k < n+10; k++ {
			pairs = append(pairs, k, fmt.Sprint(long, k))
		}
		_, err = tx.Insert(t.Context(), 1, rows(x.defs[1].Schema, pairs...))
	}
	var path *fs.PathError
	if !errors.As(err, &path) {
		t.Fatalf("%d rows: %v", n, err)
	}
	back := len(points) - 5 // rows that stay are in memory, some keys of those that do not are among those of rows in files
	n = 3500 + 10*back
	tx.RollbackTo(points[back])
	must(t, os.Mkdir(keys, 0o700))
	var conflict *writer.UniqueConflict
	for _, k := range []int{0, 3000, n - 1} {
		if _, err := tx.Insert(t.Context(), 1, rows(x.defs[1].Schema, k, "again")); !errors.As(err, &conflict) {
			t.Errorf("key %d again: %v", k, err)
		}
	}
	load(t, x, tx, n+1000, n+2000) // others than those that went back: they may have their numbers
	load(t, x, tx, n, n+1000)
	if got := counted(t, tx); len(got) != n+2000+3 {
		t.Errorf("%d rows, want %d", len(got), n+2000+3)
	}
	_, err = tx.Commit(t.Context(), writer.CommitOptions{})
	must(t, err)
	other := x.begin()
	if got := counted(t, other); len(got) != n+2000+3 || !byKey(t, other, n+1999) {
		t.Errorf("%d rows are committed, want %d", len(got), n+2000+3)
	}
	other.Rollback()
	x.sweep()
	x.fsck()
}

// TestSpillFails: when rows cannot be written to files, whose keys have been already, those that go back with a savepoint leave none of them.
func TestSpillFails(t *testing.T) {
	x, f := bigWorld(t, false)
	tx := x.begin()
	var points []writer.Savepoint
	var err error
	n := 0
	for ; err == nil; n += 10 {
		if n == 200 {
			f.arm(1, false, false)
		}
		points = append(points, tx.Savepoint())
		var pairs []any
		for k := n; k < n+10; k++ {
			pairs = append(pairs, k, fmt.Sprint(long, k))
		}
		_, err = tx.Insert(t.Context(), 1, rows(x.defs[1].Schema, pairs...))
	}
	f.disarm()
	if !errors.Is(err, errFault) {
		t.Fatalf("%d rows: %v", n, err)
	}
	back := len(points) - 2 // half of the rows in memory stay
	n = 10 * back
	tx.RollbackTo(points[back])
	load(t, x, tx, 1000, 1010) // they would get the numbers of rows that went back
	load(t, x, tx, n, n+300)
	if got := counted(t, tx); len(got) != n+300+10+3 {
		t.Errorf("%d rows, want %d", len(got), n+300+10+3)
	}
	_, err = tx.Commit(t.Context(), writer.CommitOptions{})
	must(t, err)
	other := x.begin()
	if got := counted(t, other); len(got) != n+300+10+3 || !byKey(t, other, n) || !byKey(t, other, 1005) {
		t.Errorf("%d rows are committed, want %d", len(got), n+300+10+3)
	}
	other.Rollback()
	x.sweep()
	x.fsck()
}
