package server

import (
	"context"
	"errors"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"sluice/server/scan"
	"sluice/server/wire"
	"sluice/sql"
	"sluice/sql/pgvalue"
	"sluice/writer"
	"sluice/writer/table"
)

// Rows of a large table for the exact lane: a reader finds those that a statement's condition selects, as far as the scan lane knows it, and
// only they are copied. Postgres applies the whole condition to the copies.

// foundRows is the rows of a table that is too large to be copied whole, which has about n rows.
func (s *session) foundRows(ctx context.Context, a *attempt, view *writer.View, r *rel, n int64) (*table.Batch, []table.Ref, error) {
	refs, err := s.findRows(ctx, a, view, r)
	var no *sql.UnfitError
	var failed *scan.Error
	switch {
	case errors.As(err, &no):
		return nil, nil, wire.Errorf(wire.CodeFeatureNotSupported,
			"this statement reads all of table %q, which has about %d rows, and no lane for large tables is proven for it", r.Name, n).
			WithDetail("It is %s.", no.Error()).
			WithHint("Narrow it by the table's primary key, or allow more rows with SET sluice.exact_limit.")
	case errors.As(err, &failed): // perhaps of a row that Postgres would not have looked at
		return nil, nil, wire.Errorf(wire.CodeFeatureNotSupported, "the condition cannot be looked at before Postgres does: %s", failed.Message).WithHint("The condition fails for some row of the table: narrow it by the primary key, or allow more rows with SET sluice.exact_limit.")
	case err != nil:
		return nil, nil, err
	}
	if fits, err := s.fitsExact(ctx, int64(len(refs)), 0); err != nil {
		return nil, nil, err
	} else if !fits {
		return nil, nil, wire.Errorf(wire.CodeFeatureNotSupported, "this statement selects %d rows of table %q, more than may be copied", len(refs), r.Name).
			WithHint("Do it in several statements, or allow more rows with SET sluice.exact_limit.")
	}
	seen := make(map[table.Ref]bool, len(refs))
	for _, ref := range refs {
		seen[ref] = true
	}
	for _, ref := range a.rows[r.OID] {
		if !seen[ref] {
			refs = append(refs, ref)
		}
	}
	batch, err := view.Fetch(ctx, table.ID(r.OID), refs)
	if err == nil && len(a.skip) > 0 {
		batch, refs = without(batch, refs, a.skip)
	}
	return batch, refs, err
}

// findRows asks a reader. The error is a *sql.UnfitError if the condition is not for it.
func (s *session) findRows(ctx context.Context, a *attempt, view *writer.View, r *rel) ([]table.Ref, error) {
	if s.srv.Reader == nil || a.plan.User || a.st.Kind == sql.Declare {
		return nil, &sql.UnfitError{Reason: "user code may see the rows, or there is no reader"}
	}
	o := sql.DuckOptions{Tables: func(n sql.Name) *sql.DuckTable {
		t := s.duckTable(n)
		if t == nil || t.ID != r.OID {
			return nil
		}
		t.Columns = append(t.Columns, sql.DuckColumn{Name: sql.RowName, OID: pgvalue.OIDInt8, Length: -1})
		return t
	}}
	if a.bound.len() > 0 {
		oids, _, _, err := s.be.describe(a.st.Text, a.bound.types)
		if err != nil {
			return nil, err
		}
		if o.Params, err = a.bound.literals(oids); err != nil {
			return nil, err
		}
	}
	for {
		refs, err := s.search(ctx, a, view, r, o)
		var e *scan.Error
		if !errors.As(err, &e) || !o.Refine(e.Wide, e.Decimals) {
			return refs, err
		}
	}
}

func (s *session) search(ctx context.Context, a *attempt, view *writer.View, r *rel, o sql.DuckOptions) ([]table.Ref, error) {
	q, err := a.st.Finding(o)
	if err != nil {
		return nil, err
	}
	use := q.Uses[0]
	use.Columns = use.Columns[:len(use.Columns)-1] // RowName is the last
	sc := &scanning{s: s, st: a.st}
	if err := sc.allowed(ctx, []sql.DuckUse{use}); err != nil {
		return nil, err
	}
	t, files, memory, err := s.searchTable(ctx, view, r, use)
	if err != nil {
		return nil, err
	}
	var refs []table.Ref
	err = s.srv.Reader.Query(ctx, &scan.Request{SQL: q.Text, Tables: []scan.Table{t}}, func(rec arrow.RecordBatch) error {
		ids, ok := rec.Column(0).(*array.Int64)
		if !ok {
			return errors.New("internal error: row numbers of another type")
		}
		for i := range ids.Len() {
			if file, row := scan.SplitRow(ids.Value(i)); file >= 0 {
				refs = append(refs, table.Ref{File: files[file], Row: uint64(row)})
			} else {
				refs = append(refs, memory[row])
			}
		}
		return nil
	})
	return refs, err
}

// searchTable is a table with numbers for its rows, and what rows they stand for.
func (s *session) searchTable(ctx context.Context, view *writer.View, r *rel, use sql.DuckUse) (t scan.Table, files []table.FileID, memory []table.Ref, err error) {
	if t, err = s.scanTable(ctx, view, use); err != nil {
		return t, nil, nil, err
	}
	t.RowID = duckName(len(r.Columns))
	list, err := view.Files(table.ID(r.OID))
	if err != nil {
		return t, nil, nil, err
	}
	for _, f := range list {
		files = append(files, f.ID)
	}
	cols := use.Columns
	if len(cols) == 0 {
		cols = []int{0}
	}
	t.Rows, err = memoryRows(ctx, view, table.ID(r.OID), cols, &memory, t.RowID)
	return t, files, memory, err
}

// numbered adds a column called name with the numbers of rows, from first on.
func numbered(rec arrow.RecordBatch, first int, name string) arrow.RecordBatch {
	b := array.NewInt64Builder(memory.DefaultAllocator)
	defer b.Release()
	for i := range int(rec.NumRows()) {
		b.Append(int64(first + i))
	}
	fields := append(rec.Schema().Fields(), arrow.Field{Name: name, Type: arrow.PrimitiveTypes.Int64})
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), append(rec.Columns(), b.NewArray()), rec.NumRows())
}
