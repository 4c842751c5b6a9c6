package writer_test

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"

	"sluice/writer"
	"sluice/writer/catalog"
	"sluice/writer/objstore"
	"sluice/writer/table"
)

// world is everything that survives a writer: catalog, objects, the log's folder, and what Postgres knows of the tables.
type world struct {
	t       testing.TB
	dir     string
	catalog *catalog.Memory
	objects objstore.Store
	opts    writer.Options

	mu   sync.Mutex
	defs map[table.ID]writer.TableDef

	staged []catalog.Staged // everything that ever was

	w    *writer.Writer
	stop func() error
}

func newWorld(t testing.TB) *world {
	x := &world{t: t, dir: t.TempDir(), catalog: &catalog.Memory{}, objects: objstore.NewMemory("memory:///lake"), defs: map[table.ID]writer.TableDef{}}
	t.Cleanup(func() {
		if x.w != nil {
			x.close()
		}
	})
	return x
}

// stagedCatalog remembers what was staged.
type stagedCatalog struct {
	catalog.Catalog
	x *world
}

func (c stagedCatalog) Stage(ctx context.Context, flip string, locations []string) error {
	c.x.mu.Lock()
	c.x.staged = append(c.x.staged, catalog.Staged{Flip: flip, Locations: locations})
	c.x.mu.Unlock()
	return c.Catalog.Stage(ctx, flip, locations)
}

// options is what a writer is opened with.
func (x *world) options() writer.Options {
	opts := x.opts
	opts.Dir, opts.Catalog, opts.Objects, opts.Tables = x.dir, cmp.Or[catalog.Catalog](opts.Catalog, x.catalog), cmp.Or(opts.Objects, x.objects), x.tables
	if opts.FlushAge == 0 {
		opts.FlushAge = -1
	}
	if opts.CompactAge == 0 {
		opts.CompactAge = -1
	}
	if opts.ExpireAge == 0 {
		opts.ExpireAge = -1
	}
	if opts.Format == nil {
		opts.Format = &plainFormat{objects: opts.Objects}
	}
	opts.Catalog = stagedCatalog{opts.Catalog, x}
	opts.WAL.SegmentSize = 64 << 10
	return opts
}

// open starts a writer and lets it run.
func (x *world) open() {
	x.t.Helper()
	w, err := writer.Open(context.Background(), x.options())
	if err != nil {
		x.t.Fatalf("open: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	x.w = w
	x.stop = func() error {
		cancel()
		return errors.Join(<-ended, w.Close())
	}
}

// close ends the writer; what is open is abandoned.
func (x *world) close() {
	x.t.Helper()
	err := x.stop()
	x.w = nil
	if err != nil {
		x.t.Errorf("stop: %v", err)
	}
}

func (x *world) tables(context.Context, catalog.State) ([]writer.TableDef, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	var list []writer.TableDef
	for _, d := range x.defs {
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b writer.TableDef) int { return cmp.Compare(a.ID, b.ID) })
	return list, nil
}

// intKey is the key function of a bigint column.
func intKey(col int) writer.KeyFunc {
	return func(dst []byte, b *table.Batch, row int) ([]byte, bool) {
		v := b.Cols[col]
		if v.IsNull(row) {
			return dst, true
		}
		return binary.BigEndian.AppendUint64(append(dst, 1), uint64(v.Int64(row))), false
	}
}

func keyOf(k int64) []byte { return binary.BigEndian.AppendUint64([]byte{1}, uint64(k)) }

// badHash has three values: most keys have to be compared.
func badHash(key []byte) uint64 { return uint64(key[len(key)-1]%3) << 60 }

// kv is a table (k bigint, v text), with a primary key on k or without.
func kv(id table.ID, name string, keyed bool) writer.TableDef {
	s := &table.Schema{ID: 1, Columns: []table.Column{
		{Name: "k", FieldID: 1, Type: table.Type{Kind: table.Int64}},
		{Name: "v", FieldID: 2, Type: table.Type{Kind: table.String}},
	}}
	d := writer.TableDef{ID: id, Namespace: "public", Name: name, Schema: s}
	if keyed {
		s.Key = []int{0}
		d.Uniques = []writer.UniqueDef{{ID: uint32(id) + 1000, Name: name + "_pkey", Key: intKey(0), Columns: []int{0}}}
	}
	return d
}

// create makes a table in a transaction of its own.
func (x *world) create(d writer.TableDef) {
	x.t.Helper()
	tx := x.w.Begin(writer.TxnOptions{})
	if err := tx.Define(context.Background(), writer.TableChange{Kind: writer.Create, Def: d}); err != nil {
		x.t.Fatal(err)
	}
	if err := x.commitDDL(tx, d); err != nil {
		x.t.Fatal(err)
	}
}

// commitDDL plays the Postgres transaction that holds the shadow relations and the flip.
func (x *world) commitDDL(tx *writer.Txn, defs ...writer.TableDef) error {
	_, err := tx.CommitDDL(context.Background(), func(ctx context.Context, f *catalog.Flip) error {
		x.mu.Lock()
		defer x.mu.Unlock()
		// The Postgres transaction: catalog.Memory has none, so what it would roll back is put back.
		before := maps.Clone(x.defs)
		for _, d := range defs {
			if delete(x.defs, d.ID); d.Schema != nil {
				x.catalog.Put(d.ID, d.Namespace, d.Name, d.Schema.ID)
				x.defs[d.ID] = d
			}
		}
		_, err := cmp.Or[catalog.Catalog](x.opts.Catalog, x.catalog).Flip(ctx, *f)
		if committed, rerr := x.catalog.Resolve(ctx, f.ID); err != nil && rerr == nil && !committed {
			x.defs = before
			for _, d := range before {
				x.catalog.Put(d.ID, d.Namespace, d.Name, d.Schema.ID)
			}
		}
		return err
	})
	return err
}

// rows makes a batch of kv rows.
func rows(s *table.Schema, pairs ...any) *table.Batch {
	b := table.NewBatch(s)
	for i := 0; i < len(pairs); i += 2 {
		switch k := pairs[i].(type) {
		case nil:
			b.Cols[0].AppendNull()
		case int:
			b.Cols[0].AppendInt64(int64(k))
		}
		b.Cols[1].AppendString(fmt.Sprint(pairs[i+1]))
		for c := 2; c < len(b.Cols); c++ {
			b.Cols[c].AppendNull()
		}
		b.Rows++
	}
	return b
}

// row prints one row.
func row(b *table.Batch, i int) string {
	var parts []string
	for _, c := range b.Cols {
		switch {
		case c.IsNull(i):
			parts = append(parts, "NULL")
		case c.Type.Kind == table.Int64:
			parts = append(parts, fmt.Sprint(c.Int64(i)))
		case c.Type.Kind == table.Int32:
			parts = append(parts, fmt.Sprint(c.Int32(i)))
		default:
			parts = append(parts, string(c.Bytes(i)))
		}
	}
	return strings.Join(parts, " ")
}

type named struct {
	ref  table.Ref
	text string
}

// scan lists what a view sees, by text.
func scan(v *writer.View, id table.ID) ([]named, error) {
	var list []named
	err := v.Scan(context.Background(), id, func(r writer.Rows) error {
		for i := range r.Batch.Rows {
			if r.Sel == nil || slices.Contains(r.Sel, int32(i)) {
				list = append(list, named{r.Ref(i), row(r.Batch, i)})
			}
		}
		return nil
	})
	sort.SliceStable(list, func(i, j int) bool { return list[i].text < list[j].text })
	return list, err
}

// find is the refs of the rows with these texts' first word.
func find(v *writer.View, id table.ID, k string) ([]table.Ref, error) {
	list, err := scan(v, id)
	var refs []table.Ref
	for _, n := range list {
		if k == "*" || strings.Fields(n.text)[0] == k {
			refs = append(refs, n.ref)
		}
	}
	return refs, err
}
