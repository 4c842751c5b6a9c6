// Package reader answers the scan lane's queries with DuckDB, in child processes.
//
// DuckDB has no privilege boundary, its memory limit is no ceiling and its cancel is not prompt (reference reliability, findings 4
// and 5). So it never runs in the gateway: a Pool keeps child processes of the same program (hidden subcommand reader, Main), each
// works off one query at a time, and whatever goes wrong with one costs that query only.
//
//	p := reader.NewPool(reader.Options{Roots: []string{dir}, …}) // starts nothing yet
//	err := p.Query(ctx, request, func(rec arrow.RecordBatch) error { … })
//	p.Close()                                                    // kills and reaps
//	err := reader.Main(ctx, args)                                // the child: serves requests until standard input ends
//
// # The protocol
//
// Requests come on standard input, answers leave on descriptor 3; standard output goes nowhere, since DuckDB can be made to print on it.
// Both are frames of a type byte, a length and a body (frame.go). A request is its description as JSON, then the rows in memory, one
// Arrow stream a batch, then an end. An answer is an Arrow stream cut into frames, then an end or an error.
//
// # The jail
//
// What holds: a new in-memory database for each query; SQL text only from the gateway's own printer, over generated names; no
// extensions, no external access but the listed files, configuration locked; an empty environment; address space limited from
// outside (RLIMIT_AS); Landlock where the kernel has it (reading below Options.Roots and the system's libraries, no TCP);
// SIGKILL at the deadline and on cancel; end of standard input, which is also the gateway's death, ends the child.
//
// What is missing: no seccomp filter, no network or user namespace, no own user id, no cgroup. Without Landlock in the kernel only
// DuckDB's own setting keeps the child from other files.
package reader
