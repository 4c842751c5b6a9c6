package flush_test

import (
	"context"
	"fmt"
	"testing"

	"sluice/writer/datafile"
	"sluice/writer/flush"
	"sluice/writer/objstore"
	"sluice/writer/realtime"
	"sluice/writer/table"
)

func schema(partitioned bool) *table.Schema {
	s := &table.Schema{ID: 1, Columns: []table.Column{{Name: "v", FieldID: 1, Type: table.Type{Kind: table.Int64}}}}
	if partitioned {
		s.Spec = []table.PartitionField{{Source: 1, FieldID: 1000, Name: "v_mod", Transform: "mod"}}
	}
	return s
}

// byThree is a partition that no format has: v modulo three.
func byThree(_ *table.Schema, b *table.Batch, row int) ([]any, error) {
	return []any{b.Cols[0].Int64(row) % 3}, nil
}

// TestPlan writes a tail with dead rows into small files, and finds every live row where the map says, in a file of its partition.
func TestPlan(t *testing.T) {
	for _, partitioned := range []bool{false, true} {
		t.Run(fmt.Sprintf("partitioned=%v", partitioned), func(t *testing.T) { testPlan(t, schema(partitioned)) })
	}
}

func testPlan(t *testing.T, s *table.Schema) {
	const n = 40_000
	store := realtime.New(0)
	if err := store.Define(realtime.Seed{Def: &realtime.Def{ID: 1, Schema: s}, NextRow: 1}); err != nil {
		t.Fatal(err)
	}
	next := uint64(1)
	for pos := table.Position(1); next <= n; pos++ {
		b := table.NewBatch(s)
		for range 1 + int(pos)*977%9000 {
			b.Cols[0].AppendInt64(int64(next) + int64(b.Rows))
			b.Rows++
		}
		store.Apply(realtime.Commit{Position: pos, Ops: []realtime.Op{{Table: 1, First: next, Rows: b}}})
		next += uint64(b.Rows)
	}
	var dead []table.Ref
	for r := uint64(1); r < next; r += 7 {
		dead = append(dead, table.Ref{Row: r})
	}
	store.Apply(realtime.Commit{Position: store.Visible() + 1, Ops: []realtime.Op{{Table: 1, Deletes: dead}}})
	objects := objstore.NewMemory("memory:///lake")
	opts := flush.Options{Partition: byThree, Target: func(*realtime.Def) flush.Target {
		return flush.Target{NextFile: 5, FileSize: 30_000, Location: func(id table.FileID) string { return objstore.Join(objects.Root(), fmt.Sprint(id)) }}
	}}
	plan, err := flush.NewPlan(store.Cut(), opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := plan.Write(context.Background(), objects, 2); err != nil {
		t.Fatal(err)
	}
	verify(t, objects, plan.Tables[0], next)
}

func verify(t *testing.T, objects objstore.Store, p *flush.Table, next uint64) {
	found := map[int64]table.Ref{}
	for i, f := range p.Files {
		if f.ID != table.FileID(5+i) {
			t.Errorf("file %d has id %d", i, f.ID)
		}
		for c, err := range datafile.Read(context.Background(), objects, f.Data, p.Def.Schema, datafile.ReadOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			for r := range c.Rows.Rows {
				v := c.Rows.Cols[0].Int64(r)
				found[v] = table.Ref{File: f.ID, Row: c.First + uint64(r)}
				if f.Partition != nil && f.Partition[0] != v%3 {
					t.Fatalf("row %d is in a file of partition %v", v, f.Partition)
				}
			}
		}
	}
	if len(p.Files) < 4 || p.NextFile != table.FileID(5+len(p.Files)) {
		t.Errorf("%d files, next id %d", len(p.Files), p.NextFile)
	}
	for row := uint64(1); row < next; row++ { // v is the row's number
		ref, ok := p.Map.Find(table.Ref{Row: row})
		at, live := found[int64(row)]
		if live != ((row-1)%7 != 0) || ok != live || ok && ref != at {
			t.Fatalf("row %d: map says %v %v, it is at %v %v", row, ref, ok, at, live)
		}
		if back, ok := p.Map.Back(at); live && (!ok || back.Row != row) {
			t.Fatalf("row %d: %v was called %v %v", row, at, back, ok)
		}
	}
}
