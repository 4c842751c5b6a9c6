// Package datafile turns batches into Parquet files and back.
//
// It owns the bytes of data files: which Parquet type, encoding and statistics a column gets, and how a file that was
// written under an older schema, or by another engine, reads as rows of the schema of today. Start with Write and Read.
// It never decides which rows go into a file, what a file is called, or whether anybody may see it.
//
//	Write(ctx, store, location, schema, batches, WriteOptions) (File, error) // one file; batches is an iterator
//	Read(ctx, store, file, schema, ReadOptions) iter.Seq2[Chunk, error]      // all rows or a range, some or all columns
//	Companions(ctx, store, file, schema) ([]int, error)                      // columns of which a file has the companion
//	NewCache(store, limit).ReadRows(ctx, file, schema, rows) (*table.Batch, error) // rows by position, in the order asked
//	ToArrow(batch, WriteOptions) arrow.RecordBatch, FromArrow(rec, schema) (*table.Batch, error), ArrowSchema
//	Project(schema, columns) *table.Schema                                   // the schema of what Read returns
//	CompanionName(schema, i) string                                          // the name of column i's NAME__text
//	ParseText(type, text) (*table.Vec, error)                                // Column.Initial as a value
//
// Columns are found by Iceberg field id, never by name or place. A column that a file does not have reads as the column's
// Initial value, a narrower one is widened. Values that a lake type cannot hold (table.Exact) lie in a companion string
// column, which exists only in files that need it.
package datafile

import (
	"sluice/writer/table"
)

// File is what is known of a data file without reading it.
type File struct {
	Location string
	Rows     int64
	Size     int64 // bytes
	Stats    []ColumnStats
	Splits   []int64 // where each row group starts
}

// ColumnStats are the statistics of one column of one file.
type ColumnStats struct {
	FieldID int
	Size    int64 // bytes in the file
	// Counts of values (NULL and NaN included), NULLs and NaNs. Counted is false for list elements, which have no counts.
	Counted             bool
	Values, Nulls, NaNs int64
	// Min and Max are bounds in the layout of table.Vec (little-endian, or bytes), nil if there are none. Those of strings
	// and bytes are cut: Min is at most the smallest value, Max at least the largest.
	Min, Max []byte
}

// Chunk is some rows of a file; First is the position of the first.
type Chunk struct {
	First uint64
	Rows  *table.Batch
}

// Project is the schema of the given columns (indexes into s.Columns) of s; nil means all of them. It has no key and no
// partition spec unless it has all columns.
func Project(s *table.Schema, columns []int) *table.Schema {
	if columns == nil {
		return s
	}
	p := &table.Schema{ID: s.ID}
	for _, c := range columns {
		p.Columns = append(p.Columns, s.Columns[c])
	}
	return p
}

// CompanionName is the name of the companion column of column i: NAME__text, longer if a column of the table is called so.
func CompanionName(s *table.Schema, i int) string {
	name := s.Columns[i].Name + "__text"
	for s.Index(name) >= 0 {
		name += "_"
	}
	return name
}
