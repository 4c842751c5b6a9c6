package writer_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"sluice/writer"
	"sluice/writer/catalog"
	"sluice/writer/format"
	"sluice/writer/format/iceberg"
	"sluice/writer/lock"
	"sluice/writer/objstore"
	"sluice/writer/table"
)

// icebergWorld has Iceberg tables.
func icebergWorld(t *testing.T) *world {
	x := newWorld(t)
	x.iceberg()
	return x
}

// iceberg makes the tables Iceberg's, over the objects as they are set now.
func (x *world) iceberg() {
	if x.opts.Objects == nil {
		x.opts.Objects = x.objects
	}
	x.opts.Format, x.opts.Partition = iceberg.Open(x.opts.Objects, iceberg.Options{Now: time.Now}), iceberg.PartitionValues
}

// commitTables inserts the rows into the tables in one transaction, in the order given, and waits for the flip.
func (x *world) commitTables(pairs []any, ids ...table.ID) error {
	tx := x.begin()
	defer tx.Rollback()
	for _, id := range ids {
		if _, err := tx.Insert(context.Background(), id, rows(x.defs[id].Schema, pairs...)); err != nil {
			return err
		}
	}
	_, err := tx.Commit(context.Background(), writer.CommitOptions{WaitFlip: true})
	return err
}

// table is where a table stands in the catalog, and what its metadata says.
func (x *world) table(id table.ID) (catalog.Table, format.Snapshot) {
	x.t.Helper()
	st, err := x.catalog.Load(context.Background())
	if err != nil {
		x.t.Fatal(err)
	}
	i := slices.IndexFunc(st.Tables, func(t catalog.Table) bool { return t.ID == id })
	s, err := x.opts.Format.Snapshot(context.Background(), st.Tables[i].Pointer)
	if err != nil {
		x.t.Fatal(err)
	}
	return st.Tables[i], s
}

// flips is the number of catalog transactions.
func (x *world) flips() int {
	x.t.Helper()
	st, err := x.catalog.Load(context.Background())
	if err != nil {
		x.t.Fatal(err)
	}
	return int(st.Last)
}

// contents is the digests of a table's data files, in order of their ids.
func (x *world) contents(id table.ID) (sums []string) {
	x.t.Helper()
	_, s := x.table(id)
	for _, f := range s.Files {
		body, err := x.objects.Get(context.Background(), f.File.Location)
		if err != nil {
			x.t.Fatal(err)
		}
		sums = append(sums, fmt.Sprintf("%d %x", f.ID, sha256.Sum256(body)))
	}
	return sums
}

// recordingCatalog keeps the flips.
type recordingCatalog struct {
	catalog.Catalog
	flips []catalog.Flip
}

func (c *recordingCatalog) Flip(ctx context.Context, f catalog.Flip) (catalog.CommitID, error) {
	c.flips = append(c.flips, f)
	return c.Catalog.Flip(ctx, f)
}

// TestOneFlip: three tables in one transaction are one catalog transaction, three transactions are three; files, rows and snapshots are
// the same to the byte, and the order in which the tables were written is nowhere to be seen. A loop over the tables would be red.
//
// claims: S5 S7 S19 S22
func TestOneFlip(t *testing.T) {
	data := []any{1, "one", 2, "two", 3, "three", nil, "none"}
	run := func(commits ...[]table.ID) (*world, []catalog.Flip) {
		x := icebergWorld(t)
		rec := &recordingCatalog{Catalog: x.catalog}
		x.opts.Catalog = rec
		x.open()
		for id := table.ID(1); id <= 3; id++ {
			x.create(kv(id, fmt.Sprint("t", id), true))
		}
		before := x.flips()
		for _, ids := range commits {
			must(t, x.commitTables(data, ids...))
		}
		if n := x.flips() - before; n != len(commits) {
			t.Errorf("%d flips for %d transactions", n, len(commits))
		}
		return x, rec.flips
	}
	multi, flips := run([]table.ID{3, 1, 2})
	other, again := run([]table.ID{2, 3, 1})
	single, _ := run([]table.ID{1}, []table.ID{2}, []table.ID{3})
	for id := table.ID(1); id <= 3; id++ {
		want := single.contents(id)
		for _, x := range []*world{multi, other, single} {
			if got := x.contents(id); len(want) != 1 || !slices.Equal(got, want) {
				t.Errorf("table %d has files %v, alone %v", id, got, want)
			}
			check(t, x, id, "1 one", "2 two", "3 three", "NULL none")
			past, err := x.opts.Format.(*iceberg.Format).History(t.Context(), first(x.table(id)).Pointer)
			if err != nil || len(past) != 1 {
				t.Errorf("table %d has %d snapshots, want 1: %v", id, len(past), err)
			}
		}
	}
	if a, b := order(flips[len(flips)-1]), order(again[len(again)-1]); a != b || !strings.HasPrefix(a, "1 ") {
		t.Errorf("flip of %s, the second time of %s", a, b)
	}
}

func first[A, B any](a A, _ B) A { return a }

// order is what a flip says of its tables, but for the names of objects.
func order(f catalog.Flip) (text string) {
	for _, t := range f.Tables {
		text += fmt.Sprintf("%d next file %d row %d map %x; ", t.Table, t.NextFile, t.NextRow, t.RowMap)
	}
	return text
}

// TestStagedBeforeFlip: right before the flip its files are there, nothing reaches them, and reads are as before. What a crash at that
// moment leaves is enough for the tables as they were, and for them as they will be: the metadata that the flip names is readable already.
//
// claims: S8 S29 P38
func TestStagedBeforeFlip(t *testing.T) {
	x := icebergWorld(t)
	hooked := &hookedCatalog{Catalog: x.catalog}
	x.opts.Catalog = hooked
	x.open()
	for id := table.ID(1); id <= 2; id++ {
		x.create(kv(id, fmt.Sprint("t", id), true))
		x.put(id, 1, "old", 2, "old")
	}
	if _, err := x.w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for id := table.ID(1); id <= 2; id++ {
		tx := x.begin()
		refs, err := find(tx.Statement(), id, "2")
		must(t, err)
		_, err = tx.Update(t.Context(), id, refs, rows(x.defs[id].Schema, 2, "new"), lock.ForUpdate)
		must(t, err)
		_, err = tx.Commit(t.Context(), writer.CommitOptions{})
		must(t, err)
	}
	called := false
	hooked.hook = func(f catalog.Flip) {
		called = true
		crashed := iceberg.Open(x.objects.(*objstore.Memory).Clone(), iceberg.Options{Now: time.Now})
		for _, m := range f.Tables {
			base, _ := x.table(m.Table)
			if base.Pointer != m.From {
				t.Errorf("table %d is at %s before its flip", m.Table, base.Pointer.Location)
			}
			old, err := crashed.Snapshot(t.Context(), m.From)
			must(t, err)
			next, err := crashed.Snapshot(t.Context(), m.To)
			must(t, err)
			if len(old.Files) != 1 || old.Files[0].Deleted != nil || len(next.Files) != 2 || next.Files[0].Deleted.String() != "{1}" {
				t.Errorf("table %d goes from %+v to %+v", m.Table, old, next)
			}
			if _, err := x.objects.Stat(t.Context(), next.Files[1].File.Location); err != nil {
				t.Error(err)
			}
			check(t, x, m.Table, "1 old", "2 new")
		}
	}
	if _, err := x.w.Flush(t.Context()); err != nil || !called {
		t.Fatalf("flush: %v, flipped %v", err, called)
	}
	for id := table.ID(1); id <= 2; id++ {
		check(t, x, id, "1 old", "2 new")
	}
}

// TestEncodeFails: the third of three tables cannot be written. The flush moves nobody, not even those whose files are there; rows that
// were acknowledged stay in the tail. A transaction that the flip decides leaves no row anywhere.
//
// claims: S23
func TestEncodeFails(t *testing.T) {
	x := icebergWorld(t)
	broken, errEncode := false, errors.New("no partition for this row")
	x.opts.Partition = func(s *table.Schema, b *table.Batch, row int) ([]any, error) {
		if broken && len(s.Spec) > 0 {
			return nil, errEncode
		}
		return iceberg.PartitionValues(s, b, row)
	}
	x.open()
	for id := table.ID(1); id <= 3; id++ {
		d := kv(id, fmt.Sprint("t", id), true)
		if id == 3 {
			d.Schema.Spec = []table.PartitionField{{Source: 1, FieldID: 1000, Name: "k", Transform: "identity"}}
		}
		x.create(d)
	}
	before := x.flips()
	broken = true
	if err := x.commitTables([]any{1, "one"}, 1, 2, 3); !errors.Is(err, errEncode) {
		t.Fatalf("commit: %v", err)
	}
	tx := x.begin()
	must(t, tx.Define(t.Context(), writer.TableChange{Kind: writer.Create, Def: kv(4, "t4", true)}))
	for _, id := range []table.ID{1, 2, 4, 3} {
		_, err := tx.Insert(t.Context(), id, rows(x.defs[1].Schema, 2, "two"))
		must(t, err)
	}
	if err := x.commitDDL(tx, kv(4, "t4", true)); !errors.Is(err, errEncode) {
		t.Fatalf("commit with a new table: %v", err)
	}
	if x.flips() != before {
		t.Errorf("%d flips", x.flips()-before)
	}
	for id := table.ID(1); id <= 3; id++ {
		if _, s := x.table(id); s.ID != 0 || len(s.Files) > 0 {
			t.Errorf("table %d has snapshot %+v", id, s)
		}
		check(t, x, id, "1 one")
	}
	broken = false
	_, err := x.w.Flush(t.Context())
	must(t, err)
	for id := table.ID(1); id <= 3; id++ {
		if _, s := x.table(id); len(s.Files) != 1 {
			t.Errorf("table %d has snapshot %+v", id, s)
		}
	}
	x.fsck()
}

// TestSharedFlip: commits that come while a flip is under way share the next one.
//
// claims: S25
func TestSharedFlip(t *testing.T) {
	const n = 16
	x := newWorld(t)
	hooked := &hookedCatalog{Catalog: x.catalog}
	x.opts.Catalog = hooked
	x.open()
	x.create(kv(1, "a", true))
	before := x.flips()
	var g errgroup.Group
	hooked.hook = func(catalog.Flip) {
		for i := range n {
			g.Go(func() error { return x.commitTables([]any{100 + i, "meanwhile"}, 1) })
		}
		for x.w.Visible() < n+1 {
			runtime.Gosched()
		}
	}
	must(t, x.commitTables([]any{1, "first"}, 1))
	must(t, g.Wait())
	if got := x.flips() - before; got != 2 {
		t.Errorf("%d flips for %d commits, want 2", got, n+1)
	}
	if x.w.Progress() != n+1 {
		t.Errorf("in files up to %d", x.w.Progress())
	}
}
