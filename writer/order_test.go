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
	"sluice/writer/lock"
	"sluice/writer/objstore"
	"sluice/writer/recovery"
	"sluice/writer/table"
)

// trace is the remote operations in the order in which they were complete.
type trace struct {
	mu  sync.Mutex
	ops []string
}

func (tr *trace) add(op string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.ops = append(tr.ops, op)
}

// take is the operations since the last time; neighbours that are the same count once.
func (tr *trace) take() []string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	ops := slices.Compact(tr.ops)
	tr.ops = nil
	return ops
}

type tracedObjects struct {
	objstore.Store
	tr *trace
}

func (o tracedObjects) Put(ctx context.Context, location string, body []byte) error {
	err := o.Store.Put(ctx, location, body)
	switch {
	case strings.HasSuffix(location, ".parquet"):
		o.tr.add("data")
	case strings.HasSuffix(location, ".puffin"):
		o.tr.add("deletes")
	case strings.HasSuffix(location, ".metadata.json"):
		o.tr.add("metadata")
	case strings.Contains(location, "/snap-"):
		o.tr.add("list")
	default:
		o.tr.add("manifests")
	}
	return err
}

func (o tracedObjects) Delete(ctx context.Context, location string) error {
	o.tr.add("delete")
	return o.Store.Delete(ctx, location)
}

type tracedCatalog struct {
	catalog.Catalog
	tr *trace
}

func (c tracedCatalog) Flip(ctx context.Context, f catalog.Flip) (catalog.CommitID, error) {
	id, err := c.Catalog.Flip(ctx, f)
	c.tr.add("flip")
	return id, err
}

func (c tracedCatalog) Stage(ctx context.Context, flip string, locations []string) error {
	err := c.Catalog.Stage(ctx, flip, locations)
	c.tr.add("stage")
	return err
}

func (c tracedCatalog) Forget(ctx context.Context, flips []string) error {
	c.tr.add("forget")
	return c.Catalog.Forget(ctx, flips)
}

// TestOrder: whatever the verb, files are listed before they are uploaded, metadata comes after what it names, the flip after all of it,
// the end of the listing after the flip. Nothing is uploaded behind the flip.
//
// claims: H13 H19
func TestOrder(t *testing.T) {
	x, tr := newWorld(t), &trace{}
	x.opts.Objects, x.opts.Catalog = tracedObjects{x.objects, tr}, tracedCatalog{x.catalog, tr}
	x.opts.Memory, x.opts.SpillBytes = 1<<20, 100<<10
	x.iceberg()
	x.open()
	x.create(kv(1, "a", true))
	x.put(1, 1, "one", 2, "two", 3, "three", 4, "four")
	_, err := x.w.Flush(t.Context())
	must(t, err)
	tr.take()
	verb := func(name string, want string, do func(tx *writer.Txn) error) {
		t.Helper()
		tx := x.begin()
		err := do(tx)
		if err == nil && !tx.HasDDL() {
			_, err = tx.Commit(t.Context(), writer.CommitOptions{WaitFlip: true})
		} else if err == nil {
			err = x.commitDDL(tx, kv(2, "b", true))
		}
		if got := strings.Join(tr.take(), " "); err != nil || got != want {
			t.Errorf("%s: %v\ngot  %s\nwant %s", name, err, got, want)
		}
	}
	verb("insert", "stage data manifests list metadata flip forget", func(tx *writer.Txn) error {
		_, err := tx.Insert(t.Context(), 1, rows(x.defs[1].Schema, 5, "five"))
		return err
	})
	verb("update", "stage data deletes manifests list metadata flip forget", func(tx *writer.Txn) error {
		_, err := tx.Update(t.Context(), 1, refsOf(t, tx, "1"), rows(x.defs[1].Schema, 1, "uno"), lock.ForUpdate)
		return err
	})
	verb("delete", "stage deletes manifests list metadata flip forget", func(tx *writer.Txn) error {
		return tx.Delete(t.Context(), 1, refsOf(t, tx, "2"), lock.ForUpdate)
	})
	verb("large", strings.Repeat("stage data ", 9)+"stage manifests list metadata flip forget", func(tx *writer.Txn) error {
		for k := 10; k < 260; k += 50 {
			load(t, x, tx, k, k+50)
		}
		return nil
	})
	verb("create", "stage data metadata manifests list metadata flip forget", func(tx *writer.Txn) error {
		if err := tx.Define(t.Context(), writer.TableChange{Kind: writer.Create, Def: kv(2, "b", true)}); err != nil {
			return err
		}
		_, err := tx.Insert(t.Context(), 2, rows(x.defs[1].Schema, 1, "one"))
		return err
	})
	verb("truncate", "stage manifests list metadata flip forget", func(tx *writer.Txn) error { return tx.Truncate(t.Context(), 1) })
}

// slowObjects holds uploads of one table's data files back.
type slowObjects struct {
	objstore.Store
	begun, release chan struct{}
}

func (o slowObjects) Put(ctx context.Context, location string, body []byte) error {
	if strings.HasSuffix(location, ".parquet") {
		o.begun <- struct{}{}
		<-o.release
	}
	return o.Store.Put(ctx, location, body)
}

// TestUploadBlocksNobody: while a file of one table is uploaded, commits to it and to others are acknowledged and seen.
//
// claims: H17 P37
func TestUploadBlocksNobody(t *testing.T) {
	x := newWorld(t)
	slow := slowObjects{x.objects, make(chan struct{}, 1), make(chan struct{})}
	x.opts.Objects = slow
	x.open()
	x.create(kv(1, "a", true))
	x.create(kv(2, "b", true))
	x.put(1, 1, "in the upload")
	flushed := make(chan error, 1)
	go func() {
		_, err := x.w.Flush(context.Background())
		flushed <- err
	}()
	<-slow.begun
	x.put(2, 1, "meanwhile")
	x.put(1, 2, "meanwhile")
	check(t, x, 1, "1 in the upload", "2 meanwhile")
	check(t, x, 2, "1 meanwhile")
	close(slow.release)
	must(t, <-flushed)
	check(t, x, 1, "1 in the upload", "2 meanwhile")
}

// stubbornObjects fails one deletion, without effect.
type stubbornObjects struct {
	objstore.Store
	left *int // deletions until it fails
}

func (o stubbornObjects) Delete(ctx context.Context, location string) error {
	if *o.left--; *o.left == 0 {
		return errFault
	}
	return o.Store.Delete(ctx, location)
}

// TestSweepGoesOn: a sweep that is cut off after any deletion leaves its list, and the next one ends it: what was staged for a flip that
// never was is gone, to the file, and all else is there.
//
// claims: H22
func TestSweepGoesOn(t *testing.T) {
	ctx := t.Context()
	for at := range 3 {
		x, until := newWorld(t), at+1
		x.open()
		x.create(kv(1, "a", true))
		x.put(1, 1, "one")
		_, err := x.w.Flush(ctx)
		must(t, err)
		x.close()
		want := x.list()
		var lost []string
		for i := range 3 {
			lost = append(lost, objstore.Join(x.objects.Root(), fmt.Sprintf("lost-%d.parquet", i)))
		}
		must(t, x.catalog.Stage(ctx, "lost", lost))
		for _, l := range lost {
			must(t, x.objects.Put(ctx, l, []byte("rows")))
		}
		left, err := x.catalog.Staged(ctx)
		must(t, err)
		if err := recovery.Sweep(ctx, x.catalog, stubbornObjects{x.objects, &until}, left); !errors.Is(err, errFault) {
			t.Errorf("deletion fails: %v", err)
		}
		if left, err = x.catalog.Staged(ctx); err != nil || len(left) != 1 {
			t.Fatalf("cut off, and %v is listed: %v", left, err)
		}
		forgot := make(chan struct{}, 10)
		x.opts.Catalog = forgetfulCatalog{x.catalog, forgot}
		x.open()
		<-forgot
		if got := x.list(); !slices.Equal(got, want) {
			t.Errorf("after the sweep there are %q, want %q", got, want)
		}
		check(t, x, 1, "1 one")
	}
}

// list is the names of all objects.
func (x *world) list() (names []string) {
	x.t.Helper()
	for o, err := range x.objects.List(context.Background(), x.objects.Root()) {
		if err != nil {
			x.t.Fatal(err)
		}
		names = append(names, o.Location)
	}
	return names
}

// stalledCatalog refuses flips while it is told to.
type stalledCatalog struct {
	catalog.Catalog
	stalled *bool
}

func (c stalledCatalog) Flip(ctx context.Context, f catalog.Flip) (catalog.CommitID, error) {
	if *c.stalled {
		return 0, errFault
	}
	return c.Catalog.Flip(ctx, f)
}

// TestStalledFlip: while flips fail the log is kept, and says so; no row is lost. Once they go again it is trimmed.
//
// claims: M58
func TestStalledFlip(t *testing.T) {
	x, stalled := newWorld(t), true
	x.opts.Catalog = stalledCatalog{x.catalog, &stalled}
	stalled = false
	x.open()
	x.create(kv(1, "a", true))
	stalled = true
	text := strings.Repeat("x", 1000)
	var want []string
	for k := range 200 { // three of the test's segments
		x.put(1, 1000+k, text)
		want = append(want, fmt.Sprint(1000+k, " ", text))
		if k%50 == 0 {
			if _, err := x.w.Flush(t.Context()); !errors.Is(err, errFault) {
				t.Fatalf("flush: %v", err)
			}
		}
	}
	if st := x.w.LogStats(); st.First != 1 || st.Last != 200 || st.Held < 200*1000 || st.Segments < 3 || !errors.Is(x.w.FlushError(), errFault) {
		t.Errorf("stalled: %+v, %v", st, x.w.FlushError())
	}
	check(t, x, 1, want...)
	x.close()
	x.open()
	check(t, x, 1, want...)
	stalled = false
	_, err := x.w.Flush(t.Context())
	must(t, err)
	if st := x.w.LogStats(); st.Segments != 1 || st.Held > 64<<10 || x.w.FlushError() != nil {
		t.Errorf("afterwards: %+v, %v", st, x.w.FlushError())
	}
	check(t, x, 1, want...)
}

// TestPositions: commits take positions without a gap, whatever tables they touch, and rows of a table take numbers without a gap, over
// restarts too. That a position was had before is told by retries (slice B).
//
// claims: M22
func TestPositions(t *testing.T) {
	x := newWorld(t)
	x.open()
	x.create(kv(1, "a", false))
	x.create(kv(2, "b", false))
	next := map[table.ID]uint64{1: 1, 2: 1}
	for n := range 12 {
		tx := x.begin()
		written := map[table.ID]int{}
		for id := table.ID(1); id <= 2; id++ {
			if (n+int(id))%3 > 0 {
				var pairs []any
				for k := range n%4 + 1 {
					pairs = append(pairs, k, fmt.Sprint(n))
				}
				_, err := tx.Insert(t.Context(), id, rows(x.defs[id].Schema, pairs...))
				must(t, err)
				written[id] = n%4 + 1
			}
		}
		pos, err := tx.Commit(t.Context(), writer.CommitOptions{})
		if err != nil || pos != table.Position(n+1) {
			t.Fatalf("commit %d has position %d: %v", n+1, pos, err)
		}
		for id, k := range written {
			look := x.begin()
			list, err := scan(look.Statement(), id)
			look.Rollback()
			must(t, err)
			var mine []uint64
			for _, r := range list {
				if r.ref.File == 0 && r.ref.Row >= next[id] {
					mine = append(mine, r.ref.Row)
				}
			}
			slices.Sort(mine)
			if len(mine) != k || mine[0] != next[id] || mine[k-1] != next[id]+uint64(k)-1 {
				t.Errorf("commit %d: rows %v of table %d, want %d from %d", pos, mine, id, k, next[id])
			}
			next[id] += uint64(k)
		}
		switch n {
		case 4:
			_, err := x.w.Flush(t.Context())
			must(t, err)
		case 7:
			x.close()
			x.open()
		}
	}
}
