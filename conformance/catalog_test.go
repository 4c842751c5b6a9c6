package conformance_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"sluice/conformance/harness"
)

// TestGivenCatalog runs a whole gateway over a Postgres that it did not start (--catalog): what one does on the first day, then the
// gateway is stopped and killed, and the catalog killed under the running gateway.
func TestGivenCatalog(t *testing.T) {
	catalog := emptyCluster(t)
	dsn := catalog.DSN("postgres", "postgres")
	g := harness.StartGateway(t, harness.Options{Args: []string{"--catalog", dsn}})
	if _, err := os.Stat(filepath.Join(g.Data(), "catalog")); err == nil {
		t.Error("there is an embedded catalog as well")
	}
	s := dial(t, g.DSN())
	for _, q := range []string{
		"create table person (id int primary key, name text not null, city text)",
		"create table visit (id int primary key, person int references person)",
		"insert into person values (1, 'Ada', 'London'), (2, 'Alan', 'Manchester'), (3, 'Grace', null)",
		"select sluice.flush()",
		"insert into person values (2, 'Alan', 'Wilmslow'), (4, 'Edsger', 'Rotterdam') on conflict (id) do update set city = excluded.city",
		"begin", "insert into visit values (10, 1), (11, 4)", "delete from person where id = 3", "commit",
	} {
		exec(t, s, q)
	}
	s.Close()
	want := []string{"1|Ada|London|10", "2|Alan|Wilmslow", "4|Edsger|Rotterdam|11"}
	people(t, g, "written", want)

	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	if out, err := g.Run("fsck", "--data", g.Data(), "--catalog", dsn); err != nil {
		t.Errorf("fsck: %v\n%s", err, out)
	}
	mustStart(t, g)
	people(t, g, "stopped and started", want)
	g.Kill()
	mustStart(t, g)
	people(t, g, "killed and started", want)

	old := dial(t, g.DSN())
	defer old.Close()
	catalog.Kill()
	if code, why := health(t, g); code != http.StatusServiceUnavailable || why != "the catalog does not answer\n" {
		t.Errorf("/healthz without a catalog: %d %q", code, why)
	}
	mustStart(t, catalog)
	if code, why := health(t, g); code != http.StatusOK {
		t.Errorf("/healthz: %d %q", code, why)
	}
	people(t, g, "the catalog killed and started", want)
	if _, err := old.Query("select 1"); err == nil {
		t.Error("a session outlived its backend")
	}
	s = dial(t, g.DSN())
	defer s.Close()
	exec(t, s, "insert into person values (5, 'Barbara', 'Los Angeles')")
	exec(t, s, "select sluice.flush()")
	people(t, g, "written again", append(want, "5|Barbara|Los Angeles"))
	if got := restTables(t, g); !slices.Equal(got, []string{"person", "visit"}) {
		t.Errorf("the REST catalog lists %q", got)
	}
}

func mustStart(t *testing.T, c crashed) {
	t.Helper()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
}

// people reads both tables in a session of their own.
func people(t *testing.T, g *harness.Gateway, when string, want []string) {
	t.Helper()
	s := dial(t, g.DSN())
	defer s.Close()
	var got []string
	for _, row := range exec(t, s, "select concat_ws('|', p.id, name, city, v.id) from person p left join visit v on person = p.id order by p.id").Rows() {
		got = append(got, *row[0])
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", when, got, want)
	}
}

// health is what /healthz answers.
func health(t *testing.T, g *harness.Gateway) (code int, text string) {
	t.Helper()
	resp, err := http.Get(g.HTTP() + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// emptyCluster is a Postgres without the gateway's database and role.
func emptyCluster(t *testing.T) *harness.Cluster {
	t.Helper()
	c, err := harness.StartCluster()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	s := dial(t, c.DSN("postgres", "postgres"))
	defer s.Close()
	exec(t, s, "drop database lake")
	exec(t, s, "drop role lake")
	return c
}

// restTables are the names that the REST catalog lists in the schema public.
func restTables(t *testing.T, g *harness.Gateway) []string {
	t.Helper()
	resp, err := http.Get(g.HTTP() + "/v1/namespaces/public/tables")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var list struct {
		Identifiers []struct{ Name string }
	}
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, id := range list.Identifiers {
		names = append(names, id.Name)
	}
	return names
}
