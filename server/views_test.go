package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// client is a connection with short words for tests.
type client struct {
	*pgx.Conn
	t *testing.T
}

// as connects a role; every role of the tests has the password "secret" or none.
func (g *gateway) as(t *testing.T, role string) client {
	t.Helper()
	c, err := pgx.Connect(context.Background(), fmt.Sprintf("postgres://%s:secret@%s/lake?sslmode=disable", role, g.addr))
	must(t, err)
	t.Cleanup(func() { c.Close(context.Background()) })
	return client{c, t}
}

func (c client) exec(sql string, args ...any) {
	c.t.Helper()
	if _, err := c.Exec(context.Background(), sql, args...); err != nil {
		c.t.Fatalf("%s: %v", sql, err)
	}
}

// want compares the one value of a query, as text.
func (c client) want(expected, sql string, args ...any) {
	c.t.Helper()
	if got := c.get(sql, args...); got != expected {
		c.t.Errorf("%s: got %s, want %s", sql, got, expected)
	}
}

func (c client) get(sql string, args ...any) string {
	c.t.Helper()
	var got *string
	if err := c.QueryRow(context.Background(), sql, args...).Scan(&got); err != nil {
		c.t.Fatalf("%s: %v", sql, err)
	}
	if got == nil {
		return "NULL"
	}
	return *got
}

func (c client) fails(code, sql string, args ...any) {
	c.t.Helper()
	_, err := c.Exec(context.Background(), sql, args...)
	var e *pgconn.PgError
	if !errors.As(err, &e) || e.Code != code {
		c.t.Errorf("%s: got %v, want %s", sql, err, code)
	}
}

func TestViews(t *testing.T) {
	g := start(t)
	c := g.as(t, "lake")
	c.exec("create table one (id int primary key, v text); create table two (n bigint)")
	c.exec("insert into one select i, 'x' from generate_series(1, 100) i")
	t.Run("tables", func(t *testing.T) { tables(client{c.Conn, t}) })
	t.Run("shapes", func(t *testing.T) { shapes(client{c.Conn, t}) })
	t.Run("read only", func(t *testing.T) { readOnly(client{c.Conn, t}) })
	t.Run("flushed", func(t *testing.T) { flushed(client{c.Conn, t}) })
	t.Run("roles", func(t *testing.T) { seenBy(t, g, client{c.Conn, t}) })
	t.Run("waits", func(t *testing.T) { waits(t, g, client{c.Conn, t}) })
	t.Run("progress", func(t *testing.T) { progress(t, g, client{c.Conn, t}) })
	c.exec("drop table one, two")
	c.want("0", "select count(*)::text from sluice.tables")
	must(t, c.Close(context.Background()))
	must(t, g.stop())
}

func tables(c client) {
	c.want("one:100,two:0", "select string_agg(name || ':' || rows_estimate, ',' order by name) from sluice.tables")
	c.want("true", "select (t.oid = c.oid and t.namespace = 'public')::text from sluice.tables t join pg_class c on c.relname = t.name where t.name = 'one'")
	c.want("0", "select count(*)::text from sluice.files where name = 'two'")
	c.want("true", "select (last_position >= flushed_position and segments > 0 and bytes > 0)::text from sluice.wal")
	c.want("true", "select (state = 'active' and usename = 'lake' and client_addr = '127.0.0.1' and xact_start <= now())::text from sluice.sessions where backend_pid = pg_backend_pid()")
}

// shapes reaches the views in the ways that statements have.
func shapes(c client) {
	ctx := context.Background()
	const two = "2"
	c.exec("create view mine as select count(*) n from sluice.tables")
	c.exec("create function counted() returns bigint language sql as 'select count(*) from sluice.tables'")
	c.exec("create table kept using heap as select name::text from sluice.tables")
	c.want(two, "select n::text from mine")
	c.want(two, "select counted()::text")
	c.want(two, "select count(*)::text from kept")
	c.want("1", "select count(*)::text from sluice.tables where name = $1", "one")
	c.exec("insert into two select oid::bigint from sluice.tables")
	c.want("2,2", "select (select count(*) from two) || ',' || (select count(*) from sluice.tables)")
	c.exec("insert into kept select name::text from sluice.tables")
	c.want("4", "select count(*)::text from kept")
	c.exec("begin isolation level repeatable read read only")
	c.want(two, "select count(*)::text from sluice.tables")
	c.want(two, "select count(*)::text from sluice.tables")
	c.exec("commit")
	c.exec("begin")
	c.exec("create table three (a int)")
	c.want("three", "select name from sluice.tables where metadata_location is null and name = 'three'")
	c.exec("rollback")
	var out strings.Builder
	_, err := c.PgConn().CopyTo(ctx, &out, "copy (select name from sluice.tables order by 1) to stdout")
	must(c.t, err)
	if out.String() != "one\ntwo\n" {
		c.t.Errorf("copy: %q", out.String())
	}
	c.want("true", "select (count(*) >= 1)::text from sluice.sessions s join sluice.wal w on true left join sluice.progress p on false")
	c.exec("drop view mine; drop function counted; drop table kept")
	c.exec("truncate two")
}

func readOnly(c client) {
	for _, sql := range []string{"insert into sluice.tables (name) values ('x')", "delete from sluice.sessions", "update sluice.wal set bytes = 1",
		"truncate sluice.files", "drop table sluice.progress", "alter table sluice.tables add x int", "select * from sluice.tables for update",
		"create trigger t before insert on sluice.tables execute function suppress_redundant_updates_trigger()", "create index on sluice.tables (name)",
		"insert into sluice.commits (id) values (1)"} {
		c.fails("42501", sql)
	}
}

func flushed(c client) {
	c.exec("select sluice.flush()")
	c.want("100,0", "select (select sum(rows - deleted_rows) from sluice.files where name = 'one') || ',' || tail_rows from sluice.tables where name = 'one'")
	c.exec("delete from one where id <= 10")
	c.want("90,10", "select (select rows_estimate from sluice.tables where name = 'one') || ',' || (select sum(deleted_rows) from sluice.files where name = 'one')")
	c.exec("select sluice.flush()")
	c.t.Log(c.get("select string_agg(t::text, chr(10)) from sluice.tables t"), c.get("select string_agg(t::text, chr(10)) from sluice.snapshots t"))
	c.want("true", "select (s.snapshot_id = t.snapshot_id and s.committed_at <= clock_timestamp() and s.summary ? 'total-records')::text from sluice.snapshots s join sluice.tables t using (oid) where t.name = 'one' and s.is_current")
	c.want("true", "select (count(*) > 1 and max(id) = count(*))::text from sluice.commits")
	c.want("true", `select bool_and(a.metadata_location = t.metadata_location and a.snapshot_id is not distinct from t.snapshot_id)::text
		from sluice.tables_at((select max(id) from sluice.commits)) a join sluice.tables t using (oid)`)
	c.want("NULL", "select held_reason from sluice.wal")
	compacted(c)
}

// compacted merges files of a table on demand.
func compacted(c client) {
	c.exec("insert into one select generate_series(1001, 1010)")
	c.exec("select sluice.flush()")
	before := c.get("select string_agg(id::text, ',' order by id) from one")
	c.want("2,1", "select rewritten_data_files_count || ',' || added_data_files_count from sluice.compact('one')")
	c.want("1,0,replace", `select (select count(*) || ',' || sum(deleted_rows) from sluice.files where name = 'one') || ',' || operation from sluice.snapshots
		where name = 'one' and is_current`)
	c.want(before, "select string_agg(id::text, ',' order by id) from one")
	c.want("(0,0,0)", "select sluice.compact('public.one'::regclass)::text")
	c.fails("0A000", "select sluice.compact(oid) from pg_class where relname = 'one'")
	c.fails("42809", "select sluice.compact('pg_class')")
	c.fails("42P01", "select sluice.compact('nowhere')")
	c.want("0", "select sluice.expire('one', '5 days')")
	c.want("true", "select (sluice.expire('one', interval '0 s') > 0)::text")
	c.want("1", "select count(*) from sluice.snapshots where name = 'one'")
	c.want(before, "select string_agg(id::text, ',' order by id) from one")
	c.fails("22023", "select sluice.expire('one', '-1 day')")
	c.fails("22007", "select sluice.expire('one', 'some time')")
}

// seenBy looks with a role that may see one table.
func seenBy(t *testing.T, g *gateway, c client) {
	c.exec("create role view_bob login")
	c.exec("grant select (v) on one to view_bob")
	b := g.as(t, "view_bob")
	b.want("one", "select string_agg(name, ',') from sluice.tables")
	b.want("one", "select string_agg(distinct name, ',') from sluice.files")
	b.want("one", "select string_agg(distinct x->>'name', ',') from sluice.commits, jsonb_array_elements(tables) x")
	b.want("view_bob", "select string_agg(usename, ',') from sluice.sessions where state is not null")
	b.want("true", "select bool_or(usename = 'lake' and state is null and client_addr is null)::text from sluice.sessions")
	b.fails("42501", "select * from one")
	c.exec("revoke all on one from view_bob")
	b.want("0", "select count(*)::text from sluice.tables")
	must(t, b.Close(context.Background()))
	c.exec("drop role view_bob")
}

// waits lets one session wait for another's row lock.
func waits(t *testing.T, g *gateway, c client) {
	first, second := g.as(t, "lake"), g.as(t, "lake")
	first.exec("begin")
	first.exec("update one set v = 'first' where id = 50")
	pid := first.get("select pid::text from sluice.sessions where backend_pid = pg_backend_pid()")
	done := make(chan error, 1)
	go func() {
		_, err := second.Exec(context.Background(), "update one set v = 'second' where id = 50")
		done <- err
	}()
	const blocked = "select coalesce(max(wait_lock || ' of ' || wait_relid::regclass || ' by ' || blocked_by::text), '') from sluice.sessions where blocked_by is not null"
	got := ""
	for got == "" {
		got = c.get(blocked)
	}
	if want := "tuple of one by {" + pid + "}"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	c.want("idle in transaction", "select state from sluice.sessions where pid = $1::text::int", pid)
	first.exec("commit")
	must(t, <-done)
	c.want("", blocked)
}

// progress looks at a COPY that has not got all its rows yet.
func progress(t *testing.T, g *gateway, c client) {
	loader := g.as(t, "lake")
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := loader.PgConn().CopyFrom(context.Background(), r, "copy two from stdin")
		done <- err
	}()
	line := []byte(strings.Repeat("1\n", 40_000))
	_, err := w.Write(line)
	must(t, err)
	const running = "select coalesce(max(command || ' ' || relid::regclass), '') from sluice.progress where bytes > 1000"
	got := ""
	for got == "" {
		got = c.get(running)
	}
	if got != "COPY two" {
		t.Errorf("got %s", got)
	}
	must(t, w.Close())
	must(t, <-done)
	c.want("0", "select count(*)::text from sluice.progress where command = 'COPY'")
	c.want("40000", "select count(*)::text from two")
}

func TestExplain(t *testing.T) {
	g := start(t)
	c := g.as(t, "lake")
	c.exec("create table e (id int primary key, v text)")
	for sql, want := range map[string]string{
		"explain select * from e where id = 1": "Lane: ", "explain insert into e values (1, 'a')": "Lane: fast (rows for a plain table)",
		"explain (costs off) select 1": "Lane: relay (touches no lake rows)", "explain (analyze, format text) update e set v = 'x'": "Lane: exact (no other lane is proven for it)",
		"explain (format json) select * from e": "[\n",
	} {
		for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeDescribeExec} {
			if got := c.get(sql, mode); !strings.HasPrefix(got, want) {
				t.Errorf("%s: got %s, want %s", sql, got, want)
			}
		}
	}
	c.exec("drop table e")
	must(t, c.Close(context.Background()))
	must(t, g.stop())
}
