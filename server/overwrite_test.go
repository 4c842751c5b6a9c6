package server_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"
)

// TestOverwrite: with sluice.overwrite an INSERT or COPY replaces the partitions that it brings rows for, in one commit, and leaves the files of
// others as they are.
//
// claims: H7 H8 H41
func TestOverwrite(t *testing.T) {
	g := start(t)
	defer func() { must(t, g.stop()) }()
	c := g.as(t, "lake")
	c.exec("create table o (id int primary key, region text not null, v int) with (partition_by = 'region')")
	const insert = "insert into o values ($1, $2, $3)"
	c.exec(insert, 1, "a", 1)
	c.exec(insert, 2, "a", 1)
	c.exec(insert, 3, "b", 1)
	c.exec("select sluice.flush()")
	const fileOfB = "select string_agg(concat_ws(':', location, rows, deleted_rows, bytes), ',') from sluice.files where name = 'o' and location = $1"
	location := c.get("select location from sluice.files where name = 'o' and rows = 1")
	before, bytes := c.get(fileOfB, location), content(t, location)
	rows := func(want string) {
		t.Helper()
		c.want(want, "select coalesce(string_agg(concat_ws(':', id, region, v), ',' order by id), '') from o")
	}

	c.exec("set sluice.overwrite = dynamic")
	c.exec(insert, 2, "a", 2) // prepared before the setting
	rows("2:a:2,3:b:1")
	c.exec("select sluice.flush()")
	c.want(before, fileOfB, location)
	if content(t, location) != bytes {
		t.Error("the file of another partition has changed")
	}
	c.exec("begin")
	c.want("5", "insert into o select g, 'a', 3 from generate_series(4, 5) g returning (select 5::text)")
	rows("3:b:1,4:a:3,5:a:3")
	c.exec("insert into o values (6, 'c', 3)")
	rows("3:b:1,4:a:3,5:a:3,6:c:3")
	c.exec("rollback")
	rows("2:a:2,3:b:1")
	c.fails("23505", "insert into o values (3, 'a', 4)")
	c.fails("23505", "insert into o values (7, 'a', 4), (7, 'a', 5)")
	rows("2:a:2,3:b:1")
	c.tag("INSERT 0 0", "insert into o select 1, 'a', 1 where false")
	rows("2:a:2,3:b:1")
	_, err := c.PgConn().CopyFrom(context.Background(), strings.NewReader("2\tc\t7\n8\tc\t7\n"), "copy o from stdin")
	if err == nil || !strings.Contains(err.Error(), "23505") {
		t.Errorf("a key of another partition: %v", err)
	}
	_, err = c.PgConn().CopyFrom(context.Background(), strings.NewReader("2\ta\t7\n8\tc\t7\n"), "copy o from stdin")
	must(t, err)
	rows("2:a:7,3:b:1,8:c:7")
	c.exec("prepare x as insert into o values ($1, 'a', 8)")
	c.exec("execute x(2)")
	c.exec("execute x(1)")
	c.exec("explain analyze insert into o values (2, 'a', 7)")
	c.exec("deallocate x")
	rows("2:a:7,3:b:1,8:c:7")
	c.exec("update o set v = 9 where id = 8")
	c.exec("set sluice.overwrite = off")
	c.exec(insert, 9, "c", 9)
	rows("2:a:7,3:b:1,8:c:9,9:c:9")

	overwriteWhole(c)
	overwriteRefused(c)
	overwriteConcurrently(g, c)
	c.exec("drop table o")
	c.fails("22023", "set sluice.overwrite = static; create table x (a int); insert into x values (1)")
}

// overwriteWhole: a table without partitions is replaced as a whole, also by what it holds itself if it has no key.
func overwriteWhole(c client) {
	c.exec("create table u (id int, v int); insert into u values (1, 1), (2, 1), (2, 1)")
	c.exec("set sluice.overwrite = dynamic")
	c.exec("insert into u select id, v + 1 from u where id = 2")
	c.want("2:2,2:2", "select string_agg(id || ':' || v, ',' order by id) from u")
	c.exec("reset sluice.overwrite; drop table u")
}

func overwriteRefused(c client) {
	c.exec("create table p (id int primary key); create table f (id int references p)")
	c.exec("create table e (id int primary key) with (merge_engine = 'deduplicate'); create table k (id int) with (delete_behavior = 'ignore')")
	c.exec("create view w as select * from o")
	c.exec("create role r_adds login password 'secret'; grant insert, select on o to r_adds; grant r_adds to lake")
	c.exec("set sluice.overwrite = dynamic")
	c.fails("0A000", "insert into o values (2, 'a', 1) on conflict do nothing")
	c.fails("0A000", "insert into o select id, region, 1 from o")
	c.fails("0A000", "with x as (insert into o values (2, 'a', 1) returning *) insert into o select * from x")
	c.fails("0A000", "with x as (insert into o values (2, 'a', 1) returning *) select * from x")
	c.fails("0A000", "insert into w values (2, 'a', 1)")
	c.fails("0A000", "insert into p values (1)")
	c.fails("0A000", "insert into e values (1)")
	c.fails("0A000", "insert into k values (1)")
	c.exec("set role r_adds")
	c.fails("42501", "insert into o values (2, 'a', 1)")
	c.exec("reset role; reset sluice.overwrite; drop view w; drop table f, p, e, k; revoke all on o from r_adds; drop role r_adds")
}

// overwriteConcurrently: who adds rows meanwhile waits.
func overwriteConcurrently(g *gateway, c client) {
	other := g.as(c.t, "lake")
	other.exec("begin; set local sluice.overwrite = dynamic; insert into o values (20, 'c', 1)")
	done := make(chan error)
	go func() {
		_, err := c.Exec(context.Background(), "insert into o values (21, 'c', 1)")
		done <- err
	}()
	other.awaitWaiter("relation")
	other.exec("commit")
	must(c.t, <-done)
	c.want("20,21", "select string_agg(id::text, ',' order by id) from o where region = 'c'")
	must(c.t, other.Close(context.Background()))
}

// content is the bytes of an object.
func content(t *testing.T, location string) string {
	t.Helper()
	b, err := os.ReadFile(strings.TrimPrefix(location, "file://"))
	must(t, err)
	return string(b)
}

// awaitWaiter returns when a session waits for a lock of this kind.
func (c client) awaitWaiter(kind string) {
	c.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); c.get("select count(*)::text from sluice.sessions where wait_lock = $1", kind) == "0"; {
		if time.Now().After(deadline) {
			c.t.Fatalf("nobody waits for a lock of kind %s", kind)
		}
	}
}
