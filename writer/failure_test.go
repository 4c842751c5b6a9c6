package writer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"sluice/writer"
	"sluice/writer/catalog"
	"sluice/writer/format"
	"sluice/writer/fsck"
	"sluice/writer/lock"
	"sluice/writer/objstore"
	"sluice/writer/recovery"
	"sluice/writer/table"
)

var errFault = errors.New("injected fault")

// faults fails one remote write, without effect or after it.
type faults struct {
	mu    sync.Mutex
	armed bool
	count int
	at    int  // which write since arm, from 1; 0 none
	after bool // with effect
	lost  bool // the answer of Resolve is lost as well, once
}

func (f *faults) arm(at int, after, lost bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed, f.count, f.at, f.after, f.lost = true, 0, at, after, lost
}

// disarm returns the number of writes since arm.
func (f *faults) disarm() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed = false
	return f.count
}

// write runs do, or fails before or after it.
func (f *faults) write(do func() error) error {
	f.mu.Lock()
	if f.armed {
		f.count++
	}
	hit, after := f.armed && f.count == f.at, f.after
	f.mu.Unlock()
	if hit && !after {
		return errFault
	}
	if err := do(); err != nil || !hit {
		return err
	}
	return errFault
}

type faultyObjects struct {
	objstore.Store
	f *faults
}

func (o faultyObjects) Put(ctx context.Context, location string, body []byte) error {
	return o.f.write(func() error { return o.Store.Put(ctx, location, body) })
}

type faultyCatalog struct {
	catalog.Catalog
	f *faults
}

func (c faultyCatalog) Flip(ctx context.Context, f catalog.Flip) (id catalog.CommitID, err error) {
	ferr := c.f.write(func() error {
		id, err = c.Catalog.Flip(ctx, f)
		return err
	})
	if errors.Is(ferr, errFault) {
		return 0, &catalog.OutcomeUnknownError{ID: f.ID, Err: ferr}
	}
	return id, ferr
}

func (c faultyCatalog) Stage(ctx context.Context, flip string, locations []string) error {
	return c.f.write(func() error { return c.Catalog.Stage(ctx, flip, locations) })
}

func (c faultyCatalog) Resolve(ctx context.Context, id string) (bool, error) {
	c.f.mu.Lock()
	lost := c.f.lost && c.f.armed
	c.f.lost = false
	c.f.mu.Unlock()
	if lost {
		return false, &catalog.OutcomeUnknownError{ID: id, Err: errFault}
	}
	return c.Catalog.Resolve(ctx, id)
}

// attempt is one operation that writes remotely, and what the tables hold if it took place and if not.
type attempt struct {
	name     string
	run      func(x *world) error
	yes, no  []string
	deciding bool // if run failed, the rows may be as before
}

func attempts() []attempt {
	before := []string{"1 one", "2 two", "3 three"}
	return []attempt{
		{name: "flush", yes: before, no: before, run: func(x *world) error {
			_, err := x.w.Flush(context.Background())
			return err
		}},
		{name: "remote apply", yes: []string{"1 one", "2 two", "3 three", "4 four"}, no: []string{"1 one", "2 two", "3 three", "4 four"}, run: func(x *world) error {
			tx := x.begin()
			if _, err := tx.Insert(context.Background(), 1, rows(x.defs[1].Schema, 4, "four")); err != nil {
				return err
			}
			_, err := tx.Commit(context.Background(), writer.CommitOptions{WaitFlip: true})
			return err
		}},
		{name: "compact", yes: before, no: before, run: func(x *world) error {
			if _, err := x.w.Flush(context.Background()); err != nil {
				return err
			}
			_, err := x.w.Compact(context.Background(), 1)
			return err
		}},
		{name: "ddl", deciding: true, yes: []string{"2 two", "3 three", "4 four"}, no: before, run: func(x *world) error {
			tx := x.begin()
			defer tx.Rollback()
			d := kv(2, "b", true)
			if err := tx.Define(context.Background(), writer.TableChange{Kind: writer.Create, Def: d}); err != nil {
				return err
			}
			refs, err := find(tx.Statement(), 1, "1")
			if err != nil {
				return err
			}
			if err := tx.Delete(context.Background(), 1, refs, lock.ForUpdate); err != nil {
				return err
			}
			for _, id := range []table.ID{1, 2} {
				if _, err := tx.Insert(context.Background(), id, rows(d.Schema, 4, "four")); err != nil {
					return err
				}
			}
			return x.commitDDL(tx, d)
		}},
	}
}

// faultyWorld has a table with rows in a file, dead rows there, and rows in the tail.
func faultyWorld(t *testing.T) (*world, *faults) { return faultyFormat(t, false) }

// faultyFormat is faultyWorld with Iceberg's metadata, or the plain one.
func faultyFormat(t *testing.T, iceberg bool) (*world, *faults) {
	x, f := newWorld(t), &faults{}
	x.opts.Objects, x.opts.Catalog = faultyObjects{x.objects, f}, faultyCatalog{x.catalog, f}
	if iceberg {
		x.iceberg()
	}
	x.open()
	x.create(kv(1, "a", true))
	x.put(1, 1, "one", 2, "old")
	if _, err := x.w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	tx := x.begin()
	refs, err := find(tx.Statement(), 1, "2")
	if err == nil {
		_, err = tx.Update(t.Context(), 1, refs, rows(x.defs[1].Schema, 2, "two"), lock.ForUpdate)
	}
	if err == nil {
		_, err = tx.Commit(t.Context(), writer.CommitOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	x.put(1, 3, "three")
	return x, f
}

// TestFailures is the failure table: every remote write of every attempt fails without effect and after it, the outcome
// unknown or not. Whatever happened, reads are right at once, the process goes on or a new one does, and a repeat succeeds.
//
// claims: S24 P39 M53
func TestFailures(t *testing.T) { failures(t, false) }

// TestIcebergFailures is the table for deletion vectors, manifests, lists and metadata: when one of them cannot be written, no rows show
// without it, and after a sweep no object is left that a flip which never was had written.
//
// claims: H42 S15 M60
func TestIcebergFailures(t *testing.T) { failures(t, true) }

func failures(t *testing.T, iceberg bool) {
	for _, a := range attempts() {
		x, f := faultyFormat(t, iceberg)
		f.arm(0, false, false)
		if err := a.run(x); err != nil {
			t.Fatal(err)
		}
		for at := 1; at <= f.disarm(); at++ {
			for mode := range 8 {
				after, lost, crash := mode&1 != 0, mode&2 != 0, mode&4 != 0
				if lost && iceberg {
					continue // is about the catalog, not the format
				}
				t.Run(fmt.Sprintf("%s/write %d after=%v lost=%v crash=%v", a.name, at, after, lost, crash), func(t *testing.T) {
					fail(t, a, iceberg, at, after, lost, crash)
				})
			}
		}
	}
}

func fail(t *testing.T, a attempt, iceberg bool, at int, after, lost, crash bool) {
	x, f := faultyFormat(t, iceberg)
	f.arm(at, after, lost)
	err := a.run(x)
	f.disarm()
	stopped := errors.Is(err, writer.ErrOutcomeUnknown)
	if crash || stopped {
		if err := x.stop(); err != nil {
			t.Fatalf("stop: %v", err)
		}
		x.w = nil
		x.open()
	}
	want := a.yes
	if err != nil && a.deciding && !(stopped && after) {
		want = a.no
	}
	check(t, x, 1, want...)
	if _, err := x.w.Flush(t.Context()); err != nil {
		t.Fatalf("flush again: %v", err)
	}
	check(t, x, 1, want...)
	x.put(1, 9, "nine")
	x.close()
	x.open()
	check(t, x, 1, append(want[:len(want):len(want)], "9 nine")...)
	x.sweep()
	check(t, x, 1, append(want[:len(want):len(want)], "9 nine")...)
	x.fsck()
}

// sweep removes what no flip made real, and checks that nothing else is there: data files by their names, metadata by the flip in it.
func (x *world) sweep() {
	x.t.Helper()
	left, err := x.catalog.Staged(context.Background())
	if err != nil {
		x.t.Fatal(err)
	}
	if err := recovery.Sweep(context.Background(), x.catalog, x.objects, left); err != nil {
		x.t.Fatal(err)
	}
	if left, err = x.catalog.Staged(context.Background()); err != nil || len(left) > 0 {
		x.t.Errorf("after a sweep %v is staged: %v", left, err)
	}
	real := map[string]bool{} // files of flips that committed stay, also when a later flip took them out
	var lost []string         // stems of the others
	for _, s := range x.staged {
		if committed, err := x.catalog.Resolve(context.Background(), s.Flip); err == nil && !committed {
			lost = append(lost, format.Stem(s.Flip))
			continue
		}
		for _, l := range s.Locations {
			real[l] = true
		}
	}
	for o, err := range x.objects.List(context.Background(), x.objects.Root()) {
		if err != nil {
			x.t.Fatal(err)
		}
		if strings.HasSuffix(o.Location, ".parquet") && !real[o.Location] ||
			slices.ContainsFunc(lost, func(stem string) bool { return strings.Contains(o.Location, stem) }) {
			x.t.Errorf("swept, but there is %s", o.Location)
		}
	}
}

// fsck proves what can be proven from outside.
func (x *world) fsck() {
	x.t.Helper()
	in := fsck.Input{Catalog: x.catalog, Objects: x.objects, Format: x.opts.Format}
	if in.Format == nil {
		in.Format = &plainFormat{objects: x.objects}
	}
	for _, d := range x.defs {
		in.Tables = append(in.Tables, &writer.Def{ID: d.ID, Name: d.Name, Schema: d.Schema, Uniques: d.Uniques})
	}
	problems, err := fsck.Check(context.Background(), in)
	if err != nil {
		x.t.Fatal(err)
	}
	for _, p := range problems {
		x.t.Error(p)
	}
}

// TestFailed: a writer says why it takes no commits.
func TestFailed(t *testing.T) {
	x := newWorld(t)
	x.open()
	w := x.w
	if err := w.Failed(); err != nil {
		t.Errorf("at start: %v", err)
	}
	x.close()
	if err := w.Failed(); !errors.Is(err, writer.ErrStopped) {
		t.Errorf("after the end: %v", err)
	}
}
