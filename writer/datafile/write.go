package datafile

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"sluice/writer/objstore"
	"sluice/writer/table"
)

const (
	// groupBytes caps the raw size of a row group: what a point read may have to decode, and what Write holds back.
	groupBytes = 64 << 20
	// pageBytes is small, since a point read decodes whole pages. The offset index says where they are.
	pageBytes = 32 << 10
)

// WriteOptions say what a file holds beside the columns.
type WriteOptions struct {
	// Exact lists the columns (indexes into the schema's) whose companion column the file has. It must name each column
	// for which a batch holds exact values: ExactColumns finds them.
	Exact []int
	// Dictionary lists columns to write with a dictionary. Data files have none; pyiceberg wants one in position deletes.
	Dictionary []int
	// GroupBytes caps the raw size of a row group; 0 means 64 MiB.
	GroupBytes int
}

// ExactColumns is the columns of which a batch holds values their type cannot represent.
func ExactColumns(batches ...*table.Batch) []int {
	var cols []int
	for _, b := range batches {
		for i, v := range b.Cols {
			if len(v.Exact) > 0 && !slices.Contains(cols, i) {
				cols = append(cols, i)
			}
		}
	}
	slices.Sort(cols)
	return cols
}

// All is an iterator over batches in memory, for Write.
func All(batches ...*table.Batch) iter.Seq2[*table.Batch, error] {
	return func(yield func(*table.Batch, error) bool) {
		for _, b := range batches {
			if !yield(b, nil) {
				return
			}
		}
	}
}

// Write writes batches of one schema as one Parquet file and puts it at location. The encoded file is held in memory until
// it is complete, so a crash leaves nothing or an object that nobody refers to.
func Write(ctx context.Context, store objstore.Store, location string, schema *table.Schema, batches iter.Seq2[*table.Batch, error],
	opts WriteOptions) (File, error) {
	w, err := newFileWriter(schema, opts)
	if err != nil {
		return File{}, fmt.Errorf("write %s: %w", location, err)
	}
	for b, err := range batches {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = w.write(b)
		}
		if err != nil {
			return File{}, fmt.Errorf("write %s: %w", location, err)
		}
	}
	f, err := w.close()
	if err != nil {
		return File{}, fmt.Errorf("write %s: %w", location, err)
	}
	f.Location = location
	if err := store.Put(ctx, location, w.out.Bytes()); err != nil {
		return File{}, err
	}
	return f, nil
}

// fileWriter encodes one file into memory.
type fileWriter struct {
	schema *table.Schema
	arrow  *arrow.Schema
	opts   WriteOptions
	out    bytes.Buffer
	props  *parquet.WriterProperties // changed in place between row groups, see startGroup
	pq     *pqarrow.FileWriter
	bounds []*bounds    // one a column of arrow
	nan    map[int]bool // columns in which a NaN was seen: no Parquet statistics from then on
	group  int          // raw bytes in the row group; 0 = none begun
	rows   int64
}

func newFileWriter(schema *table.Schema, opts WriteOptions) (*fileWriter, error) {
	w := &fileWriter{schema: schema, arrow: ArrowSchema(schema, opts.Exact), opts: opts, nan: map[int]bool{}}
	if w.opts.GroupBytes == 0 {
		w.opts.GroupBytes = groupBytes
	}
	for _, c := range schema.Columns {
		id := c.FieldID
		if c.Type.Kind == table.List {
			id = c.ElemID
		}
		w.bounds = append(w.bounds, newBounds(id, c.Type.Kind))
	}
	for _, i := range opts.Exact {
		w.bounds = append(w.bounds, newBounds(schema.Columns[i].ExactID, table.String))
	}
	w.props = w.properties()
	var err error
	w.pq, err = pqarrow.NewFileWriter(w.arrow, &w.out, w.props, pqarrow.NewArrowWriterProperties())
	return w, err
}

// properties are the settings that Spark, Trino, DuckDB, pyiceberg and polars were seen to read exactly. Data pages are v1
// because only they may go without statistics.
func (w *fileWriter) properties() *parquet.WriterProperties {
	p := []parquet.WriterProperty{parquet.WithVersion(parquet.V2_LATEST), parquet.WithDataPageVersion(parquet.DataPageV1),
		parquet.WithCompression(compress.Codecs.Zstd), parquet.WithCompressionLevel(1), parquet.WithDictionaryDefault(false),
		parquet.WithStoreDecimalAsInteger(true), parquet.WithDataPageSize(pageBytes), parquet.WithCreatedBy("sluice"), parquet.WithPageIndexEnabled(true),
		parquet.WithMaxRowGroupLength(1 << 40)}
	for i, f := range w.arrow.Fields() {
		t := table.Type{Kind: table.String} // a companion
		if i < len(w.schema.Columns) {
			t = w.schema.Columns[i].Type
		}
		path := f.Name
		if t.Kind == table.List {
			path, t = f.Name+".list.element", *t.Elem
		}
		if slices.Contains(w.opts.Dictionary, i) {
			p = append(p, parquet.WithDictionaryFor(path, true))
			continue
		}
		p = append(p, columnProperties(path, t, w.nan[i])...)
	}
	return parquet.NewWriterProperties(p...)
}

func columnProperties(path string, t table.Type, nan bool) []parquet.WriterProperty {
	p := []parquet.WriterProperty{parquet.WithStatsFor(path, !nan && t.Kind != table.UUID)}
	switch t.Kind {
	case table.Int32, table.Int64, table.Date, table.Time, table.Timestamp, table.TimestampTZ, table.Decimal64:
		p = append(p, parquet.WithEncodingFor(path, parquet.Encodings.DeltaBinaryPacked))
	case table.String, table.Binary:
		p = append(p, parquet.WithEncodingFor(path, parquet.Encodings.DeltaLengthByteArray))
	}
	return p
}

func (w *fileWriter) write(b *table.Batch) error {
	if b.Rows == 0 {
		return nil
	}
	if err := w.check(b); err != nil {
		return err
	}
	rec := toRecord(b, w.arrow, w.opts.Exact)
	for i, bd := range w.bounds {
		if i < len(b.Cols) {
			bd.add(b.Cols[i])
		} else {
			bd.add(companion(b.Cols[w.opts.Exact[i-len(b.Cols)]]))
		}
	}
	w.rows += int64(b.Rows)
	fresh := w.newNaNs(b)
	size := b.Size()
	pieces := int64(size/w.opts.GroupBytes + 1)
	rows := (rec.NumRows() + pieces - 1) / pieces
	for begin := int64(0); begin < rec.NumRows(); begin += rows {
		if w.group == 0 || fresh || w.group+size/int(pieces) > w.opts.GroupBytes {
			if err := w.startGroup(); err != nil {
				return err
			}
			fresh = false
		}
		if err := w.pq.WriteBuffered(rec.NewSlice(begin, min(begin+rows, rec.NumRows()))); err != nil {
			return err
		}
		w.group += size/int(pieces) + 1
	}
	return nil
}

// startGroup begins a row group. Column writers ask the properties when a group begins, and only then is known which
// columns hold NaN, so the properties are replaced under the file writer.
func (w *fileWriter) startGroup() error {
	*w.props = *w.properties()
	w.group = 0
	return w.pq.NewBufferedRowGroupChecked()
}

// newNaNs notes the columns of b with a NaN and reports whether there is one that had none before.
func (w *fileWriter) newNaNs(b *table.Batch) bool {
	fresh := false
	for i, v := range b.Cols {
		if !w.nan[i] && hasNaN(v) {
			w.nan[i], fresh = true, true
		}
	}
	return fresh
}

// check keeps batches out that would lose something.
func (w *fileWriter) check(b *table.Batch) error {
	if len(b.Cols) != len(w.schema.Columns) {
		return fmt.Errorf("batch has %d columns, schema %d", len(b.Cols), len(w.schema.Columns))
	}
	for i, v := range b.Cols {
		c := &w.schema.Columns[i]
		switch {
		case v.Len != b.Rows:
			return fmt.Errorf("column %s has %d values for %d rows", c.Name, v.Len, b.Rows)
		case !v.Type.Equal(c.Type):
			return fmt.Errorf("column %s is %s, want %s", c.Name, v.Type, c.Type)
		case c.NotNull && !c.Exact && v.Nulls > 0:
			return fmt.Errorf("column %s holds NULL", c.Name)
		case len(v.Exact) > 0 && !slices.Contains(w.opts.Exact, i):
			return fmt.Errorf("column %s holds exact values and the file has no companion for it", c.Name)
		case v.Elems != nil && len(v.Elems.Exact) > 0:
			return fmt.Errorf("column %s holds exact values inside a list", c.Name)
		}
	}
	return nil
}

func (w *fileWriter) close() (File, error) {
	if err := w.pq.Close(); err != nil {
		return File{}, err
	}
	meta, err := w.pq.FileMetadata()
	if err != nil {
		return File{}, err
	}
	f := File{Rows: w.rows, Size: int64(w.out.Len())}
	for _, b := range w.bounds {
		f.Stats = append(f.Stats, b.finish())
	}
	for _, g := range meta.RowGroups {
		first := g.Columns[0].MetaData
		if first.DictionaryPageOffset != nil {
			f.Splits = append(f.Splits, *first.DictionaryPageOffset)
		} else {
			f.Splits = append(f.Splits, first.DataPageOffset)
		}
		for i, c := range g.Columns { // one leaf a column
			f.Stats[i].Size += c.MetaData.TotalCompressedSize
		}
	}
	return f, nil
}
