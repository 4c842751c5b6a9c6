// Command bench measures the gateway beside a real Postgres: same machine, same disk, one run.
//
// It starts both servers on empty folders, gives them the same work in turns (each workload in rounds, the side that
// begins alternates) and prints medians, ratios, latencies, server CPU and memory. After every turn it asks the server
// for what the table must now hold; a wrong answer is a failure, as is an error. Start reading at run in main.go;
// workloads.go lists the work.
//
// It owns the processes it starts (two servers, pgbench, psql) and ends them by pid. It knows nothing about how either
// server works: both are reached through the Postgres protocol, and their cost is read from /proc.
package main
