// Package flush turns the tail's rows of a prefix of the log into data files.
//
// It owns the plan (which rows go into which file, what each file is called, where each row went) and the writing, by a bounded
// number of workers. Start with NewPlan, then (*Plan).Write. It never touches metadata, the catalog or the store: a plan that is
// thrown away leaves objects that nobody can reach.
package flush

import (
	"context"
	"fmt"
	"iter"

	"github.com/RoaringBitmap/roaring/v2"
	"golang.org/x/sync/errgroup"

	"sluice/writer/datafile"
	"sluice/writer/objstore"
	"sluice/writer/realtime"
	"sluice/writer/table"
)

// Target says where a table's next files go.
type Target struct {
	NextFile table.FileID              // first unused id
	NewFile  func() table.FileID       // takes an id; nil: NextFile and those that follow
	Location func(table.FileID) string // a new name for a data file
	FileSize int64                     // bytes of a full file, about
	// Buckets spreads the transactions' rows of a table without a key over as many files, in turns; 0 and 1 are one file. It is no part of
	// the table's metadata.
	Buckets int
}

// Options of a plan.
type Options struct {
	Target    func(def *realtime.Def) Target
	Partition Partition
}

// Partition is a row's value for each field of the schema's spec, as format.Value has them.
type Partition func(s *table.Schema, b *table.Batch, row int) ([]any, error)

// File is one data file to be written, then written.
type File struct {
	ID       table.FileID
	Location string
	Data     datafile.File // after Write
	// Partition is the file's value for each field of the schema's spec (see format.Value).
	Partition []any
	Deleted   *roaring.Bitmap // rows that died while it was written; nil: none
	parts     []part
}

// Deletion is what happens to the rows of an older file.
type Deletion struct {
	File       *realtime.File
	Fresh, All *roaring.Bitmap // rows that die in this flush, and all that are dead then
}

// Table is what a flip does to the rows of one table: a flush, or files that take the place of others.
type Table struct {
	Def       *realtime.Def
	Files     []*File
	Deletions []Deletion
	Removed   []*realtime.File // no live row is left in them, or Files have it
	Truncated bool             // Removed are all files
	NextFile  table.FileID
	NextRow   uint64
	Map       *realtime.RowMap
}

// Plan is the flush of all tables of a cut.
type Plan struct {
	Cut    *realtime.Cut
	Tables []*Table
}

// part is rows of one batch: those of sel, or [begin, end).
type part struct {
	batch *table.Batch
	sel   []int32
	begin int
	end   int
}

// NewPlan decides everything, so that all names are known before the first byte is uploaded (invariant I4).
func NewPlan(cut *realtime.Cut, opts Options) (*Plan, error) {
	p := &Plan{Cut: cut}
	for i := range cut.Tables {
		t, err := planTable(&cut.Tables[i], opts)
		if err != nil {
			return nil, fmt.Errorf("plan flush of table %d: %w", cut.Tables[i].Def.ID, err)
		}
		p.Tables = append(p.Tables, t)
	}
	return p, nil
}

func planTable(c *realtime.TableCut, opts Options) (*Table, error) {
	target := opts.Target(c.Def)
	t := &Table{Def: c.Def, NextFile: target.NextFile, NextRow: c.NextRow, Truncated: c.Truncated,
		Map: &realtime.RowMap{Begin: c.State.NextRow, End: c.NextRow}}
	t.planDeletes(c)
	d := newDealer(t, target, opts.Partition)
	if err := d.deal(c); err != nil {
		return nil, err
	}
	t.Map.Sort()
	return t, nil
}

// PlanRows plans the files of rows that never were in the tail; the map counts them from 0. b nil is no rows.
func PlanRows(def *realtime.Def, target Target, p Partition, b *table.Batch) (*Table, error) {
	t := &Table{Def: def, NextFile: target.NextFile, Map: &realtime.RowMap{}}
	if b == nil {
		return t, nil
	}
	t.Map.End = uint64(b.Rows)
	if err := newDealer(t, target, p).add(realtime.Rows{Batch: b}); err != nil {
		return nil, fmt.Errorf("plan files of table %d: %w", def.ID, err)
	}
	t.Map.Sort()
	return t, nil
}

func (t *Table) planDeletes(c *realtime.TableCut) {
	for _, f := range c.Files {
		if c.Truncated {
			t.Removed = append(t.Removed, f)
			continue
		}
		fresh, all := c.Deleted(f)
		switch {
		case fresh == nil:
		case all.GetCardinality() == f.Rows:
			t.Removed = append(t.Removed, f)
		default:
			t.Deletions = append(t.Deletions, Deletion{File: f, Fresh: fresh, All: all})
		}
	}
}

// filler deals rows of one partition out to files.
type filler struct {
	t      *Table
	target Target
	values []any // of the partition
	file   *File
	rows   uint64
	bytes  int64 // of the rows in file, in memory
}

// Packed is how much smaller rows are in a file than in memory, about. Only the size of files depends on it.
const Packed = 3

func (f *filler) add(r realtime.Rows) {
	n := r.Batch.Rows
	if r.Sel != nil {
		n = len(r.Sel)
	}
	each := max(int64(r.Batch.Size())/int64(r.Batch.Rows), 1)
	for at := 0; at < n; {
		f.room()
		take := int(min(int64(n-at), max((f.target.FileSize*Packed-f.bytes)/each, 1)))
		p := part{batch: r.Batch, begin: at, end: at + take}
		if r.Sel != nil {
			p.sel = r.Sel[at : at+take]
		}
		f.put(p, r.First)
		f.bytes += int64(take) * each
		at += take
	}
}

// room opens the next file when there is none or it is full.
func (f *filler) room() {
	if f.file != nil && f.bytes < f.target.FileSize*Packed {
		return
	}
	id := f.t.NextFile
	if f.target.NewFile != nil {
		id = f.target.NewFile()
	}
	f.file = &File{ID: id, Location: f.target.Location(id), Partition: f.values}
	f.t.Files = append(f.t.Files, f.file)
	f.t.NextFile = id + 1
	f.rows, f.bytes = 0, 0
}

func (f *filler) put(p part, first uint64) {
	f.file.parts = append(f.file.parts, p)
	for begin, end := range p.runs() {
		f.t.Map.Add(first+uint64(begin), uint64(end-begin), f.file.ID, f.rows)
		f.rows += uint64(end - begin)
	}
}

// runs yields the ranges [begin, end) of neighbouring rows.
func (p *part) runs() iter.Seq2[int, int] {
	return func(yield func(int, int) bool) {
		if p.sel == nil {
			yield(p.begin, p.end)
			return
		}
		for at := 0; at < len(p.sel); {
			stop := at + 1
			for stop < len(p.sel) && p.sel[stop] == p.sel[stop-1]+1 {
				stop++
			}
			if !yield(int(p.sel[at]), int(p.sel[stop-1])+1) {
				return
			}
			at = stop
		}
	}
}

// Locations lists what Write will create: files that are there already are not among it.
func (p *Plan) Locations() []string {
	var list []string
	for _, t := range p.Tables {
		for _, f := range t.Files {
			if f.parts != nil {
				list = append(list, f.Location)
			}
		}
	}
	return list
}

// Write creates the files, workers at a time. After an error some may exist.
func (p *Plan) Write(ctx context.Context, objects objstore.Store, workers int) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(workers)
	for _, t := range p.Tables {
		for _, f := range t.Files {
			if f.parts != nil {
				g.Go(func() error { return f.write(ctx, objects, t.Def.Schema) })
			}
		}
	}
	return g.Wait()
}

func (f *File) write(ctx context.Context, objects objstore.Store, schema *table.Schema) (err error) {
	var all []*table.Batch
	for i := range f.parts {
		all = append(all, f.parts[i].batch)
	}
	opts := datafile.WriteOptions{Exact: datafile.ExactColumns(all...)}
	if f.Data, err = datafile.Write(ctx, objects, f.Location, schema, f.batches(schema), opts); err != nil {
		return fmt.Errorf("write %s: %w", f.Location, err)
	}
	f.parts = nil
	return nil
}

const batchRows = 16 * 1024

// batches yields the file's rows: whole batches as they are, pieces as copies of at most batchRows rows.
func (f *File) batches(schema *table.Schema) iter.Seq2[*table.Batch, error] {
	return func(yield func(*table.Batch, error) bool) {
		b := table.NewBatch(schema)
		flush := func() bool {
			full := b
			b = table.NewBatch(schema)
			return full.Rows == 0 || yield(full, nil)
		}
		for i := range f.parts {
			p := &f.parts[i]
			if p.sel == nil && p.begin == 0 && p.end == p.batch.Rows && p.batch.Rows >= batchRows/2 {
				if !flush() || !yield(p.batch, nil) {
					return
				}
				continue
			}
			if !p.copyTo(&b, flush) {
				return
			}
		}
		flush()
	}
}

func (p *part) copyTo(b **table.Batch, flush func() bool) bool {
	for begin, end := range p.runs() {
		for at := begin; at < end; {
			n := min(end-at, batchRows-(*b).Rows)
			(*b).AppendRange(p.batch, at, at+n)
			at += n
			if (*b).Rows == batchRows && !flush() {
				return false
			}
		}
	}
	return true
}

// Published is the flush of a table as the store takes it.
func (t *Table) Published() realtime.Flushed {
	f := realtime.Flushed{Table: t.Def.ID, NextRow: t.NextRow, Map: t.Map, Deleted: map[table.FileID]*roaring.Bitmap{}}
	for _, n := range t.Files {
		f.Files = append(f.Files, &realtime.File{ID: n.ID, Location: n.Location, Rows: uint64(n.Data.Rows), Bytes: n.Data.Size, Deleted: n.Deleted})
	}
	for _, d := range t.Deletions {
		f.Deleted[d.File.ID] = d.All
	}
	for _, old := range t.Removed {
		f.Removed = append(f.Removed, old.ID)
	}
	return f
}
