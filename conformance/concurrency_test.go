package conformance_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/conformance/harness"
)

var (
	counterClients = flag.Int("counter-clients", 64, "sessions of TestCounter")
	counterRounds  = flag.Int("counter-rounds", 15, "updates of each session of TestCounter")
	bankSeconds    = flag.Duration("bank", 4*time.Second, "how long TestBank and TestNoOrphans run")
)

// TestCounter: sessions that all increment one row at READ COMMITTED lose nothing and fail never, whichever lane takes the statement.
func TestCounter(t *testing.T) {
	pair := harness.NewPair(t)
	control := pair.Got.Control()
	exec(t, control, "create table counter (id int primary key, n int not null); insert into counter values (1, 0), (2, 0), (3, 0)")
	fast, exact := "update counter set n = n + 1 where id = ", "update counter set n = (n + 1) * 1 where id = "
	for i, updates := range [][2]string{{fast, fast}, {exact, exact}, {fast, exact}} {
		id, rounds := i+1, *counterRounds
		if updates[1] == exact {
			rounds = max(1, rounds/10)
		}
		start := time.Now()
		clients(t, pair.Got.DSN, *counterClients, func(s *harness.Session, i int) error {
			update := updates[i%2] + strconv.Itoa(id)
			for range rounds {
				if reply, err := s.Query(update); err != nil || reply.Err() != nil || reply.Results[0].Tag != "UPDATE 1" {
					return fmt.Errorf("%s: %v %v", update, err, reply.Lines(false))
				}
			}
			return nil
		})
		got := *exec(t, control, fmt.Sprintf("select n from counter where id = %d", id)).Rows()[0][0]
		if want := strconv.Itoa(*counterClients * rounds); got != want {
			t.Errorf("%q: the counter is %s, want %s", updates, got, want)
		}
		t.Logf("%d × %d of %q in %s", *counterClients, rounds, updates, time.Since(start).Round(time.Millisecond))
	}
}

// clients runs fn in n sessions at once.
func clients(t *testing.T, dsn string, n int, fn func(s *harness.Session, i int) error) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			s, err := harness.Dial(dsn)
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			if err := fn(s, i); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

const (
	bankTables   = 5
	bankAccounts = 20 // in each table
	bankStart    = 100
)

// TestBank moves money between accounts in five tables while readers add everything up, at each level, under flushes: no sum is ever off, and the
// readers of a REPEATABLE READ transaction see the same sum twice.
func TestBank(t *testing.T) {
	seed := seedOf(t)
	g := harness.StartGateway(t, harness.Options{Args: []string{"--flush-age", "200ms", "--compact-age", "500ms"}})
	control := dial(t, g.DSN())
	defer control.Close()
	var total []string
	for i := range bankTables {
		exec(t, control, fmt.Sprintf("create table bank%d (id int primary key, amount int not null)", i))
		exec(t, control, fmt.Sprintf("insert into bank%d select g, %d from generate_series(1, %d) g", i, bankStart, bankAccounts))
		total = append(total, fmt.Sprintf("(select sum(amount) from bank%d)", i))
	}
	b := &bank{seed: seed, sum: "select " + strings.Join(total, " + "), want: strconv.Itoa(bankTables * bankAccounts * bankStart), end: time.Now().Add(*bankSeconds)}
	clients(t, g.DSN(), 8, func(s *harness.Session, i int) error {
		if i < 5 {
			return b.move(s, i)
		}
		return b.watch(s, i)
	})
	t.Logf("%d transfers, %d lost against others, %d sums", b.moved.Load(), b.lost.Load(), b.sums.Load())
	if b.moved.Load() == 0 || b.sums.Load() == 0 {
		t.Error("nothing happened")
	}
}

type bank struct {
	seed              uint64
	sum, want         string
	end               time.Time
	moved, lost, sums atomic.Int64
}

func (b *bank) move(s *harness.Session, i int) error {
	rng := rand.New(rand.NewPCG(b.seed, uint64(i)))
	for time.Now().Before(b.end) {
		from, to, amount := rng.IntN(bankTables*bankAccounts), rng.IntN(bankTables*bankAccounts), 1+rng.IntN(20)
		steps := []string{
			"begin isolation level " + isolationLevels[rng.IntN(3)],
			fmt.Sprintf("update bank%d set amount = amount - %d where id = %d", from%bankTables, amount, 1+from/bankTables),
			fmt.Sprintf("update bank%d set amount = amount + %d where id = %d", to%bankTables, amount, 1+to/bankTables),
			[]string{"commit", "commit", "commit", "rollback"}[rng.IntN(4)],
		}
		if rng.IntN(4) == 0 { // by the exact lane
			steps[2] = fmt.Sprintf("update bank%d set amount = abs(amount + %d) * sign(amount + %[2]d)::int where id = %d", to%bankTables, amount, 1+to/bankTables)
		}
		for _, sql := range steps {
			code, err := query(s, sql)
			if err != nil {
				return fmt.Errorf("%s: %w", sql, err)
			}
			if code != "" {
				b.lost.Add(1)
				if _, err := query(s, "rollback"); err != nil {
					return err
				}
				break
			}
		}
		b.moved.Add(1)
	}
	return nil
}

// watch adds up: in one statement, or in two of one REPEATABLE READ transaction.
func (b *bank) watch(s *harness.Session, i int) error {
	for time.Now().Before(b.end) {
		steps := []string{b.sum}
		if i%2 == 0 {
			steps = []string{"begin isolation level repeatable read", b.sum, b.sum, "commit"}
		}
		for _, sql := range steps {
			reply, err := s.Query(sql)
			if err != nil || reply.Err() != nil {
				return fmt.Errorf("%s: %v %v", sql, err, reply.Err())
			}
			if rows := reply.Rows(); sql == b.sum {
				if b.sums.Add(1); *rows[0][0] != b.want {
					return fmt.Errorf("the sum is %s, want %s", *rows[0][0], b.want)
				}
			}
		}
	}
	return nil
}

// TestNoOrphans inserts children while their parents are deleted, for foreign keys of each action: at the end every child has its parent.
func TestNoOrphans(t *testing.T) {
	seed := seedOf(t)
	pair := harness.NewPair(t)
	control := pair.Got.Control()
	exec(t, control, "create table parent (id int primary key, v int)")
	actions := []string{"no action", "restrict", "cascade", "set null"}
	for i, action := range actions {
		exec(t, control, fmt.Sprintf("create table child%d (id serial primary key, p int references parent on delete %s)", i, action))
	}
	end := time.Now().Add(*bankSeconds)
	var inserted, deleted, failed atomic.Int64
	clients(t, pair.Got.DSN, 6, func(s *harness.Session, i int) error {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		for time.Now().Before(end) {
			id, n := 1+rng.IntN(6), &inserted
			steps := []string{fmt.Sprintf("insert into child%d (p) values (%d)", rng.IntN(len(actions)), id)}
			switch rng.IntN(6) {
			case 0, 1:
				steps, n = []string{fmt.Sprintf("delete from parent where id = %d", id)}, &deleted
			case 2:
				steps = []string{fmt.Sprintf("insert into parent values (%d, 0) on conflict do nothing", id)}
			case 3:
				steps = []string{fmt.Sprintf("delete from child%d where p = %d", rng.IntN(2), id)}
			}
			if rng.IntN(2) == 0 {
				steps = []string{"begin", steps[0], "commit"}
			}
			done, err := tryAll(s, steps)
			if err != nil {
				return err
			}
			if done {
				n.Add(1)
			} else {
				failed.Add(1)
			}
		}
		return nil
	})
	t.Logf("%d inserts, %d deletes, %d failed", inserted.Load(), deleted.Load(), failed.Load())
	for i := range actions {
		orphans := exec(t, control, fmt.Sprintf("select count(*) from child%d c where p is not null and not exists (select from parent where id = c.p)", i)).Rows()
		if *orphans[0][0] != "0" {
			t.Errorf("on delete %s: %s orphans", actions[i], *orphans[0][0])
		}
	}
}

// tryAll runs statements until one fails, as foreign keys and deadlocks let them, and rolls back then.
func tryAll(s *harness.Session, steps []string) (done bool, err error) {
	for _, sql := range steps {
		reply, err := s.Query(sql)
		if err != nil {
			return false, err
		}
		switch code := reply.Code(); code {
		case "":
			continue
		case "23503", "40P01", "40001":
			if reply, err = s.Query("rollback"); err == nil {
				err = reply.Err()
			}
			return false, err
		default:
			return false, fmt.Errorf("%s: %w", sql, reply.Err())
		}
	}
	return true, nil
}
