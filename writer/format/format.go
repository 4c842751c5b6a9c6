// Package format is the narrow door to table formats: what a change of one table is, and what a table's files are, in words
// that no format owns.
//
// It owns the interface Format and the names of data files. Start with Format. It writes nothing itself and knows no
// catalog: an implementation writes metadata beside the old one and hands back a pointer, and whoever moves the pointer in
// the catalog makes the change real.
//
//	p, err := f.Create(ctx, location, schema, format.Options{})   // a table without rows
//	loc := format.DataLocation(p, id)                             // where a new data file goes; datafile.Write puts it there
//	q, err := f.Stage(ctx, p, format.Edit{...})                   // q == p if nothing changes
//	s, err := f.Snapshot(ctx, q)                                  // live files, their deleted rows
//	err = f.Publish(ctx, q)                                       // after the catalog has moved p to q
package format

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"sluice/writer/datafile"
	"sluice/writer/objstore"
	"sluice/writer/table"
)

// Format writes and reads the metadata of one table format.
type Format interface {
	// Create writes the metadata of a table without rows at a location that no other table has or had.
	Create(ctx context.Context, location string, schema *table.Schema, o Options) (table.Pointer, error)
	// Stage writes metadata for edit on top of base and returns the pointer to move to, base itself if the edit changes
	// nothing. Nothing it writes can be reached before the catalog commits; a staged pointer that is never committed is
	// garbage, and staging again on another base is always right.
	Stage(ctx context.Context, base table.Pointer, edit Edit) (table.Pointer, error)
	// Publish shows a committed pointer to readers that do not ask our catalog. Idempotent: recovery runs it again.
	Publish(ctx context.Context, p table.Pointer) error
	// Snapshot lists the live files of p.
	Snapshot(ctx context.Context, p table.Pointer) (Snapshot, error)
	// Expire is Stage of the removal of old snapshots from the history; it returns base if none is to go. gone are the objects that nothing
	// reaches any more once the catalog has committed, and that may be deleted then.
	Expire(ctx context.Context, base table.Pointer, e Expiry) (p table.Pointer, gone []string, err error)
	// SnapshotAt is Snapshot of an older snapshot in the history of p, by its ID; 0 is the table without rows.
	SnapshotAt(ctx context.Context, p table.Pointer, id int64) (Snapshot, error)
	// Head is Snapshot without Files, from the metadata alone.
	Head(ctx context.Context, p table.Pointer) (Snapshot, error)
}

// Options are what a table is created with beside its schema.
type Options struct {
	Version     int               // of the format: Iceberg 2 or 3; 0 = 3
	CopyOnWrite bool              // tells engines to rewrite files instead of writing deletes
	Properties  map[string]string // table properties, over the defaults
}

// DataFile is a data file that an edit adds.
type DataFile struct {
	ID   table.FileID
	File datafile.File
	// Partition is the file's partition value for each field of the schema's spec, see Value.
	Partition []any
	// Deleted are rows of it that are dead from the beginning; nil: none.
	Deleted *roaring.Bitmap
}

// Edit is a neutral change of one table. All of it becomes visible at once.
type Edit struct {
	Table    table.ID
	Position table.Position // the table's rows are those of this commit position; kept with the snapshot
	FlushID  string         // the flip; kept with the snapshot, so that an unknown outcome can be looked up. Objects are called by Name(FlushID)
	// Schema is the table's schema after the edit; nil leaves it. A difference in columns or spec is a schema change.
	Schema *table.Schema
	// Truncate removes all files of the base, before anything else.
	Truncate bool
	// Removed are files to take out. Their deletes go with them.
	Removed []table.FileID
	// Deletes are rows to delete from files of the base. Rows that are deleted already may be named again.
	Deletes map[table.FileID]*roaring.Bitmap
	Added   []DataFile
	// Rewrite says that the table has the same rows as before: Added replaces Removed.
	Rewrite    bool
	Properties map[string]string // table properties to set
}

// Expiry says which snapshots of a table's history go.
type Expiry struct {
	FlushID string
	Age     time.Duration // older ones than this; negative: as the table's properties say
	Since   int64         // this snapshot and newer ones stay; 0: the current one
}

// Snapshot is what a table consists of at one pointer.
type Snapshot struct {
	ID       int64 // the format's number of the snapshot; 0 = the table never had rows
	Position table.Position
	FlushID  string
	Files    []File // in order of ID
	Spec     int    // the format's number of the partition spec that new files have
	// Lineage is the columns by which rows keep their identity when they are written again: the number of the row and that of the
	// commit that changed it last, both Int64. A rewritten file has them behind the schema's columns. nil: the format has none.
	Lineage []table.Column
}

// File is a live data file.
type File struct {
	ID      table.FileID // see FileID
	File    datafile.File
	Deleted *roaring.Bitmap // positions of deleted rows, nil if there are none
	// Partition is as in DataFile, for the fields of the spec the file was written with (Spec, the format's number).
	Partition []any
	Spec      int
	// What a row has in the columns Lineage where the file does not say: FirstRow + its position (nil: the rows have no number), and
	// Sequence.
	FirstRow *int64
	Sequence int64
}

// Value is value i of v as a partition value: nil for NULL, bool, int32 (Int32, Date), int64 (Int64, Decimal64, Time,
// Timestamp, TimestampTZ), float32, float64, [16]byte (Decimal128, UUID, as in the vector), string, []byte. The transforms
// bucket, year, month, day and hour have int32 values (day: days since 1970), identity and truncate those of their source.
// A Decimal128 may also be given as int64, and one that fits is an int64 in Snapshot.
func Value(v *table.Vec, i int) any {
	if v.IsNull(i) {
		return nil
	}
	switch v.Type.Kind {
	case table.Bool:
		return v.Bool(i)
	case table.Int32, table.Date:
		return v.Int32(i)
	case table.Float32:
		return v.Float32(i)
	case table.Float64:
		return v.Float64(i)
	case table.Decimal128, table.UUID:
		return [16]byte(v.FixedAt(i))
	case table.String:
		return string(v.Bytes(i))
	case table.Binary:
		return append([]byte{}, v.Bytes(i)...)
	}
	return v.Int64(i)
}

// Root is the location of the table whose metadata p points to.
func Root(p table.Pointer) string {
	if i := strings.LastIndex(p.Location, "/metadata/"); i >= 0 {
		return p.Location[:i]
	}
	return p.Location
}

// DataLocation is a new location for data file id of the table. The id stands in the name, so that metadata alone gives it
// back; the rest is random, so that a name is never used twice even if the id is (a flush that failed and ran again).
func DataLocation(p table.Pointer, id table.FileID) string {
	return objstore.Join(Root(p), "data", fmt.Sprintf("%08x-%s.parquet", uint32(id), NewUUID()))
}

// FileID is the id in a name that DataLocation made. Any other name is another writer's and has an id from Foreign on, made of the name alone:
// 31 bits of its hash, so that metadata gives it back at every start. Two names with one id are refused where they meet.
func FileID(location string) table.FileID {
	name := location[strings.LastIndexByte(location, '/')+1:]
	if len(name) == 8+1+36+len(".parquet") && name[8] == '-' && strings.HasSuffix(name, ".parquet") && strings.ToLower(name[:8]) == name[:8] {
		if id, err := strconv.ParseUint(name[:8], 16, 32); err == nil && id > 0 && id < uint64(Foreign) {
			return table.FileID(id)
		}
	}
	h := sha256.Sum256([]byte(location))
	id := Foreign | table.FileID(binary.BigEndian.Uint32(h[:4]))
	if id == table.Own {
		id = Foreign
	}
	return id
}

// Foreign is the first id of files that another writer has named.
const Foreign table.FileID = 1 << 31

// Name is what a flip calls an object of its own: a text like a UUID that begins with Stem(flip). Without a flip it is a UUID.
func Name(flip string) string {
	if flip == "" {
		return NewUUID()
	}
	return Stem(flip) + NewUUID()[len("01234567-0123-0123"):]
}

// Stem is in the location of each object that was written for the flip beside data files, and in no other: 64 bits of the flip's id. By
// it a sweep finds what a crash left.
func Stem(flip string) string {
	h := sha256.Sum256([]byte(flip))
	return fmt.Sprintf("%x-%x-%x", h[:4], h[4:6], h[6:8])
}

// NewUUID is a random UUID (version 4) as text.
func NewUUID() string {
	var u [16]byte
	rand.Read(u[:])
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}
