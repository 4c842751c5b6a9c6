package writer_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"sluice/writer"
	"sluice/writer/lock"
	"sluice/writer/table"
)

var nowait = lock.Wait{Policy: lock.NoWait}

// refsOf names the rows with key k that a new statement of tx sees.
func refsOf(t *testing.T, tx *writer.Txn, k string) []table.Ref {
	t.Helper()
	refs, err := find(tx.Statement(), 1, k)
	if err != nil || len(refs) == 0 {
		t.Fatalf("row %s: %v %v", k, refs, err)
	}
	return refs
}

func lockRow(t *testing.T, tx *writer.Txn, mode lock.Mode) error {
	t.Helper()
	_, err := tx.LockRows(t.Context(), 1, refsOf(t, tx, "1"), mode, nowait)
	return err
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func update(t *testing.T, tx *writer.Txn, k int, v string) {
	t.Helper()
	s, _ := tx.Statement().Table(1)
	_, err := tx.Update(t.Context(), 1, refsOf(t, tx, fmt.Sprint(k)), rows(s.Schema, k, v), lock.ForNoKeyUpdate)
	must(t, err)
}

// TestLockFollowsUpdate: a KEY SHARE lock on a row that others update holds its newer version, however the update comes about.
func TestLockFollowsUpdate(t *testing.T) {
	commit := func(t *testing.T, x *world, tx *writer.Txn) {
		_, err := tx.Commit(t.Context(), writer.CommitOptions{})
		must(t, err)
	}
	flush := func(t *testing.T, x *world) {
		_, err := x.w.Flush(t.Context())
		must(t, err)
	}
	for name, do := range map[string]func(t *testing.T, x *world, tx *writer.Txn){
		"once": func(t *testing.T, x *world, tx *writer.Txn) { update(t, tx, 1, "new"); commit(t, x, tx) },
		"twice": func(t *testing.T, x *world, tx *writer.Txn) {
			update(t, tx, 2, "other")
			update(t, tx, 1, "new")
			update(t, tx, 1, "newer")
			commit(t, x, tx)
		},
		"two transactions": func(t *testing.T, x *world, tx *writer.Txn) {
			update(t, tx, 1, "new")
			commit(t, x, tx)
			tx = x.begin()
			update(t, tx, 1, "newer")
			commit(t, x, tx)
		},
		"second try": func(t *testing.T, x *world, tx *writer.Txn) {
			sp := tx.Savepoint()
			update(t, tx, 1, "first")
			tx.RollbackTo(sp)
			update(t, tx, 1, "new")
			commit(t, x, tx)
		},
		"flush before": func(t *testing.T, x *world, tx *writer.Txn) {
			flush(t, x)
			update(t, tx, 1, "new")
			commit(t, x, tx)
		},
		"flush between": func(t *testing.T, x *world, tx *writer.Txn) {
			update(t, tx, 1, "new")
			flush(t, x)
			commit(t, x, tx)
			flush(t, x)
		},
		"prepared": func(t *testing.T, x *world, tx *writer.Txn) {
			update(t, tx, 1, "new")
			_, err := tx.Prepare(t.Context())
			must(t, err)
			must(t, tx.Resolve(t.Context(), true))
		},
		"schema change": func(t *testing.T, x *world, tx *writer.Txn) {
			update(t, tx, 1, "new")
			d := kv(2, "b", true)
			must(t, tx.Define(t.Context(), writer.TableChange{Kind: writer.Create, Def: d}))
			must(t, x.commitDDL(tx, d))
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t)
			x.open()
			x.create(kv(1, "a", true))
			x.put(1, 1, "old", 2, "old")
			child, tx, later := x.begin(), x.begin(), x.begin()
			defer later.Rollback()
			must(t, lockRow(t, child, lock.ForKeyShare))
			do(t, x, tx)
			if err := lockRow(t, later, lock.ForUpdate); !errors.Is(err, lock.ErrNotAvailable) {
				t.Errorf("the newer version can be locked: %v", err)
			}
			must(t, lockRow(t, later, lock.ForNoKeyUpdate))
			child.Rollback()
			must(t, lockRow(t, later, lock.ForUpdate))
		})
	}
}

// TestWaiterFollowsUpdate: whoever waited for a row hears that it has moved, and how, and holds the newer version.
func TestWaiterFollowsUpdate(t *testing.T) {
	for _, updates := range []bool{true, false} {
		x := newWorld(t)
		waits := x.waits()
		x.open()
		x.create(kv(1, "a", true))
		x.put(1, 1, "old")
		first, second, third := x.begin(), x.begin(), x.begin()
		refs := refsOf(t, second, "1")
		if updates {
			update(t, first, 1, "new")
		} else {
			must(t, first.Delete(t.Context(), 1, refs, lock.ForUpdate))
		}
		done := make(chan error, 1)
		go func() { done <- second.Delete(context.Background(), 1, refs, lock.ForUpdate) }()
		<-waits
		_, err := first.Commit(t.Context(), writer.CommitOptions{})
		must(t, err)
		var moved *writer.RowMoved
		if err := <-done; !errors.As(err, &moved) || moved.Updated != updates {
			t.Errorf("updates %v: %v, %+v", updates, err, moved)
		}
		if updates {
			if err := lockRow(t, third, lock.ForKeyShare); !errors.Is(err, lock.ErrNotAvailable) {
				t.Errorf("third is before second: %v", err)
			}
			must(t, second.Delete(t.Context(), 1, refsOf(t, second, "1"), lock.ForUpdate))
		}
		second.Rollback()
		third.Rollback()
	}
}

// TestDeadRowIsNotLocked: of a row that is deleted all who waited hear, the second not only when the first has ended; and who comes late waits for nobody.
func TestDeadRowIsNotLocked(t *testing.T) {
	x := newWorld(t)
	waits := x.waits()
	x.open()
	x.create(kv(1, "a", true))
	x.put(1, 1, "old")
	deleter, late := x.begin(), x.begin()
	refs := refsOf(t, late, "1")
	must(t, deleter.Delete(t.Context(), 1, refs, lock.ForUpdate))
	var waiters []*writer.Txn
	done := make(chan error)
	for range 2 {
		tx := x.begin()
		waiters = append(waiters, tx)
		go func() {
			_, err := tx.LockRows(context.Background(), 1, refs, lock.ForUpdate, lock.Wait{Timeout: 10 * time.Second})
			done <- err
		}()
		<-waits
	}
	_, err := deleter.Commit(t.Context(), writer.CommitOptions{})
	must(t, err)
	_, err = late.LockRows(t.Context(), 1, refs, lock.ForUpdate, lock.Wait{Policy: lock.NoWait})
	for _, err := range []error{<-done, <-done, err} {
		var moved *writer.RowMoved
		if !errors.As(err, &moved) {
			t.Errorf("locked a deleted row: %v", err)
		}
	}
	for _, tx := range append(waiters, late) {
		tx.Rollback()
	}
}

// TestMovedHow: an old snapshot hears whether its rows were updated or deleted, also when flushes came since.
func TestMovedHow(t *testing.T) {
	for flushes := range 4 {
		x := newWorld(t)
		x.open()
		x.create(kv(1, "a", true))
		x.put(1, 1, "old", 2, "old", 3, "old")
		if flushes&1 != 0 {
			_, err := x.w.Flush(t.Context())
			must(t, err)
		}
		old := x.w.Begin(writer.TxnOptions{Isolation: writer.RepeatableRead})
		refs := append(refsOf(t, old, "1"), append(refsOf(t, old, "2"), refsOf(t, old, "3")...)...)
		tx := x.begin()
		must(t, tx.Delete(t.Context(), 1, refs[2:], lock.ForUpdate))
		update(t, tx, 2, "new")
		must(t, tx.Delete(t.Context(), 1, refsOf(t, tx, "2"), lock.ForUpdate))
		update(t, tx, 1, "new")
		_, err := tx.Commit(t.Context(), writer.CommitOptions{})
		must(t, err)
		for n := range flushes {
			_, err := x.w.Flush(t.Context())
			must(t, err)
			x.put(1, 10+n, "more")
		}
		for i, updated := range []bool{true, true, false} {
			var moved *writer.RowMoved
			if err := old.Delete(t.Context(), 1, refs[i:i+1], lock.ForUpdate); !errors.As(err, &moved) || moved.Updated != updated {
				t.Errorf("row %d after %d flushes: %v, %+v", i, flushes, err, moved)
			}
		}
		old.Rollback()
	}
}

// TestKeyWaitsForFate: an insert waits for whoever deletes or updates the row that has its key, but not for who only locks it.
func TestKeyWaitsForFate(t *testing.T) {
	for _, c := range []struct {
		name             string
		change           func(t *testing.T, tx *writer.Txn)
		waits            bool
		commits, rejects bool // what first does; what second then gets
	}{
		{"delete", remove, true, true, false},
		{"delete that fails", remove, true, false, true},
		{"update", func(t *testing.T, tx *writer.Txn) { update(t, tx, 1, "new") }, true, true, true},
		{"lock", func(t *testing.T, tx *writer.Txn) { must(t, lockRow(t, tx, lock.ForUpdate)) }, false, true, true},
		{"delete after lock", func(t *testing.T, tx *writer.Txn) {
			must(t, lockRow(t, tx, lock.ForUpdate))
			remove(t, tx)
		}, true, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newWorld(t)
			waits := x.waits()
			x.open()
			x.create(kv(1, "a", true))
			x.put(1, 1, "old")
			first, second := x.begin(), x.begin()
			c.change(t, first)
			done := make(chan error, 1)
			go func() {
				_, err := second.Insert(context.Background(), 1, rows(x.defs[1].Schema, 7, "seven", 1, "second"))
				done <- err
			}()
			if c.waits {
				<-waits
			} else if err := <-done; err == nil {
				t.Fatal("no conflict")
			} else {
				done <- err
			}
			if c.commits {
				_, err := first.Commit(t.Context(), writer.CommitOptions{})
				must(t, err)
			} else {
				first.Rollback()
			}
			var conflict *writer.UniqueConflict
			if err := <-done; errors.As(err, &conflict) != c.rejects || err != nil && !c.rejects {
				t.Errorf("second insert: %v", err)
			}
			second.Rollback()
		})
	}
}

func remove(t *testing.T, tx *writer.Txn) {
	t.Helper()
	must(t, tx.Delete(context.Background(), 1, refsOf(t, tx, "1"), lock.ForUpdate))
}

// TestKeyIsNotHeldWhileWaiting: who deleted the row may insert its key again while another waits for it.
func TestKeyIsNotHeldWhileWaiting(t *testing.T) {
	x := newWorld(t)
	waits := x.waits()
	x.open()
	x.create(kv(1, "a", true))
	x.put(1, 1, "old")
	first, second := x.begin(), x.begin()
	remove(t, first)
	done := make(chan error, 1)
	go func() {
		_, err := second.Insert(context.Background(), 1, rows(x.defs[1].Schema, 1, "second"))
		done <- err
	}()
	<-waits
	first.SetWait(nowait)
	_, err := first.Insert(t.Context(), 1, rows(x.defs[1].Schema, 1, "first"))
	must(t, err)
	_, err = first.Commit(t.Context(), writer.CommitOptions{})
	must(t, err)
	var conflict *writer.UniqueConflict
	if err := <-done; !errors.As(err, &conflict) {
		t.Errorf("second insert: %v", err)
	}
	second.Rollback()
	check(t, x, 1, "1 first")
}
