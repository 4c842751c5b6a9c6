package writer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"sluice/writer"
	"sluice/writer/lock"
	"sluice/writer/table"
)

// waits makes a channel that gets a value whenever a request begins to wait for a lock.
func (x *world) waits() <-chan struct{} {
	began := make(chan struct{}, 16)
	x.opts.Locks.Clock = func(d time.Duration) (<-chan time.Time, func() bool) {
		began <- struct{}{}
		t := time.NewTimer(d)
		return t.C, t.Stop
	}
	return began
}

func (x *world) begin() *writer.Txn { return x.w.Begin(writer.TxnOptions{}) }

func (x *world) put(id table.ID, pairs ...any) {
	x.t.Helper()
	tx := x.begin()
	defer tx.Rollback()
	if _, err := tx.Insert(context.Background(), id, rows(x.defs[id].Schema, pairs...)); err != nil {
		x.t.Fatal(err)
	}
	if _, err := tx.Commit(context.Background(), writer.CommitOptions{}); err != nil {
		x.t.Fatal(err)
	}
}

// TestInsertWaitsForTwin: an insert waits for the fate of an uncommitted row with its key.
func TestInsertWaitsForTwin(t *testing.T) {
	for _, commits := range []bool{true, false} {
		x := newWorld(t)
		waits := x.waits()
		x.open()
		x.create(kv(1, "a", true))
		first, second := x.begin(), x.begin()
		s := x.defs[1].Schema
		if _, err := first.Insert(t.Context(), 1, rows(s, 1, "first")); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			_, err := second.Insert(context.Background(), 1, rows(s, 1, "second"))
			done <- err
		}()
		<-waits
		if commits {
			if _, err := first.Commit(t.Context(), writer.CommitOptions{}); err != nil {
				t.Fatal(err)
			}
		} else {
			first.Rollback()
		}
		var conflict *writer.UniqueConflict
		if err := <-done; errors.As(err, &conflict) != commits {
			t.Errorf("first commits %v: second insert: %v", commits, err)
		}
		second.Rollback()
	}
}

// TestRowLockFollowsFlush: a lock and those who wait for it go with the row when a flush moves it.
func TestRowLockFollowsFlush(t *testing.T) {
	x := newWorld(t)
	waits := x.waits()
	x.open()
	x.create(kv(1, "a", true))
	x.put(1, 1, "old", 2, "other")
	first, second := x.begin(), x.begin()
	update := func(tx *writer.Txn, v string) error {
		refs, err := find(tx.Statement(), 1, "1")
		if err != nil {
			return err
		}
		_, err = tx.Update(context.Background(), 1, refs, rows(x.defs[1].Schema, 1, v), lock.ForNoKeyUpdate)
		return err
	}
	if err := update(first, "first"); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- update(second, "second") }()
	<-waits
	if _, err := x.w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	third := x.begin()
	refs, err := find(third.Statement(), 1, "1")
	if err != nil || refs[0].File == 0 {
		t.Fatalf("row is called %v: %v", refs, err)
	}
	if _, err := third.LockRows(t.Context(), 1, refs, lock.ForUpdate, lock.Wait{Policy: lock.NoWait}); !errors.Is(err, lock.ErrNotAvailable) {
		t.Errorf("third takes the row's lock: %v", err)
	}
	third.Rollback()
	if _, err := first.Commit(t.Context(), writer.CommitOptions{}); err != nil {
		t.Fatal(err)
	}
	var moved *writer.RowMoved
	if err := <-done; !errors.As(err, &moved) {
		t.Fatalf("second: %v", err)
	}
	if err := update(second, "second"); err != nil {
		t.Fatal(err)
	}
	if _, err := second.Commit(t.Context(), writer.CommitOptions{}); err != nil {
		t.Fatal(err)
	}
	check(t, x, 1, "1 second", "2 other")
}

func check(t *testing.T, x *world, id table.ID, want ...string) {
	t.Helper()
	tx := x.begin()
	defer tx.Rollback()
	list, err := scan(tx.Statement(), id)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, n := range list {
		got = append(got, n.text)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("table %d: %q, want %q", id, got, want)
	}
}

// TestTransfers moves money between accounts from several goroutines while a flusher runs: no cent is lost, in any view, and
// after a restart.
//
// claims: M54 P44
func TestTransfers(t *testing.T) {
	const accounts, workers, transfers = 12, 6, 60
	x := newWorld(t)
	x.opts.Locks.DeadlockTimeout = 5 * time.Millisecond
	x.open()
	x.create(kv(1, "a", true))
	for i := range accounts {
		x.put(1, i, 100)
	}
	g, ctx := errgroup.WithContext(t.Context())
	stop := make(chan struct{})
	var flusher errgroup.Group
	flusher.Go(func() error {
		for {
			select {
			case <-stop:
				return nil
			default:
				if _, err := x.w.Flush(t.Context()); err != nil {
					return err
				}
			}
		}
	})
	g.Go(func() error { // schema changes that write rows of the accounts, too
		r := rand.New(rand.NewPCG(99, 7))
		for n := range 15 {
			if err := x.transferDDL(ctx, r, table.ID(100+n), accounts); err != nil {
				return err
			}
		}
		return nil
	})
	for n := range workers {
		g.Go(func() error {
			r := rand.New(rand.NewPCG(uint64(n), 7))
			for range transfers {
				if err := x.transfer(ctx, r, accounts); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := g.Wait()
	close(stop)
	if err := errors.Join(err, flusher.Wait()); err != nil {
		t.Fatal(err)
	}
	x.total(accounts * 100)
	x.close()
	x.open()
	x.total(accounts * 100)
	check(t, x, 114, "1 row")
	if _, err := x.w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	x.fsck()
}

func (x *world) total(want int) {
	x.t.Helper()
	tx := x.begin()
	defer tx.Rollback()
	list, err := scan(tx.Statement(), 1)
	if err != nil {
		x.t.Fatal(err)
	}
	sum := 0
	for _, n := range list {
		var k, v int
		fmt.Sscan(n.text, &k, &v)
		sum += v
	}
	if sum != want {
		x.t.Errorf("sum is %d, want %d", sum, want)
	}
}

// transfer is one transaction, from the start again when it is the victim of a deadlock.
func (x *world) transfer(ctx context.Context, r *rand.Rand, accounts int) error {
	for {
		tx := x.begin()
		from, to := r.IntN(accounts), r.IntN(accounts)
		err := x.book(ctx, tx, from, -1)
		if err == nil {
			err = x.book(ctx, tx, to, +1)
		}
		if err == nil && r.IntN(5) > 0 {
			_, err = tx.Commit(ctx, writer.CommitOptions{WaitFlip: r.IntN(10) == 0})
		}
		tx.Rollback()
		if !errors.Is(err, lock.ErrDeadlock) {
			return err
		}
	}
}

// transferDDL is a transfer and CREATE TABLE with a row, in one transaction.
func (x *world) transferDDL(ctx context.Context, r *rand.Rand, id table.ID, accounts int) error {
	for {
		tx := x.begin()
		d := kv(id, fmt.Sprint("t", id), true)
		err := tx.Define(ctx, writer.TableChange{Kind: writer.Create, Def: d})
		if err == nil {
			_, err = tx.Insert(ctx, id, rows(d.Schema, 1, "row"))
		}
		if err == nil {
			err = x.book(ctx, tx, r.IntN(accounts), -1)
		}
		if err == nil {
			err = x.book(ctx, tx, r.IntN(accounts), +1)
		}
		if err == nil {
			err = x.commitDDL(tx, d)
		}
		tx.Rollback()
		if !errors.Is(err, lock.ErrDeadlock) {
			return err
		}
	}
}

// book is UPDATE a SET v = v + n WHERE k = account.
func (x *world) book(ctx context.Context, tx *writer.Txn, account, n int) error {
	for {
		v := tx.Statement()
		def, _ := v.Table(1)
		r, ok, err := v.ByKey(ctx, 1, def.Uniques[0].ID, keyOf(int64(account)))
		if err != nil || !ok {
			return fmt.Errorf("account %d: found %v: %w", account, ok, err)
		}
		have, err := strconv.Atoi(string(r.Batch.Cols[1].Bytes(0)))
		if err != nil {
			return err
		}
		_, err = tx.Update(ctx, 1, []table.Ref{r.Ref(0)}, rows(def.Schema, account, have+n), lock.ForNoKeyUpdate)
		var moved *writer.RowMoved
		if !errors.As(err, &moved) {
			return err
		}
	}
}
