// Package iceberg is format.Format for Apache Iceberg tables, version 3 (deletion vectors) and version 2 (position deletes).
//
// It owns the bytes of metadata.json, manifest lists, manifests and delete files, and is the only importer of iceberg-go,
// whose types, Avro code and metadata rules it uses; the snapshot producer is its own. Start with Open and Format.Stage.
// It never moves a pointer, never deletes an object and never changes one. It keeps parsed metadata and manifests, which
// are immutable, so a commit costs in proportion to what it changes, not to the table's size.
//
//	f := iceberg.Open(store, iceberg.Options{Now: time.Now})
//	f.Create, f.Stage, f.Snapshot, f.Publish                       // see package format
//	f.Head(ctx, p) (format.Snapshot, error)                        // Snapshot without Files, from the metadata alone
//	f.Metadata(ctx, p) ([]byte, error)                             // the raw metadata.json, for the REST catalog
//	CheckPartition(schema) error                                   // why Create would refuse its spec
//	PartitionValues(schema, batch, row) ([]any, error)             // format.DataFile.Partition of the file a row belongs to
//
// What a commit writes, in this order, each object with a new name: delete files (data/UUID-deletes.puffin), manifests
// (metadata/UUID-mN.avro), the manifest list (metadata/snap-ID-1-UUID.avro), metadata.json (metadata/NNNNN-UUID.metadata.json).
// A crash in between leaves objects that nothing refers to.
package iceberg

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"

	ice "github.com/apache/iceberg-go"
	icetable "github.com/apache/iceberg-go/table"
	"github.com/google/uuid"

	"sluice/writer/format"
	"sluice/writer/invariants"
	"sluice/writer/objstore"
	"sluice/writer/table"
)

// Options are the world of a Format.
type Options struct {
	Now func() time.Time
	// MergeManifests is how many small manifests a partition spec may have before a commit merges them; 0 = 30.
	MergeManifests int
}

// Format implements format.Format. It is safe for concurrent use; one table is staged by one caller at a time.
type Format struct {
	store objstore.Store
	opts  Options
	metas *cache[icetable.Metadata] // by location
	lists *cache[[]ice.ManifestFile]
	files *cache[*manifest]
}

var _ format.Format = (*Format)(nil)

// Open makes a Format whose tables lie in store.
func Open(store objstore.Store, o Options) *Format {
	if o.MergeManifests == 0 {
		o.MergeManifests = 30
	}
	return &Format{store: store, opts: o, metas: newCache[icetable.Metadata](256), lists: newCache[[]ice.ManifestFile](1024),
		files: newCache[*manifest](50_000)}
}

// defaults are the properties of a new table. Engines that write to it follow them.
func defaults(o format.Options) ice.Properties {
	mode := "merge-on-read"
	if o.CopyOnWrite {
		mode = "copy-on-write"
	}
	p := ice.Properties{"write.format.default": "parquet", "write.parquet.compression-codec": "zstd", "write.delete.mode": mode,
		"write.update.mode": mode, "write.merge.mode": mode, "write.metadata.previous-versions-max": "20"}
	for k, v := range o.Properties {
		p[k] = v
	}
	return p
}

// Create implements format.Format.
func (f *Format) Create(ctx context.Context, location string, schema *table.Schema, o format.Options) (table.Pointer, error) {
	if o.Version == 0 {
		o.Version = 3
	}
	if o.Version != 2 && o.Version != 3 {
		return table.Pointer{}, fmt.Errorf("create table: iceberg format version %d", o.Version)
	}
	location = strings.TrimRight(location, "/")
	b, err := firstMetadata(location, schema, o)
	if err != nil {
		return table.Pointer{}, fmt.Errorf("create table: %w", err)
	}
	p, err := f.putMetadata(ctx, b, location, format.NewUUID(), 0, f.opts.Now().UnixMilli(), lastID(schema))
	if err != nil {
		return p, fmt.Errorf("create table: %w", err)
	}
	return p, nil
}

// CheckPartition says why Create would refuse a table with this schema and spec; nil: it would not.
func CheckPartition(s *table.Schema) error {
	_, err := firstMetadata("", s, format.Options{Version: 3})
	return err
}

// firstMetadata prepares the metadata of a new table. iceberg-go's CreateTable would renumber the field ids.
func firstMetadata(location string, schema *table.Schema, o format.Options) (*icetable.MetadataBuilder, error) {
	b, err := icetable.NewMetadataBuilder(o.Version)
	if err != nil {
		return nil, err
	}
	s, err := toSchema(schema, nil, o.Version)
	if err != nil {
		return nil, err
	}
	spec, err := toSpec(schema)
	if err != nil {
		return nil, err
	}
	order := icetable.UnsortedSortOrder
	for _, step := range []func() error{
		func() error { return b.SetUUID(uuid.New()) },
		func() error { return b.SetLoc(location) },
		func() error { return b.AddSchema(s) },
		func() error { return b.SetCurrentSchemaID(-1) },
		func() error { return b.AddPartitionSpec(&spec, true) },
		func() error { return b.SetDefaultSpecID(-1) },
		func() error { return b.AddSortOrder(&order) },
		func() error { return b.SetDefaultSortOrderID(-1) },
		func() error { return b.SetProperties(defaults(o)) },
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// putMetadata writes the built metadata as version number version. Until a catalog points to it, nobody finds it.
func (f *Format) putMetadata(ctx context.Context, b *icetable.MetadataBuilder, location, name string, version int, now int64, last int) (table.Pointer, error) {
	meta, err := b.Build()
	if err != nil {
		return table.Pointer{}, fmt.Errorf("build metadata: %w", err)
	}
	text, err := json.Marshal(meta)
	if err != nil {
		return table.Pointer{}, fmt.Errorf("build metadata: %w", err)
	}
	last = max(last, meta.LastColumnID())
	if meta.LastUpdatedMillis() != now || meta.LastColumnID() != last || invariants.Enabled {
		if text, meta, err = amend(text, now, last); err != nil {
			return table.Pointer{}, fmt.Errorf("build metadata: %w", err)
		}
	}
	p := table.Pointer{Location: objstore.Join(location, "metadata", fmt.Sprintf("%05d-%s.metadata.json", version, name))}
	if err := f.store.Put(ctx, p.Location, text); err != nil {
		return table.Pointer{}, err
	}
	f.metas.put(p.Location, meta, 1)
	return p, nil
}

// amended are the numbers in metadata that amend replaces. Both keys occur once with a number: properties are strings.
var amended = regexp.MustCompile(`"(last-updated-ms|last-column-id)":\d+`)

// amend sets two fields that the builder decides by itself: the time, which must never go back, and last-column-id, which
// must also cover ids that the schema reserves for companions, or another engine would give them to a new column.
func amend(text []byte, now int64, last int) ([]byte, icetable.Metadata, error) {
	text = amended.ReplaceAllFunc(text, func(m []byte) []byte {
		if bytes.Contains(m, []byte("ms")) {
			return fmt.Appendf(nil, `"last-updated-ms":%d`, now)
		}
		return fmt.Appendf(nil, `"last-column-id":%d`, last)
	})
	meta, err := icetable.ParseMetadataBytes(text)
	if err == nil && (meta.LastUpdatedMillis() != now || meta.LastColumnID() != last) {
		err = fmt.Errorf("time or last column id is not where it was expected")
	}
	return text, meta, err
}

// Metadata is the raw metadata.json that p points to.
func (f *Format) Metadata(ctx context.Context, p table.Pointer) ([]byte, error) {
	text, err := f.store.Get(ctx, p.Location)
	if err != nil {
		return nil, fmt.Errorf("load metadata: %w", err)
	}
	if !strings.HasSuffix(p.Location, ".gz.metadata.json") {
		return text, nil
	}
	z, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("load metadata: %w", err)
	}
	return io.ReadAll(z)
}

func (f *Format) metadata(ctx context.Context, p table.Pointer) (icetable.Metadata, error) {
	return f.metas.get(p.Location, func() (icetable.Metadata, int, error) {
		text, err := f.Metadata(ctx, p)
		if err != nil {
			return nil, 0, err
		}
		meta, err := icetable.ParseMetadataBytes(text)
		if err != nil {
			return nil, 0, fmt.Errorf("parse metadata %s: %w", p.Location, err)
		}
		return meta, 1, nil
	})
}

// Publish implements format.Format: an Iceberg table has no readers that do not ask the catalog.
func (f *Format) Publish(context.Context, table.Pointer) error { return nil }

// version is the number in the name of a metadata file, 0 if it has none.
func version(p table.Pointer) int {
	name := p.Location[strings.LastIndexByte(p.Location, '/')+1:]
	digits, _, _ := strings.Cut(name, "-")
	n, err := strconv.Atoi(digits)
	if err != nil {
		return 0
	}
	return n
}
