package datafile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"sluice/writer/objstore"
	"sluice/writer/table"
)

// batchRows is how many rows a Chunk has at most.
const batchRows = 8192

// ReadOptions say what to read.
type ReadOptions struct {
	Columns    []int  // indexes into the schema's columns, nil = all; the batches have the schema Project(schema, Columns)
	Begin, End uint64 // rows [Begin, End), by position in the file; End 0 = to the end
	BatchRows  int    // most rows of a batch, 0 = 8192
}

// Read yields rows of a file as batches of schema, in order of position, and ends after the first error.
func Read(ctx context.Context, store objstore.Store, f File, schema *table.Schema, opts ReadOptions) iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		r, err := open(ctx, store, f, Project(schema, opts.Columns), opts.BatchRows)
		if err == nil {
			err = r.read(opts.Begin, opts.End, func(c Chunk) bool { return yield(c, nil) })
		}
		if err != nil {
			yield(Chunk{}, fmt.Errorf("read %s: %w", f.Location, err))
		}
	}
}

// fileReader reads one file as rows of schema.
type fileReader struct {
	ctx    context.Context // of the one Read it serves
	schema *table.Schema
	rows   uint64
	pq     *pqarrow.FileReader
	leaves []int          // Parquet columns that schema needs
	ids    map[string]int // name of a top-level field → field id it stands for
	batch  int
}

func open(ctx context.Context, store objstore.Store, f File, schema *table.Schema, batch int, opts ...file.ReadOption) (*fileReader, error) {
	pf, err := file.NewParquetReader(newObjectReader(ctx, store, f), opts...)
	if err != nil {
		return nil, err
	}
	r := &fileReader{ctx: ctx, schema: schema, rows: uint64(pf.NumRows()), batch: batch}
	if r.batch == 0 {
		r.batch = batchRows
	}
	// Memory must be Go's: batches keep slices of it after the record is released.
	r.pq, err = pqarrow.NewFileReader(pf, pqarrow.ArrowReadProperties{BatchSize: int64(r.batch)}, memory.NewGoAllocator())
	if err != nil {
		return nil, err
	}
	if f.Rows != 0 && uint64(f.Rows) != r.rows {
		return nil, fmt.Errorf("file has %d rows, want %d", r.rows, f.Rows)
	}
	r.choose()
	return r, nil
}

// choose finds the file's columns for the schema's: by field id, or by name in a file without any ids.
func (r *fileReader) choose() {
	want, byName := map[int]bool{}, map[string]int{}
	for i, c := range r.schema.Columns {
		want[c.FieldID], byName[c.Name] = true, c.FieldID
		if c.ExactID != 0 {
			want[c.ExactID], byName[CompanionName(r.schema, i)] = true, c.ExactID
		}
	}
	named := !slices.ContainsFunc(r.pq.Manifest.Fields, func(f pqarrow.SchemaField) bool { return fieldID(*f.Field) >= 0 })
	r.ids = map[string]int{}
	for _, f := range r.pq.Manifest.Fields {
		id := fieldID(*f.Field)
		if named {
			id = byName[f.Field.Name]
		}
		if want[id] {
			r.ids[f.Field.Name] = id
			r.leaves = append(r.leaves, leavesOf(f)...)
		}
	}
}

// Companions is the columns (indexes into the schema's) of which the file has a companion, for a Write of what is read of it.
func Companions(ctx context.Context, store objstore.Store, f File, schema *table.Schema) ([]int, error) {
	if !slices.ContainsFunc(schema.Columns, func(c table.Column) bool { return c.ExactID != 0 }) {
		return nil, nil
	}
	r, err := open(ctx, store, f, schema, 0)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", f.Location, err)
	}
	var cols []int
	for i, c := range schema.Columns {
		for _, id := range r.ids {
			if c.ExactID != 0 && id == c.ExactID {
				cols = append(cols, i)
			}
		}
	}
	return cols, nil
}

func leavesOf(f pqarrow.SchemaField) []int {
	if len(f.Children) == 0 {
		return []int{f.ColIndex}
	}
	var leaves []int
	for _, c := range f.Children {
		leaves = append(leaves, leavesOf(c)...)
	}
	return leaves
}

// groups is the row groups that hold rows of [begin, end) and the position of the first row of the first.
func (r *fileReader) groups(begin, end uint64) (groups []int, first uint64) {
	var at uint64
	for g := range r.pq.ParquetReader().NumRowGroups() {
		next := at + uint64(r.pq.ParquetReader().MetaData().RowGroup(g).NumRows())
		if next > begin && at < end {
			if groups == nil {
				first = at
			}
			groups = append(groups, g)
		}
		at = next
	}
	return groups, first
}

// read calls emit with the rows of [begin, end), end 0 = all, until it returns false.
func (r *fileReader) read(begin, end uint64, emit func(Chunk) bool) error {
	if end == 0 || end > r.rows {
		end = r.rows
	}
	if begin >= end {
		return nil
	}
	if len(r.leaves) == 0 {
		return r.readAbsent(begin, end, emit)
	}
	groups, first := r.groups(begin, end)
	rr, err := r.pq.GetRecordReader(r.ctx, r.leaves, groups)
	if err != nil {
		return err
	}
	defer rr.Release()
	at := first
	if begin > first && r.flat() {
		if err := rr.SeekToRow(int64(begin - first)); err != nil {
			return err
		}
		at = begin
	}
	for at < end {
		b, err := r.next(rr)
		if err != nil {
			return err
		}
		c, some := clip(Chunk{First: at, Rows: b}, begin, end)
		if some && !emit(c) {
			return nil
		}
		at += uint64(b.Rows)
	}
	return nil
}

// flat reports whether no column is a list. Without an offset index arrow-go cannot seek in lists: it counts values, not
// rows.
func (r *fileReader) flat() bool {
	s := r.pq.ParquetReader().MetaData().Schema
	return !slices.ContainsFunc(r.leaves, func(i int) bool { return s.Column(i).MaxRepetitionLevel() > 0 })
}

// clip is the rows of c in [begin, end), if there are any.
func clip(c Chunk, begin, end uint64) (Chunk, bool) {
	next := c.First + uint64(c.Rows.Rows)
	lo, hi := max(begin, c.First), min(end, next)
	if lo >= hi || lo == c.First && hi == next {
		return c, lo < hi
	}
	b := table.NewBatch(c.Rows.Schema)
	b.AppendRange(c.Rows, int(lo-c.First), int(hi-c.First))
	return Chunk{First: lo, Rows: b}, true
}

// readAbsent yields the rows of a file that has none of the columns.
func (r *fileReader) readAbsent(begin, end uint64, emit func(Chunk) bool) error {
	for at := begin; at < end; {
		n := min(end-at, uint64(r.batch))
		b := &table.Batch{Schema: r.schema, Rows: int(n), Cols: make([]*table.Vec, len(r.schema.Columns))}
		for i := range b.Cols {
			var err error
			if b.Cols[i], err = Initial(&r.schema.Columns[i], int(n)); err != nil {
				return err
			}
		}
		if !emit(Chunk{First: at, Rows: b}) {
			return nil
		}
		at += n
	}
	return nil
}

// next is the next record as a batch.
func (r *fileReader) next(rr pqarrow.RecordReader) (*table.Batch, error) {
	if err := r.ctx.Err(); err != nil {
		return nil, err
	}
	if !rr.Next() {
		return nil, errors.Join(io.ErrUnexpectedEOF, rr.Err())
	}
	rec := rr.RecordBatch()
	fields := slices.Clone(rec.Schema().Fields())
	for i := range fields {
		fields[i].Metadata = fieldMetadata(r.ids[fields[i].Name])
	}
	return FromArrow(withFields(rec, fields), r.schema)
}

func withFields(rec arrow.RecordBatch, fields []arrow.Field) arrow.RecordBatch {
	return renamed{rec, arrow.NewSchema(fields, nil)}
}

// renamed is a record under another schema.
type renamed struct {
	arrow.RecordBatch
	schema *arrow.Schema
}

func (r renamed) Schema() *arrow.Schema { return r.schema }

// objectReader is an object as an io.ReaderAt and io.Seeker. It reads the object's end once, since a Parquet reader asks
// for the last bytes first and then for the footer before them.
type objectReader struct {
	ctx   context.Context
	store objstore.Store
	file  File
	pos   int64
	tail  []byte
}

const tailBytes = 64 << 10

func newObjectReader(ctx context.Context, store objstore.Store, f File) *objectReader {
	return &objectReader{ctx: ctx, store: store, file: f}
}

// ReadAt implements io.ReaderAt.
func (o *objectReader) ReadAt(p []byte, off int64) (int, error) {
	var b []byte
	var err error
	if begin := o.file.Size - tailBytes; off >= max(begin, 0) {
		b, err = o.readTail(max(begin, 0), off)
	} else {
		b, err = o.store.GetRange(o.ctx, o.file.Location, off, int64(len(p)))
	}
	if err != nil {
		return 0, err
	}
	n := copy(p, b)
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (o *objectReader) readTail(begin, off int64) (_ []byte, err error) {
	if o.tail == nil {
		if o.tail, err = o.store.GetRange(o.ctx, o.file.Location, begin, tailBytes); err != nil {
			return nil, err
		}
	}
	return o.tail[min(off-begin, int64(len(o.tail))):], nil
}

// Read implements io.Reader.
func (o *objectReader) Read(p []byte) (int, error) {
	n, err := o.ReadAt(p, o.pos)
	o.pos += int64(n)
	if n > 0 {
		err = nil
	}
	return n, err
}

// Seek implements io.Seeker.
func (o *objectReader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += o.pos
	case io.SeekEnd:
		offset += o.file.Size
	}
	if offset < 0 {
		return 0, errors.New("seek before the start")
	}
	o.pos = offset
	return offset, nil
}
