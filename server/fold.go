package server

import (
	"context"
	"math"
	"math/bits"
	"slices"

	"sluice/server/wire"
	"sluice/sql/pgvalue"
	"sluice/writer"
	"sluice/writer/table"
)

// Merge engines in the fast lane: those whose merged rows are copies of values, sums of integers and the like. What only Postgres computes goes to
// the exact lane, where the trigger does the same.

// folds reports whether the engine can do without Postgres.
func (r *rel) folds() bool {
	e := r.engine
	if e.kind == versioned {
		return r.Columns[e.version].Codec.OID() != pgvalue.OIDNumeric
	}
	for i, name := range e.funcs {
		if name != "" && !r.foldsColumn(i, name) {
			return false
		}
	}
	return true
}

// mayFold reports whether a statement that names these columns can do without Postgres.
func (r *rel) mayFold(named []int) bool {
	return r.engine.fast && (r.engine.kind != partialUpdate || r.complete(named) == nil)
}

func (r *rel) foldsColumn(i int, name string) bool {
	c := &r.Columns[i]
	switch name {
	case "sum", "product", "max", "min":
		return integer(c.Codec.OID()) && c.attr.TypeKind == "b"
	case "bool_and", "bool_or":
		return c.attr.TypeKind == "b"
	case "listagg":
		return c.attr.TypeKind == "b" && !r.Schema.Columns[i].Exact
	}
	return true
}

// fold merges rows with those that have their keys, in the order in which they come. named is the columns that the statement names. It returns
// the rows as they are now, one for each of b.
func (r *rel) fold(ctx context.Context, t *writer.Txn, b *table.Batch, named []int) (*table.Batch, error) {
	rounds := r.rounds(b)
	if len(rounds) == 1 {
		return r.foldRound(ctx, t, b, named)
	}
	now, at := table.NewBatch(b.Schema), make([]int, b.Rows)
	for _, rows := range rounds {
		made, err := r.foldRound(ctx, t, picked(b, rows), named)
		if err != nil {
			return nil, err
		}
		for i, row := range rows {
			at[row] = now.Rows + i
		}
		now.AppendRange(made, 0, made.Rows)
	}
	return picked(now, at), nil
}

func picked(b *table.Batch, rows []int) *table.Batch {
	out := table.NewBatch(b.Schema)
	for _, row := range rows {
		out.AppendRow(b, row)
	}
	return out
}

// rounds parts rows so that no part has a key twice and the rows with one key are in as many parts, in order.
func (r *rel) rounds(b *table.Batch) (rounds [][]int) {
	if b.Rows == 1 {
		return [][]int{{0}}
	}
	seen := make(map[string]int, b.Rows)
	var key []byte
	for row := range b.Rows {
		key, _ = r.engine.key.Key(key[:0], b, row)
		n := seen[string(key)]
		if seen[string(key)] = n + 1; n == len(rounds) {
			rounds = append(rounds, nil)
		}
		rounds[n] = append(rounds[n], row)
	}
	return rounds
}

// foldRound merges rows with different keys.
func (r *rel) foldRound(ctx context.Context, t *writer.Txn, b *table.Batch, named []int) (*table.Batch, error) {
	var versions *table.Batch
	var kept []bool
	merge := &writer.Merge{Old: r.engine.kind != deduplicate, Rows: func(old, proposed *table.Batch) (_ *table.Batch, err error) {
		versions, kept, err = r.merged(old, proposed, named)
		return versions, err
	}, Same: func(row int) bool { return kept != nil && kept[row] }}
	inserted, merged, err := t.Upsert(ctx, table.ID(r.OID), r.engine.key.OID, b, merge)
	if err != nil {
		return nil, err
	}
	return settled(b, inserted, merged, versions), nil
}

// merged is what rows become with those that come. kept is which of them are as they were; nil: none is known to be.
func (r *rel) merged(old, proposed *table.Batch, named []int) (_ *table.Batch, kept []bool, err error) {
	switch e := r.engine; e.kind {
	case deduplicate:
		return proposed, nil, nil
	case firstRow:
		return old, slices.Repeat([]bool{true}, old.Rows), nil
	case versioned:
		return r.newer(old, proposed)
	case partialUpdate:
		b := &table.Batch{Schema: old.Schema, Rows: old.Rows, Cols: slices.Clone(old.Cols)}
		for _, at := range named {
			if !e.key.has(at) {
				b.Cols[at] = proposed.Cols[at]
			}
		}
		return b, nil, nil
	}
	b, err := r.aggregated(old, proposed)
	return b, nil, err
}

// newer is the rows with the higher versions; of equal ones those that come.
func (r *rel) newer(old, proposed *table.Batch) (out *table.Batch, kept []bool, err error) {
	out, kept = table.NewBatch(old.Schema), make([]bool, old.Rows)
	for row := range old.Rows {
		was, null, err := versionOf(old.Cols[r.engine.version], row)
		if err != nil {
			return nil, nil, err
		}
		is, none, err := versionOf(proposed.Cols[r.engine.version], row)
		if err != nil {
			return nil, nil, err
		}
		if kept[row] = none || !null && is < was; kept[row] {
			out.AppendRow(old, row)
		} else {
			out.AppendRow(proposed, row)
		}
	}
	return out, kept, nil
}

// versionOf is a version as a number. The file's type does not hold all moments: infinity is one of the others.
func versionOf(v *table.Vec, row int) (n int64, null bool, err error) {
	text, exact := v.ExactText(row)
	switch {
	case exact && text == "infinity":
		return math.MaxInt64, false, nil
	case exact && text == "-infinity":
		return math.MinInt64, false, nil
	case exact:
		return 0, false, errVersion
	case v.IsNull(row):
		return 0, true, nil
	}
	return integerAt(v, row), false, nil
}

var errVersion = errNeedsExact("a version is beyond the dates that the fast lane compares")

// errNeedsExact is the error of a COPY that cannot go on in the fast lane; an INSERT takes the exact lane instead.
func errNeedsExact(format string, args ...any) error {
	return &notFast{wire.Errorf(wire.CodeFeatureNotSupported, format, args...).WithHint("SET sluice.lane = 'exact' and try again.")}
}

// notFast is an errNotFast that tells a client why.
type notFast struct{ told *wire.Error }

func (e *notFast) Error() string        { return e.told.Error() }
func (e *notFast) Is(target error) bool { return target == errNotFast }
func (e *notFast) Unwrap() error        { return e.told }

func integerAt(v *table.Vec, row int) int64 {
	if v.Type.Kind.Width() == 8 {
		return v.Int64(row)
	}
	return int64(v.Int32(row))
}

func (r *rel) aggregated(old, proposed *table.Batch) (*table.Batch, error) {
	b := &table.Batch{Schema: old.Schema, Rows: old.Rows, Cols: slices.Clone(old.Cols)}
	for i, name := range r.engine.funcs {
		var err error
		if name == "" {
			continue
		}
		if b.Cols[i], err = r.aggregate(i, name, old.Cols[i], proposed.Cols[i]); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func (r *rel) aggregate(i int, name string, old, proposed *table.Vec) (*table.Vec, error) {
	switch name {
	case "first_value":
		return old, nil
	case "last_value":
		return proposed, nil
	}
	out := table.NewVec(old.Type)
	for row := range old.Len {
		// A function ignores NULLs: with one on either side the other value stays.
		switch was, is := !pgvalue.IsNull(old, row), !pgvalue.IsNull(proposed, row); {
		case !was, is && name == "last_non_null_value":
			out.AppendFrom(proposed, row)
		case !is, name == "first_non_null_value":
			out.AppendFrom(old, row)
		default:
			if err := combine(out, name, old, proposed, row, r.Columns[i].Codec.OID()); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// combine appends what two values make.
func combine(out *table.Vec, name string, old, proposed *table.Vec, row int, oid uint32) error {
	switch name {
	case "listagg":
		out.AppendBytes(slices.Concat(old.Bytes(row), []byte{','}, proposed.Bytes(row)))
		return nil
	case "bool_and":
		out.AppendBool(old.Bool(row) && proposed.Bool(row))
		return nil
	case "bool_or":
		out.AppendBool(old.Bool(row) || proposed.Bool(row))
		return nil
	}
	n, ok := combineIntegers(name, integerAt(old, row), integerAt(proposed, row))
	if !ok || !fitsInteger(oid, n) {
		return outOfRange(oid)
	}
	if out.Type.Kind == table.Int64 {
		out.AppendInt64(n)
	} else {
		out.AppendInt32(int32(n))
	}
	return nil
}

func combineIntegers(name string, a, b int64) (n int64, ok bool) {
	switch name {
	case "max":
		return max(a, b), true
	case "min":
		return min(a, b), true
	case "sum":
		n = a + b
		return n, (n > a) == (b > 0)
	}
	hi, lo := bits.Mul64(magnitude(a), magnitude(b))
	negative := (a < 0) != (b < 0)
	return a * b, hi == 0 && (lo <= math.MaxInt64 || negative && lo == 1<<63)
}

func magnitude(n int64) uint64 {
	if n < 0 {
		return -uint64(n)
	}
	return uint64(n)
}

// outOfRange is Postgres' error for an integer that its type does not hold.
func outOfRange(oid uint32) error {
	name := map[uint32]string{pgvalue.OIDInt2: "smallint", pgvalue.OIDInt4: "integer", pgvalue.OIDInt8: "bigint"}[oid]
	return &notFast{wire.Errorf(wire.CodeNumericValueOutOfRange, "%s out of range", name)}
}
