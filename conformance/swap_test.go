package conformance_test

import (
	"sync"
	"testing"
	"time"

	"sluice/conformance/harness"
)

// TestSwapUnderReaders replaces a table by rename in one transaction, again and again, as dbt does, while others read it in each lane: they see the
// old rows or the new, never none and no error.
func TestSwapUnderReaders(t *testing.T) {
	g := harness.StartGateway(t, harness.Options{})
	s := dial(t, g.DSN())
	defer s.Close()
	exec(t, s, "create table model as select i as id, 'v'::text as v from generate_series(1, 3) i")
	exec(t, s, "alter table model add primary key (id)")
	exec(t, s, "create materialized view sums as select count(*) as n from model")
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for _, q := range []struct{ sql, want string }{
		{"select * from model", ""}, {"select count(*) from model where v = 'v'", "3"}, {"select count(*) from model m join pg_class c on c.oid = 'pg_class'::regclass", "3"},
		{"select v from model where id = 2", "v"}, {"select n from fresh", "3"},
	} {
		if q.sql == "select n from fresh" {
			exec(t, s, "create view fresh as select n from sums")
		}
		readers.Go(func() { readSwapped(t, g.DSN(), q.sql, q.want, stop) })
	}
	for until := time.Now().Add(4 * time.Second); time.Now().Before(until) && !t.Failed(); {
		for _, q := range []string{
			"begin", "create table model__tmp as select i as id, 'v'::text as v from generate_series(1, 3) i", "alter table model__tmp add primary key (id)",
			"drop view fresh", "drop materialized view sums", "alter table model rename to model__backup", "alter table model__tmp rename to model",
			"create materialized view sums as select count(*) as n from model", "create view fresh as select n from sums",
			"drop table model__backup", "commit",
		} {
			exec(t, s, q)
		}
	}
	close(stop)
	readers.Wait()
}

func readSwapped(t *testing.T, dsn, sql, want string, stop chan struct{}) {
	s, err := harness.Dial(dsn)
	if err != nil {
		t.Error(err)
		return
	}
	defer s.Close()
	for n := 0; ; n++ {
		select {
		case <-stop:
			t.Logf("%s: %d times", sql, n)
			return
		default:
		}
		r, err := s.Query(sql)
		if err == nil {
			err = r.Err()
		}
		if err != nil {
			t.Errorf("%s: %v", sql, err)
			return
		}
		if rows := r.Rows(); want == "" && len(rows) != 3 || want != "" && (len(rows) != 1 || *rows[0][0] != want) {
			t.Errorf("%s: %v", sql, r.Lines(true))
			return
		}
	}
}
