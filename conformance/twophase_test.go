package conformance_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"sluice/conformance/harness"
)

// TestTwoPhaseOverKills: prepared transactions keep their changes and locks over kills of the gateway and its catalog, over flushes and
// compactions meanwhile, and are decided afterwards.
//
// claims: P42
func TestTwoPhaseOverKills(t *testing.T) {
	g := harness.StartGateway(t, harness.Options{})
	steps(t, g, []step{
		{"lake", "create table t (id int primary key, v text); create table k (a int); create table h (a int) using heap", "CREATE TABLE"},
		{"lake", "insert into t select i, 'v' from generate_series(1, 20) i; insert into k select i from generate_series(1, 20) i", "INSERT 0 20"},
		{"lake", "begin; update t set v = 'new' where id in (1, 2); delete from t where id = 3; insert into t values (100, 'in'); delete from k where a = 5", "DELETE 1"},
		{"lake", "update t set id = 104 where id = 4; insert into h values (1); select v from t where id = 6 for update", "v"},
		{"lake", "select length(sluice.txn_token()) > 9", "t"},
		{"lake", "prepare transaction 'keeps'", "PREPARE TRANSACTION"},
		{"lake", "begin; update t set v = 'gone' where id = 10; insert into k values (1000); insert into h values (2); prepare transaction 'goes'", "PREPARE TRANSACTION"},
		{"lake", "insert into t values (200, 'after')", "INSERT 0 1"},
	})
	for round := range 3 {
		if round > 0 {
			steps(t, g, []step{
				{"lake", fmt.Sprintf("insert into t values (%d, 'more'); insert into k values (%d); select sluice.flush() > 0", 300+round, 300+round), "t"},
				{"lake", "select rewritten_data_files_count >= 0 from sluice.compact('t')", "t"},
				{"lake", "select rewritten_data_files_count >= 0 from sluice.compact('k')", "t"},
			})
		}
		g.Kill()
		fsck(t, g)
		if err := g.Start(); err != nil {
			t.Fatal(err)
		}
		steps(t, g, []step{
			{"lake", "select string_agg(gid, ' ' order by gid) from pg_prepared_xacts", "goes keeps"},
			{"lake", "select string_agg(v, ' ' order by id) from t where id in (1, 2, 3, 100, 104)", "v v v"},
			{"lake", "set lock_timeout = '50ms'", "SET"},
			{"lake", "update t set v = 'x' where id = 1", "55P03"},
			{"lake", "select v from t where id = 3 for update", "55P03"},
			{"lake", "select v from t where id = 6 for update nowait", "55P03"},
			{"lake", "select v from t where id = 10 for update nowait", "55P03"},
			{"lake", "insert into t values (100, 'x')", "55P03"},
			{"lake", "insert into t values (104, 'x')", "55P03"},
			{"lake", "begin; lock table k in share mode nowait", "55P03"},
			{"lake", "rollback", "ROLLBACK"},
			{"lake", "alter table k add column b int", "55P03"},
			{"lake", "select v from t where id = 7 for update nowait", "v"},
			{"lake", "delete from k where a = 6 returning a", "6"},
			{"lake", "insert into k values (6)", "INSERT 0 1"},
		})
	}
	steps(t, g, []step{
		{"lake", "commit prepared 'keeps'", "COMMIT PREPARED"},
		{"lake", "rollback prepared 'goes'", "ROLLBACK PREPARED"},
	})
	for _, kill := range []bool{false, true, true} {
		if kill {
			g.Kill()
			fsck(t, g)
			if err := g.Start(); err != nil {
				t.Fatal(err)
			}
		}
		steps(t, g, []step{
			{"lake", "select string_agg(id || v, ' ' order by id) from t where id < 11 or id in (100, 104)", "1new 2new 5v 6v 7v 8v 9v 10v 100in 104v"},
			{"lake", "select count(*), count(*) filter (where a in (5, 1000)) from k", "21 0"},
			{"lake", "select string_agg(a::text, ' ') from h", "1"},
			{"lake", "select count(*) from pg_prepared_xacts", "0"},
			{"lake", "commit prepared 'keeps'", "42704"},
			{"lake", "set lock_timeout = '50ms'; update t set v = v where id in (1, 6, 10, 100)", "UPDATE 4"},
			{"lake", "select sluice.flush() > 0", "t"},
		})
	}
}

// TestTwoPhaseKilled: clients prepare and decide transactions over lake and heap tables while the gateway is killed. What became of each is the
// same in both, and is what its client was told.
//
// claims: P42
func TestTwoPhaseKilled(t *testing.T) {
	seed := *randomSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-seed %d -kills %d", seed, *crashKills)
	g := harness.StartGateway(t, harness.Options{Args: []string{"--flush-age", "200ms"}})
	steps(t, g, []step{
		{"lake", "create table t (id int primary key, v text); create table sums (w int primary key, n int); create table h (id int) using heap", "CREATE TABLE"},
		{"lake", "insert into sums select i, 0 from generate_series(0, 3) i", "INSERT 0 4"},
	})
	rng := rand.New(rand.NewPCG(seed, 4))
	var mu sync.Mutex
	told, next := map[int]string{}, 0
	for range *crashKills {
		acks := make(chan struct{}, 1<<16)
		var clients sync.WaitGroup
		for w := range 4 {
			commit := rng.IntN(2) == 0
			clients.Go(func() {
				s, err := harness.Dial(g.DSN())
				for ; err == nil; commit = !commit {
					mu.Lock()
					next++
					id := next
					mu.Unlock()
					var answer string
					answer, err = twoPhaseClient(s, w, id, commit)
					mu.Lock()
					told[id] = answer
					mu.Unlock()
					acks <- struct{}{}
				}
			})
		}
		for range 10 + rng.IntN(*crashAcks) {
			<-acks
		}
		g.Kill()
		clients.Wait()
		fsck(t, g)
		if err := g.Start(); err != nil {
			t.Fatal(err)
		}
		s := dial(t, g.DSN())
		for _, row := range exec(t, s, "select gid from pg_prepared_xacts").Rows() {
			exec(t, s, []string{"commit", "rollback"}[rng.IntN(2)]+" prepared '"+*row[0]+"'")
		}
		lake, heap := tally(t, s, "select id, 1 from t"), tally(t, s, "select id, count(*) from h group by id")
		if n := gist(exec(t, s, "select sum(n) from sums")); n != fmt.Sprint(len(lake)) {
			t.Errorf("%s counted, %d rows", n, len(lake))
		}
		s.Close()
		for id, answer := range told {
			in, also := lake[int64(id)] == 1, heap[int64(id)] == 1
			if in != also || answer == "committed" && !in || answer == "rolled back" && in {
				t.Errorf("%d: in the lake %v, in the heap %v, told %q", id, in, also, answer)
			}
		}
	}
	t.Logf("%d transactions", len(told))
}

// twoPhaseClient runs one transaction and says what it was told; "": nothing.
func twoPhaseClient(s *harness.Session, w, id int, commit bool) (string, error) {
	end, answer := "rollback", "rolled back"
	if commit {
		end, answer = "commit", "committed"
	}
	for _, q := range []string{
		"begin", fmt.Sprintf("insert into t values (%d, 'x')", id), fmt.Sprintf("update sums set n = n + 1 where w = %d", w), fmt.Sprintf("insert into h values (%d)", id),
		fmt.Sprintf("prepare transaction '%d'", id), fmt.Sprintf("%s prepared '%d'", end, id),
	} {
		if r, err := s.Query(q); err != nil || r.Err() != nil {
			return "", errors.Join(err, r.Err())
		}
	}
	return answer, nil
}
