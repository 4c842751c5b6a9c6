package writer_test

import (
	"context"
	"testing"

	"sluice/writer"
	"sluice/writer/catalog"
)

// pendingCatalog knows of a prepared transaction in Postgres.
type pendingCatalog struct{ catalog.Catalog }

func (pendingCatalog) Decision(context.Context, [16]byte) (bool, error) {
	return false, catalog.ErrPending
}

// TestUndecided: PREPARE TRANSACTION outlives a restart; what was committed behind it is visible once it is decided.
//
// claims: P42
func TestUndecided(t *testing.T) {
	for _, committed := range []bool{true, false} {
		x := newWorld(t)
		x.open()
		x.create(kv(1, "a", false))
		tx := x.begin()
		if _, err := tx.Insert(t.Context(), 1, rows(x.defs[1].Schema, 1, "prepared")); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Prepare(t.Context()); err != nil {
			t.Fatal(err)
		}
		id := tx.ID()
		x.close()
		x.opts.Catalog = pendingCatalog{x.catalog}
		x.open()
		if ids := x.w.Undecided(); len(ids) != 1 || ids[0] != id {
			t.Fatalf("undecided: %x", ids)
		}
		second := x.begin()
		if _, err := second.Insert(t.Context(), 1, rows(x.defs[1].Schema, 2, "behind")); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			_, err := second.Commit(context.Background(), writer.CommitOptions{})
			done <- err
		}()
		check(t, x, 1)
		if err := x.w.ResolveID(t.Context(), id, committed); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		want := []string{"2 behind"}
		if committed {
			want = []string{"1 prepared", "2 behind"}
		}
		check(t, x, 1, want...)
		x.close()
		x.open() // the Resolved frame says it: nobody is asked
		check(t, x, 1, want...)
	}
}

// TestGate: shared holders go together, an exclusive one alone, and a context ends the waiting.
func TestGate(t *testing.T) {
	x := newWorld(t)
	x.open()
	g := x.w.Gate()
	one, err := g.Shared(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	two, err := g.Shared(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := g.Exclusive(ctx); err == nil {
		t.Error("exclusive beside shared")
	}
	one()
	one()
	two()
	all, err := g.Exclusive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Shared(ctx); err == nil {
		t.Error("shared beside exclusive")
	}
	all()
}
