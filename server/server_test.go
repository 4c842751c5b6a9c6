package server_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"sluice/catalogpg"
	"sluice/server"
	"sluice/writer"
	"sluice/writer/catalog"
	"sluice/writer/format/iceberg"
	"sluice/writer/objstore"
)

// gateway is a whole gateway in this process; stop ends it as SIGTERM would.
type gateway struct {
	addr string
	w    *writer.Writer
	stop func() error

	metrics prometheus.Gatherer
}

var (
	cluster *catalogpg.Embedded
	folder  string
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	if folder, err = os.MkdirTemp("", "sluice-server"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(folder)
	os.Chmod(folder, 0o755)
	ctx := context.Background()
	if cluster, err = catalogpg.StartEmbedded(ctx, filepath.Join(folder, "catalog"), slog.Default()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer cluster.Stop(ctx)
	return m.Run()
}

// start brings the gateway up over the cluster and the folder.
func start(t *testing.T) *gateway {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	g, ctx := errgroup.WithContext(ctx)
	cat, err := catalogpg.Open(ctx, catalogpg.Config{Embedded: cluster, Log: slog.Default()})
	must(t, err)
	objects, err := objstore.OpenDir(filepath.Join(folder, "warehouse"))
	must(t, err)
	var tables server.Tables
	lake := iceberg.Open(objects, iceberg.Options{Now: time.Now})
	w, err := writer.Open(ctx, writer.Options{Dir: filepath.Join(folder, "wal"), Catalog: cat, Objects: objects, Format: lake, Partition: iceberg.PartitionValues,
		Tables: func(ctx context.Context, st catalog.State) ([]writer.TableDef, error) {
			return tables.Defs(ctx, cat, st)
		}})
	must(t, err)
	srv, err := server.New(ctx, server.Options{Catalog: cat, Writer: w, History: lake.History, CheckPartition: iceberg.CheckPartition, Log: slog.Default(), Trust: true}, &tables)
	must(t, err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	wctx, wstop := context.WithCancel(context.Background())
	g.Go(func() error { return w.Run(wctx) })
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ctx, ln) }()
	return &gateway{addr: ln.Addr().String(), w: w, metrics: srv.Metrics(), stop: func() error {
		cancel()
		err := <-served
		wstop()
		if werr := g.Wait(); err == nil {
			err = werr
		}
		if cerr := w.Close(); err == nil {
			err = cerr
		}
		cat.Close()
		return err
	}}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (g *gateway) connect(t *testing.T) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(context.Background(), fmt.Sprintf("postgres://lake@%s/lake?sslmode=disable", g.addr))
	must(t, err)
	t.Cleanup(func() { c.Close(context.Background()) })
	return c
}

// TestFirstSteps is what a newcomer does: create, insert, read, update, delete, upsert, a transaction, and all of it after a restart.
func TestFirstSteps(t *testing.T) {
	g := start(t)
	c := g.connect(t)
	ctx := context.Background()
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := c.Exec(ctx, sql, args...); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	want := func(expected, sql string, args ...any) {
		t.Helper()
		var got string
		if err := c.QueryRow(ctx, sql, args...).Scan(&got); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		if got != expected {
			t.Fatalf("%s: got %s, want %s", sql, got, expected)
		}
	}
	all := "select string_agg(id || ':' || coalesce(name, 'NULL') || ':' || n, ',' order by id) from first"
	exec("create table first (id int primary key, name text, n numeric(10,2) default 1.5)")
	exec("insert into first (id, name) values (1, 'one'), (2, null)")
	exec("insert into first values ($1, $2, $3)", 3, "three", "7")
	want("1:one:1.50,2:NULL:1.50,3:three:7.00", all)
	exec("update first set n = n + 1 where id = $1", 1)
	exec("delete from first where id = 2")
	exec("insert into first values (3, 'x', 1), (4, 'four', 4) on conflict (id) do update set name = excluded.name || '!'")
	want("1:one:2.50,3:x!:7.00,4:four:4.00", all)
	tx, err := c.Begin(ctx)
	must(t, err)
	_, err = tx.Exec(ctx, "delete from first")
	must(t, err)
	must(t, tx.Rollback(ctx))
	if _, err := c.Exec(ctx, "insert into first values (1, 'dup')"); err == nil {
		t.Fatal("a duplicate key was accepted")
	} else {
		t.Log(err)
	}
	want("1:one:2.50,3:x!:7.00,4:four:4.00", all)
	must(t, c.Close(ctx))
	must(t, g.stop())
	g = start(t)
	c = g.connect(t)
	want("1:one:2.50,3:x!:7.00,4:four:4.00", all)
	exec("drop table first")
	must(t, c.Close(ctx))
	must(t, g.stop())
}
