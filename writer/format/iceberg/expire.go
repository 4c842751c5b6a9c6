package iceberg

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	icetable "github.com/apache/iceberg-go/table"

	"sluice/writer/format"
	"sluice/writer/objstore"
	"sluice/writer/table"
)

const (
	// standardAge is Iceberg's own for history.expire.max-snapshot-age-ms.
	standardAge = 5 * 24 * time.Hour
	// manySnapshots is how many a table keeps whose properties say nothing: each is a part of every metadata.json, and a busy table gets
	// one with every flush. Readers have recentAge.
	manySnapshots = 1000
	recentAge     = time.Hour
	// strayAge is how old metadata must be that no log names, so that nobody is still about to commit it.
	strayAge = 24 * time.Hour
)

// Expire implements format.Format.
func (f *Format) Expire(ctx context.Context, base table.Pointer, e format.Expiry) (table.Pointer, []string, error) {
	meta, err := f.metadata(ctx, base)
	if err != nil {
		return base, nil, err
	}
	now := max(f.opts.Now().UnixMilli(), meta.LastUpdatedMillis()+1)
	old := expired(meta, e, f.opts.Now())
	if len(old) == 0 {
		return base, nil, nil
	}
	gone, err := f.onlyOf(ctx, meta, old)
	if err != nil {
		return base, nil, fmt.Errorf("expire snapshots of %s: %w", base.Location, err)
	}
	b, err := icetable.MetadataBuilderFromBase(meta, base.Location)
	if err != nil {
		return base, nil, fmt.Errorf("read base metadata: %w", err)
	}
	if err := b.RemoveSnapshots(old, false); err != nil {
		return base, nil, fmt.Errorf("expire snapshots of %s: %w", base.Location, err)
	}
	p, err := f.putMetadata(ctx, b, meta.Location(), format.Name(e.FlushID), version(base)+1, now, meta.LastColumnID())
	if err != nil {
		return base, nil, err
	}
	stray, err := f.stray(ctx, meta, p)
	return p, append(gone, stray...), err
}

// expired is the ids of the snapshots that go. The current one, those of branches and tags, and the newest few stay.
func expired(meta icetable.Metadata, e format.Expiry, now time.Time) (ids []int64) {
	props := meta.Properties()
	current := meta.CurrentSnapshot()
	if current == nil || props["gc.enabled"] == "false" {
		return nil
	}
	age, own := e.Age, false
	if age < 0 {
		age = standardAge
		if ms, err := strconv.ParseInt(props["history.expire.max-snapshot-age-ms"], 10, 64); err == nil {
			age, own = time.Duration(ms)*time.Millisecond, true
		}
	}
	least, _ := strconv.Atoi(props["history.expire.min-snapshots-to-keep"])
	since := current.SequenceNumber
	if e.Since != 0 {
		s := meta.SnapshotByID(e.Since)
		if s == nil {
			return nil // nobody knows what may still be read
		}
		since = s.SequenceNumber
	}
	keep := map[int64]bool{}
	for _, ref := range meta.Refs() {
		keep[ref.SnapshotID] = true
	}
	list := slices.SortedFunc(slices.Values(meta.Snapshots()), func(x, y icetable.Snapshot) int { return cmp.Compare(y.SequenceNumber, x.SequenceNumber) })
	for i, s := range list {
		lived := now.Sub(time.UnixMilli(s.TimestampMs))
		many := e.Age < 0 && !own && i >= manySnapshots && lived > recentAge
		if i >= least && s.SequenceNumber < since && !keep[s.SnapshotID] && (lived >= age || many) {
			ids = append(ids, s.SnapshotID)
		}
	}
	return ids
}

// onlyOf is the objects that the snapshots old reach and no other.
func (f *Format) onlyOf(ctx context.Context, meta icetable.Metadata, old []int64) ([]string, error) {
	reached, lost := map[string]bool{}, map[string]bool{}
	for _, s := range meta.Snapshots() {
		into := reached
		if slices.Contains(old, s.SnapshotID) {
			into = lost
		}
		if err := f.reach(ctx, &s, into); err != nil {
			return nil, err
		}
	}
	for s := range meta.Statistics() {
		if slices.Contains(old, s.SnapshotID) {
			lost[s.StatisticsPath] = true
		}
	}
	var gone []string
	for l := range lost {
		if !reached[l] && strings.HasPrefix(l, f.store.Root()+"/") {
			gone = append(gone, l)
		}
	}
	slices.Sort(gone)
	return gone, nil
}

func (f *Format) reach(ctx context.Context, s *icetable.Snapshot, into map[string]bool) error {
	into[s.ManifestList] = true
	files, err := f.manifests(ctx, s)
	if err != nil {
		return err
	}
	for _, mf := range files {
		if into[mf.FilePath()] {
			continue
		}
		into[mf.FilePath()] = true
		m, err := f.manifest(ctx, mf)
		if err != nil {
			return err
		}
		for _, e := range m.entries {
			into[e.DataFile().FilePath()] = true
		}
	}
	return nil
}

// stray is old metadata that no reader comes to: what has left the log of the table's metadata with p, or did so long ago.
func (f *Format) stray(ctx context.Context, before icetable.Metadata, p table.Pointer) (gone []string, err error) {
	meta, err := f.metadata(ctx, p)
	if err != nil {
		return nil, err
	}
	log := map[string]bool{p.Location: true}
	for m := range meta.PreviousFiles() {
		log[m.MetadataFile] = true
	}
	for m := range before.PreviousFiles() {
		if !log[m.MetadataFile] && strings.HasPrefix(m.MetadataFile, f.store.Root()+"/") {
			gone = append(gone, m.MetadataFile)
		}
	}
	for o, err := range f.store.List(ctx, objstore.Join(meta.Location(), "metadata")+"/") {
		if err != nil {
			return nil, fmt.Errorf("list metadata: %w", err)
		}
		if strings.HasSuffix(o.Location, ".metadata.json") && !log[o.Location] && f.opts.Now().Sub(o.Modified) > strayAge && !slices.Contains(gone, o.Location) {
			gone = append(gone, o.Location)
		}
	}
	return gone, nil
}
