package writer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"sluice/writer"
	"sluice/writer/catalog"
	"sluice/writer/datafile"
	"sluice/writer/format"
	"sluice/writer/lock"
	"sluice/writer/objstore"
	"sluice/writer/table"
	"sluice/writer/wal"
)

// kinds is every kind of table that there is.
func kinds() map[string]writer.TableDef {
	spec := func(d writer.TableDef, transforms ...string) writer.TableDef {
		for i, tr := range transforms {
			source := 1
			if tr == "identity" {
				source = 2
			}
			d.Schema.Spec = append(d.Schema.Spec, table.PartitionField{Source: source, FieldID: 1000 + i, Name: fmt.Sprint("p", i), Transform: tr})
		}
		return d
	}
	version := kv(1, "a", true)
	version.Options = map[string]string{"format_version": "2"}
	small := kv(1, "a", true)
	small.Options = map[string]string{"target_file_size": "1B"}
	return map[string]writer.TableDef{
		"keyless": kv(1, "a", false), "keyed": kv(1, "a", true), "keyed, in buckets": spec(kv(1, "a", true), "bucket[2]"),
		"keyless, in partitions": spec(kv(1, "a", false), "identity"), "keyed, in both": spec(kv(1, "a", true), "identity", "bucket[2]"),
		"version 2": version, "files of a row": small,
	}
}

// TestKinds is one life for all kinds of tables: reads before the flush, while it is under way, and after it; what happens to one row
// leaves the rows of other buckets alone; a view that is held sees what it saw; a restart changes nothing. A reader gets each file
// with its own dead rows, and the tail as one piece more, so files can be read apart from each other, keyed or not.
//
// claims: P11 P46
func TestKinds(t *testing.T) {
	for name, d := range kinds() {
		t.Run(name, func(t *testing.T) {
			x := icebergWorld(t)
			hooked := &hookedCatalog{Catalog: x.catalog}
			x.opts.Catalog = hooked
			x.open()
			x.create(d)
			x.put(1, 1, "x", 2, "y", 3, "x")
			first := []string{"1 x", "2 y", "3 x"}
			check(t, x, 1, first...)
			hooked.hook = func(catalog.Flip) { check(t, x, 1, first...) }
			_, err := x.w.Flush(t.Context())
			must(t, err)
			check(t, x, 1, first...)
			pinned := x.w.Begin(writer.TxnOptions{Isolation: writer.RepeatableRead})
			held := pinned.Statement()
			tx := x.begin()
			update(t, tx, 2, "new")
			must(t, tx.Delete(t.Context(), 1, refsOf(t, tx, "3"), lock.ForUpdate))
			_, err = tx.Insert(t.Context(), 1, rows(d.Schema, 4, "y"))
			must(t, err)
			_, err = tx.Commit(t.Context(), writer.CommitOptions{})
			must(t, err)
			second := []string{"1 x", "2 new", "4 y"}
			check(t, x, 1, second...)
			x.splits(t, second)
			_, err = x.w.Flush(t.Context())
			must(t, err)
			check(t, x, 1, second...)
			x.put(1, 5, "x")
			second = append(second, "5 x")
			x.splits(t, second)
			list, err := scan(held, 1)
			if got := texts(list); err != nil || !slices.Equal(got, first) {
				t.Errorf("the view that is held sees %q: %v", got, err)
			}
			pinned.Rollback()
			x.close()
			x.open()
			check(t, x, 1, second...)
			_, err = x.w.Flush(t.Context())
			must(t, err)
			x.splits(t, second)
			if g := x.w.Gauges(); g.TotalRows != 0 || g.BuildingBytes+g.SealedBytes != 0 {
				t.Errorf("I12: after the flush there are %+v", g) // keys stay
			}
			x.fsck()
		})
	}
}

func texts(list []named) (out []string) {
	for _, n := range list {
		out = append(out, n.text)
	}
	return out
}

// splits reads the table piece by piece, as readers of files do, and compares what they find together.
func (x *world) splits(t *testing.T, want []string) {
	t.Helper()
	tx := x.begin()
	defer tx.Rollback()
	v := tx.Statement()
	files, err := v.Files(1)
	must(t, err)
	var got []string
	for _, f := range files {
		file := datafile.File{Location: f.Location, Rows: int64(f.Rows), Size: f.Bytes}
		found := 0
		for c, err := range datafile.Read(t.Context(), x.objects, file, x.defs[1].Schema, datafile.ReadOptions{}) {
			must(t, err)
			for i := range c.Rows.Rows {
				if f.Dead == nil || !f.Dead.Contains(uint32(c.First)+uint32(i)) {
					got, found = append(got, row(c.Rows, i)), found+1
				}
			}
		}
		if found == 0 {
			t.Errorf("file %d has no live row", f.ID)
		}
	}
	must(t, v.Tail(t.Context(), 1, nil, func(r writer.Rows) error {
		for i := range r.Batch.Rows {
			if r.Sel == nil || slices.Contains(r.Sel, int32(i)) {
				got = append(got, row(r.Batch, i))
			}
		}
		return nil
	}))
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("%d files and the tail have %q, want %q", len(files), got, want)
	}
}

// bareFormat forgets the statistics of files.
type bareFormat struct{ format.Format }

func (f bareFormat) Stage(ctx context.Context, base table.Pointer, e format.Edit) (table.Pointer, error) {
	for i := range e.Added {
		e.Added[i].File.Stats = nil
	}
	return f.Format.Stage(ctx, base, e)
}

// TestNoStatistics: deletes that are not in files yet hide rows of files of which nobody knows statistics: they are by place.
//
// claims: P55
func TestNoStatistics(t *testing.T) {
	x := icebergWorld(t)
	x.opts.Format = bareFormat{x.opts.Format}
	x.open()
	x.create(kv(1, "a", true))
	x.put(1, 1, "x", 2, "x", 3, "x")
	_, err := x.w.Flush(t.Context())
	must(t, err)
	if _, s := x.table(1); len(s.Files) != 1 || s.Files[0].File.Stats != nil {
		t.Fatalf("files %+v", s.Files)
	}
	tx := x.begin()
	must(t, tx.Delete(t.Context(), 1, refsOf(t, tx, "1"), lock.ForUpdate))
	update(t, tx, 2, "new")
	_, err = tx.Commit(t.Context(), writer.CommitOptions{})
	must(t, err)
	check(t, x, 1, "2 new", "3 x")
	x.splits(t, []string{"2 new", "3 x"})
	x.close()
	x.open()
	check(t, x, 1, "2 new", "3 x")
}

// TestLargeNumbers: rows of the tail whose numbers do not fit into 32 bits are deleted, updated, flushed and replayed like others.
//
// claims: P27
func TestLargeNumbers(t *testing.T) {
	const next = 1<<32 - 2
	x := icebergWorld(t)
	x.open()
	x.create(kv(1, "a", true))
	x.close()
	at, _ := x.table(1)
	_, err := x.catalog.Flip(t.Context(), catalog.Flip{ID: "numbers", Tables: []catalog.TableFlip{{Table: 1, From: at.Pointer, To: at.Pointer, NextFile: 1, NextRow: next}}})
	must(t, err)
	x.open()
	x.put(1, 1, "x", 2, "x", 3, "x", 4, "x", 5, "x")
	tx := x.begin()
	if ref := refsOf(t, tx, "5")[0]; ref.Row != next+4 || ref.File != 0 {
		t.Fatalf("row is called %v", ref)
	}
	must(t, tx.Delete(t.Context(), 1, refsOf(t, tx, "5"), lock.ForUpdate))
	update(t, tx, 4, "new")
	_, err = tx.Commit(t.Context(), writer.CommitOptions{})
	must(t, err)
	want := []string{"1 x", "2 x", "3 x", "4 new"}
	check(t, x, 1, want...)
	x.close()
	x.open()
	check(t, x, 1, want...)
	_, err = x.w.Flush(t.Context())
	must(t, err)
	check(t, x, 1, want...)
	x.put(1, 6, "later")
	tx = x.begin()
	if ref := refsOf(t, tx, "6")[0]; ref.Row != next+6 {
		t.Errorf("row is called %v", ref)
	}
	tx.Rollback()
	want = append(want, "6 later")
	x.close()
	x.open()
	check(t, x, 1, want...)
	x.fsck()
}

// TestPrefixes: rows are committed in order, while flushes seal, publish and reclaim, again and again; every view is a prefix of the
// commits, the one at its position.
//
// claims: P67
func TestPrefixes(t *testing.T) {
	const n = 300
	x := newWorld(t)
	x.open()
	x.create(kv(1, "a", true))
	done := make(chan struct{})
	var others errgroup.Group
	background := func(do func() error) {
		others.Go(func() error {
			for {
				select {
				case <-done:
					return nil
				default:
					if err := do(); err != nil {
						return err
					}
				}
			}
		})
	}
	background(func() error {
		_, err := x.w.Flush(t.Context())
		if again, aerr := x.w.Flush(t.Context()); err == nil && aerr == nil && again > x.w.Visible() {
			err = fmt.Errorf("flushed up to %d", again)
		}
		return err
	})
	for range 2 {
		background(func() error {
			tx := x.begin()
			defer tx.Rollback()
			v := tx.Statement()
			list, err := scan(v, 1)
			if err == nil && len(list) != int(v.Position()) {
				err = fmt.Errorf("a view at %d has %d rows", v.Position(), len(list))
			}
			for i, r := range list {
				if err == nil && r.text != fmt.Sprint(1001+i, " v") {
					err = fmt.Errorf("row %d of a view at %d is %s", i, v.Position(), r.text)
				}
			}
			return err
		})
	}
	for k := range n {
		x.put(1, 1001+k, "v")
	}
	close(done)
	must(t, others.Wait())
	for range 2 {
		pos, err := x.w.Flush(t.Context())
		if err != nil || pos != n {
			t.Errorf("flushed up to %d: %v", pos, err)
		}
	}
}

// readObjects notes which objects are read.
type readObjects struct {
	objstore.Store
	mu   *sync.Mutex
	read map[string]bool
}

func (o readObjects) GetRange(ctx context.Context, location string, off, n int64) ([]byte, error) {
	o.mu.Lock()
	o.read[location] = true
	o.mu.Unlock()
	return o.Store.GetRange(ctx, location, off, n)
}

// TestLookupReadsOnlyItsFiles: many keys are looked up together; the files that hold none of them are not touched. (Keys have no shards
// here: they are all in memory.)
//
// claims: H24
func TestLookupReadsOnlyItsFiles(t *testing.T) {
	const files, each = 8, 500
	x := newWorld(t)
	seen := readObjects{x.objects, &sync.Mutex{}, map[string]bool{}}
	x.opts.Objects = seen
	x.open()
	x.create(kv(1, "a", true))
	for f := range files {
		var pairs []any
		for k := range each {
			pairs = append(pairs, f*each+k, "v")
		}
		must(t, x.commitTables(pairs, 1))
	}
	tx := x.begin()
	defer tx.Rollback()
	v := tx.Statement()
	list, err := v.Files(1)
	must(t, err)
	clear(seen.read)
	var keys [][]byte
	for _, f := range []int{2, 5} {
		for k := range each {
			keys = append(keys, keyOf(int64(f*each+k)))
		}
	}
	keys = append(keys, keyOf(-1), keyOf(files*each)) // nobody has them
	found := 0
	def, _ := v.Table(1)
	must(t, v.ByKeys(t.Context(), 1, def.Uniques[0].ID, keys, func(r writer.Rows) error { found += r.Live(); return nil }))
	if found != 2*each || len(seen.read) != 2 || !seen.read[list[2].Location] || !seen.read[list[5].Location] {
		t.Errorf("found %d rows, read %v", found, seen.read)
	}
}

// TestTinyInserts: a thousand INSERTs of one row make one file at the next flush, not a thousand. Merging the files of many flushes is
// compaction's.
//
// claims: H28
func TestTinyInserts(t *testing.T) {
	x := icebergWorld(t)
	x.open()
	x.create(kv(1, "a", true))
	var g errgroup.Group
	for c := range 8 {
		g.Go(func() error {
			for k := range 125 {
				tx := x.begin()
				_, err := tx.Insert(context.Background(), 1, rows(x.defs[1].Schema, c*1000+k, "v"))
				if err == nil {
					_, err = tx.Commit(context.Background(), writer.CommitOptions{})
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	must(t, g.Wait())
	_, err := x.w.Flush(t.Context())
	must(t, err)
	if _, s := x.table(1); len(s.Files) != 1 || s.Files[0].File.Rows != 1000 {
		t.Errorf("files %+v", s.Files)
	}
}

// TestMissingIndex: dead rows are in deletion vectors, keys are read from the files. When one of these objects is gone the gateway
// refuses to start and names it, whichever file it belongs to; it never brings deleted rows back or takes a key twice.
//
// claims: P25 P26
func TestMissingIndex(t *testing.T) {
	x := icebergWorld(t)
	x.open()
	x.create(kv(1, "a", true))
	for f := range 3 {
		must(t, x.commitTables([]any{10 * f, "v", 10*f + 1, "v"}, 1))
		tx := x.begin()
		must(t, tx.Delete(t.Context(), 1, refsOf(t, tx, fmt.Sprint(10*f)), lock.ForUpdate))
		_, err := tx.Commit(t.Context(), writer.CommitOptions{WaitFlip: true})
		must(t, err)
	}
	x.close()
	n := 0
	for _, location := range x.list() {
		if !strings.HasSuffix(location, ".parquet") && !strings.HasSuffix(location, ".puffin") {
			continue
		}
		n++
		body, err := x.objects.Get(t.Context(), location)
		must(t, err)
		must(t, x.objects.Delete(t.Context(), location))
		x.iceberg() // without what the other one remembers
		if w, err := writer.Open(t.Context(), x.options()); err == nil || !errors.Is(err, objstore.ErrNotExist) || !strings.Contains(err.Error(), location) {
			t.Errorf("without %s: %v", location, err)
			if err == nil {
				must(t, w.Close())
			}
		}
		must(t, x.objects.Put(t.Context(), location, body))
	}
	if n != 6 {
		t.Errorf("%d objects, want a file and a vector three times", n)
	}
	x.iceberg()
	x.open()
	check(t, x, 1, "1 v", "11 v", "21 v")
}

// TestChanges: the log says of each commit which rows came and which went: +I, -U and +U, -D, as a list of the rows by key would tell.
//
// claims: M27
func TestChanges(t *testing.T) {
	const seed = 27
	r := rand.New(rand.NewPCG(seed, 1))
	t.Log("seed", seed)
	x := newWorld(t)
	x.open()
	x.create(kv(1, "a", true))
	have := map[int]string{}
	var want [][]string
	for n := range 60 {
		var change []string
		tx := x.begin()
		for _, k := range r.Perm(8)[:1+r.IntN(3)] {
			old, there := have[k]
			v := fmt.Sprint("v", n)
			switch {
			case !there:
				_, err := tx.Insert(t.Context(), 1, rows(x.defs[1].Schema, k, v))
				must(t, err)
				change = append(change, fmt.Sprint("+I ", k, " ", v))
				have[k] = v
			case r.IntN(2) == 0:
				update(t, tx, k, v)
				change = append(change, fmt.Sprint("-U ", k, " ", old), fmt.Sprint("+U ", k, " ", v))
				have[k] = v
			default:
				must(t, tx.Delete(t.Context(), 1, refsOf(t, tx, fmt.Sprint(k)), lock.ForUpdate))
				change = append(change, fmt.Sprint("-D ", k, " ", old))
				delete(have, k)
			}
		}
		_, err := tx.Commit(t.Context(), writer.CommitOptions{})
		must(t, err)
		slices.Sort(change)
		want = append(want, change)
	}
	x.close()
	got := x.changes(t)
	if len(got) != len(want) {
		t.Fatalf("%d commits in the log, want %d", len(got), len(want))
	}
	for i := range want {
		if !slices.Equal(got[i], want[i]) {
			t.Errorf("commit %d says %q, want %q", i+1, got[i], want[i])
		}
	}
}

// changes is what each frame of the log did to table 1. Nobody has the log open.
func (x *world) changes(t *testing.T) (commits [][]string) {
	t.Helper()
	log, err := wal.Open(t.Context(), x.dir, x.options().WAL)
	must(t, err)
	defer log.Close()
	rows := map[table.Ref]string{}
	key := func(text string) string { return strings.Fields(text)[0] }
	schema := func(table.ID, int) (*table.Schema, error) { return x.defs[1].Schema, nil }
	must(t, log.Replay(t.Context(), 1, schema, func(f *wal.Txn) error {
		op, came, change := f.Tables[0], map[string]string{}, []string(nil)
		if op.Rows != nil {
			for i := range op.Rows.Rows {
				text := row(op.Rows, i)
				came[key(text)], rows[table.Ref{Row: op.First + uint64(i)}] = text, text
			}
		}
		for _, ref := range op.Deletes {
			old := rows[ref]
			if next, updated := came[key(old)]; updated {
				change = append(change, "-U "+old, "+U "+next)
				delete(came, key(old))
			} else {
				change = append(change, "-D "+old)
			}
		}
		for _, text := range came {
			change = append(change, "+I "+text)
		}
		slices.Sort(change)
		commits = append(commits, change)
		return nil
	}))
	return commits
}
