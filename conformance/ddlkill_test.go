package conformance_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/conformance/harness"
)

// killPoints is where the gateway dies while it ends a transaction that changes tables: every step between two effects that outlive it.
// Postgres' COMMIT decides, so what is behind it in the list is a commit.
var killPoints = []string{
	"ddl: begun", "ddl: old rows flushed", "ddl: frame prepared", "ddl: rest flushed", "ddl: files written", "ddl: metadata staged",
	"ddl: flip in the transaction", "ddl: committed", "ddl: published", "ddl: staging forgotten",
}

// mixedPoints is the same for a transaction with effects in Postgres that changes no lake table's definition.
var mixedPoints = []string{
	"mixed: frame prepared", "mixed: decision in the transaction", "mixed: committed", "mixed: published",
}

// ddlBefore is what is there before the transactions. Some rows are in files, some in the tail.
var ddlBefore = []string{
	"create role reader",
	"create table stay (id int primary key, v text)",
	"create table wide (id int primary key, a int, b real, c numeric(8,2), d text, gone text)",
	"create table model as select 1 as id, 'old'::text as v",
	"create table away (id int)",
	"create table parent (id int primary key)",
	"create table child (id int primary key, p int references parent deferrable initially deferred)",
	"insert into stay select i, 'v' || i from generate_series(1, 100) i",
	"insert into wide select i, i, i, i, i::text, 'x' from generate_series(1, 50) i",
	"insert into away values (1)",
	"create materialized view sum as select count(*) as n, min(id) as least from stay",
	"select sluice.flush()",
	"insert into stay values (101, 'tail'), (102, 'tail')",
	"delete from wide where id > 45",
	"insert into wide values (60, 60, 60, 60, 'tail', 'x')",
}

// ddlTransaction changes everything that DDL can change, dbt's swap included, with rows before and after each change.
var ddlTransaction = []string{
	"begin",
	"insert into stay values (200, 'before')",
	"create table made (id int primary key, t text unique default 'none')",
	"insert into made (id) values (1)",
	"create table picked as select id, v from stay where id > 90",
	"alter table wide add column e int not null default 5",
	"insert into wide values (61, 61, 61, 61, 'own', 'x', 6)",
	"alter table wide rename column d to renamed",
	"alter table wide alter column a type bigint",
	"alter table wide alter column b type double precision",
	"alter table wide alter column c type text",
	"alter table wide drop column gone",
	"update wide set renamed = 'changed' where id < 3",
	"create table model__tmp as select id, v || '!' as v from stay where id < 4",
	"alter table model rename to model__backup",
	"alter table model__tmp rename to model",
	"drop table model__backup",
	"drop table away",
	"update stay set v = 'after' where id in (1, 101)",
	"delete from stay where id = 2",
	"comment on table stay is 'changed'",
	"grant select on stay to reader",
	"create view seen as select s.id, w.renamed from stay s join wide w using (id)",
	"refresh materialized view sum",
	"create unique index sum_n on sum (n)",
	"insert into child values (1, 7)",
	"insert into parent values (7)",
	"commit",
}

// mixedTransaction leaves effects in Postgres: a comment, a heap table's rows, a refreshed materialized view.
var mixedTransaction = []string{
	"begin",
	"insert into stay values (201, 'mixed')",
	"update stay set v = 'mixed' where id in (1, 101)",
	"comment on table stay is 'mixed'",
	"refresh materialized view sum",
	"commit",
}

// TestDDLKilled kills the gateway with SIGKILL at each named point of a transaction's end and starts it again: the transaction is there as a
// whole or not at all, in Postgres' catalog, to SELECT and in the Iceberg metadata, and fsck finds nothing.
func TestDDLKilled(t *testing.T) {
	for _, run := range []struct {
		name       string
		statements []string
		points     []string
		decided    string // the first point behind Postgres' COMMIT
	}{
		{"ddl", ddlTransaction, killPoints, "ddl: committed"},
		{"mixed", mixedTransaction, mixedPoints, "mixed: committed"},
	} {
		t.Run(run.name, func(t *testing.T) {
			g, _ := killable(t)
			before := pictureOf(t, g)
			s := dial(t, g.DSN())
			for _, q := range run.statements {
				exec(t, s, q)
			}
			s.Close()
			after := pictureOf(t, g)
			if before == after {
				t.Fatal("the transaction changes nothing")
			}
			for i, point := range run.points {
				want := before
				if i >= slices.Index(run.points, run.decided) {
					want = after
				}
				t.Run(strings.ReplaceAll(point, " ", "_"), func(t *testing.T) { killAt(t, point, run.statements, want) })
			}
		})
	}
}

// killable starts a gateway that has what ddlBefore makes. It dies at the point whose name is written into the file.
func killable(t *testing.T) (g *harness.Gateway, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "point")
	g = harness.StartGateway(t, harness.Options{Checked: true, Env: []string{"SLUICE_KILL_FILE=" + file}, Args: []string{"--flush-age", "1h"}})
	s := dial(t, g.DSN())
	defer s.Close()
	for _, q := range ddlBefore {
		exec(t, s, q)
	}
	return g, file
}

func killAt(t *testing.T, point string, statements []string, want string) {
	g, file := killable(t)
	s := dial(t, g.DSN())
	defer s.Abort()
	for i, q := range statements {
		if i == len(statements)-1 {
			if err := os.WriteFile(file, []byte(point), 0o644); err != nil {
				t.Fatal(err)
			}
			if r, err := s.Query(q); err == nil {
				t.Errorf("%s was answered: %v", q, r.Err())
			}
			break
		}
		exec(t, s, q)
	}
	if !g.Gone(30 * time.Second) {
		t.Fatalf("the gateway did not pass the point %q", point)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	fsck(t, g)
	if err := g.Start(); err != nil {
		t.Fatal(err)
	}
	if got := pictureOf(t, g); got != want {
		t.Errorf("after the restart:\n%s\nwant:\n%s", got, want)
	}
	if err := g.Stop(); err != nil {
		t.Error(err)
	}
	fsck(t, g)
}

// ddlPicture is questions whose answers show all of what the transactions change: Postgres' catalog, rows, and what the lake lists.
var ddlPicture = []string{
	`select c.relname, c.relkind, c.relpersistence, c.relispopulated, m.amname, obj_description(c.oid, 'pg_class'), c.relacl::text
	   from pg_class c left join pg_am m on m.oid = c.relam where c.relnamespace = 'public'::regnamespace order by 1`,
	`select c.relname, a.attnum, a.attname, a.attisdropped, a.attnotnull, format_type(a.atttypid, a.atttypmod)
	   from pg_attribute a join pg_class c on c.oid = a.attrelid where c.relnamespace = 'public'::regnamespace and a.attnum > 0 order by 1, 2`,
	"select viewname, definition from pg_views where schemaname = 'public' order by 1",
	"select conname, pg_get_constraintdef(oid) from pg_constraint where connamespace = 'public'::regnamespace order by 1",
	"select name, rows_estimate from sluice.tables order by 1",
	"select name, sum(rows - deleted_rows) from sluice.files group by name order by 1",
	"select namespace, name from sluice.tables_at((select max(id) from sluice.commits)) order by 1, 2",
}

// pictureOf flushes and describes everything: the answers to ddlPicture, the rows of every table and view, and its Iceberg schema.
func pictureOf(t *testing.T, g *harness.Gateway) string {
	t.Helper()
	s := dial(t, g.DSN())
	defer s.Close()
	exec(t, s, "select sluice.flush()")
	var out strings.Builder
	show := func(q string) harness.Reply {
		r := exec(t, s, q)
		fmt.Fprintf(&out, "%s\n  %s\n", q, strings.Join(r.Lines(true), "\n  "))
		return r
	}
	for _, q := range ddlPicture {
		show(q)
	}
	for _, row := range exec(t, s, "select relname, relkind from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'v', 'm') order by 1").Rows() {
		show("select * from " + *row[0] + " x order by x::text")
		if *row[1] != "v" {
			fmt.Fprintf(&out, "iceberg %s\n  %s\n", *row[0], icebergOf(t, g, *row[0]))
		}
	}
	return out.String()
}

// icebergOf is the current schema of a table and the number of its rows, from the metadata that the REST catalog points to.
func icebergOf(t *testing.T, g *harness.Gateway, name string) string {
	t.Helper()
	resp, err := http.Get(g.HTTP() + "/v1/namespaces/public/tables/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var load struct {
		Location string `json:"metadata-location"`
		Metadata struct {
			Current int `json:"current-schema-id"`
			Schemas []struct {
				ID     int `json:"schema-id"`
				Fields []struct {
					ID       int             `json:"id"`
					Name     string          `json:"name"`
					Type     json.RawMessage `json:"type"`
					Required bool            `json:"required"`
				} `json:"fields"`
			} `json:"schemas"`
		} `json:"metadata"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&load); err != nil || load.Location == "" {
		t.Fatalf("load table %s: %s %v", name, resp.Status, err)
	}
	var out []string
	for _, sc := range load.Metadata.Schemas {
		for _, f := range sc.Fields {
			if sc.ID == load.Metadata.Current {
				out = append(out, fmt.Sprintf("%d %s %s %t", f.ID, f.Name, f.Type, f.Required))
			}
		}
	}
	return strings.Join(out, ", ")
}
