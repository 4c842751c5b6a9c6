package iceberg

import (
	"strconv"

	ice "github.com/apache/iceberg-go"
	icetable "github.com/apache/iceberg-go/table"

	"sluice/writer/format"
)

// summary counts what a commit adds and removes, for the snapshot's summary.
type summary struct {
	added, removed counts
}

type counts struct {
	files, rows, size, deletes, positions, vectors int64
}

func (s *summary) add(d ice.DataFile)    { s.added.count(d) }
func (s *summary) remove(d ice.DataFile) { s.removed.count(d) }

func (c *counts) count(d ice.DataFile) {
	if d.ContentType() == ice.EntryContentData {
		c.files++
		c.rows += d.Count()
		c.size += d.FileSizeBytes()
		return
	}
	c.deletes++
	c.positions += d.Count()
	if n := d.ContentSizeInBytes(); n != nil { // a vector is a part of its file
		c.vectors++
		c.size += *n
		return
	}
	c.size += d.FileSizeBytes()
}

// summarize is the summary under the names that Iceberg's reference writer uses.
func (c *commit) summarize() *icetable.Summary {
	p := ice.Properties{}
	set := func(key string, n int64) {
		if n != 0 {
			p[key] = strconv.FormatInt(n, 10)
		}
	}
	a, r := c.sum.added, c.sum.removed
	set("added-data-files", a.files)
	set("added-records", a.rows)
	set("added-files-size", a.size)
	set("added-delete-files", a.deletes)
	set("added-position-deletes", a.positions)
	set("added-dvs", a.vectors)
	set("deleted-data-files", r.files)
	set("deleted-records", r.rows)
	set("removed-files-size", r.size)
	set("removed-delete-files", r.deletes)
	set("removed-position-deletes", r.positions)
	set("removed-dvs", r.vectors)
	c.total(p, "total-data-files", a.files-r.files)
	c.total(p, "total-records", a.rows-r.rows)
	c.total(p, "total-files-size", a.size-r.size)
	c.total(p, "total-delete-files", a.deletes-r.deletes)
	c.total(p, "total-position-deletes", a.positions-r.positions)
	c.total(p, "total-equality-deletes", 0)
	if c.edit.Position != 0 {
		p[positionKey] = strconv.FormatUint(uint64(c.edit.Position), 10)
	}
	if c.edit.FlushID != "" {
		p[flushIDKey] = c.edit.FlushID
	}
	return &icetable.Summary{Operation: operation(c.edit, a, r), Properties: p}
}

// total carries a total on from the parent; if the parent's writer did not keep it, nobody knows it.
func (c *commit) total(p ice.Properties, key string, delta int64) {
	var before int64
	if c.parent != nil {
		var err error
		if c.parent.Summary == nil {
			return
		}
		if before, err = strconv.ParseInt(c.parent.Summary.Properties[key], 10, 64); err != nil {
			return
		}
	}
	p[key] = strconv.FormatInt(before+delta, 10)
}

// operation tells incremental readers what kind of change to expect.
func operation(e format.Edit, added, removed counts) icetable.Operation {
	switch {
	case e.Rewrite:
		return icetable.OpReplace
	case removed == (counts{}) && added.deletes == 0:
		return icetable.OpAppend
	case added.files == 0:
		return icetable.OpDelete
	}
	return icetable.OpOverwrite
}
