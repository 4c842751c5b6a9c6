// Package table is the vocabulary of the writer: tables, columns, positions, rows and the column vectors that hold them.
//
// It owns no state and does no I/O. Start with Schema (what a row looks like), Vec and Batch (rows in memory) and Ref (the
// name of one row version).
package table

import "fmt"

// ID names a table for ever: the pg_class.oid of its shadow relation.
type ID uint32

// Position is a place in the stream of commits. The first transaction has position 1; positions are gapless (invariant I7).
type Position uint64

// FileID names one data file of one table, for ever. 0 means the tail (rows not yet in files).
type FileID uint32

// Ref names one row version. In the tail (File 0) Row is the table's running row number, assigned in commit order;
// in a file it is the row's position in the file, from 0. See docs/design/0001-row-identity.md.
type Ref struct {
	File FileID
	Row  uint64
}

// Kind is the physical kind of a column vector.
type Kind uint8

// The kinds, with the width of one value in Vec.Fixed in bytes and the Iceberg type.
const (
	Bool        Kind = iota + 1 // 1, boolean: 0 or 1
	Int32                       // 4, int (int2 and int4)
	Int64                       // 8, long
	Float32                     // 4, float
	Float64                     // 8, double
	Decimal64                   // 8, decimal(p ≤ 18, s): the unscaled integer
	Decimal128                  // 16, decimal(p ≤ 38, s): the unscaled integer, little-endian two's complement
	Date                        // 4, date: days since 1970-01-01
	Time                        // 8, time: microseconds since midnight, 0 to 86400000000
	Timestamp                   // 8, timestamp: microseconds since 1970-01-01 00:00:00
	TimestampTZ                 // 8, timestamptz: microseconds since 1970-01-01 00:00:00 UTC
	UUID                        // 16, uuid: the bytes in the order they are printed
	String                      // variable, string: UTF-8
	Binary                      // variable, binary
	List                        // variable, list<Elem>
)

var kindNames = [...]string{"", "boolean", "int", "long", "float", "double", "decimal", "decimal", "date", "time", "timestamp",
	"timestamptz", "uuid", "string", "binary", "list"}

var kindWidths = [...]int{0, 1, 4, 8, 4, 8, 8, 16, 4, 8, 8, 8, 16, 0, 0, 0}

// Width is the size of one value in Vec.Fixed in bytes; 0 for String, Binary and List.
func (k Kind) Width() int { return kindWidths[k] }

// Type is the lake type of a column.
type Type struct {
	Kind      Kind
	Precision int   // Decimal64, Decimal128: 1 to 38
	Scale     int   // Decimal64, Decimal128: 0 to Precision
	Elem      *Type // List: the element type, which is never a List
}

// DecimalType is decimal(p, s) in the narrowest kind that holds it.
func DecimalType(p, s int) Type {
	if p <= 18 {
		return Type{Kind: Decimal64, Precision: p, Scale: s}
	}
	return Type{Kind: Decimal128, Precision: p, Scale: s}
}

// ListOf is list<elem>.
func ListOf(elem Type) Type { return Type{Kind: List, Elem: &elem} }

// String prints the type as Iceberg writes it, for example decimal(10, 2) or list<string>.
func (t Type) String() string {
	switch t.Kind {
	case Decimal64, Decimal128:
		return fmt.Sprintf("decimal(%d, %d)", t.Precision, t.Scale)
	case List:
		return "list<" + t.Elem.String() + ">"
	}
	return kindNames[t.Kind]
}

// Equal reports whether both types are the same.
func (t Type) Equal(o Type) bool {
	if t.Kind != o.Kind || t.Precision != o.Precision || t.Scale != o.Scale {
		return false
	}
	return t.Kind != List || t.Elem.Equal(*o.Elem)
}

// Column is one column of a table.
type Column struct {
	Name    string
	FieldID int // Iceberg field id, never reused within the table
	ElemID  int // Iceberg field id of the list element; 0 unless Type is a List
	Type    Type
	NotNull bool
	// Exact says that the column's Postgres type has values that Type cannot hold (infinity, NaN in numeric, numbers
	// outside decimal(38,18)). Such a value is NULL in the vector and text in Vec.Exact; it lands in the companion
	// column NAME__text, whose Iceberg field id is ExactID. A column with Exact is optional in Iceberg.
	Exact   bool
	ExactID int
	// Doc is the column's doc in Iceberg: the Postgres type, so that the original is always recoverable.
	Doc string
	// Initial is the text of the value that rows written before the column existed have; nil means NULL.
	Initial *string
}

// PartitionField is one field of a partition spec (Iceberg spec, section Partition Transforms).
type PartitionField struct {
	Source    int    // field id of the source column
	FieldID   int    // partition field id, from 1000
	Name      string // for example ts_day
	Transform string // identity, bucket[n], truncate[n], year, month, day, hour
}

// Schema is one version of a table's columns. A Schema is never changed once shared.
type Schema struct {
	ID      int // grows by one with every change of the table
	Columns []Column
	Key     []int // indexes into Columns of the primary key; empty for a keyless table
	Spec    []PartitionField
}

// Index is the position of the column called name, or -1.
func (s *Schema) Index(name string) int {
	for i := range s.Columns {
		if s.Columns[i].Name == name {
			return i
		}
	}
	return -1
}

// Pointer is what a catalog stores for a table: where its newest metadata is. The empty Pointer is a table that is not there yet.
type Pointer struct {
	Location string // of the metadata file, for example file:///…/metadata/00003-uuid.metadata.json
}
