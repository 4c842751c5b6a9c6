// Package commit takes changes of many tables through their formats' metadata to one flip.
//
// It owns where each table stands (pointer, next file id, row maps) between two flips, and the answer to "did that flip
// happen?". Start with Committer.Stage, then Flip. It never writes data files, never publishes rows to readers, and never
// deletes: after an unknown outcome files may leak.
package commit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/RoaringBitmap/roaring/v2"
	"golang.org/x/sync/errgroup"

	"sluice/writer/catalog"
	"sluice/writer/flush"
	"sluice/writer/format"
	"sluice/writer/realtime"
	"sluice/writer/table"
)

// Edit is what one flip does to one table.
type Edit struct {
	Def      *realtime.Def // as it is afterwards
	Create   bool
	Drop     bool
	Alter    bool   // schema, name or options
	Location string // Create: where the table's objects go
	// Rows are the files and deletes of a flush, or nil. With Moved they take tail rows: NextRow and Maps change as well.
	Rows  *flush.Table
	Moved bool
	Maps  []*realtime.RowMap
	// Rewrite says that Rows are the same as before, in other files. It is never mixed with a flush: an Iceberg snapshot has one operation.
	Rewrite bool
	// Expire takes old snapshots out, and nothing else happens; Stage sets Gone, what nothing reaches after the flip.
	Expire *format.Expiry
	Gone   []string
}

// Place is where a table stands in the catalog.
type Place struct {
	Pointer  table.Pointer
	NextFile table.FileID
	NextRow  uint64
	RowMap   []byte
}

// Committer makes flips. Its methods are called one after the other, except Place.
type Committer struct {
	Catalog catalog.Catalog
	Format  format.Format
	Stream  string
	Workers int // tables staged at a time

	flips  atomic.Uint64
	mu     sync.Mutex // guards places, for single map operations
	places map[table.ID]Place
}

// Place is where a table stands.
func (c *Committer) Place(id table.ID) Place {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.places[id]
}

// Load sets where all tables stand: at the start, and after a conflict.
func (c *Committer) Load(tables []catalog.Table) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.places = map[table.ID]Place{}
	for _, t := range tables {
		c.places[t.ID] = Place{Pointer: t.Pointer, NextFile: t.NextFile, NextRow: t.NextRow, RowMap: t.RowMap}
	}
}

// Stage writes the metadata of all edits and returns the flip that makes it current. A crash before the flip leaves
// objects that nobody can reach.
func (c *Committer) Stage(ctx context.Context, id string, progress table.Position, edits []*Edit) (*catalog.Flip, error) {
	f := &catalog.Flip{ID: id, Stream: c.Stream, Progress: progress, Tables: make([]catalog.TableFlip, len(edits))}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(max(c.Workers, 1))
	for i, e := range edits {
		g.Go(func() (err error) {
			f.Tables[i], err = c.stage(gctx, id, e, progress)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	slices.SortFunc(f.Tables, func(a, b catalog.TableFlip) int { return cmp.Compare(a.Table, b.Table) })
	return f, nil
}

func (c *Committer) stage(ctx context.Context, id string, e *Edit, at table.Position) (catalog.TableFlip, error) {
	p := c.Place(e.Def.ID)
	f := catalog.TableFlip{Table: e.Def.ID, From: p.Pointer, Version: e.Def.Schema.ID, NextFile: max(p.NextFile, 1), NextRow: max(p.NextRow, 1),
		RowMap: p.RowMap}
	if e.Drop {
		f.Version = 0
		return f, nil
	}
	if e.Moved {
		f.NextRow, f.RowMap = e.Rows.NextRow, realtime.EncodeRowMaps(e.Maps)
	}
	if e.Rows != nil {
		f.NextFile = max(f.NextFile, e.Rows.NextFile)
	}
	var err error
	if f.To, err = c.metadata(ctx, id, p.Pointer, e, at); err != nil {
		return f, fmt.Errorf("stage table %d: %w", e.Def.ID, err)
	}
	head, err := c.Format.Head(ctx, f.To)
	if err != nil {
		return f, fmt.Errorf("stage table %d: %w", e.Def.ID, err)
	}
	f.Snapshot = head.ID
	return f, nil
}

func (c *Committer) metadata(ctx context.Context, id string, base table.Pointer, e *Edit, at table.Position) (table.Pointer, error) {
	if e.Create {
		var err error
		if base, err = c.Format.Create(ctx, e.Location, e.Def.Schema, options(e.Def.Options)); err != nil {
			return base, err
		}
	}
	if e.Expire != nil {
		to, gone, err := c.Format.Expire(ctx, base, *e.Expire)
		e.Gone = gone
		return to, err
	}
	edit := format.Edit{Table: e.Def.ID, Position: at, FlushID: id, Rewrite: e.Rewrite}
	if e.Alter && !e.Create {
		edit.Schema = e.Def.Schema
	}
	if e.Rows != nil {
		addRows(&edit, e.Rows)
	}
	if len(edit.Added) > 0 {
		edit.Schema = e.Def.Schema
	}
	if edit.Schema == nil && !edit.Truncate && len(edit.Removed)+len(edit.Deletes)+len(edit.Added) == 0 {
		return base, nil // all rows of the tail died in it: no snapshot for nothing
	}
	return c.Format.Stage(ctx, base, edit)
}

func addRows(edit *format.Edit, t *flush.Table) {
	edit.Truncate = t.Truncated
	for _, f := range t.Removed {
		if !t.Truncated {
			edit.Removed = append(edit.Removed, f.ID)
		}
	}
	for _, d := range t.Deletions {
		if edit.Deletes == nil {
			edit.Deletes = map[table.FileID]*roaring.Bitmap{}
		}
		edit.Deletes[d.File.ID] = d.Fresh
	}
	for _, f := range t.Files {
		edit.Added = append(edit.Added, format.DataFile{ID: f.ID, File: f.Data, Partition: f.Partition, Deleted: f.Deleted})
	}
}

// options reads the lake options of CREATE TABLE that formats know. Whoever accepted the statement has checked them.
func options(o map[string]string) format.Options {
	version, _ := strconv.Atoi(o["format_version"])
	return format.Options{Version: version, CopyOnWrite: o["delete_mode"] == "copy-on-write", Properties: ruleProperties(o)}
}

// ruleProperties tells whoever reads the table's metadata which rules its rows have come about by.
func ruleProperties(o map[string]string) map[string]string {
	var p map[string]string
	for _, name := range []string{"merge_engine", "fields", "delete_behavior", "unique_scope"} {
		if v, ok := o[name]; ok {
			if p == nil {
				p = map[string]string{}
			}
			p["sluice."+name] = v
		}
	}
	return p
}

// Files is the files of a snapshot as the store takes them.
func Files(s *format.Snapshot) (files []*realtime.File) {
	for i := range s.Files {
		d := &s.Files[i]
		files = append(files, &realtime.File{ID: d.ID, Location: d.File.Location, Rows: uint64(d.File.Rows), Bytes: d.File.Size, Deleted: d.Deleted})
	}
	return files
}

// ErrNotCommitted says that a flip certainly did not happen and never will.
var ErrNotCommitted = errors.New("flip did not commit")

// Flip moves the catalog. On nil it happened; ErrNotCommitted: it did not; any other error: nobody knows yet, and Settle
// has to be asked before anything else is done.
func (c *Committer) Flip(ctx context.Context, f *catalog.Flip) error {
	_, err := c.Catalog.Flip(ctx, *f)
	var unknown *catalog.OutcomeUnknownError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &unknown):
		return c.Settle(ctx, f.ID, err)
	}
	return fmt.Errorf("flip %s: %w: %w", f.ID, ErrNotCommitted, err)
}

// Settle finds out about a flip whose outcome is unknown because of cause.
func (c *Committer) Settle(ctx context.Context, id string, cause error) error {
	committed, err := c.Catalog.Resolve(ctx, id)
	switch {
	case err != nil:
		return fmt.Errorf("resolve flip %s: %w (after %w)", id, err, cause)
	case !committed:
		return fmt.Errorf("flip %s: %w: %w", id, ErrNotCommitted, cause)
	}
	return nil
}

// Flips counts the flips that happened.
func (c *Committer) Flips() uint64 { return c.flips.Load() }

// Flipped takes note of a flip that happened.
func (c *Committer) Flipped(f *catalog.Flip) {
	c.flips.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range f.Tables {
		t := &f.Tables[i]
		if t.To.Location == "" {
			delete(c.places, t.Table)
			continue
		}
		c.places[t.Table] = Place{Pointer: t.To, NextFile: t.NextFile, NextRow: t.NextRow, RowMap: t.RowMap}
	}
}

// Publish shows the new pointers to readers that do not ask our catalog. It is repeated at every start, so an error is
// only reported.
func (c *Committer) Publish(ctx context.Context, f *catalog.Flip) error {
	var errs []error
	for i := range f.Tables {
		if t := &f.Tables[i]; t.To != t.From && t.To.Location != "" {
			if err := c.Format.Publish(ctx, t.To); err != nil {
				errs = append(errs, fmt.Errorf("publish table %d: %w", t.Table, err))
			}
		}
	}
	return errors.Join(errs...)
}
