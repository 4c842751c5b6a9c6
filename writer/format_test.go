package writer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"sluice/writer/datafile"
	"sluice/writer/format"
	"sluice/writer/objstore"
	"sluice/writer/table"
)

// plainFormat is the plainest format there is: a pointer is one JSON object that lists everything.
type plainFormat struct{ objects objstore.Store }

type plainTable struct {
	Location string
	Schema   int
	Files    []plainFile
}

type plainFile struct {
	ID      table.FileID
	File    datafile.File
	Deleted []byte `json:",omitempty"`
}

func (f *plainFormat) Create(ctx context.Context, location string, s *table.Schema, _ format.Options) (table.Pointer, error) {
	return f.write(ctx, "", &plainTable{Location: location, Schema: s.ID})
}

func (f *plainFormat) write(ctx context.Context, flip string, t *plainTable) (table.Pointer, error) {
	b, err := json.Marshal(t)
	if err != nil {
		return table.Pointer{}, err
	}
	p := table.Pointer{Location: objstore.Join(t.Location, "metadata", format.Name(flip)+".json")}
	return p, f.objects.Put(ctx, p.Location, b)
}

func (f *plainFormat) read(ctx context.Context, p table.Pointer) (*plainTable, error) {
	b, err := f.objects.Get(ctx, p.Location)
	if err != nil {
		return nil, err
	}
	t := &plainTable{}
	return t, json.Unmarshal(b, t)
}

func (f *plainFormat) Stage(ctx context.Context, base table.Pointer, e format.Edit) (table.Pointer, error) {
	t, err := f.read(ctx, base)
	if err != nil {
		return base, err
	}
	if e.Schema != nil {
		t.Schema = e.Schema.ID
	}
	if e.Truncate {
		t.Files = nil
	}
	t.Files = slices.DeleteFunc(t.Files, func(d plainFile) bool { return slices.Contains(e.Removed, d.ID) })
	for id, dead := range e.Deletes {
		i := slices.IndexFunc(t.Files, func(d plainFile) bool { return d.ID == id })
		if i < 0 {
			return base, fmt.Errorf("delete rows of file %d: not there", id)
		}
		all := roaring.New()
		if t.Files[i].Deleted != nil {
			if err := all.UnmarshalBinary(t.Files[i].Deleted); err != nil {
				return base, err
			}
		}
		all.Or(dead)
		if t.Files[i].Deleted, err = all.ToBytes(); err != nil {
			return base, err
		}
	}
	for _, a := range e.Added {
		if slices.ContainsFunc(t.Files, func(d plainFile) bool { return d.ID == a.ID }) {
			return base, fmt.Errorf("add file %d: it is there", a.ID)
		}
		d := plainFile{ID: a.ID, File: a.File}
		if a.Deleted != nil {
			if d.Deleted, err = a.Deleted.ToBytes(); err != nil {
				return base, err
			}
		}
		t.Files = append(t.Files, d)
	}
	return f.write(ctx, e.FlushID, t)
}

func (f *plainFormat) Head(context.Context, table.Pointer) (format.Snapshot, error) {
	return format.Snapshot{}, nil
}

func (f *plainFormat) Expire(_ context.Context, base table.Pointer, _ format.Expiry) (table.Pointer, []string, error) {
	return base, nil, nil
}

func (f *plainFormat) SnapshotAt(ctx context.Context, p table.Pointer, _ int64) (format.Snapshot, error) {
	return f.Snapshot(ctx, p)
}

func (f *plainFormat) Publish(context.Context, table.Pointer) error { return nil }

func (f *plainFormat) Snapshot(ctx context.Context, p table.Pointer) (format.Snapshot, error) {
	t, err := f.read(ctx, p)
	if err != nil {
		return format.Snapshot{}, err
	}
	var s format.Snapshot
	for _, d := range t.Files {
		file := format.File{ID: d.ID, File: d.File}
		if d.Deleted != nil {
			file.Deleted = roaring.New()
			if err := file.Deleted.UnmarshalBinary(d.Deleted); err != nil {
				return s, err
			}
		}
		s.Files = append(s.Files, file)
	}
	return s, nil
}
