package conformance_test

import (
	"strings"
	"testing"
	"time"

	"sluice/conformance/harness"
)

// TestTimeouts ends waits in the gateway and in Postgres by each timeout and by a cancel request: on both servers with the same error, within a
// second, with the session as Postgres leaves it, and without a lock left.
func TestTimeouts(t *testing.T) {
	for _, c := range []struct {
		name, set string
		wait      string // a statement that waits for session a
		code      string
	}{
		{"lock_timeout, fast lane", "set lock_timeout = '300ms'", "update t set v = 2 where id = 1", "55P03"},
		{"lock_timeout, exact lane", "set lock_timeout = '300ms'", "update t set v = v * 2 where id = 1", "55P03"},
		{"lock_timeout, key", "set lock_timeout = '300ms'", "insert into t values (7, 1)", "55P03"},
		{"lock_timeout, table", "begin; set local lock_timeout = '300ms'", "lock table u", "55P03"},
		{"lock_timeout, heap", "set lock_timeout = '300ms'", "update h set v = 2 where id = 1", "55P03"},
		{"statement_timeout, fast lane", "set statement_timeout = '300ms'", "delete from t where id = 1", "57014"},
		{"statement_timeout, exact lane", "set statement_timeout = '300ms'", "select * from t where id = 1 for update", "57014"},
		{"statement_timeout, key", "set statement_timeout = '300ms'", "insert into t values (7, 1)", "57014"},
		{"statement_timeout, table", "set statement_timeout = '300ms'", "truncate u", "57014"},
		{"statement_timeout, alter", "set statement_timeout = '300ms'", "alter table u add w int", "57014"},
		{"statement_timeout, heap", "set statement_timeout = '300ms'", "update h set v = 2 where id = 1", "57014"},
		{"statement_timeout, set local", "begin; set local statement_timeout = '300ms'", "update t set v = 2 where id = 1", "57014"},
		{"statement_timeout, copy", "set statement_timeout = '300ms'", "copy t from stdin", "57014"},
		{"cancel, fast lane", "select 1", "update t set v = 2 where id = 1", "57014"},
		{"cancel, exact lane", "begin", "update t set v = v * 2 where id = 1", "57014"},
		{"cancel, key", "select 1", "insert into t values (7, 1)", "57014"},
		{"cancel, table", "select 1", "drop table u", "57014"},
		{"cancel, heap", "select 1", "update h set v = t.v from t where t.id = h.id", "57014"},
	} {
		t.Run(c.name, func(t *testing.T) {
			pair := harness.NewPair(t)
			for _, side := range []*harness.Side{pair.Ref, pair.Got} {
				endsWait(t, side, c.set, c.wait, c.code, strings.HasPrefix(c.name, "cancel"))
			}
			if diff, err := pair.SameState(); err != nil || diff != "" {
				t.Errorf("%v\n%s", err, diff)
			}
		})
	}
}

// blockers makes tables and a session that holds a row, a key, a table and a heap row.
func blockers(t *testing.T, side *harness.Side) *harness.Session {
	t.Helper()
	heap := ""
	if side.Sluice {
		heap = " using heap"
	}
	a := side.Session("a")
	for _, sql := range []string{"create table t (id int primary key, v int)", "create table u (id int)", "create table h (id int primary key, v int)" + heap,
		"insert into t values (1, 1), (2, 2)", "insert into h values (1, 1)",
		"begin", "update t set v = 10 where id = 1", "insert into t values (7, 7)", "insert into u values (1)", "update h set v = 10 where id = 1"} {
		exec(t, a, sql)
	}
	return a
}

func endsWait(t *testing.T, side *harness.Side, set, wait, code string, cancel bool) {
	t.Helper()
	a, b := blockers(t, side), side.Session("b")
	exec(t, b, set)
	status := b.Status
	start := time.Now()
	if cancel {
		stop := time.AfterFunc(300*time.Millisecond, func() {
			if err := b.Cancel(); err != nil {
				t.Error(err)
			}
		})
		defer stop.Stop()
	}
	reply, err := b.QueryCopy(wait, &harness.CopyInput{Data: []byte("7\t1\n")})
	if err != nil || reply.Code() != code {
		t.Fatalf("%s: %s: %v, %v, want %s", side.Name, wait, err, reply.Err(), code)
	}
	if d := time.Since(start); d < 250*time.Millisecond || d > 2*time.Second {
		t.Errorf("%s: %s ended after %s", side.Name, wait, d)
	}
	if want := map[byte]byte{'I': 'I', 'T': 'E'}[status]; b.Status != want {
		t.Errorf("%s: status %c, want %c", side.Name, b.Status, want)
	}
	exec(t, b, "rollback")
	exec(t, a, "commit")
	exec(t, b, "reset all; update t set v = v + 1 where id in (1, 7)")
}

// TestIdleTimeouts: a session that idles for too long, in a transaction or not, ends with Postgres' error, and its locks go at once.
func TestIdleTimeouts(t *testing.T) {
	for set, code := range map[string]string{"idle_in_transaction_session_timeout": "25P03", "idle_session_timeout": "57P05"} {
		pair := harness.NewPair(t)
		for _, side := range []*harness.Side{pair.Ref, pair.Got} {
			a, b := side.Session("a"), side.Session("b")
			exec(t, a, "create table idle (id int primary key, v int); insert into idle values (1, 1)")
			exec(t, b, "select 1") // logged in
			exec(t, a, "set "+set+" = '400ms'")
			if code == "25P03" {
				exec(t, a, "begin")
				exec(t, a, "update idle set v = 2 where id = 1")
				start := time.Now()
				exec(t, b, "set lock_timeout = '5s'")
				exec(t, b, "update idle set v = v + 10 where id = 1")
				if d := time.Since(start); d > 3*time.Second {
					t.Errorf("%s: %s: the row was free after %s", side.Name, set, d)
				}
			}
			reply, err := a.Await()
			if reply.Code() != code {
				t.Errorf("%s: %s: %v %v, want %s", side.Name, set, reply.Err(), err, code)
			}
		}
		if diff, err := pair.SameState(); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", set, err, diff)
		}
	}
}
