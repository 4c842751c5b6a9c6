package writer_test

import (
	"context"
	"testing"

	"sluice/writer"
	"sluice/writer/catalog"
	"sluice/writer/lock"
)

// hookedCatalog runs something right before a flip: after the flush was cut, before it is published.
type hookedCatalog struct {
	catalog.Catalog
	hook func(catalog.Flip)
}

func (c *hookedCatalog) Flip(ctx context.Context, f catalog.Flip) (catalog.CommitID, error) {
	if hook := c.hook; hook != nil {
		c.hook = nil
		hook(f)
	}
	return c.Catalog.Flip(ctx, f)
}

func (x *world) change(t *testing.T, k int, v string) *writer.Txn {
	t.Helper()
	tx := x.begin()
	refs, err := find(tx.Statement(), 1, string('0'+rune(k)))
	if err == nil {
		_, err = tx.Update(t.Context(), 1, refs, rows(x.defs[1].Schema, k, v), lock.ForUpdate)
	}
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

// TestNamesInFlight: frames that got their place while a flush was on its way name rows as they were called before it. Replay
// finds them through the row map of the flip, and also when a second flush came before they were published. Commits go on while a
// flush is on its way, and what was prepared before a restart is committed from its frame alone.
//
// claims: P37 P42
func TestNamesInFlight(t *testing.T) {
	x := newWorld(t)
	hooked := &hookedCatalog{Catalog: x.catalog}
	x.opts.Catalog = hooked
	x.open()
	x.create(kv(1, "a", true))
	x.put(1, 1, "old", 2, "old", 3, "old")
	var prepared *writer.Txn
	hooked.hook = func(catalog.Flip) {
		if _, err := x.change(t, 1, "new").Commit(t.Context(), writer.CommitOptions{}); err != nil {
			t.Error(err)
		}
		prepared = x.change(t, 2, "new")
		if _, err := prepared.Prepare(t.Context()); err != nil {
			t.Error(err)
		}
	}
	flush := func(want uint64) {
		t.Helper()
		if pos, err := x.w.Flush(t.Context()); err != nil || uint64(pos) != want {
			t.Fatalf("flushed up to %d, want %d: %v", pos, want, err)
		}
	}
	flush(1)
	check(t, x, 1, "1 new", "2 old", "3 old")
	flush(2)
	x.catalog.Decide(prepared.ID(), true)
	x.close()
	x.open() // a crash before the writer heard of the decision
	check(t, x, 1, "1 new", "2 new", "3 old")
	flush(3)
	check(t, x, 1, "1 new", "2 new", "3 old")
	x.fsck()
}
