// Package keyindex keeps the keys of rows in files on local disk: sorted runs of (64-bit hash of the key, row), each with a filter,
// merged so that there are few.
//
// It owns the format (docs/format/keyindex.md) and the files; which rows are alive, what they are called now and what the hashes are made
// of is its caller's. Start with Folder (the runs of one constraint), then Writer, Sorter (entries in any order), Run and
// Merge. Spill is for keys that end with the process: those of a transaction that do not fit into memory.
//
// An entry may be stale, never wrong: data files do not change and their ids are never used twice. And everything in a run can be made
// again from them. So a run is never repaired: whatever does not match its checksum is an error that wraps ErrCorrupt, and
// the caller makes it anew. docs/design/0015-key-index.md.
package keyindex

import (
	"errors"

	"sluice/writer/table"
)

// ErrCorrupt is wrapped by errors about a run that is not what was written. It has to be built anew.
var ErrCorrupt = errors.New("corrupt key index")

// Entry says that a row may have a key with this hash.
type Entry struct {
	Hash uint64
	File table.FileID
	Row  uint32 // position in the file, from 0
}

// Ref is the row's name.
func (e Entry) Ref() table.Ref { return table.Ref{File: e.File, Row: uint64(e.Row)} }

// Meta is what a run says of itself.
type Meta struct {
	// Label is the caller's: what the hashes are made of. A run with another label is of no use to him.
	Label string
	// Files are the data files whose keys are all here, but for rows that were dead when the run was made. In order.
	Files []table.FileID
	// Loose says that equal hashes may be of different keys.
	Loose bool
}
