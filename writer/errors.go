package writer

import (
	"errors"
	"fmt"

	"sluice/writer/table"
)

// Errors of the writer. The server has one table from these to SQLSTATE.
var (
	// ErrSerialization (40001): a table that this SERIALIZABLE transaction read has been changed since its snapshot.
	ErrSerialization = errors.New("could not serialize access due to concurrent update")
	// ErrMemory (53200): the rows not yet in files take all the memory they may.
	ErrMemory = errors.New("out of memory for rows that are not in files yet")
	// ErrUnknownTable (XX000, or 40001 when it was dropped meanwhile): no such table in this view.
	ErrUnknownTable = errors.New("unknown table")
	// ErrSchemaChanged (plan again): the batch has another schema than the table.
	ErrSchemaChanged = errors.New("schema of the table has changed")
	// ErrStopped (57P01): the writer does not run any more. The transaction is certainly not committed.
	ErrStopped = errors.New("writer stopped")
	// ErrOutcomeUnknown (40003): the transaction may or may not be committed; a fresh start decides.
	ErrOutcomeUnknown = errors.New("outcome of the commit is unknown")
	// ErrDone (25P01): the transaction has ended.
	ErrDone = errors.New("transaction has ended")
)

// UniqueConflict (23505) says that a row's key exists. The rows are live in the newest committed state, or the transaction's own.
type UniqueConflict struct {
	Table  table.ID
	Unique uint32      // UniqueDef.ID
	Name   string      // UniqueDef.Name
	Row    int         // which row of the batch
	Refs   []table.Ref // who has the key, one row
}

func (e *UniqueConflict) Error() string {
	return fmt.Sprintf("duplicate key value violates unique constraint %q", e.Name)
}

// RowMoved says that rows were updated or deleted after the view that found them. At READ COMMITTED the statement looks again
// in a new view; above, it is 40001.
type RowMoved struct {
	Table   table.ID
	Refs    []table.Ref // as the caller named them
	Self    bool        // this transaction did it
	Updated bool        // the first of Refs has a newer version; otherwise it was deleted
}

// add notes a row, as the caller named it.
func (e *RowMoved) add(w *Writer, ref table.Ref) {
	if len(e.Refs) == 0 {
		e.Updated = w.store.Updated(e.Table, ref)
	}
	e.Refs = append(e.Refs, ref)
}

func (e *RowMoved) Error() string {
	return fmt.Sprintf("%d rows of table %d were changed concurrently", len(e.Refs), e.Table)
}
