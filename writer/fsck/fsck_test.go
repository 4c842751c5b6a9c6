package fsck_test

import (
	"context"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"sluice/writer/catalog"
	"sluice/writer/datafile"
	"sluice/writer/format"
	"sluice/writer/format/iceberg"
	"sluice/writer/fsck"
	"sluice/writer/objstore"
	"sluice/writer/realtime"
	"sluice/writer/table"
	"sluice/writer/wal"
)

// lake is one small table in an Iceberg warehouse in memory.
type lake struct {
	t       *testing.T
	catalog *catalog.Memory
	objects *objstore.Memory
	format  *iceberg.Format
	def     *realtime.Def
	files   []format.DataFile
	log     string

	spoilLow map[string]int64 // windows as they should not be
}

// lowered is a catalog with other windows.
type lowered struct {
	catalog.Catalog
	low map[string]int64
}

func (c lowered) Results(ctx context.Context, stream string) (catalog.Results, error) {
	r, err := c.Catalog.Results(ctx, stream)
	if c.low != nil {
		r.Low = c.low
	}
	return r, err
}

func newLake(t *testing.T) *lake {
	l := &lake{t: t, catalog: &catalog.Memory{}, objects: objstore.NewMemory("memory:///lake")}
	l.format = iceberg.Open(l.objects, iceberg.Options{Now: time.Now})
	s := &table.Schema{ID: 1, Columns: []table.Column{{Name: "k", FieldID: 1, Type: table.Type{Kind: table.Int64}}}}
	key := func(dst []byte, b *table.Batch, row int) ([]byte, bool) {
		return append(dst, b.Cols[0].FixedAt(row)...), false
	}
	l.def = &realtime.Def{ID: 1, Name: "a", Schema: s, Uniques: []realtime.UniqueDef{{ID: 5, Name: "a_pkey", Key: key}}}
	l.catalog.Put(1, "public", "a", 1)
	return l
}

// build makes a table of files with these keys; edit may spoil what is staged or flipped.
func (l *lake) build(spoil func(*format.Edit, *catalog.TableFlip), files ...[]int64) {
	l.t.Helper()
	ctx := context.Background()
	base, err := l.format.Create(ctx, objstore.Join(l.objects.Root(), "a"), l.def.Schema, format.Options{})
	if err != nil {
		l.t.Fatal(err)
	}
	edit := format.Edit{Table: 1, Position: 7, FlushID: "f1", Schema: l.def.Schema}
	for i, keys := range files {
		b := table.NewBatch(l.def.Schema)
		for _, k := range keys {
			b.Cols[0].AppendInt64(k)
			b.Rows++
		}
		f, err := datafile.Write(ctx, l.objects, format.DataLocation(base, table.FileID(i+1)), l.def.Schema, datafile.All(b), datafile.WriteOptions{})
		if err != nil {
			l.t.Fatal(err)
		}
		edit.Added = append(edit.Added, format.DataFile{ID: table.FileID(i + 1), File: f})
	}
	flip := catalog.TableFlip{Table: 1, Version: 1, NextFile: table.FileID(len(files) + 1), NextRow: 1}
	spoil(&edit, &flip)
	if flip.To, err = l.format.Stage(ctx, base, edit); err != nil {
		l.t.Fatal(err)
	}
	l.files = edit.Added
	if _, err := l.catalog.Flip(ctx, catalog.Flip{ID: "f1", Stream: "s", Progress: 7, Tables: []catalog.TableFlip{flip}}); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lake) check() string {
	l.t.Helper()
	in := fsck.Input{Catalog: lowered{l.catalog, l.spoilLow}, Objects: l.objects, Tables: []*realtime.Def{l.def}, Log: l.log}
	in.Format = iceberg.Open(l.objects, iceberg.Options{Now: time.Now}) // without what the other one remembers
	problems, err := fsck.Check(context.Background(), in)
	if err != nil {
		l.t.Fatal(err)
	}
	var all []string
	for _, p := range problems {
		all = append(all, p.Invariant)
	}
	return strings.Join(all, " ")
}

func nothing(*format.Edit, *catalog.TableFlip) {}

// TestCheck breaks one promise at a time.
func TestCheck(t *testing.T) {
	for _, c := range []struct {
		name, want string
		spoil      func(*format.Edit, *catalog.TableFlip)
		files      [][]int64
		after      func(*lake)
	}{
		{name: "sound", files: [][]int64{{1, 2}, {3}}},
		{name: "same key twice", want: "I13", files: [][]int64{{1, 2}, {2}}},
		{name: "file gone", want: "I6", files: [][]int64{{1}, {2}}, after: func(l *lake) {
			if err := l.objects.Delete(context.Background(), l.files[0].File.Location); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "wrong size", want: "I6", files: [][]int64{{1}}, spoil: func(e *format.Edit, _ *catalog.TableFlip) { e.Added[0].File.Size++ }},
		{name: "wrong rows", want: "I6", files: [][]int64{{1, 2}}, spoil: func(e *format.Edit, _ *catalog.TableFlip) { e.Added[0].File.Rows++ }},
		{name: "beyond progress", want: "I3", files: [][]int64{{1}}, spoil: func(e *format.Edit, _ *catalog.TableFlip) { e.Position = 8 }},
		{name: "flip that never was", want: "I3", files: [][]int64{{1}}, spoil: func(e *format.Edit, _ *catalog.TableFlip) { e.FlushID = "other" }},
		{name: "next file id", want: "I5", files: [][]int64{{1}}, spoil: func(_ *format.Edit, f *catalog.TableFlip) { f.NextFile = 1 }},
		{name: "row map", want: "I10", files: [][]int64{{1}}, spoil: func(_ *format.Edit, f *catalog.TableFlip) {
			m := &realtime.RowMap{Begin: 1, End: 4}
			m.Add(1, 3, 1, 0)
			f.NextRow, f.RowMap = 4, realtime.EncodeRowMaps([]*realtime.RowMap{m})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLake(t)
			if c.spoil == nil {
				c.spoil = nothing
			}
			l.build(c.spoil, c.files...)
			if c.after != nil {
				c.after(l)
			}
			if got := l.check(); got != c.want {
				t.Errorf("found %q, want %q", got, c.want)
			}
		})
	}
}

// TestResults: two transactions with one retry identity, wherever they are.
func TestResults(t *testing.T) {
	id := func(n byte) [16]byte { return [16]byte{n} }
	stored := catalog.Result{Writer: "1/w", Sequence: 5, ID: id(5), Position: 2}
	commit := func(n byte, sequence int64) *wal.Txn {
		return &wal.Txn{Kind: wal.Commit, ID: id(n), Writer: "1/w", Sequence: sequence}
	}
	prepared := func(n byte, sequence int64) *wal.Txn {
		x := commit(n, sequence)
		x.Kind = wal.Prepared
		return x
	}
	for _, c := range []struct {
		name, want string
		low        int64
		log        []*wal.Txn // positions from 1; up to 2 is in files
	}{
		{"sound", "", 4, []*wal.Txn{commit(3, 3), commit(5, 5), commit(6, 6)}},
		{"stored below its window", "I8", 5, nil},
		{"stored, and again in the log", "I8", 4, []*wal.Txn{{Kind: wal.Commit}, commit(5, 5), commit(9, 5)}},
		{"twice in the log", "I8", 4, []*wal.Txn{{Kind: wal.Commit}, {Kind: wal.Commit}, commit(8, 8), commit(9, 8)}},
		{"prepared, not decided", "", 4, []*wal.Txn{{Kind: wal.Commit}, {Kind: wal.Commit}, commit(8, 8), prepared(9, 8)}},
		{"prepared and rolled back", "", 4, []*wal.Txn{{Kind: wal.Commit}, {Kind: wal.Commit}, commit(8, 8), prepared(9, 8), {Kind: wal.Resolved, Resolves: 4}}},
		{"prepared and committed", "I8", 4, []*wal.Txn{{Kind: wal.Commit}, {Kind: wal.Commit}, commit(8, 8), prepared(9, 8), {Kind: wal.Resolved, Resolves: 4, Committed: true}}},
		{"only tokens", "", 4, []*wal.Txn{commit(1, 1), {Kind: wal.Commit}, {Kind: wal.Commit, ID: id(1), Writer: "1/", Sequence: wal.Unnumbered}, {Kind: wal.Commit, ID: id(2), Writer: "1/", Sequence: wal.Unnumbered}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLake(t)
			l.build(nothing, []int64{1})
			l.log = t.TempDir()
			stream := writeLog(t, l.log, c.log)
			f := catalog.Flip{ID: "f2", Stream: stream, Progress: 2, Results: catalog.Results{List: []catalog.Result{stored}}}
			if _, err := l.catalog.Flip(t.Context(), f); err != nil {
				t.Fatal(err)
			}
			l.spoilLow = map[string]int64{"1/w": c.low} // a flip would take away what is below
			if got := l.check(); got != c.want {
				t.Errorf("found %q, want %q", got, c.want)
			}
		})
	}
}

// writeLog makes a log of these frames and returns its stream.
func writeLog(t *testing.T, dir string, txns []*wal.Txn) string {
	t.Helper()
	l, err := wal.Open(t.Context(), dir, wal.Options{SegmentSize: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	none := func(table.ID, int) (*table.Schema, error) { return nil, nil }
	if err := l.Replay(t.Context(), 1, none, func(*wal.Txn) error { return nil }); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx, func([]*wal.Frame) {}) }()
	for i, x := range txns {
		g := l.Enqueue(wal.Encode(x), table.Position(i+1), nil)
		<-g.Done()
	}
	cancel()
	stream := l.Stream()
	if err := errors.Join(<-ended, l.Close()); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(stream[:])
}
