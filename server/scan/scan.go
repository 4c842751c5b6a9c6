// Package scan is what the scan lane asks a reader for: one SELECT that the gateway has printed, and the rows of the lake tables in it.
//
// It owns the vocabulary between package server, which asks, and package server/reader, which answers from another process, so
// that neither needs the other. Start with Request. It does nothing.
package scan

import (
	"fmt"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/apache/arrow-go/v18/arrow"

	"sluice/writer/table"
)

// Request is one query.
type Request struct {
	SQL    string // printed by the gateway from its own tree: names only Tables, never a name of the user's
	Tables []Table
}

// Table is what one name in the query stands for: the live rows of some columns of a lake table.
type Table struct {
	Name    string
	Columns []Column
	Files   []File
	Rows    []arrow.RecordBatch // tail and own rows; their fields are Columns, in order, then RowID
	// RowID, unless it is "", is one more column (BIGINT) that tells the rows: FileRow for those of files, what Rows says for the others.
	RowID string
}

// FileRow is the RowID of a row of Files[file].
func FileRow(file int, row uint32) int64 { return int64(file+1)<<32 | int64(row) }

// SplitRow is the reverse of FileRow; file is -1 for a row of Rows.
func SplitRow(id int64) (file int, row uint32) { return int(id>>32) - 1, uint32(id) }

// Column is a column of a Table.
type Column struct {
	Name    string // in the query
	FieldID int
	ExactID int    // field id of the companion, 0 without one: a file that has it is refused with ErrExact
	Type    string // of DuckDB
	Initial *string
}

// File is a Parquet file on the local disk.
type File struct {
	Path string
	Rows uint64
	Dead *roaring.Bitmap // rows that are not live; nil is none
}

// Error is why a query has no answer, with an SQLSTATE.
type Error struct {
	Code, Message string
	// What would help, if printed anew: numerics of 38 digits from the start, or quotients with so many decimals.
	Wide     bool `json:",omitempty"`
	Decimals int  `json:",omitempty"`
}

func (e *Error) Error() string { return e.Message }

// Unfit is an Error's code if the query is not for this lane after all: another lane may still answer.
const Unfit = "0A000"

// ErrExact says that a file holds values that the lake's types cannot hold, where only Postgres' text is right.
var ErrExact = &Error{Code: Unfit, Message: "a referenced column holds values outside its lake type"}

// TypeName is DuckDB's name of a lake type.
func TypeName(t table.Type) string {
	switch t.Kind {
	case table.Decimal64, table.Decimal128:
		return fmt.Sprintf("DECIMAL(%d,%d)", t.Precision, t.Scale)
	case table.List:
		return TypeName(*t.Elem) + "[]"
	}
	return names[t.Kind]
}

var names = map[table.Kind]string{
	table.Bool: "BOOLEAN", table.Int32: "INTEGER", table.Int64: "BIGINT", table.Float32: "FLOAT", table.Float64: "DOUBLE", table.Date: "DATE",
	table.Time: "TIME", table.Timestamp: "TIMESTAMP", table.TimestampTZ: "TIMESTAMPTZ", table.UUID: "UUID", table.String: "VARCHAR",
	table.Binary: "BLOB",
}
