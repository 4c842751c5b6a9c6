package conformance_test

import (
	"testing"
	"time"

	"sluice/conformance/harness"
)

// TestLostDecision: a COMMIT that Postgres decides loses its connection after it was decided, and the decision cannot be asked for. The client
// hears 40003 with a token; what is committed behind it waits, until the catalog answers: nothing is lost, and no restart is needed.
func TestLostDecision(t *testing.T) {
	cluster := emptyCluster(t)
	g := harness.StartGateway(t, harness.Options{Args: []string{"--catalog", cluster.DSN("postgres", "postgres")}})
	admin, locker, s, other := dial(t, cluster.DSN("postgres", "lake")), dial(t, cluster.DSN("postgres", "lake")), dial(t, g.DSN()), dial(t, g.DSN())
	for _, x := range []*harness.Session{admin, locker, s, other} {
		defer x.Abort()
	}
	exec(t, s, "create table lake (id int primary key); create table heap (id int) using heap")
	exec(t, s, "begin; insert into lake values (1); insert into heap values (1)")
	token := *exec(t, s, "select sluice.txn_token()").Rows()[0][0]

	exec(t, admin, "alter system set synchronous_standby_names = 'nobody'") // a COMMIT is done, and waits
	exec(t, admin, "select pg_reload_conf()")
	lost := inBackground(s, "commit")
	await(t, admin, "select pid from pg_stat_activity where wait_event = 'SyncRep'")
	locked := inBackground(locker, "begin; lock table sluice.decision in access exclusive mode")
	await(t, admin, "select pid from pg_locks where relation = 'sluice.decision'::regclass and not granted")
	exec(t, admin, "select pg_terminate_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'")
	if code := <-locked; code != "" {
		t.Fatalf("lock: %s", code)
	}
	if code := <-lost; code != "40003" {
		t.Errorf("the lost COMMIT: %q", code)
	}
	outcome := "select sluice.txn_outcome('" + token + "')"
	if got := *exec(t, other, outcome).Rows()[0][0]; got != "in progress" {
		t.Errorf("outcome before it is known: %s", got)
	}
	behind := inBackground(other, "insert into lake values (2)")
	exec(t, admin, "alter system reset synchronous_standby_names")
	exec(t, admin, "select pg_reload_conf()")
	select {
	case code := <-behind:
		t.Errorf("a commit passed one that is not decided: %q", code)
	default:
	}
	exec(t, locker, "rollback")
	if code := <-behind; code != "" {
		t.Errorf("the commit behind: %s", code)
	}
	if got := *exec(t, other, outcome).Rows()[0][0]; got != "committed" {
		t.Errorf("outcome: %s", got)
	}
	if got := *exec(t, other, "select count(*) || ' ' || (select count(*) from heap) from lake").Rows()[0][0]; got != "2 1" {
		t.Errorf("rows: %s", got)
	}
}

// TestLostAfterCommit: the connection to Postgres is lost when a transaction of lake rows is committed in the log already. The client is told that it is.
func TestLostAfterCommit(t *testing.T) {
	cluster := emptyCluster(t)
	g := harness.StartGateway(t, harness.Options{Args: []string{"--catalog", cluster.DSN("postgres", "postgres")}})
	admin, s, other := dial(t, cluster.DSN("postgres", "lake")), dial(t, g.DSN()), dial(t, g.DSN())
	for _, x := range []*harness.Session{admin, s, other} {
		defer x.Abort()
	}
	exec(t, s, "create table lake (id int primary key, v text); insert into lake values (1, 'one')")
	exec(t, s, "begin; insert into lake select id + 1, upper(v) from lake")
	exec(t, admin, "alter system set synchronous_standby_names = 'nobody'")
	exec(t, admin, "select pg_reload_conf()")
	said := inBackground(s, "commit")
	await(t, admin, "select pid from pg_stat_activity where wait_event = 'SyncRep'")
	exec(t, admin, "select pg_terminate_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'")
	if code := <-said; code != "" {
		t.Errorf("COMMIT: %s", code)
	}
	exec(t, admin, "alter system reset synchronous_standby_names")
	exec(t, admin, "select pg_reload_conf()")
	if got := *exec(t, other, "select string_agg(v, ' ' order by id) from lake").Rows()[0][0]; got != "one ONE" {
		t.Errorf("rows: %s", got)
	}
}

// TestSerializableSaysWhatHappened: Postgres, which sees copies of lake rows, refuses one of two serializable transactions that read the same table. Then
// its COMMIT has failed, and nothing of it is there.
func TestSerializableSaysWhatHappened(t *testing.T) {
	g := harness.StartGateway(t, harness.Options{})
	a, b := dial(t, g.DSN()), dial(t, g.DSN())
	defer a.Close()
	defer b.Close()
	exec(t, a, "create table seen (id int primary key, v text); create table x (v text); create table y (v text); insert into seen values (1, 'v')")
	for _, s := range []*harness.Session{a, b} {
		exec(t, s, "begin isolation level serializable; select count(*) from seen where v || '' <> 'z'")
	}
	exec(t, a, "insert into x select v from seen")
	exec(t, b, "insert into y select v from seen")
	for table, s := range map[string]*harness.Session{"x": a, "y": b} {
		r, err := s.Query("commit")
		if err != nil {
			t.Fatal(err)
		}
		rows := *exec(t, s, "select count(*) from "+table).Rows()[0][0]
		if code := r.Code(); code != "" && code != "40001" || (code == "") != (rows == "1") {
			t.Errorf("%s: COMMIT %q, and %s rows", table, code, rows)
		}
	}
}

// inBackground runs a statement and gives the code of its first error: after it the connection may end.
func inBackground(s *harness.Session, sql string) <-chan string {
	done := make(chan string, 1)
	go func() {
		r, err := s.Query(sql)
		if code := r.Code(); code != "" || err == nil {
			done <- code
			return
		}
		done <- err.Error()
	}()
	return done
}

// await asks again until there is a row: Postgres tells nobody when a backend begins to wait.
func await(t *testing.T, s *harness.Session, sql string) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); len(exec(t, s, sql).Rows()) == 0; {
		if time.Now().After(deadline) {
			t.Fatalf("no row of %s", sql)
		}
	}
}
