package iceberg

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	ice "github.com/apache/iceberg-go"

	"sluice/writer/objstore"
)

const (
	maxEntries   = 2000 // of a manifest that we write
	smallEntries = 500  // a manifest with fewer is merged when there are many
)

// group is the manifests of one kind that can be merged: one manifest holds one spec and one kind of content.
type group struct {
	content ice.ManifestContent
	spec    int32
}

// entry is an entry of a manifest to be written.
type entry struct {
	status ice.ManifestEntryStatus
	entry  ice.ManifestEntry
}

// writeManifests writes what changes and returns the manifests of the new snapshot, new ones first. Manifests without a
// dropped entry stay as they are, unless there are so many small ones that they are merged.
func (c *commit) writeManifests(ctx context.Context) ([]ice.ManifestFile, error) {
	rewrite, keep, err := c.split(ctx)
	if err != nil {
		return nil, err
	}
	out := map[group][]entry{}
	for g, files := range rewrite {
		for _, m := range files {
			out[g] = append(out[g], c.carry(m)...)
		}
	}
	var written []ice.ManifestFile
	write := func(g group, es []entry) error {
		for chunk := range slices.Chunk(es, maxEntries) {
			mf, err := c.writeManifest(ctx, g, chunk)
			if err != nil {
				return fmt.Errorf("write manifest: %w", err)
			}
			written = append(written, mf)
		}
		return nil
	}
	// Added data files get a manifest of their own: row ids of files without one are counted from the manifest's, and
	// readers need not agree whether files that have one count, too. Delete files have no row ids.
	for _, fresh := range [][]ice.DataFile{c.added, c.deletes} {
		for g, es := range c.fresh(fresh) {
			if g.content == ice.ManifestContentDeletes {
				out[g] = append(es, out[g]...)
			} else if err := write(g, es); err != nil {
				return nil, err
			}
		}
	}
	for _, g := range slices.SortedFunc(maps.Keys(out), func(x, y group) int {
		return cmp.Or(cmp.Compare(x.content, y.content), cmp.Compare(x.spec, y.spec))
	}) {
		if err := write(g, out[g]); err != nil {
			return nil, err
		}
	}
	return append(written, keep...), nil
}

// split sorts the parent's manifests into those to be written anew and those that stay.
func (c *commit) split(ctx context.Context) (rewrite map[group][]*manifest, keep []ice.ManifestFile, err error) {
	rewrite = map[group][]*manifest{}
	small := map[group][]ice.ManifestFile{}
	dropped := map[string]*manifest{}
	for m := range c.drop {
		dropped[m.file.FilePath()] = m
	}
	for _, mf := range c.files {
		g := group{mf.ManifestContent(), mf.PartitionSpecID()}
		n := mf.AddedDataFiles() + mf.ExistingDataFiles()
		switch m := dropped[mf.FilePath()]; {
		case m != nil:
			rewrite[g] = append(rewrite[g], m)
		case n == 0: // it only told what its commit removed
		case n < smallEntries:
			small[g] = append(small[g], mf)
		default:
			keep = append(keep, mf)
		}
	}
	for g, files := range small {
		if len(files) < c.f.opts.MergeManifests {
			keep = append(keep, files...)
			continue
		}
		for _, mf := range files {
			m, err := c.f.manifest(ctx, mf)
			if err != nil {
				return nil, nil, err
			}
			rewrite[g] = append(rewrite[g], m)
		}
	}
	return rewrite, c.inOrder(keep), nil
}

// inOrder sorts kept manifests as the parent lists them.
func (c *commit) inOrder(keep []ice.ManifestFile) []ice.ManifestFile {
	at := map[string]int{}
	for i, mf := range c.files {
		at[mf.FilePath()] = i
	}
	slices.SortFunc(keep, func(x, y ice.ManifestFile) int { return cmp.Compare(at[x.FilePath()], at[y.FilePath()]) })
	return keep
}

// carry is the entries of a manifest that is written anew.
func (c *commit) carry(m *manifest) []entry {
	es := make([]entry, len(m.entries))
	for i, e := range m.entries {
		es[i] = entry{ice.EntryStatusEXISTING, e}
		if c.drop[m][i] {
			es[i].status = ice.EntryStatusDELETED
		}
	}
	return es
}

// fresh is entries for new files.
func (c *commit) fresh(files []ice.DataFile) map[group][]entry {
	out := map[group][]entry{}
	for _, d := range files {
		g := group{ice.ManifestContentData, d.SpecID()}
		if d.ContentType() != ice.EntryContentData {
			g.content = ice.ManifestContentDeletes
		}
		// Sequence numbers are left out: the entry inherits its manifest's.
		out[g] = append(out[g], entry{ice.EntryStatusADDED, ice.NewManifestEntry(ice.EntryStatusADDED, &c.id, nil, nil, d)})
	}
	return out
}

func (c *commit) writeManifest(ctx context.Context, g group, es []entry) (ice.ManifestFile, error) {
	spec, err := c.b.GetSpecByID(int(g.spec))
	if err != nil {
		return nil, err
	}
	var body bytes.Buffer
	w, err := ice.NewManifestWriter(c.base.Version(), &body, *spec, c.schemaOf(spec), c.id, ice.WithManifestWriterContent(g.content))
	if err != nil {
		return nil, err
	}
	for _, e := range es {
		switch e.status {
		case ice.EntryStatusADDED:
			err = w.Add(e.entry)
		case ice.EntryStatusEXISTING:
			err = w.Existing(e.entry)
		default:
			err = w.Delete(e.entry)
		}
		if err != nil {
			return nil, errors.Join(err, w.Close())
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	location := objstore.Join(c.base.Location(), "metadata", fmt.Sprintf("%s-m%d.avro", c.uuid, c.n))
	c.n++
	mf, err := w.ToManifestFile(location, int64(body.Len()))
	if err != nil {
		return nil, err
	}
	return mf, c.f.store.Put(ctx, location, body.Bytes())
}

// schemaOf is the newest schema that has the source columns of spec: a column may be dropped while files of an older spec
// are live.
func (c *commit) schemaOf(spec *ice.PartitionSpec) *ice.Schema {
	schemas := append(c.base.Schemas(), c.b.CurrentSchema())
	for _, s := range slices.Backward(schemas) {
		if has(s, spec) {
			return s
		}
	}
	return c.b.CurrentSchema()
}

func has(s *ice.Schema, spec *ice.PartitionSpec) bool {
	for _, p := range spec.Fields() {
		if _, ok := s.FindFieldByID(p.SourceID()); !ok {
			return false
		}
	}
	return true
}
