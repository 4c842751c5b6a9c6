package server

import (
	"context"
	"reflect"

	"sluice/sql"
)

// A client whose encoding is neither UTF8 nor SQL_ASCII, which is no encoding, talks to Postgres in it. The gateway knows UTF8 only: it relays
// what touches no lake rows, and refuses the rest before anything has happened.

// foreign reports whether an encoding is one that the gateway cannot read.
func foreign(encoding string) bool { return encoding != "UTF8" && encoding != "SQL_ASCII" }

// refuseEncoding says no to lake rows in another encoding.
func (s *session) refuseEncoding() error {
	if !s.foreign {
		return nil
	}
	return unsupported("lake tables can be used with client_encoding UTF8 only").WithHint("SET client_encoding TO 'UTF8'.")
}

// foreignText relays a text in another encoding if it is one statement that reaches no lake rows. Its parts that are not ASCII must be no names.
func (s *session) foreignText(ctx context.Context, text string) (handled bool, err error) {
	if !s.foreign {
		return false, nil
	}
	st, other := masked(text, 'x'), masked(text, 'y')
	if st == nil || other == nil || !sameNames(st, other) {
		return false, nil
	}
	p, err := s.plan(ctx, st)
	if err != nil {
		return true, err
	}
	return true, s.statement(ctx, st, p, text)
}

// masked is the only statement of a text in which a letter stands for each byte that is not ASCII, or nil.
func masked(text string, letter byte) *sql.Statement {
	b := []byte(text)
	for i := range b {
		if b[i] >= 0x80 {
			b[i] = letter
		}
	}
	stmts, err := sql.Parse(string(b))
	if err != nil || len(stmts) != 1 {
		return nil
	}
	return stmts[0]
}

func sameNames(a, b *sql.Statement) bool {
	return a.Kind == b.Kind && reflect.DeepEqual([][]sql.Name{a.Relations, a.Functions, a.Operators, a.Types}, [][]sql.Name{b.Relations, b.Functions, b.Operators, b.Types})
}
