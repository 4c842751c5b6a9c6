package reader

import (
	"errors"
	"fmt"
	"strings"

	duckdb "github.com/duckdb/duckdb-go/v2"

	"sluice/server/scan"
)

// said maps what DuckDB says to what Postgres says. The first that fits counts.
var said = []struct{ text, code, message string }{
	{"division by zero", "22012", "division by zero"},
	{"Overflow in division of -32768 ", "22003", "smallint out of range"},
	{"Overflow in division of -2147483648 ", "22003", "integer out of range"},
	{"Overflow in division of -9223372036854775808 ", "22003", "bigint out of range"},
	{"of INT16", "22003", "smallint out of range"},
	{"of INT32", "22003", "integer out of range"},
	{"of INT64", "22003", "bigint out of range"},
	{"destination type INT32", "22003", "integer out of range"},
	{"destination type INT64", "22003", "bigint out of range"},
	{"More than one row returned by a subquery", "21000", "more than one row returned by a subquery used as an expression"},
}

// sqlError is what the gateway is told of err; nil if the answer cannot go on at all. Whatever is not an error that Postgres would have
// raised too says that the query is not for this lane.
func sqlError(err error) *scan.Error {
	var e *scan.Error
	if errors.As(err, &e) {
		return e
	}
	text := err.Error()
	var d *duckdb.Error
	if errors.As(err, &d) && d.Type == duckdb.ErrorTypeOutOfMemory || strings.Contains(text, "Out of Memory") {
		return &scan.Error{Code: "53200", Message: "out of memory"}
	}
	for _, s := range said {
		if strings.Contains(text, s.text) && !strings.Contains(text, "DECIMAL") {
			return &scan.Error{Code: s.code, Message: s.message}
		}
	}
	first, _, _ := strings.Cut(text, "\n")
	e = &scan.Error{Code: scan.Unfit, Message: first, Wide: strings.Contains(text, "of DECIMAL(")}
	if at := strings.Index(text, roomMessage[:10]); at >= 0 {
		_, _ = fmt.Sscanf(text[at:], roomMessage, &e.Decimals) // stays 0 otherwise
	}
	return e
}
