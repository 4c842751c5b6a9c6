// Package compact puts the rows of small files, and of files with many dead rows, into fewer and fuller ones.
//
// It owns the choice (Choose), the writing (NewPlan, Plan.Write) and what became of the plan's rows while it was written (Plan.Catch). It
// never changes metadata, the catalog or the store: the caller makes a flip of it, as of a flush, and a plan that is thrown away leaves
// objects that nobody can reach.
//
// Rows stay in the order of files and positions, and keep their identity in formats that have one (format.Snapshot.Lineage).
package compact

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"sluice/writer/datafile"
	"sluice/writer/flush"
	"sluice/writer/format"
	"sluice/writer/objstore"
	"sluice/writer/realtime"
	"sluice/writer/table"
)

// Options of a choice.
type Options struct {
	FileSize int64 // bytes of a full file, about
	MinFiles int   // small files of one partition that are worth a merge, at least 2
	Bytes    int64 // of files in one choice, about; at least one bin is chosen
}

// Bin is files of one partition whose live rows become one file.
type Bin []*format.File

// Choose packs files into bins, partition by partition, in order of their ids. A file is small below three quarters of FileSize, and has
// many dead rows from three tenths on, as in Iceberg's rewrite_data_files. Files of an older partition spec stay as they are.
func Choose(s *format.Snapshot, o Options) []Bin {
	var order []string
	parts := map[string]Bin{}
	for i := range s.Files {
		f := &s.Files[i]
		if f.Spec != s.Spec || !small(f, o.FileSize) && !sparse(f) {
			continue
		}
		key := fmt.Sprintf("%#v", f.Partition)
		if parts[key] == nil {
			order = append(order, key)
		}
		parts[key] = append(parts[key], f)
	}
	var bins []Bin
	var total int64
	for _, key := range order {
		for _, b := range pack(parts[key], o) {
			if total > 0 && total+b.Bytes() > o.Bytes {
				return bins
			}
			bins, total = append(bins, b), total+b.Bytes()
		}
	}
	return bins
}

func small(f *format.File, size int64) bool { return f.File.Size*4 < size*3 }

func sparse(f *format.File) bool { return dead(f)*10 >= f.File.Rows*3 && dead(f) > 0 }

func dead(f *format.File) int64 {
	if f.Deleted == nil {
		return 0
	}
	return int64(f.Deleted.GetCardinality())
}

// live is about the bytes of a file's live rows.
func live(f *format.File) int64 {
	return f.File.Size * (f.File.Rows - dead(f)) / max(f.File.Rows, 1)
}

// Bytes of all its files.
func (b Bin) Bytes() (n int64) {
	for _, f := range b {
		n += f.File.Size
	}
	return n
}

// pack fills bins up to a full file. A bin is worth it if it has MinFiles files or a sparse one.
func pack(files Bin, o Options) (bins []Bin) {
	var bin Bin
	var size int64
	end := func() {
		if len(bin) >= max(o.MinFiles, 2) || slices.ContainsFunc(bin, sparse) {
			bins = append(bins, bin)
		}
		bin, size = nil, 0
	}
	for _, f := range files {
		if size > 0 && size+live(f) > o.FileSize {
			end()
		}
		bin, size = append(bin, f), size+live(f)
	}
	end()
	return bins
}

// Plan is the rewriting of some files of one table.
type Plan struct {
	Table *flush.Table // Removed, Files and Map
	def   *realtime.Def
	bins  []Bin
	write *table.Schema // of the written files: the table's columns, then lineage
}

// NewPlan names the files to be written, one a bin, so that they can be listed before the first byte is uploaded (invariant I4).
func NewPlan(def *realtime.Def, s *format.Snapshot, bins []Bin, target flush.Target) *Plan {
	p := &Plan{Table: &flush.Table{Def: def, Map: &realtime.RowMap{}}, def: def, bins: bins, write: def.Schema}
	if !slices.ContainsFunc(s.Lineage, func(c table.Column) bool { return def.Schema.Index(c.Name) >= 0 }) {
		w := *def.Schema
		w.Columns = slices.Concat(w.Columns, s.Lineage)
		p.write = &w
	}
	for _, b := range bins {
		id := target.NewFile()
		p.Table.Files = append(p.Table.Files, &flush.File{ID: id, Location: target.Location(id), Partition: b[0].Partition})
		p.Table.NextFile = max(p.Table.NextFile, id+1)
		for _, f := range b {
			p.Table.Removed = append(p.Table.Removed, &realtime.File{ID: f.ID})
			p.Table.Map.Moved = append(p.Table.Map.Moved, f.ID)
		}
	}
	return p
}

// Locations lists what Write will create.
func (p *Plan) Locations() (list []string) {
	for _, f := range p.Table.Files {
		list = append(list, f.Location)
	}
	return list
}

// Write creates the files, one after the other. After an error some may exist.
func (p *Plan) Write(ctx context.Context, objects objstore.Store) (err error) {
	for i, out := range p.Table.Files {
		var opts datafile.WriteOptions
		if opts.Exact, err = companions(ctx, objects, p.bins[i], p.def.Schema); err != nil {
			return err
		}
		rows := p.rows(ctx, objects, p.bins[i], out.ID)
		if out.Data, err = datafile.Write(ctx, objects, out.Location, p.write, rows, opts); err != nil {
			return fmt.Errorf("merge %d files into %s: %w", len(p.bins[i]), out.Location, err)
		}
	}
	p.Table.Map.Sort()
	return nil
}

func companions(ctx context.Context, objects objstore.Store, b Bin, s *table.Schema) (cols []int, err error) {
	for _, f := range b {
		more, err := datafile.Companions(ctx, objects, f.File, s)
		if err != nil {
			return nil, err
		}
		cols = append(cols, more...)
	}
	slices.Sort(cols)
	return slices.Compact(cols), nil
}

// rows yields the live rows of a bin and notes where they go.
func (p *Plan) rows(ctx context.Context, objects objstore.Store, b Bin, to table.FileID) iter.Seq2[*table.Batch, error] {
	return func(yield func(*table.Batch, error) bool) {
		at := uint64(0)
		for _, f := range b {
			for c, err := range datafile.Read(ctx, objects, f.File, p.write, datafile.ReadOptions{}) {
				if err != nil {
					yield(nil, err)
					return
				}
				p.identify(f, &c)
				out := p.keep(f, c, to, &at)
				if out.Rows > 0 && !yield(out, nil) {
					return
				}
			}
		}
	}
}

// identify fills in the lineage that the file leaves to its entry.
func (p *Plan) identify(f *format.File, c *datafile.Chunk) {
	for k := len(p.def.Schema.Columns); k < len(c.Rows.Cols); k++ {
		v, id := table.NewVec(c.Rows.Cols[k].Type), k == len(p.def.Schema.Columns)
		for i := range c.Rows.Rows {
			switch {
			case !c.Rows.Cols[k].IsNull(i):
				v.AppendInt64(c.Rows.Cols[k].Int64(i))
			case id && f.FirstRow == nil:
				v.AppendNull() // a file from before the table had row ids: it gets them now
			case id:
				v.AppendInt64(*f.FirstRow + int64(c.First) + int64(i))
			default:
				v.AppendInt64(f.Sequence)
			}
		}
		c.Rows.Cols[k] = v
	}
}

// keep is the live rows of a chunk, which come to be row *at and those behind it of file to.
func (p *Plan) keep(f *format.File, c datafile.Chunk, to table.FileID, at *uint64) *table.Batch {
	note := func(first, n uint64) {
		p.Table.Map.Move(f.ID, first, n, to, *at)
		*at += n
	}
	end := c.First + uint64(c.Rows.Rows)
	if f.Deleted == nil || !f.Deleted.IntersectsWithInterval(c.First, end) {
		note(c.First, uint64(c.Rows.Rows))
		return c.Rows
	}
	out := table.NewBatch(c.Rows.Schema)
	for row := c.First; row < end; {
		stop := row
		for stop < end && !f.Deleted.Contains(uint32(stop)) {
			stop++
		}
		if stop > row {
			out.AppendRange(c.Rows, int(row-c.First), int(stop-c.First))
			note(row, stop-row)
		}
		row = stop + 1
	}
	return out
}

// Catch brings the plan up to the table as it is now: rows that flushes deleted since it was made are deleted in the new files. false: the
// table or a file of the plan is gone, or all rows of a new file are, and so is the plan's use.
func (p *Plan) Catch(now realtime.TableView) bool {
	if now.State == nil || now.Def != p.def {
		return false
	}
	p.Table.NextRow = now.NextRow
	fresh := map[table.FileID]*roaring.Bitmap{}
	for _, b := range p.bins {
		for _, old := range b {
			f := now.File(old.ID)
			if f == nil {
				return false
			}
			p.died(old, f.Deleted, fresh)
		}
	}
	for _, f := range p.Table.Files {
		f.Deleted = fresh[f.ID]
		if f.Deleted != nil && int64(f.Deleted.GetCardinality()) == f.Data.Rows {
			return false
		}
	}
	return true
}

func (p *Plan) died(old *format.File, now *roaring.Bitmap, fresh map[table.FileID]*roaring.Bitmap) {
	if now == nil {
		return
	}
	died := now.Clone()
	if old.Deleted != nil {
		died.AndNot(old.Deleted)
	}
	for it := died.Iterator(); it.HasNext(); {
		if to, ok := p.Table.Map.Find(table.Ref{File: old.ID, Row: uint64(it.Next())}); ok {
			if fresh[to.File] == nil {
				fresh[to.File] = roaring.New()
			}
			fresh[to.File].Add(uint32(to.Row))
		}
	}
}

// Done is what a compaction did.
type Done struct {
	Rewritten, Added int   // files
	Bytes            int64 // of those rewritten
}

// Done counts what the plan does.
func (p *Plan) Done() (d Done) {
	for _, b := range p.bins {
		d.Rewritten += len(b)
		d.Bytes += b.Bytes()
	}
	d.Added = len(p.Table.Files)
	return d
}

// Add is both together.
func (d Done) Add(o Done) Done {
	return Done{d.Rewritten + o.Rewritten, d.Added + o.Added, d.Bytes + o.Bytes}
}
