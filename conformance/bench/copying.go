package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// copyFiles are the files that COPY reads, made when first needed.
type copyFiles struct {
	dir  string
	rows int64
	made map[string]string
}

func (f *copyFiles) path(format string) (string, error) {
	if p, ok := f.made[format]; ok {
		return p, nil
	}
	p := filepath.Join(f.dir, "rows."+format)
	if err := writeRows(p, format, f.rows); err != nil {
		return "", err
	}
	f.made[format] = p
	return p, nil
}

// copySender sends rows to a table and says how long the client had to wait.
type copySender func(ctx context.Context, l *copyLoad) (time.Duration, error)

// copyLoad copies the first rows of the sequence into an empty table.
type copyLoad struct {
	table
	definition string
	format     string // of the file, empty if the client makes the rows
	send       copySender
	path       string
	want       string
}

func (l *copyLoad) ready(ctx context.Context) (err error) {
	if l.format != "" {
		if l.path, err = l.files.path(l.format); err != nil {
			return err
		}
	}
	if l.want == "" {
		l.want = firstRows(l.size.CopyRows).String()
	}
	return l.recreate(ctx, l.definition)
}

func (l *copyLoad) work(ctx context.Context, m *meter) (err error) {
	m.outcome.Rows = l.size.CopyRows
	m.outcome.CPU, err = m.cpu(func() (err error) {
		m.outcome.Wall, err = l.send(ctx, l)
		return err
	})
	return err
}

func (l *copyLoad) verify(ctx context.Context) error { return l.holds(ctx, l.want) }

var psqlTime = regexp.MustCompile(`Time: ([0-9.]+) ms`)

// psqlCopy is psql's \copy; its own start is not in the time.
func psqlCopy(ctx context.Context, l *copyLoad) (time.Duration, error) {
	out, err := client(ctx, "psql", "-X", "-h", "127.0.0.1", "-p", strconv.Itoa(l.server.port), "-U", "lake", "-d", "lake", "-v", "ON_ERROR_STOP=1",
		"-c", `\timing on`, "-c", fmt.Sprintf(`\copy %s from '%s' with (format %s)`, l.name, l.path, l.format))
	if err != nil {
		return 0, err
	}
	m := psqlTime.FindStringSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("psql printed no time: %s", firstLines(out, 3))
	}
	ms, err := strconv.ParseFloat(m[1], 64)
	return time.Duration(ms * float64(time.Millisecond)), err
}

// streamCopy sends a file as it is.
func streamCopy(ctx context.Context, l *copyLoad) (wall time.Duration, err error) {
	f, err := os.Open(l.path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	conn, err := l.server.connect(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, conn.Close(context.Background())) }()
	start := time.Now()
	tag, err := conn.PgConn().CopyFrom(ctx, f, fmt.Sprintf("copy %s from stdin with (format %s)", l.name, l.format))
	return time.Since(start), errors.Join(err, copied(tag.RowsAffected(), l.size.CopyRows))
}

// pgxCopy is what a Go program does.
func pgxCopy(ctx context.Context, l *copyLoad) (wall time.Duration, err error) {
	return l.copyRows(ctx, l.size.CopyRows)
}

// copyRows copies the first n rows through pgx.
func (t table) copyRows(ctx context.Context, n int64) (wall time.Duration, err error) {
	conn, err := t.server.connect(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, conn.Close(context.Background())) }()
	next := int64(0)
	start := time.Now()
	done, err := conn.CopyFrom(ctx, pgx.Identifier{t.name}, []string{"id", "n", "s", "ts"}, pgx.CopyFromFunc(func() ([]any, error) {
		if next == n {
			return nil, nil
		}
		r := rowAt(next)
		next++
		return []any{r.id, r.n, r.text(), r.time()}, nil
	}))
	return time.Since(start), errors.Join(err, copied(done, n))
}

func copied(got, want int64) error {
	if got != want {
		return fmt.Errorf("COPY answered %d rows, not %d", got, want)
	}
	return nil
}

// fill makes a table of keys with one row for each.
func (t table) fill(ctx context.Context) error {
	if err := t.recreate(ctx, keyed); err != nil {
		return err
	}
	if _, err := t.copyRows(ctx, t.size.Keys); err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	if !t.server.gateway { // what autovacuum would do in the middle of a turn
		if err := t.server.run(ctx, "vacuum analyze "+t.name); err != nil {
			return err
		}
	}
	t.server.rest(ctx)
	return t.holds(ctx, firstRows(t.size.Keys).String())
}
