package iceberg

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	ice "github.com/apache/iceberg-go"
	icetable "github.com/apache/iceberg-go/table"

	"sluice/writer/datafile"
	"sluice/writer/format"
	"sluice/writer/table"
)

// Keys of a snapshot's summary.
const (
	positionKey = "sluice.position"
	flushIDKey  = "sluice.flush-id"
)

// Snapshot implements format.Format.
func (f *Format) Snapshot(ctx context.Context, p table.Pointer) (format.Snapshot, error) {
	meta, err := f.metadata(ctx, p)
	if err != nil {
		return format.Snapshot{}, err
	}
	return f.snapshotOf(ctx, p, meta, meta.CurrentSnapshot())
}

// SnapshotAt implements format.Format.
func (f *Format) SnapshotAt(ctx context.Context, p table.Pointer, id int64) (format.Snapshot, error) {
	meta, err := f.metadata(ctx, p)
	if err != nil || id == 0 {
		return format.Snapshot{}, err
	}
	s := meta.SnapshotByID(id)
	if s == nil {
		return format.Snapshot{}, fmt.Errorf("find snapshot %d in %s: it is gone", id, p.Location)
	}
	return f.snapshotOf(ctx, p, meta, s)
}

func (f *Format) snapshotOf(ctx context.Context, p table.Pointer, meta icetable.Metadata, at *icetable.Snapshot) (s format.Snapshot, err error) {
	if s = head(at); s.ID == 0 {
		return s, nil
	}
	s.Spec = meta.DefaultPartitionSpec()
	if meta.Version() >= 3 {
		s.Lineage = lineage
	}
	if s.Files, err = f.liveFiles(ctx, meta, at); err != nil {
		return format.Snapshot{}, fmt.Errorf("list files of %s: %w", p.Location, err)
	}
	return s, nil
}

// lineage is the columns of the Iceberg specification, section Row Lineage.
var lineage = []table.Column{{Name: "_row_id", FieldID: ice.RowIDFieldID, Type: table.Type{Kind: table.Int64}},
	{Name: "_last_updated_sequence_number", FieldID: ice.LastUpdatedSequenceNumberFieldID, Type: table.Type{Kind: table.Int64}}}

// Head is Snapshot without the files: it reads the metadata only.
func (f *Format) Head(ctx context.Context, p table.Pointer) (format.Snapshot, error) {
	meta, err := f.metadata(ctx, p)
	if err != nil {
		return format.Snapshot{}, err
	}
	return head(meta.CurrentSnapshot()), nil
}

func head(current *icetable.Snapshot) format.Snapshot {
	if current == nil {
		return format.Snapshot{}
	}
	s := format.Snapshot{ID: current.SnapshotID}
	if current.Summary != nil {
		n, _ := strconv.ParseUint(current.Summary.Properties[positionKey], 10, 64) // absent in snapshots of others
		s.Position, s.FlushID = table.Position(n), current.Summary.Properties[flushIDKey]
	}
	return s
}

func (f *Format) liveFiles(ctx context.Context, meta icetable.Metadata, s *icetable.Snapshot) ([]format.File, error) {
	all, err := f.all(ctx, s)
	if err != nil {
		return nil, err
	}
	deleted := deletedRows{f: f, all: all}
	var files []format.File
	for _, m := range all {
		for _, i := range m.paths {
			file, err := liveFile(meta, m.entries[i])
			if err != nil {
				return nil, err
			}
			if file.Deleted, err = deleted.of(ctx, file.File.Location); err != nil {
				return nil, err
			}
			files = append(files, file)
		}
	}
	slices.SortFunc(files, func(x, y format.File) int {
		return cmp.Or(cmp.Compare(x.ID, y.ID), cmp.Compare(x.File.Location, y.File.Location))
	})
	return files, nil
}

func liveFile(meta icetable.Metadata, e ice.ManifestEntry) (format.File, error) {
	d := e.DataFile()
	spec := meta.PartitionSpecByID(int(d.SpecID()))
	if spec == nil {
		return format.File{}, fmt.Errorf("unknown partition spec %d", d.SpecID())
	}
	return format.File{ID: format.FileID(d.FilePath()), Partition: fromPartition(spec, d.Partition()), Spec: int(d.SpecID()),
		FirstRow: d.FirstRowID(), Sequence: e.SequenceNum(), File: datafile.File{Location: d.FilePath(), Rows: d.Count(), Size: d.FileSizeBytes(), Splits: d.SplitOffsets()}}, nil
}
