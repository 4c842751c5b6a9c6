package format

import "time"

// Past is one snapshot of a table's history, as its metadata tells it.
type Past struct {
	ID        int64
	Parent    int64 // 0: none
	Sequence  int64
	Time      time.Time
	Operation string // append, overwrite, delete, replace
	Summary   map[string]string
	Current   bool
}
