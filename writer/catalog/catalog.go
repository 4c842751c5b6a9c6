// Package catalog is what the writer needs of a catalog: where each table stands, and one atomic step that moves many tables together.
//
// It owns the interface Catalog, its values and its errors, and a memory implementation for tests. Start with Catalog.Flip. It never does
// I/O and knows no SQL; catalogpg implements it over Postgres, catalogtest says what every implementation owes.
package catalog

import (
	"context"
	"fmt"
	"strings"

	"sluice/writer/table"
)

// Catalog holds the pointers of all tables and the progress of the streams that feed them.
type Catalog interface {
	// Load returns where everything stands, as of one moment.
	Load(ctx context.Context) (State, error)

	// Flip moves all pointers of f, or none, and returns the flip's place in the commit log. A pointer or a schema version that is not as
	// f expects is a *ConflictError. An id that is settled already is ErrSettled. When the outcome cannot be known, not even by Resolve,
	// the error is an *OutcomeUnknownError: nothing f names may be deleted, and Resolve is to be asked before anything else is done.
	Flip(ctx context.Context, f Flip) (CommitID, error)

	// Resolve settles the flip with this id: true if it committed; false if it did not and never will.
	Resolve(ctx context.Context, flip string) (bool, error)

	// Results is what transactions with a retry identity answered, as far as flips stored it. What other streams stored is included where
	// it is a writer's, without positions.
	Results(ctx context.Context, stream string) (Results, error)

	// Decision settles a transaction that the catalog decides, in the same way. ErrPending: it is still running or prepared.
	Decision(ctx context.Context, txid [16]byte) (bool, error)

	// Prepare keeps the state of a transaction that is going to be held until somebody decides it, whatever its fate.
	Prepare(ctx context.Context, p Prepared) error

	// PreparedTransactions is what Prepare kept and ForgetPrepared did not end, in the order of Prepare.
	PreparedTransactions(ctx context.Context) ([]Prepared, error)

	// ForgetPrepared ends the keeping of a transaction's state: it has ended.
	ForgetPrepared(ctx context.Context, txid [16]byte) error

	// Stage lists objects that are about to be written for a flip (invariant I4). Further calls for the same flip add to its list. A location
	// that ends in / is a prefix.
	Stage(ctx context.Context, flip string, locations []string) error

	// Staged is what Stage listed, flip by flip, of those that have not committed: what a crash left, or a flip under way.
	Staged(ctx context.Context) ([]Staged, error)

	// Forget ends the listing of flips. Those that committed are not listed any more anyway, and it cleans up after them.
	Forget(ctx context.Context, flips []string) error
}

// Prepared is a held transaction.
type Prepared struct {
	ID      [16]byte
	Name    string // for whoever decides it
	State   []byte
	Pending bool // it is certainly not decided yet; else Decision tells
}

// Staged is the objects of one flip.
type Staged struct {
	Flip      string
	Locations []string
}

// CommitID is a place in the commit log. The first flip is 1; ids are gapless.
type CommitID uint64

// State is everything the writer starts from.
type State struct {
	Last     CommitID // of the newest flip, 0 if there was none
	Progress map[string]table.Position
	Tables   []Table // in id order
}

// Table is where one lake table stands.
type Table struct {
	ID        table.ID
	Namespace string
	Name      string
	Version   int           // of the schema
	Pointer   table.Pointer // empty until its first flip
	NextFile  table.FileID  // next unused file id
	NextRow   uint64        // tail row number of the first row that is not in files
	RowMap    []byte        // encoded map of the last flush
	Snapshot  int64
}

// Flip is one catalog transaction.
type Flip struct {
	ID       string         // unique; settles unknown outcomes
	Stream   string         // whose progress moves
	Progress table.Position // everything up to here is in files; 0 = unchanged
	Tables   []TableFlip    // in table id order
	Results  Results        // to be stored, for positions up to Progress
}

// Result is what one transaction with a retry identity answered.
type Result struct {
	Writer   string // up to its first / it is whose the writer is; with nothing behind that the transaction only had a token
	Sequence int64
	ID       [16]byte // of the transaction
	Position table.Position
	Time     int64 // of the commit, µs since 1970 UTC
	Answer   []byte
}

// Results is what is known of repeats, or in a Flip what changes about it: Dropped go first, then List and Low are put in.
type Results struct {
	List      []Result
	Low       map[string]int64 // by writer: answers up to this sequence are not kept, and List has none of them
	Dropped   []string         // writers of whom nothing is kept any more
	Forgotten table.Position   // what was dropped was of positions up to here
}

// Tokens reports whether a writer's name stands for transactions that only had a token.
func Tokens(writer string) bool {
	_, name, _ := strings.Cut(writer, "/")
	return name == ""
}

// TableFlip is one table's part of a Flip. From empty creates the table's pointer, To empty removes it.
type TableFlip struct {
	Table    table.ID
	From, To table.Pointer
	Version  int // schema version the edit was made for; 0 = any
	NextFile table.FileID
	NextRow  uint64
	RowMap   []byte // replaces the one before
	Snapshot int64
}

// Validate says what is wrong with the shape of f.
func (f *Flip) Validate() error {
	if f.ID == "" {
		return fmt.Errorf("check flip: no id")
	}
	if f.Progress != 0 && f.Stream == "" {
		return fmt.Errorf("check flip %s: progress without stream", f.ID)
	}
	for i := range f.Tables {
		t := &f.Tables[i]
		if i > 0 && t.Table <= f.Tables[i-1].Table {
			return fmt.Errorf("check flip %s: table %d after table %d", f.ID, t.Table, f.Tables[i-1].Table)
		}
		if t.From == t.To && t.From.Location == "" {
			return fmt.Errorf("check flip %s: table %d moves from nothing to nothing", f.ID, t.Table)
		}
	}
	return nil
}
