package conformance_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/conformance/harness"
	"sluice/conformance/history"
)

var (
	appendTxns  = flag.Int("transactions", 400, "how many list-append transactions at each isolation level")
	appendLevel = flag.String("level", "", "the only isolation level of TestListAppend")
)

// allowed is what each level does not exclude (Adya 1999; Postgres' REPEATABLE READ is snapshot isolation).
var allowed = map[string][]string{
	"read committed":  {"G-single", "G-nonadjacent", "G2"},
	"repeatable read": {"G2"},
	"serializable":    nil,
}

// TestListAppend runs transactions that read lists and append to them, at each isolation level, with flushes all the time, and looks for what the level
// excludes, with the order of the clock: whoever begins after an acknowledged COMMIT sees it.
func TestListAppend(t *testing.T) {
	seed := seedOf(t)
	g := harness.StartGateway(t, harness.Options{Args: []string{"--flush-age", "300ms", "--compact-age", "500ms"}})
	for _, level := range isolationLevels {
		if *appendLevel != "" && level != *appendLevel {
			continue
		}
		found := lists(t, g.DSN(), level, seed, *appendTxns)
		for _, a := range found {
			if !slices.Contains(allowed[level], a.Kind) {
				t.Errorf("seed %d: %s: %v", seed, level, a)
			}
		}
	}
}

// TestListAppendControl shows that the checker finds, on Postgres, the anomalies which its weaker levels have, and none beyond.
func TestListAppendControl(t *testing.T) {
	seed := seedOf(t)
	dsn := harness.NewPair(t).Ref.DSN
	for level, known := range map[string]string{"read committed": "G-single", "repeatable read": "G2", "serializable": ""} {
		found := lists(t, dsn, level, seed, max(*appendTxns, 1500))
		for _, a := range found {
			if !slices.Contains(allowed[level], a.Kind) {
				t.Errorf("%s: %v", level, a)
			}
		}
		if known != "" && !slices.ContainsFunc(found, func(a history.Anomaly) bool { return a.Kind == known }) {
			t.Errorf("%s: no %s among %d findings: the load is too tame, or the checker blind", level, known, len(found))
		}
	}
}

func seedOf(t *testing.T) uint64 {
	t.Helper()
	seed := *randomSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-seed %d", seed)
	return seed
}

const (
	listTables  = 3
	activeLists = 8   // at a time
	fullList    = 100 // appends, then a new list takes its place
	listClients = 12
)

// listRun is one load.
type listRun struct {
	dsn, level string
	start      time.Time
	left       atomic.Int64
	element    atomic.Int64
	mu         sync.Mutex
	txns       []history.Txn
	counts     map[int]int // appends sent to a list
	active     []int
	next       int
}

func lists(t *testing.T, dsn, level string, seed uint64, txns int) []history.Anomaly {
	t.Helper()
	r := &listRun{dsn: dsn, level: level, start: time.Now(), counts: map[int]int{}}
	r.left.Store(int64(txns))
	for r.next < activeLists {
		r.active, r.next = append(r.active, r.next), r.next+1
	}
	control := dial(t, dsn)
	defer control.Close()
	for i := range listTables {
		exec(t, control, fmt.Sprintf("drop table if exists la%d", i))
		exec(t, control, fmt.Sprintf("create table la%d (k bigint primary key, v text not null)", i))
	}
	var wg sync.WaitGroup
	for n := range listClients {
		wg.Go(func() { r.client(t, n, rand.New(rand.NewPCG(seed, uint64(n)+10))) })
	}
	wg.Wait()
	r.readAll(t)
	var committed int
	for i := range r.txns {
		if r.txns[i].Outcome == history.OK {
			committed++
		}
	}
	found := history.Check(r.txns, true)
	byKind := map[string]int{}
	for _, a := range found {
		byKind[a.Kind]++
	}
	t.Logf("%s: %d transactions, %d committed, %s, found %v", level, len(r.txns), committed, time.Since(r.start).Round(time.Millisecond), byKind)
	if committed < len(r.txns)/10 {
		t.Errorf("%s: only %d of %d transactions committed", level, committed, len(r.txns))
	}
	return found
}

func (r *listRun) client(t *testing.T, n int, rng *rand.Rand) {
	s, err := harness.Dial(r.dsn)
	if err != nil {
		t.Error(err)
		return
	}
	defer s.Close()
	for r.left.Add(-1) >= 0 && !t.Failed() {
		txn, err := r.txn(s, rng)
		if err != nil {
			t.Error(err)
			return
		}
		txn.Session = n
		r.mu.Lock()
		r.txns = append(r.txns, txn)
		r.mu.Unlock()
	}
}

// list chooses one of the active lists. A full one makes room for a new one.
func (r *listRun) list(rng *rand.Rand, appends bool) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := rng.IntN(len(r.active))
	k := r.active[at]
	if appends {
		if r.counts[k]++; r.counts[k] == fullList {
			r.active[at], r.next = r.next, r.next+1
		}
	}
	return k
}

// txn is one transaction of one to six operations. One in ten is rolled back; single operations run without a block.
func (r *listRun) txn(s *harness.Session, rng *rand.Rand) (history.Txn, error) {
	n := 1 + rng.IntN(6)
	var ops []history.Op
	for range n {
		op := history.Op{}
		if rng.IntN(2) == 0 {
			op.Append = int(r.element.Add(1))
		}
		op.Key = r.list(rng, op.Append != 0)
		ops = append(ops, op)
	}
	if rng.IntN(100) > 0 { // else two of them may wait for each other
		inOrder(ops)
	}
	txn := history.Txn{Begin: int64(time.Since(r.start))}
	err := r.play(s, rng, ops, &txn)
	txn.End = int64(time.Since(r.start))
	return txn, err
}

// inOrder puts the appends in the order of their keys.
func inOrder(ops []history.Op) {
	var at []int
	for i, op := range ops {
		if op.Append != 0 {
			at = append(at, i)
		}
	}
	for i := range at {
		for _, j := range at[i+1:] {
			if ops[j].Key < ops[at[i]].Key {
				ops[at[i]], ops[j] = ops[j], ops[at[i]]
			}
		}
	}
}

func (r *listRun) play(s *harness.Session, rng *rand.Rand, ops []history.Op, txn *history.Txn) error {
	block := len(ops) > 1 || r.level != "read committed"
	if block {
		if _, err := query(s, "begin isolation level "+r.level); err != nil {
			return err
		}
	}
	for _, op := range ops {
		code, err := r.op(s, rng, &op)
		if err != nil {
			return err
		}
		if op.Append != 0 || code == "" {
			txn.Ops = append(txn.Ops, op)
		}
		if code != "" {
			txn.Outcome = history.Failed
			break
		}
	}
	if !block {
		return nil
	}
	end := "commit"
	if txn.Outcome == history.Failed || rng.IntN(10) == 0 {
		end, txn.Outcome = "rollback", history.Failed
	}
	code, err := query(s, end)
	if code != "" {
		txn.Outcome = history.Failed
	}
	return err
}

// query runs a statement that may lose against another transaction.
func query(s *harness.Session, sql string) (code string, err error) {
	reply, err := s.Query(sql)
	return lostAgainst(reply, err)
}

func lostAgainst(reply harness.Reply, err error) (string, error) {
	switch code := reply.Code(); {
	case err != nil:
		return "", err
	case code == "40001" || code == "40P01":
		return code, nil
	}
	return "", reply.Err()
}

// op reads or appends, in one of the ways that the lanes offer.
func (r *listRun) op(s *harness.Session, rng *rand.Rand, op *history.Op) (code string, err error) {
	tab, key := op.Key%listTables, strconv.Itoa(op.Key)
	if op.Append == 0 {
		reply, err := s.Extended(fmt.Sprintf("select v from la%d where k = $1", tab), harness.Bound{Text: []*string{&key}}, nil)
		if code, err = lostAgainst(reply, err); err != nil || code != "" {
			return code, err
		}
		op.Read, err = parseList(reply.Rows())
		return "", err
	}
	v := strconv.Itoa(op.Append)
	if rng.IntN(2) == 0 {
		return query(s, fmt.Sprintf("insert into la%[1]d values (%s, '%s') on conflict (k) do update set v = la%[1]d.v || ',' || excluded.v", tab, key, v))
	}
	reply, err := s.Extended(fmt.Sprintf("update la%d set v = v || ',' || $1 where k = $2", tab), harness.Bound{Text: []*string{&v, &key}}, nil)
	if code, err = lostAgainst(reply, err); err != nil || code != "" {
		return code, err
	}
	if len(reply.Results) == 1 && reply.Results[0].Tag == "UPDATE 1" {
		return "", nil
	}
	return query(s, fmt.Sprintf("insert into la%[1]d values (%s, '%s') on conflict (k) do update set v = la%[1]d.v || ',' || excluded.v", tab, key, v))
}

func parseList(rows [][]*string) (list []int, err error) {
	if len(rows) == 0 {
		return nil, nil
	}
	for _, f := range strings.Split(*rows[0][0], ",") {
		v, err := strconv.Atoi(f)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

// readAll is the last transaction: it reads every list.
func (r *listRun) readAll(t *testing.T) {
	t.Helper()
	s := dial(t, r.dsn)
	defer s.Close()
	txn := history.Txn{Session: listClients, Begin: int64(time.Since(r.start))}
	for k := range r.next {
		list, err := parseList(exec(t, s, fmt.Sprintf("select v from la%d where k = %d", k%listTables, k)).Rows())
		if err != nil {
			t.Fatal(err)
		}
		txn.Ops = append(txn.Ops, history.Op{Key: k, Read: list})
	}
	txn.End = int64(time.Since(r.start))
	r.txns = append(r.txns, txn)
}
