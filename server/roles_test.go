package server_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

func TestRoles(t *testing.T) {
	g := start(t)
	c := g.as(t, "lake")
	for _, s := range []struct {
		name string
		run  func(*testing.T, *gateway, client)
	}{{"statements", roleStatements}, {"refusals", roleRefusals}, {"transactions", roleTransactions}, {"passwords", passwords},
		{"privileges", privileges}, {"owners", owners}, {"extensions", extensionStatements}} {
		t.Run(s.name, func(t *testing.T) { s.run(t, g, client{c.Conn, t}) })
	}
	c.want("", "select coalesce(string_agg(rolname, ','), '') from pg_roles where rolname ~ '^r_'")
	must(t, c.Close(context.Background()))
	must(t, g.stop())
}

func (c client) tag(want, sql string) {
	c.t.Helper()
	tag, err := c.Exec(context.Background(), sql)
	if err != nil || tag.String() != want {
		c.t.Errorf("%s: got %q, %v, want %s", sql, tag, err, want)
	}
}

func roleStatements(t *testing.T, g *gateway, c client) {
	c.tag("CREATE ROLE", "create role r_a")
	c.tag("CREATE ROLE", "create user r_b with password 'secret' valid until '2099-01-01' connection limit 5 in role r_a")
	c.tag("CREATE ROLE", `create group "r_c d" role r_a admin r_b`)
	c.want("r_a:false:-1,r_b:true:5,r_c d:false:-1", "select string_agg(rolname || ':' || rolcanlogin || ':' || rolconnlimit, ',' order by rolname) from pg_roles where rolname ~ '^r_'")
	c.want("r_b in r_a: false,r_a in r_c d: false,r_b in r_c d: true", `select string_agg(m.rolname || ' in ' || r.rolname || ': ' || a.admin_option, ',' order by r.rolname, m.rolname)
		from pg_auth_members a join pg_roles m on m.oid = a.member join pg_roles r on r.oid = a.roleid where r.rolname ~ '^r_' and m.rolname ~ '^r_'`)
	c.tag("ALTER ROLE", `alter group "r_c d" drop user r_a`)
	c.tag("ALTER ROLE", "alter role r_a login noinherit nosuperuser")
	c.tag("ALTER ROLE", `alter role "r_c d" rename to r_c`)
	c.tag("ALTER ROLE", "alter role r_a set search_path = a, \"B c\"")
	c.tag("ALTER ROLE", "alter role r_a in database lake set work_mem to '8MB'")
	c.want(`{"search_path=a, \"B c\"",work_mem=8MB}`, `select array_agg(x order by x)::text from pg_db_role_setting s, unnest(setconfig) x where setrole = 'r_a'::regrole`)
	c.tag("ALTER ROLE", "alter role r_a reset all")
	c.tag("COMMENT", "comment on role r_a is 'it''s \\ mine'")
	c.want(`it's \ mine`, "select shobj_description('r_a'::regrole, 'pg_authid')")
	c.tag("GRANT ROLE", "grant r_a, r_c to lake with admin option")
	c.tag("REVOKE ROLE", "revoke admin option for r_a from lake")
	c.want("r_a:false,r_c:true", "select string_agg(roleid::regrole || ':' || admin_option, ',' order by roleid::regrole::text) from pg_auth_members where member = 'lake'::regrole and roleid::regrole::text ~ '^r_'")
	c.tag("REVOKE ROLE", "revoke r_a, r_c from lake, current_user cascade")
	c.tag("DROP ROLE", "drop role if exists r_a, r_none, r_b, r_c")
	_, err := c.Exec(context.Background(), "create role r_a; select 1; drop role r_a")
	must(t, err)
}

func roleRefusals(t *testing.T, g *gateway, c client) {
	c.exec("create role r_a login")
	for sql, code := range map[string]string{
		"create role r_a": "42710", "create role r_b superuser": "42501", "create role r_b createrole": "42501", "create role r_b createdb": "42501",
		"create role r_b replication": "42501", "create role r_b bypassrls": "42501", "alter role r_a superuser": "42501", "alter role r_a createdb": "42501",
		"create role sluice_x": "42939", "create role pg_x": "42939", "create role public": "42939", "alter role r_a rename to sluice_y": "42939",
		"grant pg_read_server_files to r_a": "42501", "grant sluice_ptr to lake": "42501", "create role r_b in role sluice": "42501",
		"alter role sluice_ptr login": "42939", "drop role sluice_fill": "42939", "alter role sluice_super password 'x'": "42939",
		"grant r_none to r_a": "42704", "drop role r_none": "42704", "alter role r_none login": "42704", "drop role lake": "55006",
		"alter role lake nologin": "0A000", "alter role lake rename to r_b": "0A000", "alter role lake connection limit 0": "0A000", "alter role r_a set session_replication_role = replica": "42501",
		"alter role r_a set log_statement = 'all'": "42501", "alter role r_a set nope = 1": "42704", "alter role all set work_mem = '1MB'": "42501",
		"grant r_a to r_a": "0LP01", "grant r_a to lake granted by r_a": "42501", "create database x": "0A000", "drop database lake": "0A000",
		"alter role r_a valid until 'nonsense'": "22007", "set role sluice_roles": "42501", "select sluice.role_do('x', 'create role y', '{}')": "42501",
		"select sluice.forget_owner(10)": "42501",
	} {
		c.fails(code, sql)
	}
	a := g.as(t, "r_a")
	for _, sql := range []string{"create role r_b", "create role r_b password 'p'", "drop role lake", "alter role lake password 'p'", "grant lake to r_a",
		"comment on role lake is 'x'", "alter role lake set work_mem = '1MB'", "create extension hstore"} {
		a.fails("42501", sql)
	}
	must(t, a.Close(context.Background()))
	c.exec("grant r_a to lake; set role r_a")
	c.fails("42501", "create role r_b")
	c.exec("reset role; drop role r_a")
}

func roleTransactions(t *testing.T, g *gateway, c client) {
	const count = "select count(*)::text from pg_roles where rolname ~ '^r_'"
	c.exec("create table kept (id int primary key)")
	c.exec("begin; create role r_a; insert into kept values (1); rollback")
	c.want("0", count)
	c.want("0", "select count(*)::text from kept")
	c.exec("begin; create role r_a; savepoint s; create role r_b; insert into kept values (1); rollback to s; insert into kept values (2); commit")
	c.want("1", count)
	c.want("2", "select string_agg(id::text, ',') from kept")
	c.exec("begin; drop role r_a")
	c.fails("42704", "drop role r_a")
	c.fails("25P02", "create role r_c")
	c.exec("rollback")
	c.want("1", count)
	c.exec("begin read only")
	c.fails("25006", "create role r_c")
	c.exec("rollback")
	c.exec("drop role r_a; drop table kept")
}

// passwords logs in over SCRAM, with what the gateway made of the password, in both protocols.
func passwords(t *testing.T, g *gateway, c client) {
	ctx := context.Background()
	login := func(role, password string) string {
		conn, err := pgx.Connect(ctx, fmt.Sprintf("postgres://%s:%s@%s/lake?sslmode=disable", role, password, g.addr))
		var e *pgconn.PgError
		switch {
		case errors.As(err, &e):
			return e.Code
		case err != nil:
			return err.Error()
		}
		return "in" + fmt.Sprint(conn.Close(ctx))
	}
	same := func(want, role, password string) {
		t.Helper()
		if got := login(role, password); got != want {
			t.Errorf("login of %s: %s, want %s", role, got, want)
		}
	}
	const in = "in<nil>"
	c.exec("create role r_a login password 'first'")
	same(in, "r_a", "first")
	same("28P01", "r_a", "other")
	_, err := c.Exec(ctx, "alter role r_a password 'sec''ret'", pgx.QueryExecModeSimpleProtocol)
	must(t, err)
	same(in, "r_a", "sec'ret")
	a, err := pgx.Connect(ctx, fmt.Sprintf("postgres://r_a:sec'ret@%s/lake?sslmode=disable", g.addr))
	must(t, err)
	client{a, t}.tag("ALTER ROLE", "alter user current_user password 'own'")
	client{a, t}.want("0", "select count(*)::text from pg_prepared_statements where statement ~ ('password ''' || 'own')")
	must(t, a.Close(ctx))
	same(in, "r_a", "own")
	c.exec("alter role r_a valid until '2000-01-01'")
	same("28P01", "r_a", "own")
	c.exec("alter role r_a valid until 'infinity' nologin")
	same("28000", "r_a", "own")
	c.exec("drop role r_a")
}

// privileges are checked for a second role in every lane, and follow GRANT and REVOKE at once.
func privileges(t *testing.T, g *gateway, c client) {
	c.exec("create role r_a login; create table p (id int primary key, v text); insert into p select i, 'x' from generate_series(1, 10) i")
	c.exec("create view pv as select * from p; create function pf() returns bigint language sql as 'select count(*) from p'")
	c.exec("create function pd() returns bigint language sql security definer as 'select count(*) from p'")
	a := g.as(t, "r_a")
	lanes := map[string][]string{
		"select": {"select * from p", "select count(*) from p where id > 3", "select pf()", "copy p to stdout"},
		"insert": {"insert into p values (100, 'a')", "copy p from stdin"},
		"update": {"update p set v = 'b'"}, "delete": {"delete from p where v = 'none'"}, "truncate": {"truncate p"},
	}
	for _, list := range lanes {
		for _, sql := range list {
			a.fails("42501", sql)
		}
	}
	a.fails("42501", "select * from pv")
	a.want("10", "select pd()::text")
	c.exec("create materialized view pm as select v, count(*) as n from p group by v")
	a.fails("42501", "select * from pm")
	a.fails("42501", "refresh materialized view pm")
	c.exec("grant select on pm to r_a")
	a.want("10", "select n::text from pm")
	c.exec("revoke select on pm from r_a; grant select (v) on pm to r_a")
	a.fails("42501", "select * from pm")
	a.want("x", "select v from pm")
	c.exec("drop materialized view pm")
	for _, lane := range []string{"exact", "scan"} {
		a.exec("set sluice.lane = " + lane)
		a.fails("42501", "select count(*) from p")
	}
	a.exec("reset sluice.lane")
	copied := func(want string) {
		_, err := a.PgConn().CopyFrom(context.Background(), strings.NewReader("200\tcopied\n"), "copy p from stdin")
		var e *pgconn.PgError
		if errors.As(err, &e); want != "" && (e == nil || e.Code != want) || want == "" && err != nil {
			t.Errorf("copy: %v, want %s", err, want)
		}
	}
	copied("42501")
	c.exec("grant insert on p to r_a")
	a.exec("insert into p values ($1, $2)", 100, "a")
	copied("")
	a.fails("42501", "insert into p values (101, 'a') returning id")
	a.fails("42501", "insert into p values (100, 'a') on conflict (id) do update set v = 'z'")
	c.exec("revoke insert on p from r_a; grant insert (id) on p to r_a")
	a.fails("42501", "insert into p values (102, 'a')")
	a.fails("42501", "insert into p values ($1, $2)", 103, "a") // prepared while it was allowed
	copied("42501")
	a.exec("insert into p (id) values (104)")
	c.exec("grant select on pv to r_a; grant update (v), select (id, v) on p to r_a")
	a.want("13", "select count(*)::text from pv")
	a.tag("UPDATE 1", "update p set v = 'mine' where id = 1")
	a.fails("42501", "update p set id = 99 where id = 1")
	c.exec("create role r_group; grant delete on p to r_group; grant r_group to r_a")
	a.tag("DELETE 1", "delete from p where id = 1")
	c.exec("revoke r_group from r_a")
	a.fails("42501", "delete from p where id = 2")
	c.exec("drop view pv; drop function pf, pd; drop table p")
	must(t, a.Close(context.Background()))
	c.exec("drop role r_a, r_group")
}

// owners moves tables between roles: their fill functions go and come with them.
func owners(t *testing.T, g *gateway, c client) {
	c.exec("create role r_a login; create role r_b login; grant r_a, r_b to lake; grant create on schema public to r_a, r_b")
	a := g.as(t, "r_a")
	a.exec("create table o (id int primary key, v int check (v > 0)); insert into o values (1, 1)")
	a.want("1", "select v::text from o")
	c.fails("2BP01", "drop role r_a")
	c.exec("alter table o owner to r_b")
	a.fails("42501", "select * from o")
	b := g.as(t, "r_b")
	b.want("1", "select v::text from o where v > 0")
	b.tag("UPDATE 1", "update o set v = 2")
	b.exec("create materialized view om as select * from o; create unique index on om (id)")
	b.exec("create table kid (id int, o int references o deferrable initially deferred); insert into kid values (1, 1)")
	c.exec("alter materialized view om owner to r_a")
	a.fails("42501", "refresh materialized view om") // its query is run by its owner, who may not read o
	b.exec("grant select on o to r_a; update o set v = 3")
	a.exec("refresh materialized view concurrently om")
	a.want("3", "select v::text from om")
	b.fails("42501", "select * from om")
	b.fails("23503", "delete from o")
	b.exec("drop table kid")
	a.exec("drop materialized view om")
	b.exec("update o set v = 2")
	c.exec("begin; reassign owned by r_b to r_a; rollback")
	b.want("2", "select v::text from o")
	c.tag("REASSIGN OWNED", "reassign owned by r_b to r_a")
	a.want("2", "select v::text from o where v > 0")
	must(t, a.Close(context.Background()))
	must(t, b.Close(context.Background()))
	c.tag("DROP OWNED", "drop owned by r_a, r_b")
	c.want("0", "select count(*)::text from sluice.tables where name = 'o'")
	c.exec("drop role r_a, r_b")
}

func extensionStatements(t *testing.T, g *gateway, c client) {
	c.fails("0A000", "create extension file_fdw")
	c.fails("0A000", "create extension dblink")
	var present bool
	must(t, c.QueryRow(context.Background(), "select exists (select from pg_available_extensions where name = 'pgcrypto')").Scan(&present))
	if !present {
		t.Log("this Postgres has no extensions")
		return
	}
	c.tag("CREATE EXTENSION", "create extension if not exists pgcrypto")
	c.want("5d41402abc4b2a76b9719d911017c592", "select encode(digest('hello', 'md5'), 'hex')")
	c.tag("DROP EXTENSION", "drop extension pgcrypto")
}
