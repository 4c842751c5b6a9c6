package writer_test

import (
	"errors"
	"strings"
	"testing"

	"sluice/writer"
)

// TestMemory fills the tail: flushes make room by themselves. A transaction that does not fit writes files, or, where it cannot since
// its table is not there yet, is refused and leaves nothing.
//
// claims: P40
func TestMemory(t *testing.T) {
	x := newWorld(t)
	x.opts.Memory, x.opts.FlushBytes = 256<<10, 64<<10
	x.open()
	x.create(kv(1, "a", false))
	text := strings.Repeat("x", 1000)
	for i := range 400 {
		x.put(1, i, text)
	}
	if x.w.Progress() == 0 {
		t.Error("nothing was flushed")
	}
	tx := x.begin()
	err := tx.Define(t.Context(), writer.TableChange{Kind: writer.Create, Def: kv(2, "b", false)})
	for n := 0; err == nil && n < 1000; n++ {
		_, err = tx.Insert(t.Context(), 2, rows(x.defs[1].Schema, n, text))
	}
	if !errors.Is(err, writer.ErrMemory) {
		t.Errorf("too large a transaction: %v", err)
	}
	tx.Rollback()
	x.put(1, 1, text)
	if _, err := x.w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if g := x.w.Gauges(); g.TotalBytes != 0 || g.TotalRows != 0 {
		t.Errorf("I12: after a flush there are %+v", g)
	}
}

// TestKeysOfFilesDoNotFlush: keys of rows in files, which no flush gives back, are no reason for one.
func TestKeysOfFilesDoNotFlush(t *testing.T) {
	x := newWorld(t)
	x.opts.FlushBytes = 64 << 10
	x.open()
	x.create(kv(1, "a", true))
	tx := x.begin()
	load(t, x, tx, 0, 5000)
	_, err := tx.Commit(t.Context(), writer.CommitOptions{})
	must(t, err)
	_, err = x.w.Flush(t.Context())
	must(t, err)
	if g := x.w.Gauges(); g.FileKeyBytes <= x.opts.FlushBytes || g.TotalBytes != g.FileKeyBytes {
		t.Fatalf("after a flush there are %+v", g)
	}
	before := x.w.Flips()
	for k := range 200 {
		x.put(1, 10_000+k, "small")
	}
	if n := x.w.Flips() - before; n > 0 {
		t.Errorf("%d flushes of 200 small rows", n)
	}
}
