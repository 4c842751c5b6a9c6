// Command drivers runs the test suites of Postgres drivers, unmodified, against Sluice and against a real Postgres.
//
//	conformance/drivers/run pgx                 against Sluice, compared with the lists
//	conformance/drivers/run -on postgres pgx    against Postgres, compared with the list of what fails there
//	conformance/drivers/run -only 'TestTx.*' pgx
//
// A suite is a folder here with
//
//   - suite, an executable: fetches the pinned sources into $CACHE, runs the tests against the server that PGHOST, PGPORT, PGUSER and
//     PGDATABASE name, and writes to $RESULTS what came of each: lines "pass NAME", "fail NAME", "skip NAME", or what go test -json prints.
//     $ONLY, if it is not empty, says in the suite's own terms which tests to run.
//   - database, if the suite wants another name than lake;
//   - postgres.txt: what fails on a real Postgres too, made by running it there, and how many tests pass there;
//   - sluice.txt: what fails on Sluice only, with a reason for each.
//
// The run fails when a test fails that is on no list, when a listed one passes, and when fewer tests ran than on Postgres. Tables that a suite
// makes are lake tables: nothing about the gateway's defaults is changed for it.
package main
