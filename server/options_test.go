package server_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// TestLakeOptions: options that mean something make a partitioned table that reads back; others are errors and make nothing.
func TestLakeOptions(t *testing.T) {
	g := start(t)
	defer func() { must(t, g.stop()) }()
	c := g.connect(t)
	defer c.Close(context.Background())
	ctx := context.Background()
	for opts, code := range map[string]string{
		"partition_by = 'nonsense(id)'": "22023", "partition_by = 'day(nosuch)'": "42703", "partition_by = 'bucket(id)'": "22023",
		"format = 'csv'": "22023", "format = 'hudi'": "0A000", "format_version = 7": "22023", "buckets = 'many'": "22023",
		"buckets = 4": "22023", "buckets = 4, bucket_key = 'id'": "22023", "target_file_size = 'big'": "22023", "nosuch = 1": "22023",
	} {
		_, err := c.Exec(ctx, "create table o (id int, v int) with ("+opts+")")
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != code {
			t.Errorf("%s: got %v, want %s", opts, err, code)
		}
	}
	for _, sql := range []string{
		"create table o (id int primary key, at timestamptz, region text) with (partition_by = 'day(at), region', buckets = 4, format_version = 3)",
		"insert into o select n, '2024-01-01'::timestamptz + n * interval '7 hours', 'r' || n % 3 from generate_series(1, 50) n",
		"select sluice.flush()",
		"update o set region = 'moved' where id <= 5",
		"select sluice.flush()",
	} {
		if _, err := c.Exec(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	var n, moved, files int
	must(t, c.QueryRow(ctx, "select count(*), count(*) filter (where region = 'moved') from o").Scan(&n, &moved))
	must(t, c.QueryRow(ctx, "select count(*) from sluice.files").Scan(&files))
	if n != 50 || moved != 5 || files < 15 {
		t.Errorf("%d rows, %d moved, %d files", n, moved, files)
	}
	_, err := c.Exec(ctx, "drop table o")
	must(t, err)
}
