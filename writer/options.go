package writer

import (
	"cmp"
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"path/filepath"
	"time"

	"sluice/writer/catalog"
	"sluice/writer/flush"
	"sluice/writer/format"
	"sluice/writer/lock"
	"sluice/writer/objstore"
	"sluice/writer/realtime"
	"sluice/writer/table"
	"sluice/writer/wal"
)

// Def is a table as a transaction sees it.
type Def = realtime.Def

// UniqueDef is one unique constraint. Its key function is all that the writer knows about equality.
type UniqueDef = realtime.UniqueDef

// KeyFunc makes the key of a row: see realtime.KeyFunc.
type KeyFunc = realtime.KeyFunc

// TableDef is a table as the caller knows it: what it is (from the shadow relation) and, when Open asks, where it stands in the catalog.
type TableDef struct {
	ID        table.ID
	Namespace string
	Name      string
	Schema    *table.Schema
	Uniques   []UniqueDef
	Options   map[string]string // lake options of CREATE TABLE … WITH
	Location  string            // root of the table's objects; "" = the format's default

	Pointer  table.Pointer
	NextFile table.FileID
	NextRow  uint64
	RowMap   []byte
}

// Def is the table without where it stands.
func (d *TableDef) Def() *Def { return d.def() }

func (d *TableDef) def() *Def {
	return &Def{ID: d.ID, Namespace: d.Namespace, Name: d.Name, Schema: d.Schema, Uniques: d.Uniques, Options: d.Options, Location: d.Location}
}

// Options of a writer. Dir, Catalog, Objects, Format and Tables have to be there.
type Options struct {
	Dir     string // folder of the log
	Keys    string // folder for keys that do not fit into memory, Dir's keys by default
	WAL     wal.Options
	Locks   lock.Options
	Catalog catalog.Catalog
	Objects objstore.Store
	Format  format.Format
	// Partition is how the format partitions rows, for example iceberg.PartitionValues. Without it tables have no spec.
	Partition flush.Partition
	// Tables describes the tables, after the catalog was asked where they stand (State.Tables).
	Tables func(ctx context.Context, state catalog.State) ([]TableDef, error)

	Memory     int64         // bytes that rows not yet in files, and at most an eighth those kept of files, may take, 1 GiB by default
	SpillBytes int64         // a transaction's rows of one table beyond this go to files before its commit, a quarter of Memory by default
	FlushAge   time.Duration // a row is in files after about this long, 5 s by default; negative: only on demand and by bytes
	FlushBytes int64         // or when the tail has this many bytes, a quarter of Memory by default
	CompactAge time.Duration // how often to look for tables with many small files, 1 min by default; negative: never
	ExpireAge  time.Duration // how often to look for old snapshots, 1 h by default; negative: never
	Workers    int           // files written at a time, 2 by default

	Now    func() time.Time
	After  func(time.Duration) <-chan time.Time
	Random io.Reader
	Log    *slog.Logger
}

func (o Options) withDefaults() Options {
	o.Memory = cmp.Or(o.Memory, 1<<30)
	o.Keys = cmp.Or(o.Keys, filepath.Join(o.Dir, "keys"))
	o.Locks.Dir = o.Keys
	o.Locks.SpillKeys = cmp.Or(o.Locks.SpillKeys, int(o.Memory/lockShare/rowKeyCost))
	o.Locks.SpillBytes = cmp.Or(o.Locks.SpillBytes, o.Memory/spillShare)
	o.FlushAge = cmp.Or(o.FlushAge, 5*time.Second)
	o.CompactAge = cmp.Or(o.CompactAge, time.Minute)
	o.ExpireAge = cmp.Or(o.ExpireAge, time.Hour)
	o.FlushBytes = cmp.Or(o.FlushBytes, o.Memory/4)
	o.SpillBytes = cmp.Or(o.SpillBytes, o.Memory/4)
	o.Workers = cmp.Or(o.Workers, 2)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.After == nil {
		o.After = time.After
	}
	if o.Random == nil {
		o.Random = rand.Reader
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}
