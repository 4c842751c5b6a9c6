package iceberg

import (
	"context"
	"time"

	"sluice/writer/format"
	"sluice/writer/table"
)

// History lists the snapshots in the metadata that p points to, oldest first.
func (f *Format) History(ctx context.Context, p table.Pointer) ([]format.Past, error) {
	meta, err := f.metadata(ctx, p)
	if err != nil {
		return nil, err
	}
	now := meta.CurrentSnapshot()
	var list []format.Past
	for _, s := range meta.Snapshots() {
		h := format.Past{ID: s.SnapshotID, Sequence: s.SequenceNumber, Time: time.UnixMilli(s.TimestampMs).UTC(), Current: now != nil && now.SnapshotID == s.SnapshotID}
		if s.ParentSnapshotID != nil {
			h.Parent = *s.ParentSnapshotID
		}
		if s.Summary != nil {
			h.Operation, h.Summary = string(s.Summary.Operation), s.Summary.Properties
		}
		list = append(list, h)
	}
	return list, nil
}
