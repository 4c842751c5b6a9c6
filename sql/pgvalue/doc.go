// Package pgvalue turns Postgres values, text or binary, into the column vectors of package table and back.
//
// Postgres is the reference. A value goes in exactly as Postgres' input function would take it, or with the same error, or
// the call returns [ErrNeedPostgres] and nothing was appended: the caller then asks Postgres for the canonical text and
// hands it to [Codec.AppendCanonical]. There is no fourth outcome.
//
//	t, exact, ok := pgvalue.Lake(oid, typmod)   // lake type; ok=false: kept as canonical text in a String column
//	c, err := pgvalue.NewCodec(oid, typmod, t)  // immutable, shared by all sessions
//	err = c.AppendText(v, text, env)            // input syntax of the type; *Error, ErrNeedPostgres
//	err = c.AppendBinary(v, b)                  // receive function;         *Error, ErrNeedPostgres, ErrNoBinary
//	err = c.AppendCanonical(v, text)            // text that Postgres printed under DefaultEnv's settings
//	dst, err = c.Text(dst, v, i, env)           // output function;          ErrNeedPostgres
//	dst, err = c.Binary(dst, v, i)              // send function;            ErrNoBinary
//	dst = pgvalue.Key(dst, v, i, oid)           // equal bytes iff equal under the type's btree equality; KeyOK(oid)
//	dst, err = pgvalue.ArrayLiteral(dst, v, rows, c) // '{…}' of type text[] for unnest($1::text[])
//
// An *Env holds the session settings that change what a value looks like or how it is read (DateStyle, TimeZone,
// IntervalStyle, bytea_output, extra_float_digits). A nil *Env means [DefaultEnv].
//
// # Values that the lake type cannot hold
//
// They are NULL in the vector and text in Vec.Exact: infinity, years outside 0001 to 9999, NaN, numerics beyond the
// decimal, arrays with other bounds or more dimensions. Their text is canonical: ISO dates, time zone UTC, hex bytea.
//
// One kind of Exact value is not NULL in the vector: a numeric without precision whose number fits the decimal but whose
// spelling does not survive it (1.10 is stored as 1.1, and "1.10" stands in Vec.Exact of that row). Engines see the number,
// the gateway gives back what was written. Whoever reads a vector must therefore look at Vec.ExactText before the value.
package pgvalue
