package writer_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"sluice/writer"
	"sluice/writer/catalog"
	"sluice/writer/lock"
	"sluice/writer/table"
)

// attempt identifies a transaction and inserts a row if it is no repeat. It returns what a repeat is told.
func (x *world) attempt(sequence int64, k int) (*writer.Txn, string) {
	x.t.Helper()
	tx := x.begin()
	answer, repeat, err := tx.Identify(x.t.Context(), "1/w", sequence)
	if err != nil {
		x.t.Fatal(err)
	}
	if repeat {
		return tx, string(answer)
	}
	if _, err := tx.Insert(x.t.Context(), 1, rows(x.defs[1].Schema, k, "v")); err != nil {
		x.t.Fatal(err)
	}
	tx.SetAnswer(fmt.Append(nil, "answer ", sequence))
	return tx, ""
}

func (x *world) commit(tx *writer.Txn) {
	x.t.Helper()
	if _, err := tx.Commit(x.t.Context(), writer.CommitOptions{}); err != nil {
		x.t.Fatal(err)
	}
}

// restart closes and opens the writer; flushed says that the log is not needed.
func (x *world) restart(flushed bool) {
	x.t.Helper()
	if flushed {
		if _, err := x.w.Flush(x.t.Context()); err != nil {
			x.t.Fatal(err)
		}
	}
	x.close()
	x.open()
}

// TestIdentity: a repeat is told the answer of the first, at every distance from it.
//
// claims: M18 M26 M39
func TestIdentity(t *testing.T) {
	for _, flushed := range []bool{false, true} {
		x := newWorld(t)
		x.open()
		x.create(kv(1, "a", true))
		tx, _ := x.attempt(7, 1)
		x.commit(tx)
		lost, _ := x.attempt(8, 2)
		lost.Rollback()
		check := func(when string) {
			t.Helper()
			tx, told := x.attempt(7, 1)
			if told != "answer 7" || tx.Remembered() || tx.Wrote() {
				t.Errorf("%s: told %q", when, told)
			}
			x.commit(tx)
			if tx, told := x.attempt(8, 2); told != "" {
				t.Errorf("%s: one that was rolled back is told %q", when, told)
			} else {
				tx.Rollback()
			}
		}
		check("at once")
		x.restart(flushed)
		check("after a restart")
		x.restart(true)
		x.restart(flushed)
		check("after a flush and restarts")
		tx, _ = x.attempt(8, 2)
		x.commit(tx)
		check2, told := x.attempt(8, 2)
		if told != "answer 8" {
			t.Errorf("told %q", told)
		}
		check2.Rollback()
		check3, err := scan(x.begin().Statement(), 1)
		if err != nil || len(check3) != 2 {
			t.Errorf("rows %v, %v", check3, err)
		}
	}
}

// TestIdentityAges: 7 days after its last transaction a writer is new.
//
// claims: M26
func TestIdentityAges(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	x := newWorld(t)
	x.opts.Now = func() time.Time { return now }
	x.open()
	x.create(kv(1, "a", false))
	tx, _ := x.attempt(7, 1)
	token := tx.Token("1")
	x.commit(tx)
	now = now.Add(6 * 24 * time.Hour)
	x.restart(true)
	if tx, told := x.attempt(7, 1); told == "" {
		t.Error("forgotten after 6 days")
	} else {
		tx.Rollback()
	}
	now = now.Add(2 * 24 * time.Hour)
	outcome(t, x, "after 8 days, not swept", token, "committed")
	tx, told := x.attempt(3, 3)
	if told != "" {
		t.Errorf("after 8 days a lower sequence is told %q", told)
	}
	x.commit(tx)
	outcome(t, x, "of a writer that began anew", token, "expired")
	x.restart(true)
	outcome(t, x, "after a restart", token, "expired")
	if tx, told := x.attempt(3, 3); told != "answer 3" {
		t.Errorf("told %q", told)
	} else {
		tx.Rollback()
	}
}

func outcome(t *testing.T, x *world, when string, k writer.Token, want string) {
	t.Helper()
	read, ok := writer.ParseToken(k.String())
	if !ok || read != k {
		t.Fatalf("token %v is read as %v", k, read)
	}
	got, err := x.w.Outcome(k)
	if err != nil || got.String() != want {
		t.Errorf("%s: %v, %v, want %s", when, got, err, want)
	}
}

// TestIdentityUndecided: a repeat waits for a prepared transaction from before a restart.
func TestIdentityUndecided(t *testing.T) {
	for _, committed := range []bool{true, false} {
		x := newWorld(t)
		x.open()
		x.create(kv(1, "a", false))
		tx, _ := x.attempt(7, 1)
		token := tx.Token("1")
		if _, err := tx.Prepare(t.Context()); err != nil {
			t.Fatal(err)
		}
		cat := pending(x.catalog)
		x.opts.Catalog = cat
		x.restart(false)
		outcome(t, x, "undecided", token, "in progress")
		second := x.begin()
		second.SetWait(lock.Wait{Timeout: time.Millisecond})
		if _, _, err := second.Identify(t.Context(), "1/w", 7); !errors.Is(err, lock.ErrTimeout) {
			t.Fatalf("a repeat did not wait: %v", err)
		}
		second.Rollback()
		cat.decided <- committed
		first, _ := x.attempt(7, 1) // waits
		first.Rollback()
		for range 2 {
			want, told := "aborted", ""
			if committed {
				want, told = "committed", "answer 7"
			}
			outcome(t, x, "decided", token, want)
			third, got := x.attempt(7, 1)
			if got != told {
				t.Errorf("committed %v: told %q", committed, got)
			}
			third.Rollback()
			x.opts.Catalog = x.catalog
			x.restart(true)
		}
	}
}

// silentCatalog does not answer what became of a flip.
type silentCatalog struct {
	catalog.Catalog
	silent *atomic.Bool
}

func (c silentCatalog) Resolve(ctx context.Context, flip string) (bool, error) {
	if c.silent.Load() {
		return false, errFault
	}
	return c.Catalog.Resolve(ctx, flip)
}

// TestOutcomeUnknown: who is told that the outcome of a commit is not known gets the truth after the next start, and the repeat of it is one or
// runs.
func TestOutcomeUnknown(t *testing.T) {
	for _, happens := range []bool{true, false} {
		x := newWorld(t)
		silent := &atomic.Bool{}
		x.opts.Catalog = silentCatalog{x.catalog, silent}
		x.open()
		x.create(kv(1, "a", false))
		tx, _ := x.attempt(7, 1)
		token := tx.Token("1")
		def := kv(2, "b", false)
		if err := tx.Define(t.Context(), writer.TableChange{Kind: writer.Create, Def: def}); err != nil {
			t.Fatal(err)
		}
		_, err := tx.CommitDDL(t.Context(), func(ctx context.Context, f *catalog.Flip) error {
			silent.Store(true)
			if !happens {
				return errFault
			}
			x.catalog.Put(2, "public", "b", 1)
			x.defs[2] = def
			_, err := x.catalog.Flip(ctx, *f)
			return errors.Join(err, errFault)
		})
		if !errors.Is(err, writer.ErrOutcomeUnknown) {
			t.Fatalf("the flip was not lost: %v", err)
		}
		if got, err := x.w.Outcome(token); !errors.Is(err, writer.ErrOutcomeUnknown) && got.String() != "in progress" {
			t.Errorf("before the next start: %v, %v", got, err)
		}
		silent.Store(false)
		want, told := "aborted", ""
		if happens {
			want, told = "committed", "answer 7"
		}
		x.restart(false)
		outcome(t, x, "after the next start", token, want)
		if tx, got := x.attempt(7, 1); got != told {
			t.Errorf("happens %v: told %q", happens, got)
		} else {
			tx.Rollback()
		}
	}
}

// TestLastToken: a transaction that nobody asked to be remembered has a token for the start after an unknown outcome, and only for that.
func TestLastToken(t *testing.T) {
	x := newWorld(t)
	x.open()
	x.create(kv(1, "a", false))
	insert := func(k int) *writer.Txn {
		tx := x.begin()
		if _, err := tx.Insert(t.Context(), 1, rows(x.defs[1].Schema, k, "v")); err != nil {
			t.Fatal(err)
		}
		return tx
	}
	there, gone := insert(1), insert(2)
	yes, no := there.LastToken(), gone.LastToken()
	x.commit(there)
	gone.Rollback()
	x.restart(false)
	outcome(t, x, "committed", yes, "committed")
	outcome(t, x, "rolled back", no, "aborted")
	x.restart(true)
	outcome(t, x, "once its row is in files", yes, "expired")
	outcome(t, x, "rolled back, long ago", no, "expired")
}

// TestIdentityOfFiles: a transaction with rows in files already, which its flip decides, is repeated like any other; so is one whose rows all
// died, and one that changed a table.
func TestIdentityOfFiles(t *testing.T) {
	x, _ := bigWorld(t, false)
	big := func(sequence int64, die bool) (*writer.Txn, string) {
		tx := x.begin()
		answer, repeat, err := tx.Identify(t.Context(), "1/w", sequence)
		must(t, err)
		if repeat {
			return tx, string(answer)
		}
		load(t, x, tx, 0, 300)
		if die {
			refs, err := find(tx.Statement(), 1, "*")
			must(t, err)
			var own []table.Ref
			for _, r := range refs {
				if r.File == table.Own {
					own = append(own, r)
				}
			}
			must(t, tx.Delete(t.Context(), 1, own, lock.ForUpdate))
		}
		tx.SetAnswer(fmt.Append(nil, "answer ", sequence))
		return tx, ""
	}
	dead, _ := big(1, true)
	x.commit(dead)
	token := dead.Token("1")
	alive, _ := big(2, false)
	x.commit(alive)
	for _, flushed := range []bool{false, true, false} {
		for sequence := int64(1); sequence <= 2; sequence++ {
			tx, told := big(sequence, false)
			if told != fmt.Sprint("answer ", sequence) {
				t.Errorf("%d is told %q", sequence, told)
			}
			tx.Rollback()
		}
		outcome(t, x, "in files", token, "committed")
		x.restart(flushed)
	}
}

// TestIdentityLocks: the lock on an identity outlives savepoints, the others do not, also if it is asked for twice.
func TestIdentityLocks(t *testing.T) {
	x := newWorld(t)
	x.open()
	x.create(kv(1, "a", true))
	tx := x.begin()
	must(t, tx.LockTable(t.Context(), 1, lock.Share, lock.Wait{}))
	sp := tx.Savepoint()
	must(t, tx.LockTable(t.Context(), 1, lock.AccessExclusive, lock.Wait{}))
	for range 2 {
		if _, _, err := tx.Identify(t.Context(), "1/w", 1); err != nil {
			t.Fatal(err)
		}
	}
	tx.RollbackTo(sp)
	other := x.begin()
	other.SetWait(lock.Wait{Timeout: time.Millisecond})
	if _, _, err := other.Identify(t.Context(), "1/w", 1); !errors.Is(err, lock.ErrTimeout) {
		t.Errorf("the identity is not locked: %v", err)
	}
	must(t, other.LockTable(t.Context(), 1, lock.AccessShare, lock.Wait{Timeout: time.Millisecond}))
	if err := other.LockTable(t.Context(), 1, lock.RowExclusive, lock.Wait{Timeout: time.Millisecond}); !errors.Is(err, lock.ErrTimeout) {
		t.Errorf("the table is not locked: %v", err)
	}
	tx.Rollback()
	if _, _, err := other.Identify(t.Context(), "1/w", 1); err != nil {
		t.Error(err)
	}
}
