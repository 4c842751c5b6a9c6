// Package fsck proves from the outside that catalog and objects agree with the invariants of DESIGN section 8.
//
// It owns no state. Start with Check; it reads catalog rows, metadata and data files and repairs nothing. What only a running
// process can break (views, memory, epochs) is asserted in checked builds instead.
//
//	I3  no table is beyond the progress of its stream, and all snapshots were made by flips that committed
//	I5  a file's id is used once, and below the next id
//	I6  what a pointer reaches exists, with the recorded size and number of rows; dead rows are rows of their file
//	I8  a writer's sequence has one result, stored or in the log, and none where its window says that it is gone
//	I9  the catalog's pointers are readable tables
//	I10 a row map names rows that are there, once
//	I13 no two live rows share a key of a unique constraint
package fsck

import (
	"context"
	"encoding/hex"
	"fmt"

	"sluice/writer/catalog"
	"sluice/writer/datafile"
	"sluice/writer/format"
	"sluice/writer/objstore"
	"sluice/writer/realtime"
	"sluice/writer/table"
	"sluice/writer/wal"
	"sluice/writer/window"
)

// Input is what is checked.
type Input struct {
	Catalog catalog.Catalog
	Format  format.Format
	Objects objstore.Store
	Tables  []*realtime.Def
	Log     string // folder of the log; "": it is not looked at
}

// Problem is one broken promise.
type Problem struct {
	Invariant string // I1 to I13
	Table     table.ID
	Text      string
}

func (p Problem) String() string {
	if p.Table == 0 {
		return p.Invariant + ": " + p.Text
	}
	return fmt.Sprintf("%s: table %d: %s", p.Invariant, p.Table, p.Text)
}

// Check lists what is wrong. The error is about the check itself: something could not be read for reasons of its own.
func Check(ctx context.Context, in Input) ([]Problem, error) {
	state, err := in.Catalog.Load(ctx)
	if err != nil {
		return nil, fmt.Errorf("check: load catalog: %w", err)
	}
	at := map[table.ID]catalog.Table{}
	for _, t := range state.Tables {
		at[t.ID] = t
	}
	c := &checker{in: in, progress: newest(state.Progress)}
	if err := c.results(ctx, state.Progress); err != nil {
		return nil, fmt.Errorf("check: %w", err)
	}
	for _, def := range in.Tables {
		t := &tableCheck{checker: c, def: def, at: at[def.ID], rows: map[table.FileID]uint64{}}
		if err := t.run(ctx); err != nil {
			return c.problems, fmt.Errorf("check table %d: %w", def.ID, err)
		}
	}
	return c.problems, nil
}

func newest(progress map[string]table.Position) (max table.Position) {
	for _, p := range progress {
		if p > max {
			max = p
		}
	}
	return max
}

// results checks I8. Frames that the catalog has taken over are left out: windows have forgotten most of them.
func (c *checker) results(ctx context.Context, progress map[string]table.Position) error {
	var behind []*wal.Txn
	stream, fates := "", map[table.Position]bool{}
	if c.in.Log != "" {
		err := wal.Headers(c.in.Log, func(s [16]byte, t *wal.Txn) {
			stream = hex.EncodeToString(s[:])
			switch {
			case t.Kind == wal.Resolved:
				fates[t.Resolves] = t.Committed
			case t.Position > progress[stream]:
				behind = append(behind, t)
			}
		})
		if err != nil {
			return err
		}
	}
	stored, err := c.in.Catalog.Results(ctx, stream)
	if err != nil {
		return err
	}
	seen := map[identity]catalog.Result{}
	for _, r := range stored.List {
		if low, ok := stored.Low[r.Writer]; ok && r.Sequence <= low {
			c.problem("I8", "writer %q: sequence %d is stored, the window begins above %d", r.Writer, r.Sequence, low)
		}
		c.once(seen, r)
	}
	for _, t := range behind {
		if r := window.Of(t); r != nil && (t.Kind == wal.Commit || fates[t.Position]) {
			c.once(seen, *r)
		}
	}
	return nil
}

type identity struct {
	writer   string
	sequence int64
}

func (c *checker) once(seen map[identity]catalog.Result, r catalog.Result) {
	k := identity{r.Writer, r.Sequence}
	if other, twice := seen[k]; twice && other.ID != r.ID {
		c.problem("I8", "writer %q: sequence %d has two results, at %d and %d", r.Writer, r.Sequence, other.Position, r.Position)
	}
	seen[k] = r
}

func (c *checker) problem(invariant, text string, args ...any) {
	c.problems = append(c.problems, Problem{Invariant: invariant, Text: fmt.Sprintf(text, args...)})
}

type checker struct {
	in       Input
	progress table.Position
	problems []Problem
}

type tableCheck struct {
	*checker
	def  *realtime.Def
	at   catalog.Table
	rows map[table.FileID]uint64
	keys []map[string]table.Ref
}

func (t *tableCheck) problem(invariant, text string, args ...any) {
	t.problems = append(t.problems, Problem{Invariant: invariant, Table: t.def.ID, Text: fmt.Sprintf(text, args...)})
}

func (t *tableCheck) run(ctx context.Context) error {
	if t.at.Pointer.Location == "" {
		t.problem("I9", "the catalog has no pointer")
		return nil
	}
	s, err := t.in.Format.Snapshot(ctx, t.at.Pointer)
	if err != nil {
		t.problem("I6", "read %s: %v", t.at.Pointer.Location, err)
		return ctx.Err()
	}
	if s.Position > t.progress {
		t.problem("I3", "its rows are of position %d, progress is %d", s.Position, t.progress)
	}
	if err := t.flip(ctx, s.FlushID); err != nil {
		return err
	}
	for range t.def.Uniques {
		t.keys = append(t.keys, map[string]table.Ref{})
	}
	for i := range s.Files {
		if err := t.file(ctx, &s.Files[i]); err != nil {
			return err
		}
	}
	t.rowMap()
	return nil
}

func (t *tableCheck) flip(ctx context.Context, id string) error {
	if id == "" {
		return nil
	}
	committed, err := t.in.Catalog.Resolve(ctx, id)
	if err != nil {
		return fmt.Errorf("resolve flip %s: %w", id, err)
	}
	if !committed {
		t.problem("I3", "its snapshot is of flip %s, which did not commit", id)
	}
	return nil
}

func (t *tableCheck) file(ctx context.Context, f *format.File) error {
	switch _, twice := t.rows[f.ID]; {
	case f.ID == 0:
		t.problem("I5", "file %s has no id", f.File.Location)
	case twice:
		t.problem("I5", "file id %d is used twice", f.ID)
	case f.ID >= t.at.NextFile && f.ID < format.Foreign:
		t.problem("I5", "file id %d is not below the next id %d", f.ID, t.at.NextFile)
	}
	t.rows[f.ID] = uint64(f.File.Rows)
	if f.Deleted != nil && !f.Deleted.IsEmpty() && int64(f.Deleted.Maximum()) >= f.File.Rows {
		t.problem("I6", "file %d has %d rows, row %d of it is dead", f.ID, f.File.Rows, f.Deleted.Maximum())
	}
	o, err := t.in.Objects.Stat(ctx, f.File.Location)
	if err != nil {
		t.problem("I6", "file %s: %v", f.File.Location, err)
		return ctx.Err()
	}
	if o.Size != f.File.Size {
		t.problem("I6", "file %s has %d bytes, recorded are %d", f.File.Location, o.Size, f.File.Size)
		return nil // it cannot be read by what is recorded
	}
	return t.read(ctx, f)
}

// read counts the rows and collects the keys of the live ones.
func (t *tableCheck) read(ctx context.Context, f *format.File) error {
	opts := datafile.ReadOptions{}
	if len(t.keys) == 0 {
		opts.Columns = []int{0}
	}
	rows := int64(0)
	for c, err := range datafile.Read(ctx, t.in.Objects, f.File, t.def.Schema, opts) {
		if err != nil {
			t.problem("I6", "read %s: %v", f.File.Location, err)
			return ctx.Err()
		}
		rows += int64(c.Rows.Rows)
		for i := range c.Rows.Rows {
			if row := c.First + uint64(i); f.Deleted == nil || !f.Deleted.Contains(uint32(row)) {
				t.key(c.Rows, i, table.Ref{File: f.ID, Row: row})
			}
		}
	}
	if rows != f.File.Rows {
		t.problem("I6", "file %s has %d rows, recorded are %d", f.File.Location, rows, f.File.Rows)
	}
	return nil
}

func (t *tableCheck) key(b *table.Batch, i int, ref table.Ref) {
	for u := range t.keys {
		key, null := t.def.Uniques[u].Key(nil, b, i)
		if null {
			continue
		}
		if other, twice := t.keys[u][string(key)]; twice {
			t.problem("I13", "rows %v and %v have the same key of %s", other, ref, t.def.Uniques[u].Name)
		}
		t.keys[u][string(key)] = ref
	}
}

func (t *tableCheck) rowMap() {
	maps, err := realtime.DecodeRowMaps(t.at.RowMap)
	if err != nil {
		t.problem("I10", "%v", err)
		return
	}
	end := uint64(0)
	for _, m := range maps {
		if m.Begin == m.End && len(m.Moved) > 0 {
			m.Begin, m.End = end, end // only files moved
		}
		if m.Begin < end || m.End < m.Begin || m.End > t.at.NextRow {
			t.problem("I10", "a row map is of rows [%d, %d), after %d, the tail begins with %d", m.Begin, m.End, end, t.at.NextRow)
		}
		end = m.End
		for _, r := range m.Ranges {
			// A file that is gone had no live row left: nobody can name one.
			if rows, ok := t.rows[r.File]; ok && r.Row+r.Count > rows {
				t.problem("I10", "a row map names row %d of file %d, which has %d rows", r.Row+r.Count-1, r.File, rows)
			}
		}
	}
}
