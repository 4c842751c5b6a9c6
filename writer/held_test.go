package writer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/writer"
	"sluice/writer/catalog"
	"sluice/writer/lock"
	"sluice/writer/table"
)

// stubbornCatalog keeps prepared transactions that are to be forgotten, as a crash would.
type stubbornCatalog struct{ catalog.Catalog }

func (stubbornCatalog) ForgetPrepared(context.Context, [16]byte) error { return errFault }

// TestHeld: a held transaction is decided once, wherever a crash comes: before the decision, after it, after its frame, and with flushes
// and merges of files in between.
//
// claims: P42
func TestHeld(t *testing.T) {
	for _, committed := range []bool{true, false} {
		for _, crash := range []string{"none", "held", "decided", "framed"} {
			for flushes := range 3 {
				t.Run(fmt.Sprint("committed ", committed, ", crash ", crash, ", flushes ", flushes), func(t *testing.T) {
					held(t, committed, crash, flushes)
				})
			}
		}
	}
}

func held(t *testing.T, committed bool, crash string, flushes int) {
	x := newWorld(t)
	x.open()
	x.create(kv(1, "a", true))
	x.create(kv(2, "b", false))
	x.add(1, 1, "one", 2, "two", 3, "three")
	x.add(2, 1, "one", 2, "two", 3, "three")
	tx := x.begin()
	id := tx.ID()
	change(t, x, tx, 1)
	change(t, x, tx, 2)
	var token writer.Token
	asked := flushes > 0
	if asked {
		token = tx.Token("1")
	}
	must(t, tx.Hold(t.Context(), "x"))
	tx.Keep("x")
	move := func(from int) {
		t.Helper()
		for n := range flushes {
			x.add(1, from+n, "later")
			x.add(2, from+n, "later")
			if _, err := x.w.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	move(10)
	if crash == "held" {
		x.restart(false)
		move(20)
		x.restart(true)
		move(30)
	}
	refused(t, x)
	if asked {
		outcome(t, x, "held", token, "in progress")
	}
	x.catalog.Decide(id, committed)
	switch crash {
	case "none", "held":
		must(t, x.w.EndHeld(t.Context(), "x", x.w.Held("x"), committed, writer.CommitOptions{}))
	case "framed":
		x.close()
		x.opts.Catalog = stubbornCatalog{x.catalog}
		if !committed {
			x.opts.Catalog = nil
		}
		x.open()
		if err := x.w.SettleHeld(t.Context()); committed && !errors.Is(err, errFault) {
			t.Fatal(err)
		}
		x.opts.Catalog = nil
	}
	for range 3 {
		x.restart(false)
		must(t, x.w.SettleHeld(t.Context()))
		want := "1 one, 2 two, 3 three"
		if committed {
			want = "1 new, 3 three, 9 in"
		}
		for id := table.ID(1); id <= 2; id++ {
			list, err := scan(x.begin().Statement(), id)
			must(t, err)
			if got := strings.Join(slices.DeleteFunc(texts(list), later), ", "); got != want {
				t.Errorf("table %d: %s, want %s", id, got, want)
			}
		}
		if x.w.Held("x") != nil {
			t.Error("it is still held")
		}
		if asked {
			outcome(t, x, "decided", token, map[bool]string{true: "committed", false: "aborted"}[committed])
		}
		left, err := x.catalog.PreparedTransactions(t.Context())
		if err != nil || len(left) != 0 {
			t.Errorf("left %v, %v", left, err)
		}
		x.restart(true)
	}
}

func later(text string) bool { return strings.HasSuffix(text, " later") }

// add inserts rows in a transaction of their own.
func (x *world) add(id table.ID, pairs ...any) {
	x.t.Helper()
	tx := x.begin()
	if _, err := tx.Insert(x.t.Context(), id, rows(x.defs[id].Schema, pairs...)); err != nil {
		x.t.Fatal(err)
	}
	x.commit(tx)
}

// change updates row 1, deletes row 2, inserts row 9 and locks row 3.
func change(t *testing.T, x *world, tx *writer.Txn, id table.ID) {
	t.Helper()
	for k, do := range map[string]string{"1": "update", "2": "delete"} {
		refs, err := find(tx.Statement(), id, k)
		must(t, err)
		if do == "update" {
			_, err = tx.Update(t.Context(), id, refs, rows(x.defs[id].Schema, 1, "new"), lock.ForNoKeyUpdate)
		} else {
			err = tx.Delete(t.Context(), id, refs, lock.ForUpdate)
		}
		must(t, err)
	}
	_, err := tx.Insert(t.Context(), id, rows(x.defs[id].Schema, 9, "in"))
	must(t, err)
	refs, err := find(tx.Statement(), id, "3")
	must(t, err)
	_, err = tx.LockRows(t.Context(), id, refs, lock.ForUpdate, lock.Wait{})
	must(t, err)
}

// refused checks that the held transaction has its locks.
func refused(t *testing.T, x *world) {
	t.Helper()
	tx := x.begin()
	defer tx.Rollback()
	tx.SetWait(lock.Wait{Timeout: time.Millisecond})
	for _, k := range []string{"1", "2", "3"} {
		refs, err := find(tx.Statement(), 2, k)
		must(t, err)
		if err := tx.Delete(t.Context(), 2, refs, lock.ForUpdate); !errors.Is(err, lock.ErrTimeout) {
			t.Errorf("row %s: %v", k, err)
		}
	}
	if _, err := tx.Insert(t.Context(), 1, rows(x.defs[1].Schema, 9, "other")); !errors.Is(err, lock.ErrTimeout) {
		t.Errorf("key 9: %v", err)
	}
}

// TestHeldNames: a name may be given to the next transaction before the last one with it has ended here.
func TestHeldNames(t *testing.T) {
	x := newWorld(t)
	x.open()
	x.create(kv(1, "a", true))
	var both []*writer.Txn
	for k := range 2 {
		tx := x.begin()
		_, err := tx.Insert(t.Context(), 1, rows(x.defs[1].Schema, k, "v"))
		must(t, err)
		must(t, tx.Hold(t.Context(), "x"))
		tx.Keep("x")
		both = append(both, tx)
	}
	for range 2 {
		for _, tx := range both {
			must(t, x.w.EndHeld(t.Context(), "x", tx, true, writer.CommitOptions{}))
		}
	}
	check(t, x, 1, "0 v", "1 v")
	if x.w.Held("x") != nil {
		t.Error("it is still held")
	}
}
