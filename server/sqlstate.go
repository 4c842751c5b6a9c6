package server

import (
	"context"
	"errors"
	"io/fs"
	"strconv"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"

	"sluice/server/wire"
	"sluice/sql"
	"sluice/sql/pgvalue"
	"sluice/writer"
	"sluice/writer/keyindex"
	"sluice/writer/lock"
)

// sqlError is the one table from errors to what the client is told. ok is false for errors that end the session.
func sqlError(err error) (e *wire.Error, ok bool) {
	if errors.As(err, &e) {
		return e, true
	}
	var pg *pgconn.PgError
	var value *pgvalue.Error
	var unique *writer.UniqueConflict
	var moved *writer.RowMoved
	var path *fs.PathError
	switch {
	case err == nil || errors.Is(err, errGone):
		return nil, false
	case errors.As(err, &pg):
		return &wire.Error{Severity: pg.Severity, Code: pg.Code, Message: pg.Message, Detail: pg.Detail, Hint: pg.Hint, Constraint: pg.ConstraintName}, true
	case errors.As(err, &value):
		return &wire.Error{Severity: "ERROR", Code: value.Code, Message: value.Message, Detail: value.Detail, Hint: value.Hint, Where: value.Context}, true
	case errors.As(err, &unique):
		e = wire.Errorf(wire.CodeUniqueViolation, "duplicate key value violates unique constraint %s", sql.QuoteIdent(unique.Name))
		e.Constraint = unique.Name
		return e, true
	case errors.As(err, &moved):
		return concurrent(moved), true
	case errors.Is(err, writer.ErrSerialization):
		return errConcurrent, true
	case errors.Is(err, lock.ErrDeadlock):
		e = wire.Errorf(wire.CodeDeadlockDetected, "deadlock detected")
		var cycle *lock.DeadlockError
		if errors.As(err, &cycle) {
			e.Detail = cycle.Detail(func(id lock.OwnerID) string { return "transaction " + strconv.FormatUint(uint64(id), 10) })
		}
		return e.WithHint("See server log for query details."), true
	case errors.Is(err, lock.ErrTimeout):
		return wire.Errorf(wire.CodeLockNotAvailable, "canceling statement due to lock timeout"), true
	case errors.Is(err, lock.ErrNotAvailable):
		return wire.Errorf(wire.CodeLockNotAvailable, "could not obtain lock on row"), true
	case errors.Is(err, writer.ErrNotHeld):
		return wire.Errorf(wire.CodeFeatureNotSupported, "PREPARE TRANSACTION is not supported here: %s", err.Error()).
			WithHint("It takes changes of rows at READ COMMITTED and REPEATABLE READ, up to 64 MB."), true
	case errors.Is(err, writer.ErrWindows):
		return wire.Errorf(wire.CodeOutOfMemory, "%s", err.Error()).
			WithHint("Use fewer names for sluice.writer, return fewer rows, or give the gateway more --memory."), true
	case errors.Is(err, writer.ErrMemory):
		return wire.Errorf(wire.CodeOutOfMemory, "%s", err.Error()).WithHint("Wait for the next flush, or give the gateway more --memory."), true
	case errors.Is(err, writer.ErrOutcomeUnknown):
		return wire.Errorf(wire.CodeStatementCompletionUnknown, "the outcome of the commit is not known").
			WithHint("sluice.txn_outcome() tells it about a token of sluice.txn_token() when it is decided, at the latest after the gateway's next start."), true
	case errors.Is(err, writer.ErrSchemaChanged):
		return wire.Errorf(wire.CodeSerializationFailure, "the table's definition has changed since the statement began"), true
	case errors.Is(err, writer.ErrUnknownTable):
		return wire.Errorf(wire.CodeSerializationFailure, "a table was dropped since the statement began"), true
	case errors.Is(err, writer.ErrStopped):
		return wire.Fatalf(wire.CodeAdminShutdown, "terminating connection due to administrator command"), true
	case errors.Is(err, context.Canceled):
		return wire.Errorf(wire.CodeQueryCanceled, "canceling statement due to user request"), true
	case errors.Is(err, syscall.ENOSPC):
		return wire.Errorf(wire.CodeDiskFull, "%s", err.Error()).WithHint("Check free disk space."), true
	case errors.As(err, &path) || errors.Is(err, keyindex.ErrCorrupt):
		return wire.Errorf(wire.CodeIOError, "%s", err.Error()), true
	}
	return nil, false
}

// concurrent is 40001 in Postgres' words for what happened to the row.
func concurrent(m *writer.RowMoved) *wire.Error {
	if m.Updated {
		return errConcurrent
	}
	return wire.Errorf(wire.CodeSerializationFailure, "could not serialize access due to concurrent delete")
}
