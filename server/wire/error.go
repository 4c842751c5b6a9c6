package wire

import (
	"fmt"
	"strconv"
)

// Severities as Postgres sends them.
const (
	SeverityError   = "ERROR"
	SeverityFatal   = "FATAL"
	SeverityPanic   = "PANIC"
	SeverityWarning = "WARNING"
	SeverityNotice  = "NOTICE"
	SeverityInfo    = "INFO"
	SeverityLog     = "LOG"
	SeverityDebug   = "DEBUG"
)

// Error is an ErrorResponse or a NoticeResponse, field by field. Severity is the unlocalised one; empty means ERROR.
// Positions count characters from 1; 0 means none.
type Error struct {
	Severity         string
	Code             string
	Message          string
	Detail           string
	Hint             string
	Position         int
	InternalPosition int
	InternalQuery    string
	Where            string
	Schema           string
	Table            string
	Column           string
	DataType         string
	Constraint       string
	File             string
	Line             int
	Routine          string
}

// Errorf is an error that ends the statement.
func Errorf(code, format string, args ...any) *Error {
	return &Error{Severity: SeverityError, Code: code, Message: fmt.Sprintf(format, args...)}
}

// Fatalf is an error that ends the connection.
func Fatalf(code, format string, args ...any) *Error {
	return &Error{Severity: SeverityFatal, Code: code, Message: fmt.Sprintf(format, args...)}
}

// Error is severity, message and code on one line, as psql's verbose mode has them.
func (e *Error) Error() string {
	return e.severity() + ": " + e.Message + " (SQLSTATE " + e.Code + ")"
}

// Fatal tells whether the connection ends with e.
func (e *Error) Fatal() bool { return e.Severity == SeverityFatal || e.Severity == SeverityPanic }

// WithDetail sets the detail and returns e.
func (e *Error) WithDetail(format string, args ...any) *Error {
	e.Detail = fmt.Sprintf(format, args...)
	return e
}

// WithHint sets the hint and returns e.
func (e *Error) WithHint(format string, args ...any) *Error {
	e.Hint = fmt.Sprintf(format, args...)
	return e
}

func (e *Error) severity() string {
	if e.Severity == "" {
		return SeverityError
	}
	return e.Severity
}

// AppendErrorResponse appends e as an ErrorResponse.
func AppendErrorResponse(dst []byte, e *Error) []byte { return appendError(dst, 'E', e) }

// AppendNoticeResponse appends e as a NoticeResponse.
func AppendNoticeResponse(dst []byte, e *Error) []byte { return appendError(dst, 'N', e) }

// appendError writes the fields in Postgres' order. Clients need V: S may be translated, V never is.
func appendError(dst []byte, typ byte, e *Error) []byte {
	dst, at := begin(dst, typ)
	dst = appendField(dst, 'S', e.severity())
	dst = appendField(dst, 'V', e.severity())
	dst = appendField(dst, 'C', e.Code)
	dst = appendCString(append(dst, 'M'), e.Message)
	dst = appendField(dst, 'D', e.Detail)
	dst = appendField(dst, 'H', e.Hint)
	dst = appendNumber(dst, 'P', e.Position)
	dst = appendNumber(dst, 'p', e.InternalPosition)
	dst = appendField(dst, 'q', e.InternalQuery)
	dst = appendField(dst, 'W', e.Where)
	dst = appendField(dst, 's', e.Schema)
	dst = appendField(dst, 't', e.Table)
	dst = appendField(dst, 'c', e.Column)
	dst = appendField(dst, 'd', e.DataType)
	dst = appendField(dst, 'n', e.Constraint)
	dst = appendField(dst, 'F', e.File)
	dst = appendNumber(dst, 'L', e.Line)
	dst = appendField(dst, 'R', e.Routine)
	return end(append(dst, 0), at)
}

func appendField(dst []byte, key byte, value string) []byte {
	if value == "" {
		return dst
	}
	return appendCString(append(dst, key), value)
}

func appendNumber(dst []byte, key byte, value int) []byte {
	if value == 0 {
		return dst
	}
	return append(strconv.AppendInt(append(dst, key), int64(value), 10), 0)
}

// DecodeError decodes the body of a backend's ErrorResponse or NoticeResponse. Unknown fields are skipped, as the protocol asks.
func DecodeError(body []byte) (*Error, error) {
	e := &Error{}
	r := reader{b: body}
	for {
		key := r.byte()
		if key == 0 {
			break
		}
		e.set(key, string(r.cstring()))
	}
	if err := r.finish(); err != nil {
		return nil, err
	}
	return e, nil
}

func (e *Error) set(key byte, value string) {
	switch key {
	case 'S': // S comes first and may be translated; V, where present, replaces it
		e.Severity = value
	case 'V':
		e.Severity = value
	case 'P':
		e.Position, _ = strconv.Atoi(value)
	case 'p':
		e.InternalPosition, _ = strconv.Atoi(value)
	case 'L':
		e.Line, _ = strconv.Atoi(value)
	default:
		if field := e.text(key); field != nil {
			*field = value
		}
	}
}

func (e *Error) text(key byte) *string {
	switch key {
	case 'C':
		return &e.Code
	case 'M':
		return &e.Message
	case 'D':
		return &e.Detail
	case 'H':
		return &e.Hint
	case 'q':
		return &e.InternalQuery
	case 'W':
		return &e.Where
	case 's':
		return &e.Schema
	case 't':
		return &e.Table
	case 'c':
		return &e.Column
	case 'd':
		return &e.DataType
	case 'n':
		return &e.Constraint
	case 'F':
		return &e.File
	case 'R':
		return &e.Routine
	}
	return nil
}
