package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"sluice/server/backend"
	"sluice/sql"
	"sluice/sql/pgvalue"
	"sluice/writer"
	"sluice/writer/table"
)

// Defaults in the fast lane. Literals are read like those of a statement. All else is computed by the session's own backend, for all rows in one
// round trip: sequences, currval(), now() and privileges are Postgres' own. Until then such a column is empty: a hole.

// fallback is the value of a column that a statement gives none.
type fallback struct {
	literal sql.Value // Kind 0: sql
	sql     string    // an expression of the column's type
	free    bool      // it depends neither on the transaction nor on settings
}

// typeNames is the names of the types that a computed default can have.
var typeNames = func() map[uint32]string {
	out := map[uint32]string{}
	for name, oid := range elementTypes {
		out[oid] = "pg_catalog." + name
	}
	return out
}()

// setFallback finds out what the column's default is; none if only Postgres can tell.
func (c *column) setFallback() {
	a := c.attr
	switch {
	case a.TypeKind == "d" || c.Generated:
	case a.Identity != "":
		c.fallback = identity(a.Sequence, typeNames[a.Base])
	case a.Default == nil:
		if !a.NotNull {
			c.fallback = &fallback{literal: sql.Value{Kind: sql.Null}}
		}
	default:
		d, ok := sql.ParseDefault(*a.Default, a.DefaultRelations)
		if !ok {
			return
		}
		if c.takes(&d) {
			c.fallback = &fallback{literal: d.Literal}
		} else if name := typeNames[a.Base]; d.SQL != "" && name != "" {
			c.fallback = &fallback{sql: "(" + d.SQL + ")::" + name, free: d.Free}
		}
	}
}

// identity is the next value of an identity column's sequence, which needs no privilege of it. nextval does: without it the value is NULL,
// and the statement takes the exact lane.
func identity(sequence uint32, typ string) *fallback {
	oid := strconv.FormatUint(uint64(sequence), 10)
	return &fallback{free: true, sql: "(CASE WHEN pg_catalog.has_sequence_privilege('" + oid + "'::pg_catalog.oid, 'USAGE, UPDATE') THEN pg_catalog.nextval('" +
		oid + "'::pg_catalog.regclass) END)::" + typ}
}

// takes reports whether the default is a literal that is assigned to the column as it stands.
func (c *column) takes(d *sql.ColumnDefault) bool {
	if d.Literal.Kind == 0 || d.Type != "" && namedType(d.Type) != c.attr.Base {
		return false
	}
	return c.putText(table.NewVec(c.Codec.Type()), d.Literal.Kind, []byte(d.Literal.Text), nil) == nil
}

func namedType(name string) uint32 {
	elem, list := strings.CutSuffix(name, "[]")
	if oid := elementTypes[elem]; list && oid != 0 {
		return pgvalue.ArrayOf(oid)
	}
	return elementTypes[name]
}

// putDefault appends the column's default, or leaves a hole.
func (c *column) putDefault(v *table.Vec) error {
	switch f := c.fallback; {
	case f == nil:
		return errNotFast
	case f.literal.Kind == 0:
		return nil
	default:
		return c.putText(v, f.literal.Kind, []byte(f.literal.Text), nil)
	}
}

// fill gives columns their defaults, up to a number of rows.
func (r *rel) fill(b *table.Batch, cols []int, rows int) error {
	for _, c := range cols {
		v := b.Cols[c]
		for v.Len < rows {
			before := v.Len
			if err := r.Columns[c].putDefault(v); err != nil {
				return err
			}
			if v.Len == before {
				break
			}
		}
	}
	return nil
}

// holes is the columns without values. errNotFast if some of the rows have one.
func holes(b *table.Batch, rows int) (out []int, err error) {
	for i, v := range b.Cols {
		switch v.Len {
		case rows:
		case 0:
			out = append(out, i)
		default:
			return nil, errNotFast
		}
	}
	return out, nil
}

// compute fills holes for a number of rows. A pipeline of the client's is one transaction: with open the backend's stays so, too, until Sync.
func (s *session) compute(r *rel, b *table.Batch, holes []int, rows int, open bool) error {
	if len(holes) == 0 || rows == 0 {
		return nil
	}
	text, free := make([]string, len(holes)), true
	for i, c := range holes {
		f := r.Columns[c].fallback
		text[i], free = f.sql, free && f.free
	}
	st := backend.Statement{SQL: "SELECT " + strings.Join(text, ", "), ResultFormats: []int16{1}}
	if rows > 1 {
		st.SQL += " FROM pg_catalog.generate_series(1, " + strconv.Itoa(rows) + ")"
	}
	if open && !free && s.be.status == 'I' {
		s.be.unsynced = true
	}
	results, err := s.be.batch(st)
	if err != nil {
		return err
	}
	for _, row := range results[0].Rows {
		for i, c := range holes {
			if err := r.Columns[c].putComputed(b.Cols[c], row[i]); err != nil {
				return fmt.Errorf("default of column %q: %w", r.Columns[c].Name, err)
			}
		}
	}
	return nil
}

// putComputed appends what the backend computed.
func (c *column) putComputed(v *table.Vec, val []byte) error {
	if val == nil {
		return c.putNull(v)
	}
	if err := c.Codec.AppendBinary(v, val); err != nil {
		return errors.Join(errNotFast, err)
	}
	return nil
}

// drawn is the error of a write that has drawn values from sequences: it must not draw them twice, so that a key which exists is reported here
// where there is no doubt which one Postgres would meet first.
func (w *fastWrite) drawn(err error) error {
	var unique *writer.UniqueConflict
	if len(w.holes) > 0 && !w.upsert && errors.As(err, &unique) && (w.batch.Rows == 1 || len(w.rel.Uniques) == 1) {
		return w.rel.duplicate(unique, w.batch)
	}
	return err
}

// mayCopy reports whether a COPY can have its columns filled: no exact lane helps once it has begun.
func (s *session) mayCopy(ctx context.Context, r *rel, cols []int) (bool, error) {
	for _, c := range cols {
		col := &r.Columns[c]
		if f := col.fallback; f == nil || f.literal.Kind == 0 && col.attr.NotNull && !f.free {
			return false, nil
		}
		for _, sequence := range append(slices.Collect(maps.Values(col.attr.DefaultRelations)), col.attr.Sequence) {
			if ok, err := s.mayDraw(ctx, sequence); !ok {
				return false, err
			}
		}
	}
	return true, nil
}

// mayDraw reports whether the role may take values from a sequence; 0 is none.
func (s *session) mayDraw(ctx context.Context, sequence uint32) (bool, error) {
	if sequence == 0 {
		return true, nil
	}
	rows, err := s.be.exec(ctx, "SELECT pg_catalog.has_sequence_privilege($1::pg_catalog.oid, 'USAGE, UPDATE')", oidText(sequence))
	return err == nil && string(rows[0][0]) == "t", err
}
