package formattest

import (
	"context"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"pgregory.net/rapid"

	"sluice/writer/format"
	"sluice/writer/objstore"
	"sluice/writer/table"
)

// Run runs the suite.
func Run(t *testing.T, cfg Config) {
	t.Run("Play", func(t *testing.T) { Play(t, cfg) })
	if cfg.Partition != nil {
		t.Run("PlayPartitioned", func(t *testing.T) { PlayPartitioned(t, cfg) })
	}
	t.Run("Random", func(t *testing.T) { random(t, cfg) })
	t.Run("Nothing", func(t *testing.T) { nothing(t, cfg) })
	t.Run("Staged", func(t *testing.T) { staged(t, cfg) })
	t.Run("Refusals", func(t *testing.T) { refusals(t, cfg) })
	t.Run("Snapshot", func(t *testing.T) { snapshot(t, cfg) })
}

// random makes random edits and compares after each.
func random(t *testing.T, cfg Config) {
	cfg.Scan = nil // too slow for so many states, as is syncing their files
	cfg.Store = func(testing.TB) objstore.Store { return objstore.NewMemory("memory:///lake") }
	rapid.Check(t, func(rt *rapid.T) {
		m := NewTable(t, cfg, small())
		next := 0
		for range rapid.IntRange(1, 12).Draw(rt, "commits") {
			if rapid.IntRange(0, 9).Draw(rt, "truncate") == 0 {
				m.Truncate()
			} else if seed := rapid.IntRange(0, 40).Draw(rt, "delete"); seed > 0 {
				m.DeleteWhere(func(id table.FileID, row int) bool { return (int(id)*31+row*17)%41 < seed })
			}
			for range rapid.IntRange(0, 2).Draw(rt, "files") {
				n := rapid.IntRange(1, 6).Draw(rt, "rows")
				m.Append(Rows(m.Schema, next, next+n))
				next += n
			}
			m.Commit()
			Same(t, "random", m.Read(m.Pointer, m.Schema), m.Want())
		}
		m.Check("random")
	})
}

func small() *table.Schema {
	s := Wide()
	s.Columns = s.Columns[:3]
	return s
}

// nothing: an edit without effect returns its base.
func nothing(t *testing.T, cfg Config) {
	m := NewTable(t, cfg, small())
	m.Append(Rows(m.Schema, 0, 5))
	m.Commit()
	if cfg.Options.Version != 2 {
		m.Change(func(s *table.Schema) {
			text := "2024-01-01"
			s.Columns = append(s.Columns, table.Column{Name: "since", FieldID: 40, Type: table.Type{Kind: table.Date}, Initial: &text})
		})
	}
	m.DeleteWhere(func(_ table.FileID, row int) bool { return row == 1 })
	m.Commit()
	again := map[table.FileID]*roaring.Bitmap{1: roaring.BitmapOf(1)}
	for name, e := range map[string]format.Edit{"empty": {}, "same schema": {Schema: m.Schema}, "same deletes": {Deletes: again},
		"no deletes": {Deletes: map[table.FileID]*roaring.Bitmap{1: roaring.New()}}} {
		e.Position, e.FlushID = 9, "again"
		p, err := m.f.Stage(context.Background(), m.Pointer, e)
		if err != nil || p != m.Pointer {
			t.Errorf("%s: staged %v, %v, want the base", name, p, err)
		}
	}
}

// staged: what is staged changes nothing for the base, and two edits may be staged on one base. Staging is apart from committing: whoever
// moves the pointer does so later, with those of other tables.
//
// claims: S10 S20
func staged(t *testing.T, cfg Config) {
	m := NewTable(t, cfg, small())
	m.Append(Rows(m.Schema, 0, 5))
	m.Commit()
	base, want := m.Pointer, m.Want()
	for range 2 {
		lost := *m
		lost.files = map[table.FileID]*modelFile{1: {m.files[1].rows, map[int]bool{}}}
		lost.DeleteWhere(func(_ table.FileID, row int) bool { return row < 3 })
		lost.Append(Rows(m.Schema, 10, 12))
		lost.Commit()
		lost.Check("staged")
		if lost.Pointer == base {
			t.Fatal("the edit changed nothing")
		}
		Same(t, "base", m.Read(base, m.Schema), want)
	}
}

// refusals: edits that do not fit the base fail and leave it alone.
func refusals(t *testing.T, cfg Config) {
	m := NewTable(t, cfg, small())
	m.Append(Rows(m.Schema, 0, 5))
	m.Commit()
	m.Append(Rows(m.Schema, 5, 9))
	added := m.edit.Added
	m.edit.Added = nil
	wrongID := []format.DataFile{added[0]}
	wrongID[0].ID++
	for name, e := range map[string]format.Edit{
		"remove unknown":     {Removed: []table.FileID{99}},
		"delete in unknown":  {Deletes: map[table.FileID]*roaring.Bitmap{99: roaring.BitmapOf(0)}},
		"delete beyond end":  {Deletes: map[table.FileID]*roaring.Bitmap{1: roaring.BitmapOf(5)}},
		"add without schema": {Added: added},
		"add under other id": {Added: wrongID, Schema: m.Schema},
		"add with partition": {Added: []format.DataFile{{ID: added[0].ID, File: added[0].File, Partition: []any{int32(1)}}}, Schema: m.Schema},
	} {
		if p, err := m.f.Stage(context.Background(), m.Pointer, e); err == nil {
			t.Errorf("%s: staged %v", name, p)
		}
	}
	delete(m.files, added[0].ID)
	m.Check("base")
}

// snapshot: what Snapshot says beside the rows.
func snapshot(t *testing.T, cfg Config) {
	m := NewTable(t, cfg, small())
	ctx := context.Background()
	if s, err := m.f.Snapshot(ctx, m.Pointer); err != nil || s.ID != 0 || len(s.Files) != 0 {
		t.Fatalf("created: %+v, %v", s, err)
	}
	m.Append(Rows(m.Schema, 0, 5))
	m.Append(Rows(m.Schema, 5, 8))
	m.Commit()
	m.DeleteWhere(func(id table.FileID, row int) bool { return id == 2 && row == 2 })
	m.Commit()
	s, err := m.f.Snapshot(ctx, m.Pointer)
	if err != nil {
		t.Fatal(err)
	}
	if s.ID == 0 || s.Position != 2 || s.FlushID != "flush-2" || len(s.Files) != 2 {
		t.Fatalf("snapshot %+v", s)
	}
	f, g := s.Files[0], s.Files[1]
	if f.ID != 1 || f.File.Rows != 5 || f.Deleted != nil || g.ID != 2 || g.Deleted.String() != "{2}" {
		t.Fatalf("files %+v, %+v", f, g)
	}
	st, err := m.store.Stat(ctx, g.File.Location)
	if err != nil || st.Size != g.File.Size {
		t.Fatalf("file has %d bytes, %v, want %d", st.Size, err, g.File.Size)
	}
}
