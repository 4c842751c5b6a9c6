// Package harness runs the same statements against a real Postgres and against Sluice and tells them apart.
//
// It owns the processes a conformance test needs (a Postgres cluster, a gateway), a wire session that keeps
// everything the server said, the comparison of two replies, and the script runner. Start reading at NewPair:
// a pair is one empty reference database and one empty lake, and Same sends one statement to both.
//
// It knows nothing about how the gateway works: it links only the Postgres protocol. The other side is
//
//   - the program built from cmd/sluice, or the one named by SLUICE_BIN;
//   - with SLUICE_DSN=postgres a second real Postgres, which proves that the tests themselves are deterministic;
//   - with SLUICE_DSN=postgres://… whatever listens there (its public schema is emptied between tests).
//
// SLUICE_ENGINES names the engines that read the tables of the gateway in tests that compare engines: pyiceberg and duckdb if it is
// empty, and polars and spark, which make conformance installs.
//
// A test package that uses the harness calls Main from its TestMain, so that no process outlives the tests.
package harness
