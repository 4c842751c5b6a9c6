package realtime

// TailSize estimates the live rows of the tail and their bytes, from counts only.
func (v TableView) TailSize() (rows, bytes int64) {
	for _, seg := range v.segments() {
		n := int64(seg.limit(v.Position))
		rows += max(n-seg.deaths.Load(), 0)
		bytes += seg.bytes.Load() * n / max(int64(seg.rows()), 1)
	}
	return rows, bytes
}

// Deleted counts the dead rows of a file.
func (v TableView) Deleted(f *File) int64 {
	dead, all := v.Dead(f)
	switch {
	case all:
		return int64(f.Rows)
	case dead == nil:
		return 0
	}
	return int64(dead.GetCardinality())
}
