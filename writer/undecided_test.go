package writer_test

import (
	"context"
	"testing"

	"sluice/writer"
	"sluice/writer/catalog"
)

// pendingCatalog knows of a transaction that still runs in Postgres, until the test says what became of it.
type pendingCatalog struct {
	catalog.Catalog
	decided chan bool
}

func pending(c catalog.Catalog) *pendingCatalog { return &pendingCatalog{c, make(chan bool, 1)} }

func (p *pendingCatalog) Decision(context.Context, [16]byte) (bool, error) {
	select {
	case committed := <-p.decided:
		return committed, nil
	default:
		return false, catalog.ErrPending
	}
}

// TestUndecided: what became of a prepared transaction is asked for until there is an answer, after a restart and for a session that lost it; what
// was committed behind it is visible then.
//
// claims: P42
func TestUndecided(t *testing.T) {
	for i := range 4 {
		committed, restart := i%2 == 0, i/2 == 0
		x := newWorld(t)
		cat := pending(x.catalog)
		x.opts.Catalog = cat
		x.open()
		x.create(kv(1, "a", false))
		tx := x.begin()
		if _, err := tx.Insert(t.Context(), 1, rows(x.defs[1].Schema, 1, "prepared")); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Prepare(t.Context()); err != nil {
			t.Fatal(err)
		}
		released := make(chan struct{})
		if restart {
			close(released)
			x.restart(false)
		} else {
			tx.Leave(func() { close(released) })
			tx.Rollback()
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
		cat.decided <- committed
		<-released
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
