package fsck_test

import (
	"context"
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
)

// lake is one small table in an Iceberg warehouse in memory.
type lake struct {
	t       *testing.T
	catalog *catalog.Memory
	objects *objstore.Memory
	format  *iceberg.Format
	def     *realtime.Def
	files   []format.DataFile
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
	in := fsck.Input{Catalog: l.catalog, Objects: l.objects, Tables: []*realtime.Def{l.def}}
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
