package conformance_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/conformance/harness"
)

var (
	crashKills = flag.Int("kills", 3, "how often the crash test kills the server under load")
	crashAcks  = flag.Int("acks", 400, "a kill comes after up to this many acknowledged operations")
)

// crashed is a server that can be killed and started again on the same data.
type crashed interface {
	Kill()
	Start() error
}

// crashSchema: one row per operation, except bulk (many rows of one COPY) and the three tables of a transaction.
var crashSchema = []string{
	"create table single (id bigint primary key, writer int not null, v text)",
	"create table versions (k bigint primary key, ver bigint not null, v text)",
	"create table gone (id bigint primary key, v text)",
	"create table bulk (token bigint not null, n int not null, v text)",
	"create table a (token bigint primary key, amount int not null)",
	"create table b (token bigint primary key, amount int not null)",
	"create table c (token bigint not null, amount int not null)",
}

// TestCrash runs 8 writers, kills the server at random moments and checks after each restart: every
// acknowledged operation is there, none twice, none in part, nothing that was rolled back, and an operation of
// unknown outcome is there or not and stays so.
//
// claims: M5 M16 M38 M52 P60 H18
func TestCrash(t *testing.T) {
	seed := *randomSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-seed %d -kills %d", seed, *crashKills)
	server, dsn, gateway := crashServer(t)
	setUp(t, dsn)
	rng := rand.New(rand.NewPCG(seed, 2))
	load := newLoad(seed, dsn)
	for kill := 1; kill <= *crashKills && !t.Failed(); kill++ {
		load.run(t, int64(20+rng.IntN(*crashAcks)), server.Kill)
		fsck(t, gateway)
		if err := server.Start(); err != nil {
			t.Fatalf("start after kill %d: %v", kill, err)
		}
		load.verify(t, kill)
	}
	t.Logf("%d operations acknowledged, %d of unknown outcome, %d rolled back", load.acked.Load(), load.unknown.Load(), load.undone.Load())
}

// crashServer is a gateway of our own, or a Postgres that stands in for it.
func crashServer(t *testing.T) (server crashed, dsn string, gateway *harness.Gateway) {
	t.Helper()
	if os.Getenv("SLUICE_DSN") != "" {
		c, err := harness.StartCluster()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Stop)
		return c, c.DSN("lake", "lake"), nil
	}
	// Flushes and compactions all the time: a kill finds each of them under way.
	g := harness.StartGateway(t, harness.Options{Args: []string{"--flush-age", "200ms", "--compact-age", "300ms"}})
	return g, g.DSN(), g
}

func setUp(t *testing.T, dsn string) {
	t.Helper()
	s := dial(t, dsn)
	defer s.Close()
	for _, q := range crashSchema {
		exec(t, s, q)
	}
}

func dial(t *testing.T, dsn string) *harness.Session {
	t.Helper()
	s, err := harness.Dial(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func exec(t *testing.T, s *harness.Session, sql string) harness.Reply {
	t.Helper()
	r, err := s.Query(sql)
	if err == nil {
		err = r.Err()
	}
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return r
}

// fsck runs the program's own check of its invariants while no gateway runs.
func fsck(t *testing.T, g *harness.Gateway) {
	t.Helper()
	if g == nil || !g.Knows("fsck") {
		return
	}
	if out, err := g.Run("fsck", "--data", g.Data()); err != nil {
		t.Errorf("fsck: %v\n%s", err, out)
	}
}

// fate is what is known about an operation.
type fate int

const (
	absent  fate = iota // never committed, or deleted by an acknowledged DELETE
	present             // acknowledged
	either              // the connection broke before the answer
)

// load is the writers and what they know. A key belongs to one writer for ever.
type load struct {
	dsn                    string
	seed                   uint64
	acked, unknown, undone atomic.Int64
	round                  int

	mu     sync.Mutex // over the maps, for one entry at a time
	single map[int64]fate
	gone   map[int64]fate
	bulk   map[int64]fate
	size   map[int64]int // rows of a COPY
	triple map[int64]fate
	vers   map[int64][]int64 // key → versions that may be the stored one; one entry when it is known
	next   [8]int64          // next number of each writer
}

func newLoad(seed uint64, dsn string) *load {
	return &load{
		dsn: dsn, seed: seed, single: map[int64]fate{}, gone: map[int64]fate{}, bulk: map[int64]fate{},
		size: map[int64]int{}, triple: map[int64]fate{}, vers: map[int64][]int64{},
	}
}

// run lets 8 writers and a flusher work until so many operations are acknowledged, then kills.
func (l *load) run(t *testing.T, acks int64, kill func()) {
	t.Helper()
	l.round++
	reached := make(chan struct{})
	goal := l.acked.Load() + acks
	var once sync.Once
	var writers sync.WaitGroup
	for w := range int64(8) {
		writers.Go(func() {
			l.writer(t, w, func() {
				if l.acked.Load() >= goal {
					once.Do(func() { close(reached) })
				}
			})
		})
	}
	writers.Go(func() { l.flusher() })
	select {
	case <-reached:
	case <-time.After(2 * time.Minute):
		t.Errorf("the writers did not reach %d acknowledged operations within 2 minutes", acks)
	}
	kill()
	writers.Wait()
}

// flusher keeps flushes and flips going, so that kills fall into them.
func (l *load) flusher() {
	s, err := harness.Dial(l.dsn)
	if err != nil {
		return
	}
	defer s.Abort()
	for {
		r, err := s.Query("select sluice.flush()")
		if err != nil || r.Err() != nil {
			return // killed, or not Sluice
		}
	}
}

// errBroken is the end of a writer's connection.
var errBroken = errors.New("connection broken")

// writer works until the server is killed.
func (l *load) writer(t *testing.T, w int64, acked func()) {
	s, err := harness.Dial(l.dsn)
	if err != nil {
		return
	}
	defer s.Abort()
	rng := rand.New(rand.NewPCG(l.seed+uint64(l.round), uint64(w)))
	for {
		l.next[w]++
		id := w*1_000_000_000 + l.next[w]
		err := l.operation(s, rng, w, id)
		if errors.Is(err, errBroken) {
			return
		}
		if err != nil {
			t.Errorf("writer %d: %v", w, err)
			return
		}
		acked()
	}
}

func (l *load) operation(s *harness.Session, rng *rand.Rand, w, id int64) error {
	switch w {
	case 0:
		return l.decide(s, l.single, id, fmt.Sprintf("insert into single values (%d, %d, 'v')", id, w))
	case 1:
		return l.extended(s, id, w)
	case 2:
		return l.upsert(s, rng.Int64N(50), id)
	case 3:
		return l.insertDelete(s, rng, id)
	case 4:
		return l.copy(s, rng, id)
	case 5:
		return l.decide(s, l.triple, id, fmt.Sprintf("insert into a values (%d, 1); insert into b values (%d, 2); insert into c values (%d, -3)", id, id, id))
	case 6:
		return l.transaction(s, rng, id)
	}
	if rng.IntN(2) == 0 {
		return l.upsert(s, 1000+rng.Int64N(50), id)
	}
	return l.transaction(s, rng, id)
}

func (l *load) set(m map[int64]fate, id int64, f fate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m[id] = f
}

// answer sorts what a committing statement came back with.
func (l *load) answer(r harness.Reply, err error) (fate, error) {
	if err != nil || r.Code() == "40003" {
		l.unknown.Add(1)
		return either, errBroken
	}
	if r.Err() != nil {
		return absent, r.Err()
	}
	l.acked.Add(1)
	return present, nil
}

// decide runs a statement that commits by itself and notes the fate of its token.
func (l *load) decide(s *harness.Session, m map[int64]fate, id int64, sql string) error {
	l.set(m, id, either)
	f, err := l.answer(s.Query(sql))
	l.set(m, id, f)
	return err
}

func (l *load) extended(s *harness.Session, id, w int64) error {
	p := strconv.FormatInt(id, 10)
	l.set(l.single, id, either)
	f, err := l.answer(s.Extended(fmt.Sprintf("insert into single values ($1, %d, 'x') returning id", w), harness.Bound{Text: []*string{&p}}, nil))
	l.set(l.single, id, f)
	return err
}

// upsert raises the version of a key; the version is the operation's own number, so it only grows.
func (l *load) upsert(s *harness.Session, k, ver int64) error {
	l.mu.Lock()
	before := l.vers[k]
	if before == nil {
		before = []int64{0} // no row
	}
	l.vers[k] = append(before[:len(before):len(before)], ver)
	l.mu.Unlock()
	f, err := l.answer(s.Query(fmt.Sprintf("insert into versions values (%d, %d, 'v') on conflict (k) do update set ver = excluded.ver", k, ver)))
	l.mu.Lock()
	defer l.mu.Unlock()
	switch f {
	case present:
		l.vers[k] = []int64{ver}
	case absent:
		l.vers[k] = before
	}
	return err
}

// insertDelete inserts a row and sometimes deletes it, each for itself.
func (l *load) insertDelete(s *harness.Session, rng *rand.Rand, id int64) error {
	if err := l.decide(s, l.gone, id, fmt.Sprintf("insert into gone values (%d, 'v')", id)); err != nil || rng.IntN(2) == 0 {
		return err
	}
	l.set(l.gone, id, either)
	f, err := l.answer(s.Query(fmt.Sprintf("delete from gone where id = %d", id)))
	if f == present {
		l.set(l.gone, id, absent)
	}
	return err
}

func (l *load) copy(s *harness.Session, rng *rand.Rand, id int64) error {
	n := 1 + rng.IntN(3000)
	var rows strings.Builder
	for i := range n {
		fmt.Fprintf(&rows, "%d\t%d\tvalue %d\n", id, i, i)
	}
	l.mu.Lock()
	l.size[id] = n
	l.mu.Unlock()
	l.set(l.bulk, id, either)
	f, err := l.answer(s.QueryCopy("copy bulk from stdin", &harness.CopyInput{Data: []byte(rows.String()), Chunk: 8192}))
	l.set(l.bulk, id, f)
	return err
}

// transaction writes one token into three tables, with a savepoint that is undone; some are rolled back.
func (l *load) transaction(s *harness.Session, rng *rand.Rand, id int64) error {
	l.set(l.triple, id, absent)
	for _, sql := range []string{
		"begin", fmt.Sprintf("insert into a values (%d, 1)", id), "savepoint s", fmt.Sprintf("insert into b values (%d, 99)", id),
		"rollback to s", fmt.Sprintf("insert into b values (%d, 2)", id), fmt.Sprintf("insert into c values (%d, 5)", id),
		fmt.Sprintf("update c set amount = -3 where token = %d", id),
	} {
		r, err := s.Query(sql)
		if err != nil {
			return errBroken // before COMMIT: nothing of it may ever be seen
		}
		if r.Err() != nil {
			return r.Err()
		}
	}
	if rng.IntN(5) == 0 {
		if _, err := s.Query("rollback"); err != nil {
			return errBroken
		}
		l.undone.Add(1)
		return nil
	}
	return l.decide(s, l.triple, id, "commit")
}

// verify reads everything back. Outcomes that were unknown are known from here on and may not change again.
func (l *load) verify(t *testing.T, kill int) {
	t.Helper()
	s := dial(t, l.dsn)
	defer s.Close()
	check := func(name string, m map[int64]fate, sql string, whole func(int64) int) {
		l.settle(t, fmt.Sprintf("kill %d: %s", kill, name), m, tally(t, s, sql), whole)
	}
	one := func(int64) int { return 1 }
	check("single", l.single, "select id, count(*) from single group by id", one)
	check("gone", l.gone, "select id, count(*) from gone group by id", one)
	check("bulk", l.bulk, "select token, count(distinct n) * 1000000 + count(*) from bulk group by token", func(id int64) int { return l.size[id]*1_000_000 + l.size[id] })
	check("transactions", l.triple, `select token, count(*) * 1000 + sum(amount) from (select * from a union all select * from b union all select * from c) x group by token`,
		func(int64) int { return 3000 })
	l.settleVersions(t, kill, tally(t, s, "select k, ver from versions"))
	for _, q := range []string{
		"select count(*) from (select id from single group by id having count(*) > 1) x",
		"select count(*) from a full join b using (token) full join c using (token) where a.token is null or b.token is null or c.token is null",
	} {
		if n := *exec(t, s, q).Rows()[0][0]; n != "0" {
			t.Errorf("kill %d: %s = %s, want 0", kill, q, n)
		}
	}
}

// tally reads (token, number) rows. A token that comes twice is an error by itself.
func tally(t *testing.T, s *harness.Session, sql string) map[int64]int64 {
	t.Helper()
	out := map[int64]int64{}
	for _, row := range exec(t, s, sql).Rows() {
		k, err1 := strconv.ParseInt(*row[0], 10, 64)
		n, err2 := strconv.ParseInt(*row[1], 10, 64)
		if _, twice := out[k]; twice || err1 != nil || err2 != nil {
			t.Fatalf("%s: row %s %s: twice %t", sql, *row[0], *row[1], twice)
		}
		out[k] = n
	}
	return out
}

// settle compares what is stored with what is known; whole is the number of a complete operation.
func (l *load) settle(t *testing.T, name string, known map[int64]fate, stored map[int64]int64, whole func(int64) int) {
	t.Helper()
	for id, f := range known {
		n, there := stored[id]
		switch {
		case there && n != int64(whole(id)):
			t.Errorf("%s: token %d is stored in part or twice: %d, want %d", name, id, n, whole(id))
		case f == present && !there:
			t.Errorf("%s: token %d was acknowledged and is lost", name, id)
		case f == absent && there:
			t.Errorf("%s: token %d was never committed, or was deleted, and is there", name, id)
		}
		if known[id] = absent; there {
			known[id] = present
		}
		delete(stored, id)
	}
	for id := range stored {
		t.Errorf("%s: token %d was never written", name, id)
	}
}

func (l *load) settleVersions(t *testing.T, kill int, stored map[int64]int64) {
	t.Helper()
	for k, may := range l.vers {
		got := stored[k] // 0 is no row
		found := false
		for _, v := range may {
			found = found || v == got
		}
		if !found {
			t.Errorf("kill %d: key %d has version %d, want one of %v", kill, k, got, may)
		}
		l.vers[k] = []int64{got}
		delete(stored, k)
	}
	if len(stored) > 0 {
		t.Errorf("kill %d: keys never written: %v", kill, stored)
	}
}
