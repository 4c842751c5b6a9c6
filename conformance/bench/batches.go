package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// batchLoad sends statements of many rows, one after the other, on one connection. Without keys they go into an empty
// table; with keys they update a table that holds all of them, evenly.
type batchLoad struct {
	table
	rows   int   // in a statement
	keys   int64 // 0: inserts
	send   batchSender
	next   int64   // row of the sequence that comes next
	latest []int32 // row of the sequence that each key holds
}

// batchSender prepares a statement of these rows and returns the function that sends it and how many rows it touched.
type batchSender func(ctx context.Context, conn *pgx.Conn, l *batchLoad, rows []row) func() (int64, error)

const setAll = " on conflict (id) do update set n = excluded.n, s = excluded.s, ts = excluded.ts"

// keyStep is prime and larger than any table here, so that its multiples reach every key once before one comes again.
const keyStep = 1_000_000_007

func (l *batchLoad) row(i int64) row {
	r := rowAt(i)
	if l.keys > 0 {
		r.id = i * keyStep % l.keys
	}
	return r
}

func (l *batchLoad) ready(ctx context.Context) error {
	if l.keys == 0 {
		l.next = 0
		return l.recreate(ctx, plain)
	}
	if l.latest != nil {
		return nil
	}
	l.latest = make([]int32, l.keys)
	for k := range l.latest {
		l.latest[k] = int32(k)
	}
	l.next = l.keys
	return l.fill(ctx)
}

// work counts only the time between sending a statement and its answer: not that of making it.
func (l *batchLoad) work(ctx context.Context, m *meter) error {
	conn, err := l.server.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(context.Background())
	if _, err := l.step(ctx, conn); err != nil { // prepares what the driver prepares
		return err
	}
	var all []time.Duration
	m.outcome.CPU, err = m.cpu(func() error {
		for m.outcome.Wall < m.length {
			took, err := l.step(ctx, conn)
			if err != nil {
				return err
			}
			all = append(all, took)
			m.outcome.Wall += took
			m.outcome.Rows += int64(l.rows)
		}
		return nil
	})
	m.latencies(all)
	return err
}

// step sends the next statement.
func (l *batchLoad) step(ctx context.Context, conn *pgx.Conn) (time.Duration, error) {
	rows := make([]row, l.rows)
	for i := range rows {
		rows[i] = l.row(l.next + int64(i))
	}
	send := l.send(ctx, conn, l, rows)
	start := time.Now()
	n, err := send()
	took := time.Since(start)
	if err == nil && n != int64(len(rows)) {
		err = fmt.Errorf("the statement answered %d rows, not %d", n, len(rows))
	}
	if err != nil {
		return took, err
	}
	for i, r := range rows {
		if l.keys > 0 {
			l.latest[r.id] = int32(l.next + int64(i))
		}
	}
	l.next += int64(l.rows)
	return took, nil
}

func (l *batchLoad) verify(ctx context.Context) error {
	if l.keys == 0 {
		return l.holds(ctx, firstRows(l.next).String())
	}
	want := &content{}
	for k, i := range l.latest {
		r := rowAt(int64(i))
		r.id = int64(k)
		want.add(r)
	}
	return l.holds(ctx, want.String())
}

func (l *batchLoad) conflict() string {
	if l.keys > 0 {
		return setAll
	}
	return ""
}

// sendValues is one text with all rows as literals.
func sendValues(ctx context.Context, conn *pgx.Conn, l *batchLoad, rows []row) func() (int64, error) {
	b := append(make([]byte, 0, 80*len(rows)), "insert into "+l.name+" (id, n, s, ts) values "...)
	for i, r := range rows {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = r.appendValues(b)
	}
	text := string(append(b, l.conflict()...))
	return func() (int64, error) {
		results, err := conn.PgConn().Exec(ctx, text).ReadAll()
		if err != nil {
			return 0, err
		}
		if len(results) != 1 {
			return 0, fmt.Errorf("%d results", len(results))
		}
		return results[0].CommandTag.RowsAffected(), nil
	}
}

// sendUnnest is one prepared statement with an array for each column.
func sendUnnest(ctx context.Context, conn *pgx.Conn, l *batchLoad, rows []row) func() (int64, error) {
	ids, ns, texts, times := make([]int64, len(rows)), make([]int32, len(rows)), make([]string, len(rows)), make([]time.Time, len(rows))
	for i, r := range rows {
		ids[i], ns[i], texts[i], times[i] = r.id, r.n, r.text(), r.time()
	}
	text := "insert into " + l.name + " (id, n, s, ts) select * from unnest($1::bigint[], $2::int[], $3::text[], $4::timestamptz[])" + l.conflict()
	return func() (int64, error) {
		tag, err := conn.Exec(ctx, text, ids, ns, texts, times)
		return tag.RowsAffected(), err
	}
}

// sendBatch is a pipeline of single-row statements, one transaction.
func sendBatch(ctx context.Context, conn *pgx.Conn, l *batchLoad, rows []row) func() (int64, error) {
	text := "insert into " + l.name + " (id, n, s, ts) values ($1, $2, $3, $4)" + l.conflict()
	batch := &pgx.Batch{}
	for _, r := range rows {
		batch.Queue(text, r.id, r.n, r.text(), r.time())
	}
	return func() (n int64, err error) {
		results := conn.SendBatch(ctx, batch)
		defer func() { err = errors.Join(err, results.Close()) }()
		for range rows {
			tag, err := results.Exec()
			if err != nil {
				return n, err
			}
			n += tag.RowsAffected()
		}
		return n, nil
	}
}
