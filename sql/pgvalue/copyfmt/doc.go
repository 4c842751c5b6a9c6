// Package copyfmt reads and writes the data of Postgres' COPY in its three formats.
//
// A [Parser] takes the contents of CopyData messages, cut anywhere, and appends rows to a batch:
//
//	p, err := copyfmt.NewParser(options, copyfmt.Target{Table: "t", Columns: cols, Env: env, Resolve: resolve})
//	err = p.Feed(batch, chunk) // as often as wanted; the caller may take the rows away between calls
//	err = p.End(batch)         // at CopyDone
//
// Errors are Postgres' own, word for word, with the CONTEXT line that psql shows ("COPY t, line 3, column a: "abc""). After
// an error the batch holds the rows before the bad one, and the parser only repeats the error.
//
// Every row is first tried on a fast path that knows only well-formed rows. At the slightest doubt the row is undone and
// goes to the slow path, which follows Postgres' own order: find the line, check its encoding, split it, count the fields,
// convert them. So speed lives in fast.go and fidelity in line.go and fields.go, and tests compare the two.
//
// A [Writer] prints rows as COPY TO does.
package copyfmt
