package server_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// TestFiftyTables: a transaction over fifty tables is one catalog transaction in which each table that got rows gains exactly one snapshot,
// and a table touched by a statement without rows gains none. Rolled back, nothing moves. An outside look sees all or nothing, since the
// counts are read from the catalog itself. COMMIT's answer has no room for snapshot ids: sluice.commits has them, by table.
//
// claims: S1 S2 S3 S4 S6 S9 S11 S12
func TestFiftyTables(t *testing.T) {
	g := start(t)
	defer func() { must(t, g.stop()) }()
	c := g.connect(t)
	ctx := context.Background()
	defer c.Close(ctx)
	const n = 50
	exec(t, c, "set synchronous_commit = remote_apply")
	for i := range n {
		exec(t, c, fmt.Sprintf("create table fifty%d (id int primary key, v text)", i))
	}
	before := snapshots(t, c)
	commits := count(t, c, "select count(*) from sluice.commits")
	tx, err := c.Begin(ctx)
	must(t, err)
	for i := range n - 1 {
		_, err := tx.Exec(ctx, fmt.Sprintf("insert into fifty%d select g, 'row ' || g from generate_series(1, %d) g", i, i+1))
		must(t, err)
	}
	_, err = tx.Exec(ctx, fmt.Sprintf("delete from fifty%d", n-1))
	must(t, err)
	if got := count(t, g.connect(t), "select count(*) from sluice.commits"); got != commits {
		t.Errorf("%d commits before COMMIT, want %d", got, commits)
	}
	must(t, tx.Commit(ctx))
	if got := count(t, c, "select count(*) from sluice.commits"); got != commits+1 {
		t.Errorf("the transaction made %d catalog commits, want 1", got-commits)
	}
	const moved = `select count(*) from sluice.commits c, jsonb_array_elements(c.tables) x join sluice.tables t on t.oid = (x->>'oid')::oid
		join sluice.snapshots s on s.oid = t.oid and s.is_current where c.id = (select max(id) from sluice.commits)`
	if got := count(t, c, moved); got != n-1 {
		t.Errorf("the commit names %d tables, want %d", got, n-1)
	}
	if got := count(t, c, moved+" and (x->>'snapshot_id')::bigint = s.snapshot_id and s.parent_id is null and x->>'metadata_location' = t.metadata_location"); got != n-1 {
		t.Errorf("the commit names the new snapshots of %d tables, want %d", got, n-1)
	}
	after := snapshots(t, c)
	for i := range n {
		name, want := fmt.Sprintf("fifty%d", i), 1
		if i == n-1 {
			want = 0
		}
		if got := after[name] - before[name]; got != want {
			t.Errorf("%s: %d new snapshots, want %d", name, got, want)
		}
	}
	tx, err = c.Begin(ctx)
	must(t, err)
	_, err = tx.Exec(ctx, "delete from fifty3")
	must(t, err)
	must(t, tx.Rollback(ctx))
	exec(t, c, "begin; commit")
	if got := count(t, c, "select count(*) from sluice.commits"); got != commits+1 {
		t.Errorf("a rollback or an empty transaction made %d catalog commits", got-commits-1)
	}
	var drops []string
	for i := range n {
		drops = append(drops, fmt.Sprintf("fifty%d", i))
	}
	exec(t, c, "drop table "+strings.Join(drops, ", "))
}

func exec(t *testing.T, c *pgx.Conn, sql string) {
	t.Helper()
	if _, err := c.Exec(context.Background(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func count(t *testing.T, c *pgx.Conn, sql string) (n int) {
	t.Helper()
	must(t, c.QueryRow(context.Background(), sql).Scan(&n))
	return n
}

// snapshots counts the snapshots of each table, as its metadata lists them.
func snapshots(t *testing.T, c *pgx.Conn) map[string]int {
	t.Helper()
	rows, err := c.Query(context.Background(), "select name, count(*) from sluice.snapshots group by name")
	must(t, err)
	out := map[string]int{}
	var name string
	var n int
	_, err = pgx.ForEachRow(rows, []any{&name, &n}, func() error { out[name] = n; return nil })
	must(t, err)
	return out
}
