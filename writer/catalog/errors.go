package catalog

import (
	"errors"
	"fmt"

	"sluice/writer/table"
)

// ErrConflict is matched by every *ConflictError.
var ErrConflict = errors.New("a concurrent commit was first")

// ErrSettled says that the id of a flip was used before: the flip committed, or Resolve has settled that it never will.
var ErrSettled = errors.New("flip id is settled")

// ErrPending says that a transaction has not ended yet, so that its fate cannot be told.
var ErrPending = errors.New("transaction has not ended")

// ConflictError says that a flip changed nothing because the catalog is not as it expected. Build the edit anew on the newest state.
type ConflictError struct {
	Table  table.ID // 0: the stream's progress, or not known which
	Reason string
}

func (e *ConflictError) Error() string { return fmt.Sprintf("flip table %d: %s", e.Table, e.Reason) }

// Is makes every ConflictError an ErrConflict.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// OutcomeUnknownError says that a flip may or may not have committed.
type OutcomeUnknownError struct {
	ID  string // of the flip, for Resolve
	Err error  // what hid the outcome
}

func (e *OutcomeUnknownError) Error() string {
	return fmt.Sprintf("flip %s: outcome unknown: %v", e.ID, e.Err)
}

func (e *OutcomeUnknownError) Unwrap() error { return e.Err }
