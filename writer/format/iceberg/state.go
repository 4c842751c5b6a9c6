package iceberg

import (
	"bytes"
	"context"
	"fmt"

	ice "github.com/apache/iceberg-go"
	icetable "github.com/apache/iceberg-go/table"

	"sluice/writer/format"
	"sluice/writer/table"
)

// manifest is a parsed manifest: its live entries and how to find them.
type manifest struct {
	file    ice.ManifestFile
	entries []ice.ManifestEntry
	ids     map[table.FileID]int // data files of ours
	paths   map[string]int       // data files
	deletes map[string][]int     // delete files that apply to one data file, by its path
	shared  []int                // delete files that may apply to several
}

const (
	pathID = 2147483546 // field file_path of position delete files
	posID  = 2147483545 // field pos of position delete files
)

// manifests is the manifest list of a snapshot; nil has none.
func (f *Format) manifests(ctx context.Context, s *icetable.Snapshot) ([]ice.ManifestFile, error) {
	if s == nil {
		return nil, nil
	}
	return f.lists.get(s.ManifestList, func() ([]ice.ManifestFile, int, error) {
		b, err := f.store.Get(ctx, s.ManifestList)
		if err != nil {
			return nil, 0, fmt.Errorf("read manifest list: %w", err)
		}
		files, err := ice.ReadManifestList(bytes.NewReader(b))
		if err != nil {
			return nil, 0, fmt.Errorf("read manifest list %s: %w", s.ManifestList, err)
		}
		return files, 1, nil
	})
}

func (f *Format) manifest(ctx context.Context, mf ice.ManifestFile) (*manifest, error) {
	return f.files.get(mf.FilePath(), func() (*manifest, int, error) {
		b, err := f.store.Get(ctx, mf.FilePath())
		if err != nil {
			return nil, 0, fmt.Errorf("read manifest: %w", err)
		}
		entries, err := ice.ReadManifest(mf, bytes.NewReader(b), true)
		if err != nil {
			return nil, 0, fmt.Errorf("read manifest %s: %w", mf.FilePath(), err)
		}
		m, err := index(mf, entries)
		return m, len(entries) + 1, err
	})
}

func index(mf ice.ManifestFile, entries []ice.ManifestEntry) (*manifest, error) {
	m := &manifest{file: mf, entries: entries, ids: map[table.FileID]int{}, paths: map[string]int{}, deletes: map[string][]int{}}
	for i, e := range entries {
		d := e.DataFile()
		switch d.ContentType() {
		case ice.EntryContentData:
			m.paths[d.FilePath()] = i
			if id := format.FileID(d.FilePath()); id != 0 {
				m.ids[id] = i
			}
		case ice.EntryContentPosDeletes:
			if path := target(d); path != "" {
				m.deletes[path] = append(m.deletes[path], i)
			} else {
				m.shared = append(m.shared, i)
			}
		default:
			return nil, fmt.Errorf("read manifest %s: equality deletes are not supported", mf.FilePath())
		}
	}
	return m, nil
}

// target is the one data file that a delete file applies to, "" if there may be more.
func target(d ice.DataFile) string {
	if r := d.ReferencedDataFile(); r != nil {
		return *r
	}
	lo, hi := d.LowerBoundValues()[pathID], d.UpperBoundValues()[pathID]
	if lo != nil && bytes.Equal(lo, hi) {
		return string(lo)
	}
	return ""
}

// all is the parsed manifests of a snapshot.
func (f *Format) all(ctx context.Context, s *icetable.Snapshot) ([]*manifest, error) {
	files, err := f.manifests(ctx, s)
	if err != nil {
		return nil, err
	}
	var out []*manifest
	for _, mf := range files {
		m, err := f.manifest(ctx, mf)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}
