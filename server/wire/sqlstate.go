package wire

// The SQLSTATE codes that the gateway itself gives. Others come from the catalog Postgres and pass through unchanged.
// docs/errors.md is printed from Codes.
const (
	CodeSuccessfulCompletion              = "00000"
	CodeWarning                           = "01000"
	CodeConnectionException               = "08000"
	CodeConnectionFailure                 = "08006"
	CodeProtocolViolation                 = "08P01"
	CodeFeatureNotSupported               = "0A000"
	CodeCardinalityViolation              = "21000"
	CodeDataException                     = "22000"
	CodeStringDataRightTruncation         = "22001"
	CodeNumericValueOutOfRange            = "22003"
	CodeInvalidDatetimeFormat             = "22007"
	CodeDatetimeFieldOverflow             = "22008"
	CodeDivisionByZero                    = "22012"
	CodeCharacterNotInRepertoire          = "22021"
	CodeInvalidParameterValue             = "22023"
	CodeInvalidTextRepresentation         = "22P02"
	CodeInvalidBinaryRepresentation       = "22P03"
	CodeBadCopyFileFormat                 = "22P04"
	CodeUntranslatableCharacter           = "22P05"
	CodeNotNullViolation                  = "23502"
	CodeForeignKeyViolation               = "23503"
	CodeUniqueViolation                   = "23505"
	CodeCheckViolation                    = "23514"
	CodeExclusionViolation                = "23P01"
	CodeInvalidCursorState                = "24000"
	CodeActiveSQLTransaction              = "25001"
	CodeReadOnlySQLTransaction            = "25006"
	CodeNoActiveSQLTransaction            = "25P01"
	CodeInFailedSQLTransaction            = "25P02"
	CodeIdleInTransactionTimeout          = "25P03"
	CodeInvalidSQLStatementName           = "26000"
	CodeInvalidAuthorizationSpecification = "28000"
	CodeInvalidPassword                   = "28P01"
	CodeInvalidTransactionTermination     = "2D000"
	CodeInvalidCursorName                 = "34000"
	CodeInvalidSavepoint                  = "3B001"
	CodeInvalidCatalogName                = "3D000"
	CodeInvalidSchemaName                 = "3F000"
	CodeSerializationFailure              = "40001"
	CodeStatementCompletionUnknown        = "40003"
	CodeDeadlockDetected                  = "40P01"
	CodeSyntaxError                       = "42601"
	CodeInsufficientPrivilege             = "42501"
	CodeCannotCoerce                      = "42846"
	CodeUndefinedFunction                 = "42883"
	CodeUndefinedColumn                   = "42703"
	CodeUndefinedObject                   = "42704"
	CodeDuplicateObject                   = "42710"
	CodeDatatypeMismatch                  = "42804"
	CodeWrongObjectType                   = "42809"
	CodeReservedName                      = "42939"
	CodeUndefinedTable                    = "42P01"
	CodeUndefinedParameter                = "42P02"
	CodeDuplicateCursor                   = "42P03"
	CodeDuplicateDatabase                 = "42P04"
	CodeDuplicatePreparedStatement        = "42P05"
	CodeDuplicateTable                    = "42P07"
	CodeInvalidColumnReference            = "42P10"
	CodeIndeterminateDatatype             = "42P18"
	CodeDiskFull                          = "53100"
	CodeOutOfMemory                       = "53200"
	CodeTooManyConnections                = "53300"
	CodeProgramLimitExceeded              = "54000"
	CodeStatementTooComplex               = "54001"
	CodeObjectNotInPrerequisiteState      = "55000"
	CodeObjectInUse                       = "55006"
	CodeLockNotAvailable                  = "55P03"
	CodeQueryCanceled                     = "57014"
	CodeAdminShutdown                     = "57P01"
	CodeCrashShutdown                     = "57P02"
	CodeCannotConnectNow                  = "57P03"
	CodeIdleSessionTimeout                = "57P05"
	CodeIOError                           = "58030"
	CodeSnapshotTooOld                    = "72000"
	CodeInternalError                     = "XX000"
	CodeDataCorrupted                     = "XX001"
)

// Codes lists the codes in their order, with Postgres' name and what they mean here.
var Codes = []struct{ Code, Name, Meaning string }{
	{CodeSuccessfulCompletion, "successful_completion", "a NOTICE that is no warning"},
	{CodeWarning, "warning", "a WARNING without a code of its own"},
	{CodeConnectionException, "connection_exception", "the gateway lost its session backend"},
	{CodeConnectionFailure, "connection_failure", "the catalog Postgres or the object store cannot be reached"},
	{CodeProtocolViolation, "protocol_violation", "a message that the protocol does not allow here, or that does not fit its length"},
	{CodeFeatureNotSupported, "feature_not_supported", "Postgres could do it, this table or this lane cannot; the hint says what can"},
	{CodeCardinalityViolation, "cardinality_violation", "ON CONFLICT or MERGE would touch a row twice; a sub-query gave several rows"},
	{CodeDataException, "data_exception", "a value that the lake cannot hold"},
	{CodeStringDataRightTruncation, "string_data_right_truncation", "a text is too long for its column"},
	{CodeNumericValueOutOfRange, "numeric_value_out_of_range", "a number does not fit its type"},
	{CodeInvalidDatetimeFormat, "invalid_datetime_format", "not a date or time"},
	{CodeDatetimeFieldOverflow, "datetime_field_overflow", "a date or time field is out of range"},
	{CodeDivisionByZero, "division_by_zero", "division by zero"},
	{CodeCharacterNotInRepertoire, "character_not_in_repertoire", "not valid UTF-8, or a NUL character"},
	{CodeInvalidParameterValue, "invalid_parameter_value", "a setting or option has a value that it cannot take"},
	{CodeInvalidTextRepresentation, "invalid_text_representation", "a text is not a value of its type"},
	{CodeInvalidBinaryRepresentation, "invalid_binary_representation", "a binary value does not have its type's layout"},
	{CodeBadCopyFileFormat, "bad_copy_file_format", "COPY input has a wrong layout"},
	{CodeUntranslatableCharacter, "untranslatable_character", "a character has no form in the client's encoding"},
	{CodeNotNullViolation, "not_null_violation", "NULL in a NOT NULL, key or bucket column"},
	{CodeForeignKeyViolation, "foreign_key_violation", "no such parent row, or children remain"},
	{CodeUniqueViolation, "unique_violation", "a live row has this key"},
	{CodeCheckViolation, "check_violation", "a CHECK constraint is false"},
	{CodeExclusionViolation, "exclusion_violation", "an exclusion constraint is violated (heap tables)"},
	{CodeInvalidCursorState, "invalid_cursor_state", "the cursor cannot do this where it stands"},
	{CodeActiveSQLTransaction, "active_sql_transaction", "not inside a transaction block"},
	{CodeReadOnlySQLTransaction, "read_only_sql_transaction", "a write in a read-only transaction"},
	{CodeNoActiveSQLTransaction, "no_active_sql_transaction", "only inside a transaction block"},
	{CodeInFailedSQLTransaction, "in_failed_sql_transaction", "an earlier statement of the transaction failed"},
	{CodeIdleInTransactionTimeout, "idle_in_transaction_session_timeout", "the session held a transaction open for too long"},
	{CodeInvalidSQLStatementName, "invalid_sql_statement_name", "no such prepared statement"},
	{CodeInvalidAuthorizationSpecification, "invalid_authorization_specification", "this user may not connect like this"},
	{CodeInvalidPassword, "invalid_password", "wrong password, or no such user"},
	{CodeInvalidTransactionTermination, "invalid_transaction_termination", "COMMIT in a procedure that reached lake data"},
	{CodeInvalidCursorName, "invalid_cursor_name", "no such cursor or portal"},
	{CodeInvalidSavepoint, "invalid_savepoint_specification", "no such savepoint"},
	{CodeInvalidCatalogName, "invalid_catalog_name", "no such database"},
	{CodeInvalidSchemaName, "invalid_schema_name", "no such schema"},
	{CodeSerializationFailure, "serialization_failure", "another transaction changed what this one relied on: run it again"},
	{CodeStatementCompletionUnknown, "statement_completion_unknown", "the outcome of the commit is not known; it is decided when the catalog answers, or by the gateway's next start"},
	{CodeDeadlockDetected, "deadlock_detected", "this transaction was chosen to end a deadlock: run it again"},
	{CodeInsufficientPrivilege, "insufficient_privilege", "the role may not do this"},
	{CodeSyntaxError, "syntax_error", "not SQL"},
	{CodeUndefinedColumn, "undefined_column", "no such column"},
	{CodeUndefinedObject, "undefined_object", "no such setting, type or object"},
	{CodeDuplicateObject, "duplicate_object", "the object exists"},
	{CodeDatatypeMismatch, "datatype_mismatch", "an expression has another type than its column"},
	{CodeWrongObjectType, "wrong_object_type", "the object is of another kind"},
	{CodeReservedName, "reserved_name", "the name is kept for Postgres or for the gateway"},
	{CodeCannotCoerce, "cannot_coerce", "no cast between these types"},
	{CodeUndefinedFunction, "undefined_function", "no such function or operator"},
	{CodeUndefinedTable, "undefined_table", "no such table"},
	{CodeUndefinedParameter, "undefined_parameter", "no such parameter"},
	{CodeDuplicateCursor, "duplicate_cursor", "the cursor or portal exists"},
	{CodeDuplicateDatabase, "duplicate_database", "the database exists"},
	{CodeDuplicatePreparedStatement, "duplicate_prepared_statement", "the prepared statement exists"},
	{CodeDuplicateTable, "duplicate_table", "the table exists"},
	{CodeInvalidColumnReference, "invalid_column_reference", "ON CONFLICT names no unique constraint"},
	{CodeIndeterminateDatatype, "indeterminate_datatype", "the type of a parameter cannot be found out"},
	{CodeDiskFull, "disk_full", "the data directory or the spill area is full"},
	{CodeOutOfMemory, "out_of_memory", "over the memory budget; try again or commit in smaller pieces"},
	{CodeTooManyConnections, "too_many_connections", "no session slot is free"},
	{CodeProgramLimitExceeded, "program_limit_exceeded", "a statement or a row is over a limit"},
	{CodeStatementTooComplex, "statement_too_complex", "a statement is nested too deeply"},
	{CodeObjectNotInPrerequisiteState, "object_not_in_prerequisite_state", "not possible in this state, such as a retry identity that has left its window"},
	{CodeObjectInUse, "object_in_use", "the object is in use"},
	{CodeLockNotAvailable, "lock_not_available", "NOWAIT or lock_timeout"},
	{CodeQueryCanceled, "query_canceled", "cancelled by the client or by statement_timeout"},
	{CodeAdminShutdown, "admin_shutdown", "the gateway is stopping, or the session was terminated"},
	{CodeCrashShutdown, "crash_shutdown", "the gateway must recover; what was acknowledged is safe"},
	{CodeCannotConnectNow, "cannot_connect_now", "the gateway is starting or draining"},
	{CodeIdleSessionTimeout, "idle_session_timeout", "the session was idle for too long"},
	{CodeIOError, "io_error", "the object store or the disk failed"},
	{CodeSnapshotTooOld, "snapshot_too_old", "the statement's snapshot is over its maximum age"},
	{CodeInternalError, "internal_error", "a broken promise inside the gateway: please report it"},
	{CodeDataCorrupted, "data_corrupted", "a stored object does not match its checksum"},
}
