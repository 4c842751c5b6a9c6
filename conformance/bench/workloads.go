package main

import (
	"context"
	"fmt"
)

// load is one workload on one server. It lives through all rounds.
type load interface {
	ready(context.Context) error        // before each turn, not measured
	work(context.Context, *meter) error // the turn
	verify(context.Context) error       // the table holds what was acknowledged, and nothing else
}

// bar is what the project wants of a workload: ratios of the gateway to Postgres in the same run.
type bar struct {
	Now  float64 `json:"now,omitempty"`  // rows per second, expected of the first complete gateway
	Goal float64 `json:"goal,omitempty"` // rows per second, in the end
	CPU  float64 `json:"cpu,omitempty"`  // rows per second of server CPU, in the end
}

// workload is one line of the table.
type workload struct {
	name  string
	title string
	bar   bar
	open  func(t table) load
}

// table is where a load works.
type table struct {
	server *server
	name   string
	size   sizes
	files  *copyFiles
}

// sizes of a run.
type sizes struct {
	CopyRows int64 `json:"copy_rows"`
	Keys     int64 `json:"keys"`
}

const plain, keyed = "create table %s (" + columns + ")", "create table %s (" + columns + ", primary key (id))"

// recreate leaves an empty table.
func (t table) recreate(ctx context.Context, definition string) error {
	return t.server.run(ctx, "drop table if exists "+t.name, fmt.Sprintf(definition, t.name))
}

// holds compares the table with what it must hold.
func (t table) holds(ctx context.Context, want string) error {
	got, err := t.server.ask(ctx, checkSQL(t.name))
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	if got != want {
		return fmt.Errorf("verify: the table holds %s, not %s", got, want)
	}
	return nil
}

// workloads is the whole benchmark, in order.
func workloads() []workload {
	return append(append(clientWorkloads(), copyWorkloads()...), batchWorkloads()...)
}

func clientWorkloads() []workload {
	return []workload{
		inserts("insert-1", "single-row INSERT, 1 client", plain, 1, 1, bar{Goal: 1}),
		inserts("insert-16", "single-row INSERT, 16 clients", plain, 16, 1, bar{Goal: 1.5}),
		inserts("insert-64", "single-row INSERT, 64 clients", plain, 64, 1, bar{Now: 1.5, Goal: 2.5}),
		inserts("insert-key-64", "single-row INSERT, primary key, 64 clients", keyed, 64, 1, bar{Goal: 1.5}),
		inserts("pipeline-16", "pipeline of 100 INSERTs, 16 clients", plain, 16, 100, bar{Goal: 4}),
		{name: "point-16", title: "SELECT by primary key, 16 clients", bar: bar{Goal: 0.9},
			open: func(t table) load { return &pointLoad{table: t, clients: 16} }},
	}
}

func inserts(name, title, definition string, clients, rows int, b bar) workload {
	return workload{name: name, title: title, bar: b, open: func(t table) load {
		return &insertLoad{table: t, definition: definition, clients: clients, perTransaction: rows}
	}}
}

func copyWorkloads() []workload {
	copying := bar{Now: 1.5, Goal: 2.5, CPU: 4}
	list := []struct {
		name, title, definition, format string
		send                            copySender
		bar                             bar
	}{
		{"copy-text", "COPY text, psql", plain, "text", psqlCopy, copying},
		{"copy-csv", "COPY csv, psql", plain, "csv", psqlCopy, copying},
		{"copy-key", "COPY text, psql, primary key", keyed, "text", psqlCopy, bar{Goal: 1.5}},
		{"copy-binary", "COPY binary, encoded before", plain, "binary", streamCopy, copying},
		{"copy-pgx", "COPY binary, pgx CopyFrom", plain, "", pgxCopy, bar{Now: 1.5}},
	}
	var out []workload
	for _, l := range list {
		out = append(out, workload{name: l.name, title: l.title, bar: l.bar, open: func(t table) load {
			return &copyLoad{table: t, definition: l.definition, format: l.format, send: l.send}
		}})
	}
	return out
}

func batchWorkloads() []workload {
	list := []struct {
		name, title string
		upsert      bool
		rows        int
		send        batchSender
		bar         bar
	}{
		{"values-1000", "INSERT of 1,000 literal rows", false, 1000, sendValues, bar{Goal: 3}},
		{"unnest-1000", "INSERT of 1,000 rows from unnest arrays", false, 1000, sendUnnest, bar{Goal: 2}},
		{"batch-100", "pgx batch of 100 INSERTs", false, 100, sendBatch, bar{Goal: 2}},
		{"upsert-values", "upsert of 1,000 literal rows", true, 1000, sendValues, bar{Goal: 1.5}},
		{"upsert-unnest", "upsert of 1,000 rows from unnest arrays", true, 1000, sendUnnest, bar{Goal: 1.5}},
	}
	var out []workload
	for _, l := range list {
		out = append(out, workload{name: l.name, title: l.title, bar: l.bar, open: func(t table) load {
			b := &batchLoad{table: t, rows: l.rows, send: l.send}
			if l.upsert {
				b.keys = t.size.Keys
			}
			return b
		}})
	}
	return out
}
