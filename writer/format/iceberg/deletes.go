package iceberg

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"

	"github.com/RoaringBitmap/roaring/v2"
	ice "github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/puffin"
	icetable "github.com/apache/iceberg-go/table"

	"sluice/writer/datafile"
	"sluice/writer/format"
	"sluice/writer/objstore"
	"sluice/writer/table"
)

// This file reads and writes deleted rows: deletion vectors in version 3, position delete files in version 2.

// deletedRows is the deleted rows of the data files of a snapshot, by path.
type deletedRows struct {
	f      *Format
	all    []*manifest
	shared map[string]*roaring.Bitmap // from delete files that apply to several data files; nil = not read yet
}

// of is the deleted rows of one data file, nil if there are none. The caller owns the bitmap.
func (d *deletedRows) of(ctx context.Context, path string) (*roaring.Bitmap, error) {
	if err := d.readShared(ctx); err != nil {
		return nil, err
	}
	var rows *roaring.Bitmap
	add := func(b *roaring.Bitmap) {
		if rows == nil {
			rows = roaring.New()
		}
		rows.Or(b)
	}
	if b := d.shared[path]; b != nil {
		add(b)
	}
	for _, m := range d.all {
		for _, i := range m.deletes[path] {
			b, err := d.f.readDeletes(ctx, m.entries[i].DataFile())
			if err != nil {
				return nil, err
			}
			if b[path] != nil {
				add(b[path])
			}
		}
	}
	return rows, nil
}

func (d *deletedRows) readShared(ctx context.Context) error {
	if d.shared != nil {
		return nil
	}
	shared := map[string]*roaring.Bitmap{}
	for _, m := range d.all {
		for _, i := range m.shared {
			rows, err := d.f.readDeletes(ctx, m.entries[i].DataFile())
			if err != nil {
				return err
			}
			for path, b := range rows {
				if shared[path] == nil {
					shared[path] = roaring.New()
				}
				shared[path].Or(b)
			}
		}
	}
	d.shared = shared
	return nil
}

// readDeletes is the rows in a delete file, by path of the data file.
func (f *Format) readDeletes(ctx context.Context, d ice.DataFile) (map[string]*roaring.Bitmap, error) {
	if d.FileFormat() != ice.PuffinFile {
		return f.readPositions(ctx, d)
	}
	if d.ContentOffset() == nil || d.ContentSizeInBytes() == nil || d.ReferencedDataFile() == nil {
		return nil, fmt.Errorf("read deletion vector %s: entry lacks offset, size or data file", d.FilePath())
	}
	blob, err := f.store.GetRange(ctx, d.FilePath(), *d.ContentOffset(), *d.ContentSizeInBytes())
	if err != nil {
		return nil, fmt.Errorf("read deletion vector: %w", err)
	}
	b, err := decodeVector(blob, d.Count())
	if err != nil {
		return nil, fmt.Errorf("read deletion vector %s: %w", d.FilePath(), err)
	}
	return map[string]*roaring.Bitmap{*d.ReferencedDataFile(): b}, nil
}

// vectorMagic begins the checked part of a deletion vector blob:
//
//	4 bytes big-endian: length of magic and vector | magic | vector | 4 bytes big-endian: CRC-32 of magic and vector
//
// The vector is the number of 32-bit bitmaps (8 bytes little-endian) and for each its key, the upper half of the positions
// (4 bytes little-endian), and a Roaring bitmap in the portable format. Files have fewer than 2³² rows, so there is one
// bitmap with key 0.
var vectorMagic = []byte{0xd1, 0xd3, 0x39, 0x64}

func encodeVector(b *roaring.Bitmap) ([]byte, error) {
	b.RunOptimize()
	body, err := b.ToBytes()
	if err != nil {
		return nil, err
	}
	out := binary.BigEndian.AppendUint32(nil, uint32(4+8+4+len(body)))
	out = append(out, vectorMagic...)
	out = binary.LittleEndian.AppendUint64(out, 1)
	out = binary.LittleEndian.AppendUint32(out, 0)
	out = append(out, body...)
	return binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(out[4:])), nil
}

func decodeVector(blob []byte, count int64) (*roaring.Bitmap, error) {
	n := len(blob)
	if n < 20 || int(binary.BigEndian.Uint32(blob)) != n-8 || !bytes.Equal(blob[4:8], vectorMagic) {
		return nil, fmt.Errorf("%d bytes are no deletion vector", n)
	}
	if sum := binary.BigEndian.Uint32(blob[n-4:]); sum != crc32.ChecksumIEEE(blob[4:n-4]) {
		return nil, fmt.Errorf("checksum does not match")
	}
	b := roaring.New()
	switch bitmaps := binary.LittleEndian.Uint64(blob[8:]); {
	case bitmaps == 0:
	case bitmaps > 1 || binary.LittleEndian.Uint32(blob[16:]) != 0:
		return nil, fmt.Errorf("row positions above 32 bits")
	default:
		if _, err := b.ReadFrom(bytes.NewReader(blob[20 : n-4])); err != nil {
			return nil, err
		}
	}
	if int64(b.GetCardinality()) != count {
		return nil, fmt.Errorf("%d rows, the manifest says %d", b.GetCardinality(), count)
	}
	return b, nil
}

// positionSchema is the schema of position delete files.
var positionSchema = &table.Schema{Columns: []table.Column{
	{Name: "file_path", FieldID: pathID, Type: table.Type{Kind: table.String}, NotNull: true},
	{Name: "pos", FieldID: posID, Type: table.Type{Kind: table.Int64}, NotNull: true},
}}

func (f *Format) readPositions(ctx context.Context, d ice.DataFile) (map[string]*roaring.Bitmap, error) {
	out := map[string]*roaring.Bitmap{}
	file := datafile.File{Location: d.FilePath(), Size: d.FileSizeBytes(), Rows: d.Count()}
	for c, err := range datafile.Read(ctx, f.store, file, positionSchema, datafile.ReadOptions{}) {
		if err != nil {
			return nil, fmt.Errorf("read position deletes: %w", err)
		}
		for i := range c.Rows.Rows {
			path := string(c.Rows.Cols[0].Bytes(i))
			if out[path] == nil {
				out[path] = roaring.New()
			}
			out[path].Add(uint32(c.Rows.Cols[1].Int64(i)))
		}
	}
	return out, nil
}

// vector is all deleted rows of one live data file, to be written.
type vector struct {
	data ice.DataFile
	rows *roaring.Bitmap
}

// writeDeletes writes delete files for vs, one for all in version 3, one each in version 2.
func (f *Format) writeDeletes(ctx context.Context, meta icetable.Metadata, flip string, vs []vector) ([]ice.DataFile, error) {
	if len(vs) == 0 {
		return nil, nil
	}
	slices.SortFunc(vs, func(x, y vector) int { return bytes.Compare([]byte(x.data.FilePath()), []byte(y.data.FilePath())) })
	if meta.Version() >= 3 {
		return f.writePuffin(ctx, meta, flip, vs)
	}
	var out []ice.DataFile
	for _, v := range vs {
		d, err := f.writePositions(ctx, meta, flip, v)
		if err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}

func (f *Format) writePuffin(ctx context.Context, meta icetable.Metadata, flip string, vs []vector) ([]ice.DataFile, error) {
	var body bytes.Buffer
	w, err := puffin.NewWriter(&body)
	if err != nil {
		return nil, fmt.Errorf("write deletion vectors: %w", err)
	}
	blobs := make([]puffin.BlobMetadata, len(vs))
	for i, v := range vs {
		b, err := encodeVector(v.rows)
		if err != nil {
			return nil, fmt.Errorf("write deletion vectors: %w", err)
		}
		blobs[i], err = w.AddBlob(puffin.BlobMetadataInput{Type: puffin.BlobTypeDeletionVector, SnapshotID: -1, SequenceNumber: -1,
			Fields: []int32{posID}, Properties: map[string]string{"referenced-data-file": v.data.FilePath(),
				"cardinality": strconv.FormatUint(v.rows.GetCardinality(), 10)}}, b)
		if err != nil {
			return nil, fmt.Errorf("write deletion vectors: %w", err)
		}
	}
	if err := w.Finish(); err != nil {
		return nil, fmt.Errorf("write deletion vectors: %w", err)
	}
	location := objstore.Join(meta.Location(), "data", format.Name(flip)+"-deletes.puffin")
	if err := f.store.Put(ctx, location, body.Bytes()); err != nil {
		return nil, fmt.Errorf("write deletion vectors: %w", err)
	}
	out := make([]ice.DataFile, len(vs))
	for i, v := range vs {
		b, err := deleteFile(meta, v, location, ice.PuffinFile, int64(body.Len()))
		if err != nil {
			return nil, err
		}
		out[i] = b.ContentOffset(blobs[i].Offset).ContentSizeInBytes(blobs[i].Length).Build()
	}
	return out, nil
}

// deleteFile is the entry of a delete file for v alone. The bounds of file_path say which data file it is for: without
// them pyiceberg reads every Puffin of the partition, and polars refuses a Puffin of which one vector was replaced.
func deleteFile(meta icetable.Metadata, v vector, location string, as ice.FileFormat, size int64) (*ice.DataFileBuilder, error) {
	spec := meta.PartitionSpecByID(int(v.data.SpecID()))
	if spec == nil {
		return nil, fmt.Errorf("write deletes: unknown partition spec %d", v.data.SpecID())
	}
	b, err := ice.NewDataFileBuilder(*spec, ice.EntryContentPosDeletes, location, as, v.data.Partition(), nil, nil,
		int64(v.rows.GetCardinality()), size)
	if err != nil {
		return nil, fmt.Errorf("write deletes: %w", err)
	}
	bound := map[int][]byte{pathID: []byte(v.data.FilePath())}
	return b.ReferencedDataFile(v.data.FilePath()).LowerBoundValues(bound).UpperBoundValues(bound), nil
}

func (f *Format) writePositions(ctx context.Context, meta icetable.Metadata, flip string, v vector) (ice.DataFile, error) {
	b := table.NewBatch(positionSchema)
	for it := v.rows.Iterator(); it.HasNext(); b.Rows++ {
		b.Cols[0].AppendString(v.data.FilePath())
		b.Cols[1].AppendInt64(int64(it.Next()))
	}
	location := objstore.Join(meta.Location(), "data", format.Name(flip)+"-deletes.parquet")
	file, err := datafile.Write(ctx, f.store, location, positionSchema, datafile.All(b), datafile.WriteOptions{Dictionary: []int{0}})
	if err != nil {
		return nil, fmt.Errorf("write position deletes: %w", err)
	}
	d, err := deleteFile(meta, v, location, ice.ParquetFile, file.Size)
	if err != nil {
		return nil, err
	}
	return d.Build(), nil
}
