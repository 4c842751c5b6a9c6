package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// TestLakeOptions: options that mean something make a partitioned table that reads back.
func TestLakeOptions(t *testing.T) {
	g := start(t)
	defer func() { must(t, g.stop()) }()
	c := g.as(t, "lake")
	c.exec("create table o (id int primary key, at timestamptz, region text) with (partition_by = 'day(at), region', buckets = 4, format_version = 3)")
	c.exec("insert into o select n, '2024-01-01'::timestamptz + n * interval '7 hours', 'r' || n % 3 from generate_series(1, 50) n")
	c.exec("select sluice.flush()")
	c.exec("update o set region = 'moved' where id <= 5")
	c.exec("select sluice.flush()")
	c.want("50,5", "select count(*) || ',' || count(*) filter (where region = 'moved') from o")
	c.want("true", "select (count(*) >= 15)::text from sluice.files")
	c.exec("drop table o")
}

// TestOptionErrors: options that are unknown, mean nothing, contradict each other or lack something fail at CREATE TABLE, in their own
// words, and leave nothing.
//
// claims: P6 P24 H12
func TestOptionErrors(t *testing.T) {
	g := start(t)
	defer func() { must(t, g.stop()) }()
	c := g.as(t, "lake")
	for opts, want := range map[string]string{
		"nosuch = 1":                       `22023 unrecognized parameter "nosuch"`,
		"format = 'csv'":                   `22023 invalid value for option "format": "csv"`,
		"format = 'hudi'":                  `0A000 format hudi is not supported yet`,
		"format_version = 7":               `22023 invalid value for option "format_version": "7"`,
		"delete_mode = 'x'":                `22023 invalid value for option "delete_mode": "x"`,
		"delete_mode = 'copy-on-write'":    `0A000 delete_mode copy-on-write is not supported yet`,
		"target_file_size = 'big'":         `22023 invalid value for option "target_file_size": "big"`,
		"buckets = 'many'":                 `22023 invalid value for option "buckets": "many"`,
		"buckets = 0":                      `22023 invalid value for option "buckets": "0"`,
		"bucket_key = 'k'":                 `22023 option "bucket_key" needs "buckets"`,
		"buckets = 4, bucket_key = 'id'":   `22023 bucket_key "id" must be NOT NULL`,
		"buckets = 4, bucket_key = 'none'": `42703 column "none" named in bucket_key does not exist`,
		"buckets = 4, bucket_key = 'f'":    `22023 the table cannot be partitioned so: partition field f_bucket: no transform bucket[4] for double`,
		"partition_by = 'nonsense(id)'":    `22023 invalid value for option "partition_by": "nonsense(id)"`,
		"partition_by = 'bucket(id)'":      `22023 invalid value for option "partition_by": "bucket(id)"`,
		"partition_by = 'bucket(0, id)'":   `22023 the table cannot be partitioned so: partition field id_bucket: invalid transform syntax: bucket[0]`,
		"partition_by = 'day(none)'":       `42703 column "none" named in partition_by does not exist`,
		"partition_by = 'day(id)'":         `22023 the table cannot be partitioned so: partition field id_day: no transform day for int`,
		"partition_by = 'id, id'":          `22023 the table cannot be partitioned so: invalid partition spec: duplicate partition name: id`,
		"partition_by = 'bucket(8, k)', buckets = 4, bucket_key = 'k'": `22023 the table cannot be partitioned so: invalid partition spec: duplicate partition name: k_bucket`,
		"format_version = 2, format_version = 3":                       `22023 parameter "format_version" specified more than once`,
	} {
		_, err := c.Exec(context.Background(), "create table o (id int, k int not null, f float8 not null) with ("+opts+")")
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code+" "+pg.Message != want {
			t.Errorf("%s: got %v, want %s", opts, err, want)
		}
	}
	c.want("0", "select count(*)::text from pg_class where relname = 'o'")
}

// TestSameTable: the same statement makes the same table, but for its names; a table without options has the documented ones.
//
// claims: P6 P20
func TestSameTable(t *testing.T) {
	g := start(t)
	defer func() { must(t, g.stop()) }()
	c := g.as(t, "lake")
	metadata := func(columns, opts string) string {
		t.Helper()
		c.exec(fmt.Sprintf("create table o (%s)%s", columns, opts))
		location := c.get("select metadata_location from sluice.tables where name = 'o'")
		text, err := os.ReadFile(strings.TrimPrefix(location, "file://"))
		must(t, err)
		var m map[string]any
		must(t, json.Unmarshal(text, &m))
		for _, own := range []string{"table-uuid", "location", "last-updated-ms"} {
			if m[own] == nil {
				t.Errorf("%s has no %s", location, own)
			}
			delete(m, own)
		}
		c.exec("drop table o")
		out, err := json.Marshal(m)
		must(t, err)
		return string(out)
	}
	const keyed, keyless = "id int primary key, at timestamptz, v text", "id int, at timestamptz, v text"
	seen := map[string]string{}
	for _, columns := range []string{keyed, keyless} {
		for _, opts := range []string{"", " with (partition_by = 'day(at)')", " with (format_version = 2)", " with (partition_by = 'bucket(4, id)')"} {
			one, two := metadata(columns, opts), metadata(columns, opts)
			if one != two {
				t.Errorf("%s%s: once\n%s\nthen\n%s", columns, opts, one, two)
			}
			if other, same := seen[one]; same {
				t.Errorf("%s%s is the same as %s", columns, opts, other)
			}
			seen[one] = columns + opts
		}
	}
	plain := metadata(keyed, "")
	for _, part := range []string{`"format-version":3`, `"partition-specs":[{"fields":[],"spec-id":0}]`, `"write.delete.mode":"merge-on-read"`} {
		if !strings.Contains(plain, part) {
			t.Errorf("a table without options lacks %s: %s", part, plain)
		}
	}
	if given := metadata(keyed, " with (format = 'iceberg', format_version = 3, delete_mode = 'merge-on-read')"); given != plain {
		t.Errorf("the defaults given: %s\nwant %s", given, plain)
	}
}
