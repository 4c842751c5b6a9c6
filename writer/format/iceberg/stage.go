package iceberg

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"
	ice "github.com/apache/iceberg-go"
	icetable "github.com/apache/iceberg-go/table"
	"github.com/google/uuid"

	"sluice/writer/datafile"
	"sluice/writer/format"
	"sluice/writer/invariants"
	"sluice/writer/objstore"
	"sluice/writer/table"
)

// commit is one edit on its way to a snapshot.
type commit struct {
	f      *Format
	base   icetable.Metadata
	b      *icetable.MetadataBuilder
	edit   format.Edit
	parent *icetable.Snapshot
	files  []ice.ManifestFile // of the parent
	all    []*manifest        // of the parent; loaded only if something is removed
	drop   map[*manifest]map[int]bool
	sum    summary

	added   []ice.DataFile // data files
	vs      []vector       // deletes to write
	deletes []ice.DataFile // delete files
	now     int64          // ms, later than the base
	id      int64          // of the snapshot
	uuid    string         // in the names of manifests and metadata
	n       int            // manifests written
}

// Stage implements format.Format.
func (f *Format) Stage(ctx context.Context, base table.Pointer, edit format.Edit) (table.Pointer, error) {
	p, err := f.stage(ctx, base, edit)
	if err != nil {
		return table.Pointer{}, fmt.Errorf("stage table %d on %s: %w", edit.Table, base.Location, err)
	}
	return p, nil
}

func (f *Format) stage(ctx context.Context, base table.Pointer, edit format.Edit) (table.Pointer, error) {
	c, err := f.newCommit(ctx, base, edit)
	if err != nil {
		return table.Pointer{}, err
	}
	if err := c.change(); err != nil {
		return table.Pointer{}, err
	}
	if err := c.remove(ctx); err != nil {
		return table.Pointer{}, err
	}
	if err := c.add(); err != nil {
		return table.Pointer{}, err
	}
	if c.deletes, err = f.writeDeletes(ctx, c.base, edit.FlushID, c.vs); err != nil {
		return table.Pointer{}, err
	}
	if len(c.added) > 0 || len(c.drop) > 0 || len(c.deletes) > 0 {
		if err := c.snapshot(ctx); err != nil {
			return table.Pointer{}, err
		}
	}
	if !c.b.HasChanges() {
		return base, nil
	}
	return f.putMetadata(ctx, c.b, c.base.Location(), c.uuid, version(base)+1, c.now, lastID(edit.Schema))
}

func (f *Format) newCommit(ctx context.Context, base table.Pointer, edit format.Edit) (*commit, error) {
	meta, err := f.metadata(ctx, base)
	if err != nil {
		return nil, err
	}
	b, err := icetable.MetadataBuilderFromBase(meta, base.Location)
	if err != nil {
		return nil, fmt.Errorf("read base metadata: %w", err)
	}
	c := &commit{f: f, base: meta, b: b, edit: edit, parent: meta.CurrentSnapshot(), drop: map[*manifest]map[int]bool{},
		uuid: format.Name(edit.FlushID), id: newSnapshotID(meta)}
	// Java refuses tables whose time goes back by more than a minute; clocks of gateways may differ by more.
	c.now = max(f.opts.Now().UnixMilli(), meta.LastUpdatedMillis()+1)
	c.files, err = f.manifests(ctx, c.parent)
	return c, err
}

// newSnapshotID is random, positive and new.
func newSnapshotID(meta icetable.Metadata) int64 {
	for {
		u := uuid.New()
		var n uint64
		for i := range 8 {
			n = n<<8 | uint64(u[i]^u[i+8])
		}
		if id := int64(n &^ (1 << 63)); id != 0 && meta.SnapshotByID(id) == nil {
			return id
		}
	}
}

// change puts schema, spec and properties into the new metadata.
func (c *commit) change() error {
	if s := c.edit.Schema; s != nil {
		var fields []int
		for _, a := range c.edit.Added {
			for _, st := range a.File.Stats {
				fields = append(fields, st.FieldID)
			}
		}
		current := c.base.CurrentSchema()
		if err := changeSchema(c.b, c.base, s, companionsOf(current, s, fields)); err != nil {
			return fmt.Errorf("change schema: %w", err)
		}
	}
	old := c.base.Properties()
	set := ice.Properties{}
	for k, v := range c.edit.Properties {
		if have, ok := old[k]; !ok || have != v {
			set[k] = v
		}
	}
	if len(set) == 0 {
		return nil
	}
	return c.b.SetProperties(set)
}

// remove finds what the edit takes out of the base, and its deletes.
func (c *commit) remove(ctx context.Context) (err error) {
	if !c.edit.Truncate && len(c.edit.Removed) == 0 && len(c.edit.Deletes) == 0 {
		return nil
	}
	if c.all, err = c.f.all(ctx, c.parent); err != nil {
		return err
	}
	if c.edit.Truncate {
		for _, m := range c.all {
			for i := range m.entries {
				c.dropEntry(m, i)
			}
		}
		return nil
	}
	for _, id := range c.edit.Removed {
		m, i, err := c.find(id)
		if err != nil {
			return err
		}
		c.dropFile(m, i)
	}
	c.vs, err = c.vectors(ctx)
	return err
}

// find is the entry of a data file.
func (c *commit) find(id table.FileID) (*manifest, int, error) {
	for _, m := range c.all {
		if i, ok := m.ids[id]; ok {
			return m, i, nil
		}
	}
	return nil, 0, fmt.Errorf("find file %08x: it is not in the table", uint32(id))
}

func (c *commit) dropEntry(m *manifest, i int) {
	if c.drop[m] == nil {
		c.drop[m] = map[int]bool{}
	}
	if !c.drop[m][i] {
		c.drop[m][i] = true
		c.sum.remove(m.entries[i].DataFile())
	}
}

// dropFile drops a data file and the delete files that are for it alone.
func (c *commit) dropFile(m *manifest, i int) {
	c.dropEntry(m, i)
	c.dropDeletes(m.entries[i].DataFile().FilePath())
}

// dropDeletes drops the delete files of a data file. Forgetting one would leave two vectors for one file, which most
// engines refuse to read.
func (c *commit) dropDeletes(path string) (dropped []ice.DataFile) {
	for _, m := range c.all {
		for _, i := range m.deletes[path] {
			c.dropEntry(m, i)
			dropped = append(dropped, m.entries[i].DataFile())
		}
	}
	return dropped
}

// vectors is the deletes to write. Files of which all rows are deleted are dropped instead.
func (c *commit) vectors(ctx context.Context) ([]vector, error) {
	deleted := deletedRows{f: c.f, all: c.all}
	ids := make([]table.FileID, 0, len(c.edit.Deletes))
	for id := range c.edit.Deletes {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	var vs []vector
	var puffins []string // that lose a vector without bounds
	for _, id := range ids {
		m, i, err := c.find(id)
		if err != nil {
			return nil, err
		}
		if c.drop[m][i] {
			continue // Removed wins
		}
		v := vector{data: m.entries[i].DataFile()}
		old, err := deleted.of(ctx, v.data.FilePath())
		if err != nil {
			return nil, err
		}
		if v.rows, err = merge(v.data, old, c.edit.Deletes[id]); err != nil {
			return nil, err
		}
		switch {
		case old != nil && old.GetCardinality() == v.rows.GetCardinality() || v.rows.IsEmpty():
			continue // nothing new
		case int64(v.rows.GetCardinality()) == v.data.Count():
			c.dropFile(m, i)
			continue
		}
		for _, d := range c.dropDeletes(v.data.FilePath()) {
			if d.FileFormat() == ice.PuffinFile && d.LowerBoundValues()[pathID] == nil {
				puffins = append(puffins, d.FilePath())
			}
		}
		vs = append(vs, v)
	}
	more, err := c.replacePuffins(ctx, &deleted, puffins, vs)
	return append(vs, more...), err
}

// merge is old and more together.
func merge(d ice.DataFile, old, more *roaring.Bitmap) (*roaring.Bitmap, error) {
	if !more.IsEmpty() && int64(more.Maximum()) >= d.Count() {
		return nil, fmt.Errorf("delete row %d of %s: it has %d rows", more.Maximum(), d.FilePath(), d.Count())
	}
	if old == nil {
		return more.Clone(), nil
	}
	return roaring.Or(old, more), nil
}

// replacePuffins writes the vectors that are left in Puffin files of another writer anew, if one of the file's vectors was
// replaced and had no bounds: polars finds the replaced one in the footer and refuses the table.
func (c *commit) replacePuffins(ctx context.Context, deleted *deletedRows, puffins []string, have []vector) ([]vector, error) {
	var vs []vector
	for _, m := range c.all {
		for path, at := range m.deletes {
			for _, i := range at {
				if c.drop[m][i] || !slices.Contains(puffins, m.entries[i].DataFile().FilePath()) {
					continue
				}
				data := c.dataFile(path)
				if data == nil || slices.ContainsFunc(have, func(v vector) bool { return v.data.FilePath() == path }) {
					continue
				}
				rows, err := deleted.of(ctx, path)
				if err != nil {
					return nil, err
				}
				c.dropEntry(m, i)
				vs = append(vs, vector{data, rows})
			}
		}
	}
	return vs, nil
}

// dataFile is the live data file at path, nil if there is none.
func (c *commit) dataFile(path string) ice.DataFile {
	for _, m := range c.all {
		if i, ok := m.paths[path]; ok && !c.drop[m][i] {
			return m.entries[i].DataFile()
		}
	}
	return nil
}

// add makes entries of the files that the edit adds.
func (c *commit) add() error {
	if len(c.edit.Added) == 0 {
		return nil
	}
	if c.edit.Schema == nil {
		return fmt.Errorf("add files: the edit has no schema")
	}
	spec, err := c.b.CurrentSpec()
	if err != nil {
		return fmt.Errorf("add files: %w", err)
	}
	kinds := map[int]table.Kind{}
	for _, col := range c.edit.Schema.Columns {
		kinds[col.FieldID], kinds[col.ExactID] = col.Type.Kind, table.String
	}
	for _, a := range c.edit.Added {
		if format.FileID(a.File.Location) != a.ID {
			return fmt.Errorf("add file %08x: its name is %s", uint32(a.ID), a.File.Location)
		}
		part, err := toPartition(c.edit.Schema, a.Partition)
		if err != nil {
			return fmt.Errorf("add file %s: %w", a.File.Location, err)
		}
		d, err := newDataFile(*spec, a.File, part, kinds)
		if err != nil {
			return fmt.Errorf("add file %s: %w", a.File.Location, err)
		}
		if c.added = append(c.added, d); a.Deleted != nil {
			rows, err := merge(d, nil, a.Deleted)
			if err != nil {
				return fmt.Errorf("add file %s: %w", a.File.Location, err)
			}
			c.vs = append(c.vs, vector{d, rows})
		}
	}
	return nil
}

func newDataFile(spec ice.PartitionSpec, f datafile.File, part map[int]any, kinds map[int]table.Kind) (ice.DataFile, error) {
	b, err := ice.NewDataFileBuilder(spec, ice.EntryContentData, f.Location, ice.ParquetFile, part, nil, nil, f.Rows, f.Size)
	if err != nil {
		return nil, err
	}
	sizes, values, nulls, nans := map[int]int64{}, map[int]int64{}, map[int]int64{}, map[int]int64{}
	lower, upper := map[int][]byte{}, map[int][]byte{}
	for _, s := range f.Stats {
		if s.FieldID >= ice.LastUpdatedSequenceNumberFieldID {
			continue // lineage: no column of the table
		}
		sizes[s.FieldID] = s.Size
		if s.Counted {
			values[s.FieldID], nulls[s.FieldID] = s.Values, s.Nulls
		}
		k := kinds[s.FieldID]
		if k == table.Float32 || k == table.Float64 {
			nans[s.FieldID] = s.NaNs
		}
		if s.Min != nil {
			lower[s.FieldID] = toBound(k, s.Min)
		}
		if s.Max != nil {
			upper[s.FieldID] = toBound(k, s.Max)
		}
	}
	return b.ColumnSizes(sizes).ValueCounts(values).NullValueCounts(nulls).NaNValueCounts(nans).LowerBoundValues(lower).
		UpperBoundValues(upper).SplitOffsets(f.Splits).SortOrderID(0).Build(), nil
}

// snapshot writes manifests and manifest list and adds the snapshot to the metadata.
func (c *commit) snapshot(ctx context.Context) error {
	for _, d := range append(slices.Clone(c.added), c.deletes...) {
		c.sum.add(d)
	}
	c.assertOneVector()
	files, err := c.writeManifests(ctx)
	if err != nil {
		return err
	}
	s := icetable.Snapshot{SnapshotID: c.id, SequenceNumber: c.base.LastSequenceNumber() + 1, TimestampMs: c.now,
		Summary: c.summarize()}
	if c.parent != nil {
		s.ParentSnapshotID = &c.parent.SnapshotID
	}
	schemaID := c.b.CurrentSchema().ID
	s.SchemaID = &schemaID
	if err := c.writeList(ctx, &s, files); err != nil {
		return err
	}
	if err := c.b.AddSnapshot(&s); err != nil {
		return fmt.Errorf("add snapshot: %w", err)
	}
	return c.b.SetSnapshotRef(icetable.MainBranch, c.id, icetable.BranchRef)
}

// writeList writes the manifest list; it gives new data manifests their first row ids.
func (c *commit) writeList(ctx context.Context, s *icetable.Snapshot, files []ice.ManifestFile) error {
	var body bytes.Buffer
	var w *ice.ManifestListWriter
	var err error
	first := c.base.NextRowID()
	if c.base.Version() >= 3 {
		next := first // the writer moves it on
		w, err = ice.NewManifestListWriterV3(&body, c.id, s.SequenceNumber, next, s.ParentSnapshotID)
	} else {
		w, err = ice.NewManifestListWriterV2(&body, c.id, s.SequenceNumber, s.ParentSnapshotID)
	}
	if err == nil {
		err = w.AddManifests(files)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return fmt.Errorf("write manifest list: %w", err)
	}
	if c.base.Version() >= 3 {
		rows := *w.NextRowID() - first
		s.FirstRowID, s.AddedRows = &first, &rows
	}
	s.ManifestList = objstore.Join(c.base.Location(), "metadata", fmt.Sprintf("snap-%d-1-%s.avro", c.id, c.uuid))
	if err := c.f.store.Put(ctx, s.ManifestList, body.Bytes()); err != nil {
		return fmt.Errorf("write manifest list: %w", err)
	}
	return nil
}

// assertOneVector checks, in checked builds, that no data file ends up with two vectors, and that none outlives its file.
func (c *commit) assertOneVector() {
	if !invariants.Enabled || c.base.Version() < 3 {
		return
	}
	live := map[string]int{}
	for _, m := range c.all {
		for path, at := range m.deletes {
			for _, i := range at {
				if !c.drop[m][i] && m.entries[i].DataFile().FileFormat() == ice.PuffinFile {
					live[path]++
					invariants.Check(c.dataFile(path) != nil, "I6: deletion vector for %s, which is not live", path)
				}
			}
		}
	}
	for _, d := range c.deletes {
		live[*d.ReferencedDataFile()]++
	}
	for path, n := range live {
		invariants.Check(n == 1, "I10: %d deletion vectors for %s", n, path)
	}
}
