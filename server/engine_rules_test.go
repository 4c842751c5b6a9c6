package server_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
)

// TestMergeEngineOptions: what means nothing, or does not fit the table, fails at CREATE TABLE.
//
// claims: M43 M44
func TestMergeEngineOptions(t *testing.T) {
	g := start(t)
	defer func() { must(t, g.stop()) }()
	c := g.as(t, "lake")
	const columns = "create table o (id int primary key, k int not null, f float8, s varchar(3), x text, v timestamptz, gen int generated always as (k + 1) stored) with ("
	for opts, want := range map[string]string{
		"merge_engine = 'newest'":                                     `22023 invalid value for option "merge_engine": "newest"`,
		"merge_engine = 'versioned'":                                  `22023 invalid value for option "merge_engine": "versioned"`,
		"merge_engine = 'versioned(none)'":                            `42703 column "none" named in merge_engine does not exist`,
		"merge_engine = 'versioned(x)'":                               `22023 column "x" cannot be the version of rows`,
		"merge_engine = 'versioned(id)'":                              `22023 column "id" cannot be the version of rows`,
		"merge_engine = 'versioned(gen)'":                             `22023 column "gen" cannot be the version of rows`,
		"merge_engine = 'deduplicate', fields = 'k:sum'":              `22023 option "fields" needs merge_engine = 'aggregation'`,
		"fields = 'k:sum'":                                            `22023 option "fields" needs merge_engine = 'aggregation'`,
		"merge_engine = 'aggregation', fields = 'k'":                  `22023 invalid value for option "fields": "k"`,
		"merge_engine = 'aggregation', fields = 'k:avg'":              `22023 invalid value for option "fields": "k:avg"`,
		"merge_engine = 'aggregation', fields = 'id:sum'":             `22023 invalid value for option "fields": "id:sum"`,
		"merge_engine = 'aggregation', fields = 'k:sum, k:max'":       `22023 invalid value for option "fields": "k:max"`,
		"merge_engine = 'aggregation', fields = 'none:sum'":           `42703 column "none" named in fields does not exist`,
		"merge_engine = 'aggregation', fields = 'k:rbm32'":            `0A000 aggregate function rbm32 is not supported`,
		"merge_engine = 'aggregation', fields = 'x:sum'":              `22023 aggregate function sum is not for type text`,
		"merge_engine = 'aggregation', fields = 'k:bool_and'":         `22023 aggregate function bool_and is not for type integer`,
		"merge_engine = 'aggregation', fields = 's:listagg'":          `22023 aggregate function listagg is not for type character varying(3)`,
		"delete_behavior = 'sometimes'":                               `22023 invalid value for option "delete_behavior": "sometimes"`,
		"unique_scope = 'row'":                                        `22023 invalid value for option "unique_scope": "row"`,
		"unique_scope = 'partition'":                                  `22023 unique_scope = 'partition' needs partition_by or buckets`,
		"unique_scope = 'partition', partition_by = 'truncate(5, k)'": `0A000 unique constraint on partitioned table must include all partitioning columns`,
	} {
		c.says(want, columns+opts+")")
	}
	c.says(`22023 option "merge_engine" needs a primary key`, "create table o (id int unique) with (merge_engine = 'deduplicate')")
	c.says(`22023 option "merge_engine" needs a primary key`, "create table o with (merge_engine = 'deduplicate') as select 1 as id")
	c.want("0", "select count(*)::text from pg_class where relname = 'o'")
	c.exec("create table o (id int, k int, primary key (k, id)) with (unique_scope = 'partition', partition_by = 'truncate(5, k)')")
	c.exec("insert into o values (1, 1), (1, 2)")
	c.fails("23505", "insert into o values (1, 1)")
	c.exec("drop table o")
}

// TestMergeEngineRules: what goes together with a merge engine is as in Postgres, on the merged row; what does not is refused before anything
// happens.
//
// claims: M43 M46 M48 H41
func TestMergeEngineRules(t *testing.T) {
	g := start(t)
	defer func() { must(t, g.stop()) }()
	c := g.as(t, "lake")
	for _, lane := range []string{"auto", "exact"} {
		c.exec("set sluice.lane = " + lane)
		for _, f := range []func(client){conflictsDecide, checksHold, generatedColumns, overflows, partialTargets, nestedInserts, schemaChanges, refusedBeside, largeMerges, withQueries, infiniteVersions, nullsRefused, otherTypes} {
			f(c)
		}
	}
	c.exec("reset sluice.lane")
	mergePrivileges(g, c)
	mergeSnapshots(g, c)
}

// conflictsDecide: ON CONFLICT and MERGE mean what they mean in Postgres, UPDATE and DELETE as well, and so do other keys.
func conflictsDecide(c client) {
	c.exec("create table e (id int primary key, n int, u int unique) with (merge_engine = 'aggregation', fields = 'n:sum')")
	c.tag("INSERT 0 3", "insert into e values (1, 10, 1), (1, 5, 1), (2, 1, 2)")
	c.tag("INSERT 0 0", "insert into e values (1, 100, 1) on conflict do nothing")
	c.tag("INSERT 0 1", "insert into e values (1, 100, 1) on conflict (id) do update set n = excluded.n")
	c.fails("21000", "insert into e values (7, 1, 7), (7, 1, 7) on conflict (id) do update set n = 0")
	c.fails("23505", "insert into e values (3, 1, 2)")
	c.fails("23505", "insert into e values (1, 1, 2)")
	c.tag("MERGE 2", "merge into e using (values (1, 7), (4, 4)) x (id, n) on e.id = x.id when matched then update set n = x.n when not matched then insert values (x.id, x.n, x.id)")
	c.tag("UPDATE 1", "update e set n = n + 1 where id = 4")
	c.fails("23505", "update e set id = 1 where id = 2")
	c.tag("DELETE 1", "delete from e where id = 2")
	c.want("1:7:1,4:5:4", "select string_agg(concat_ws(':', id, n, u), ',' order by id) from e")
	c.exec("drop table e")
}

// checksHold: CHECK and foreign keys of the table are checked on merged rows.
func checksHold(c client) {
	c.exec("create table p (id int primary key); insert into p values (1), (2)")
	c.exec("create table e (id int primary key, n int check (n < 100), p int references p) with (merge_engine = 'aggregation', fields = 'n:sum')")
	c.tag("INSERT 0 2", "insert into e values (1, 60, 1), (2, 1, 2)")
	c.fails("23514", "insert into e values (1, 60, 1)")
	c.fails("23514", "insert into e values (3, 60, 1), (3, 60, 1)")
	c.fails("23503", "insert into e values (1, 1, 3)")
	c.tag("INSERT 0 2", "insert into e values (1, 39, 2), (2, 1, null)")
	c.want("1:99:2,2:2:2", "select string_agg(concat_ws(':', id, n, p), ',' order by id) from e")
	c.exec("drop table e, p")
}

// generatedColumns are computed from the merged row; triggers for INSERT run, before on the row that comes, after on the merged one.
func generatedColumns(c client) {
	c.exec("create table e (id int primary key, n int, twice int generated always as (n * 2) stored, at serial) with (merge_engine = 'aggregation', fields = 'n:sum, at:first_value')")
	c.exec("create function f_seen() returns trigger language plpgsql as $$ begin if tg_when = 'BEFORE' then new.n := new.n + 1; else raise notice '%', new; end if; return new; end $$")
	c.exec("create trigger b before insert on e for each row execute function f_seen()")
	c.want("2", "insert into e (id, n) values (1, 0) returning twice::text")
	c.want("14", "insert into e (id, n) values (1, 5) returning twice::text")
	c.want("1:7:14:1", "select string_agg(concat_ws(':', id, n, twice, at), ',') from e")
	c.exec("drop table e; drop function f_seen")
}

func overflows(c client) {
	c.exec("create table e (id int primary key, i2 int2, i4 int, i8 bigint, n numeric(4, 1)) with (merge_engine = 'aggregation', fields = 'i2:sum, i4:product, i8:sum, n:sum')")
	c.exec("insert into e values (1, 32000, 65536, 9223372036854775807, 999.9)")
	c.says("22003 smallint out of range", "insert into e values (1, 768, 0, 0, 0)")
	c.says("22003 integer out of range", "insert into e values (1, 0, 65536, 0, 0)")
	c.says("22003 bigint out of range", "insert into e values (1, 0, 1, 1, 0)")
	c.says("22003 numeric field overflow", "insert into e values (1, 0, 1, 0, 0.1)")
	c.exec("insert into e values (1, 767, -32768, -1, -0.9)")
	c.want("32767:-2147483648:9223372036854775806:999.0", "select concat_ws(':', i2, i4, i8, n) from e")
	c.exec("drop table e")
	c.exec("create table e (id int primary key, i8 bigint) with (merge_engine = 'aggregation', fields = 'i8:product')")
	c.exec("insert into e values (1, 4294967296), (2, 4294967296)")
	_, err := c.PgConn().CopyFrom(context.Background(), strings.NewReader("2\t1\n1\t4294967296\n"), "copy e from stdin")
	if err == nil || !strings.Contains(err.Error(), "bigint out of range") {
		c.t.Errorf("copy: %v", err)
	}
	c.exec("insert into e values (1, -2147483648)")
	c.want("-9223372036854775808:4294967296", "select string_agg(i8::text, ':' order by id) from e")
	c.exec("drop table e")
}

// partialTargets: a partial update names the key and what must not be NULL; what it names it sets, also to NULL; names of the key alone change
// nothing.
func partialTargets(c client) {
	c.exec("create table e (id int primary key, need int not null, free text, given int default 7) with (merge_engine = 'partial-update')")
	const missing = `23502 column "need" of relation "e" must be among the columns of a partial update`
	c.says(missing, "insert into e (id, free) values (1, 'a')")
	c.says(missing, "insert into e (id, free) select 1, 'a'")
	c.says(`23502 column "id" of relation "e" must be among the columns of a partial update`, "insert into e (need) values (1)")
	c.says("0A000 INSERT without column names from SELECT * is not supported on tables with merge_engine = 'partial-update'", "insert into e select * from e")
	_, err := c.PgConn().CopyFrom(context.Background(), strings.NewReader("1\n"), "copy e (id) from stdin")
	if err == nil || !strings.Contains(err.Error(), "23502") {
		c.t.Errorf("copy: %v", err)
	}
	c.exec("insert into e (id, need, free) values (1, 1, 'a')")
	c.exec("insert into e values (1, 2)")
	c.want("1:2:a:7", "select concat_ws(':', id, need, free, given) from e")
	c.exec("insert into e (need, id, given, free) select 3, 1, 8, null")
	c.exec("insert into e (need, id) values (4, 1)")
	c.want("1:4:-:8", "select concat_ws(':', id, need, coalesce(free, '-'), given) from e")
	c.exec("drop table e")
	c.exec("create table e (id int primary key, v text) with (merge_engine = 'partial-update')")
	c.exec("insert into e values (1, 'a')")
	c.want("a", "insert into e (id) values (1) returning v")
	c.exec("insert into e (id) select 1")
	c.want("a", "select v from e")
	c.exec("drop table e")
}

// nestedInserts: an INSERT inside a function is not known to the gateway as what it is; it brings new rows, and never merges silently.
func nestedInserts(c client) {
	c.exec("create table e (id int primary key, v text) with (merge_engine = 'deduplicate')")
	c.exec("create function f_put(i int, x text) returns text language sql as 'insert into e values (i, x) returning v'")
	c.exec("create view w as select * from e")
	c.want("a", "select f_put(1, 'a')")
	c.fails("0A000", "select f_put(1, 'b')")
	c.fails("0A000", "do $$ begin insert into e values (1, 'b') on conflict (id) do update set v = 'c'; end $$")
	c.fails("0A000", "insert into w values (1, 'b')")
	c.fails("0A000", "with x as (insert into e values (1, 'b') returning 1) select * from x")
	c.exec("insert into w values (2, 'b')")
	c.tag("INSERT 0 2", "insert into e values (2, upper('c')), (3, f_put(4, 'd'))")
	c.fails("0A000", "insert into e values (5, f_put(4, 'd'))")
	c.tag("INSERT 0 5", "insert into e select id + 1, v || '+' from e union all select 9, 'x'")
	c.want("1:a,2:a+,3:C+,4:d+,5:d+,9:x", "select string_agg(id || ':' || v, ',' order by id) from e")
	c.exec("drop view w; drop table e; drop function f_put")
}

// schemaChanges: the engine goes along with names; the triggers that carry it out are not the user's to change.
func schemaChanges(c client) {
	c.exec(`create table e (id int primary key, v int, "odd 'name" text) with (merge_engine = 'versioned(v)')`)
	c.exec("insert into e values (1, 5, 'a')")
	c.exec(`alter table e rename to "E'2"; create schema s; alter table "E'2" set schema s`)
	c.exec(`alter table s."E'2" rename column "odd 'name" to x`)
	c.exec(`alter table s."E'2" add column more int default 3`)
	c.exec(`alter table s."E'2" alter column v type bigint`)
	c.exec(`insert into s."E'2" values (1, 6, 'b', 1 + 1), (1, 5, 'c', 2)`)
	c.exec(`insert into s."E'2" values (1, 6, 'd', 9), (1, null, 'e', 2)`)
	c.want("1:6:d:9", `select concat_ws(':', id, v, x, more) from s."E'2"`)
	c.fails("0A000", `alter table s."E'2" rename column v to w`)
	c.fails("0A000", `alter table s."E'2" drop column v`)
	c.fails("0A000", `alter table s."E'2" drop constraint e_pkey`)
	c.fails("0A000", `drop trigger "~sluice_merge" on s."E'2"`)
	c.fails("0A000", `alter table s."E'2" disable trigger all`)
	c.fails("0A000", `create trigger x before insert on s."E'2" for each row execute function sluice.merge('delete from s')`)
	c.fails("0A000", `create or replace trigger "~sluice_merge" before insert on s."E'2" for each row execute function sluice.merge('select 1', 'select 0')`)
	c.exec("drop schema s cascade")
	c.exec("create table e (id int primary key)")
	c.fails("0A000", "create trigger x before insert on e for each row execute function sluice.merge('select 1', 'select 0')")
	c.exec("drop table e")
}

func refusedBeside(c client) {
	c.exec("create table e (id int primary key) with (merge_engine = 'first-row'); create table other (id int primary key)")
	c.exec("create function f_none() returns trigger language plpgsql as 'begin return null; end'")
	c.says("0A000 foreign keys to tables with a merge engine are not supported", "create table x (e int references e)")
	c.says("0A000 foreign keys to tables with a merge engine are not supported", "alter table other add foreign key (id) references e")
	c.says("0A000 foreign keys to tables with a merge engine are not supported", "alter table e add foreign key (id) references e")
	c.says("0A000 triggers for DELETE are not supported on tables with a merge engine", "create trigger x after insert or delete on e for each row execute function f_none()")
	c.says("0A000 ON DELETE CASCADE and delete_behavior = 'ignore' do not go together", "create table x (id int references other on delete cascade) with (delete_behavior = 'ignore')")
	c.exec("drop table e, other; drop function f_none")
}

// largeMerges: of a table over the exact limit only the rows with the keys that come are copied.
func largeMerges(c client) {
	c.exec("create table e (id int primary key, n numeric) with (merge_engine = 'aggregation', fields = 'n:sum')")
	c.exec("insert into e select g, g from generate_series(1, 300) g")
	c.exec("set sluice.exact_limit = 200")
	c.tag("INSERT 0 151", "insert into e select g, 0.5 from generate_series(200, 350) g")
	c.tag("INSERT 0 2", "insert into e values (1, 0.25), (1, 0.25)")
	c.fails("0A000", "insert into e select id, 1 from e")
	c.exec("create table f (id int primary key, n numeric check (n < 100)) with (merge_engine = 'aggregation', fields = 'n:sum')")
	c.exec("insert into f select g, -50 from generate_series(1, 201) g")
	c.tag("INSERT 0 1", "insert into f values (1, 149.9)")
	c.fails("23514", "insert into f values (1, 0.1)")
	c.fails("23514", "insert into f values (1, -1), (2, 1000)")
	c.fails("22003", "insert into f values (2, 10::numeric ^ 100000 * 10::numeric ^ 100000)")
	c.exec("drop table f")
	c.exec("reset sluice.exact_limit")
	c.want("349:45224.5", "select count(*) || ':' || sum(n) from e where id <> 1")
	c.want("1.50", "select n::text from e where id = 1")
	c.exec("drop table e")
}

// withQueries: an INSERT over WITH queries merges, unless they write themselves.
func withQueries(c client) {
	c.exec("create table e (id int primary key, n numeric) with (merge_engine = 'aggregation', fields = 'n:sum')")
	c.exec("with x as (select 1 as id, 2 as n) insert into e select * from x")
	c.exec("with x as (select 1 as id, 2 as n) insert into e select * from x")
	c.fails("0A000", "with x as (insert into e values (2, 2) on conflict do nothing returning *) insert into e select 1, n from x")
	c.exec("prepare p as insert into e values ($1, $2)")
	c.exec("execute p(3, 3)")
	c.exec("execute p(3, 3)")
	c.exec("deallocate p")
	c.exec("explain analyze insert into e values (3, 4)")
	c.want("1:4,3:10", "select string_agg(id || ':' || n, ',' order by id) from e")
	c.exec("drop table e")
}

// mergePrivileges: who merges takes rows away, and needs the privileges for it, as ON CONFLICT DO UPDATE needs that of UPDATE.
func mergePrivileges(g *gateway, c client) {
	c.exec("create table e (id int primary key, v text) with (merge_engine = 'deduplicate')")
	c.exec("create role r_writer login password 'secret'; grant insert on e to r_writer")
	w := g.as(c.t, "r_writer")
	w.fails("42501", "insert into e values (1, 'a')")
	c.exec("grant select, delete on e to r_writer")
	w.tag("INSERT 0 1", "insert into e values (1, 'a')")
	w.tag("INSERT 0 1", "insert into e values (1, 'x')")
	c.exec("grant update on e to r_writer")
	w.tag("INSERT 0 1", "insert into e values (1, 'b')")
	w.want("b", "select v from e")
	must(c.t, w.Close(context.Background()))
	c.exec("drop table e; drop role r_writer")
}

// mergeSnapshots: at REPEATABLE READ a row that is newer than the snapshot cannot be merged with; at READ COMMITTED it is waited for.
func mergeSnapshots(g *gateway, c client) {
	c.exec("create table e (id int primary key, n int) with (merge_engine = 'aggregation', fields = 'n:sum')")
	c.exec("insert into e values (1, 1)")
	other := g.as(c.t, "lake")
	other.exec("begin isolation level repeatable read")
	other.exec("insert into e values (1, 10)")
	other.want("11", "select n::text from e where id = 1")
	c.exec("insert into e values (2, 1)")
	other.fails("40001", "insert into e values (2, 1)")
	other.exec("rollback")
	other.exec("begin; insert into e values (1, 100), (3, 1)")
	done := make(chan error)
	go func() {
		_, err := c.Exec(context.Background(), "insert into e values (3, 2), (1, 1000)")
		done <- err
	}()
	other.awaitWaiter("tuple")
	other.exec("commit")
	must(c.t, <-done)
	c.want("1:1101,2:1,3:3", "select string_agg(id || ':' || n, ',' order by id) from e")
	must(c.t, other.Close(context.Background()))
	c.exec("drop table e")
}

// TestDeleteBehavior: allow deletes, ignore deletes nothing and says so, disable is an error; whatever else changes the table is as ever.
//
// claims: M44
func TestDeleteBehavior(t *testing.T) {
	g := start(t)
	defer func() { must(t, g.stop()) }()
	c := g.as(t, "lake")
	for _, lane := range []string{"auto", "exact"} {
		c.exec("set sluice.lane = " + lane)
		for _, engine := range []string{"", ", merge_engine = 'deduplicate'"} {
			deletes(c, engine)
		}
	}
}

func deletes(c client, engine string) {
	table := func(behavior string) {
		c.exec("create table k (id int primary key, v text) with (delete_behavior = '" + behavior + "'" + engine + ")")
		c.exec("insert into k values (1, 'a'), (2, 'b')")
	}
	const every = "merge into k using (values (1)) x (id) on k.id = x.id when matched then delete"
	for _, behavior := range []string{"ignore", "disable"} {
		table(behavior)
		for _, del := range []string{"delete from k where id = 1", "delete from k", "delete from k where id = 1 returning v", "with x as (delete from k returning 1) select count(*) from x", every} {
			if behavior == "disable" {
				c.says(`55000 rows of table "k" cannot be deleted`, del)
			} else {
				c.exec(del)
			}
		}
		if behavior == "ignore" {
			c.tag("DELETE 0", "delete from k where id = 1")
		} else {
			c.fails("55000", "delete from k where id = 100")
		}
		c.tag("UPDATE 1", "update k set v = 'c', id = 3 where id = 1")
		c.tag("INSERT 0 1", "insert into k values (3, 'x') on conflict (id) do update set v = 'd'")
		if engine != "" {
			c.tag("INSERT 0 1", "insert into k values (3, lower('E'))")
			c.tag("INSERT 0 1", "insert into k values (2, 'f')")
		}
		c.want("2", "select count(*)::text from k")
		c.fails("0A000", `alter table k disable trigger "~sluice_delete"`)
		c.exec("truncate k")
		c.want("0", "select count(*)::text from k")
		c.exec("drop table k")
	}
	table("allow")
	c.tag("DELETE 1", "delete from k where id = 1")
	c.exec("drop table k")
}

// infiniteVersions: versions that the file's type does not hold are compared as Postgres compares them.
func infiniteVersions(c client) {
	c.exec("create table e (id int primary key, at timestamptz, v text) with (merge_engine = 'versioned(at)')")
	c.exec("insert into e values (1, 'infinity', 'a'), (2, '-infinity', 'a'), (3, '2024-01-01', 'a'), (4, null, 'a'), (5, '0044-03-15 BC', 'a')")
	c.exec("insert into e values (1, '2999-01-01', 'b'), (2, '2024-01-01', 'b'), (3, '-infinity', 'b'), (4, null, 'b'), (5, '2024-01-01', 'b')")
	c.exec("insert into e values (1, 'infinity', 'c'), (2, 'infinity', 'c'), (3, null, 'c'), (4, '-infinity', 'c'), (5, '0045-03-15 BC', 'c')")
	c.want("1c,2c,3a,4c,5b", "select string_agg(id || v, ',' order by id) from e")
	c.exec("drop table e")
}

// nullsRefused: a row that comes with a NULL where none is allowed is an error, also where it would lose.
func nullsRefused(c client) {
	for _, engine := range []string{"deduplicate", "first-row", "versioned(v)", "partial-update", "aggregation"} {
		c.exec("create table e (id int primary key, v int not null, w int) with (merge_engine = '" + engine + "')")
		c.exec("insert into e values (1, 5, 1)")
		const message = `23502 null value in column "v" of relation "e" violates not-null constraint`
		for _, insert := range []string{"insert into e values (1, null, 1)", "insert into e values (1 + 0, null, 1)", "insert into e select 1, null, 1", "insert into e select 1, null, 1 returning w",
			"insert into e values (null, 1, 1)"} {
			if strings.Contains(insert, "(null") {
				c.fails("23502", insert)
			} else {
				c.says(message, insert)
			}
		}
		_, err := c.PgConn().CopyFrom(context.Background(), strings.NewReader("1\t\\N\t2\n"), "copy e from stdin")
		if err == nil || !strings.Contains(err.Error(), message[6:]) {
			c.t.Errorf("copy: %v", err)
		}
		c.want("1:5:1", "select concat_ws(':', id, v, w) from e")
		c.exec("alter table e alter v drop not null, alter w set not null")
		c.fails("23502", "insert into e values (1, 6 + 0, null)")
		c.exec("insert into e values (1, null::int, 1 + 0)")
		c.exec("drop table e")
	}
}

// otherTypes: values of every kind are merged: composites with NULLs in them, enums, arrays, domains, types that files hold as text.
func otherTypes(c client) {
	c.exec("create type pair as (a int, b text); create type mood as enum ('sad', 'ok'); create domain small as int check (value < 10)")
	c.exec("create table e (id mood primary key, p pair not null, l int[] not null, s small, i interval, n numeric) with (merge_engine = 'aggregation', fields = 's:sum, l:last_value, i:first_value, p:last_value, n:max')")
	c.exec("insert into e values ('ok', row(1, null), '{1}', 4, '1 day', 'NaN')")
	c.exec("insert into e values ('ok', row(null, null), '{2,null}', 5, '2 days', 1)")
	c.fails("23514", "insert into e values ('ok', row(1, 'x'), '{}', 1, null, null)")
	c.exec("insert into e select 'ok'::mood, row(null, 'y')::pair, '{}'::int[], null::small, null::interval, null::numeric")
	c.want("ok (,y) {} 9 1 day NaN", "select concat_ws(' ', id, p, l, s, i, n) from e")
	c.exec("drop table e; drop type pair, mood; drop domain small")
}

// TestKeptRows: a row that loses against the one that is there writes nothing.
//
// claims: M43
func TestKeptRows(t *testing.T) {
	g := start(t)
	defer func() { must(t, g.stop()) }()
	c := g.as(t, "lake")
	c.exec("create table f (id int primary key, v int) with (merge_engine = 'first-row'); create table v (id int primary key, v int) with (merge_engine = 'versioned(v)')")
	c.exec("insert into f values (1, 5), (2, 5); insert into v values (1, 5), (2, 5)")
	before := c.get("select max(last_position)::text from sluice.wal")
	c.want("5", "insert into f values (1, 9) returning v")
	c.want("5", "insert into v values (1, 4) returning v")
	c.exec("insert into f select g, 7 from generate_series(1, 2) g")
	c.exec("insert into v select g, 3 from generate_series(1, 2) g")
	c.want(before, "select max(last_position)::text from sluice.wal")
	c.exec("insert into v values (1, 5), (2, 4), (3, 1)")
	c.want("1:5,2:5,3:1", "select string_agg(id || ':' || v, ',' order by id) from v")
	c.exec("drop table f, v")
}

// TestIdentity: the values of an identity column are unique over buckets and over the parts that a large COPY is taken in by, ascending for each
// session; a value of one's own is refused.
//
// claims: M47 H41
func TestIdentity(t *testing.T) {
	g := start(t)
	defer func() { must(t, g.stop()) }()
	c := g.as(t, "lake")
	c.exec("create table i (id bigint generated always as identity primary key, v int) with (buckets = 4, target_file_size = '64kb')")
	var work errgroup.Group
	for k := range 4 {
		one := g.as(t, "lake")
		work.Go(func() error {
			last := 0
			for n := range 50 {
				var id int
				if err := one.QueryRow(context.Background(), "insert into i (v) values ($1) returning id", n).Scan(&id); err != nil {
					return err
				}
				if id <= last {
					return fmt.Errorf("id %d after %d", id, last)
				}
				last = id
			}
			_, err := one.PgConn().CopyFrom(context.Background(), strings.NewReader(strings.Repeat("1\n", 66_000*(k%2))), "copy i (v) from stdin")
			return errors.Join(err, one.Close(context.Background()))
		})
	}
	must(t, work.Wait())
	c.fails("428C9", "insert into i values (1, 1)")
	c.want("132200:132200", "select count(*) || ':' || count(distinct id) from i")
	c.exec("select sluice.flush()")
	c.want("132200:132200:true", "select count(*) || ':' || count(distinct id) || ':' || (select count(*) > 4 from sluice.files where name = 'i') from i")
	c.exec("drop table i")
}

// TestEmptyInput: a write without rows writes nothing, and an upsert without a key to decide by is an error.
//
// claims: H41
func TestEmptyInput(t *testing.T) {
	g := start(t)
	defer func() { must(t, g.stop()) }()
	c := g.as(t, "lake")
	c.exec("create table x (a int)")
	c.exec("select sluice.flush()")
	before := c.get("select max(last_position)::text from sluice.wal")
	c.tag("INSERT 0 0", "insert into x select 1 where false")
	_, err := c.PgConn().CopyFrom(context.Background(), strings.NewReader(""), "copy x from stdin")
	must(t, err)
	c.tag("UPDATE 0", "update x set a = 1")
	c.want(before, "select max(last_position)::text from sluice.wal")
	c.fails("42P10", "insert into x values (1) on conflict (a) do update set a = 2")
	c.exec("drop table x")
}

// TestRuleProperties: the rules of a table are properties of its Iceberg metadata, and outlive a restart.
//
// claims: M43 M44
func TestRuleProperties(t *testing.T) {
	g := start(t)
	c := g.as(t, "lake")
	c.exec("create table r (id int primary key, n int) with (merge_engine = 'aggregation', fields = 'n:sum', delete_behavior = 'ignore')")
	c.exec("insert into r values (1, 1); select sluice.flush()")
	text := content(t, c.get("select metadata_location from sluice.tables where name = 'r'"))
	for _, want := range []string{`"sluice.merge_engine":"aggregation"`, `"sluice.fields":"n:sum"`, `"sluice.delete_behavior":"ignore"`} {
		if !strings.Contains(text, want) {
			t.Errorf("metadata has no %s: %s", want, text)
		}
	}
	must(t, g.stop())
	g = start(t)
	defer func() { must(t, g.stop()) }()
	c = g.as(t, "lake")
	c.exec("insert into r values (1, 1)")
	c.exec("set sluice.lane = exact; insert into r values (1, 1)")
	c.tag("DELETE 0", "delete from r where id = 1")
	c.want("3", "select n::text from r")
	c.exec("drop table r")
}
