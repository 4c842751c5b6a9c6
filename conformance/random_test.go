package conformance_test

import (
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"strings"
	"testing"
	"time"

	"sluice/conformance/harness"
)

var (
	randomSeed     = flag.Uint64("seed", 0, "seed of the random statements; 0 takes the clock and prints it")
	randomCount    = flag.Int("statements", 300, "how many random statements")
	randomLane     = flag.String("lane", "auto", "SET sluice.lane of the random session: auto, exact, fast, scan")
	randomState    = flag.Int("state-every", 1, "compare all tables after every n statements")
	randomFlush    = flag.Int("flush-every", 25, "move the tail into files after every n statements, 0 never")
	randomPatience = flag.Duration("shrink-time", 3*time.Minute, "how long replays may look for a shorter failure")
	randomShrink   = flag.Int("shrink", 60, "how many replays may be spent on a shorter failure")
)

// TestRandom runs seeded random statements on Postgres and Sluice and compares every reply and, after it, every
// table. A statement that Sluice refuses with 0A000 must have changed nothing.
func TestRandom(t *testing.T) {
	seed := *randomSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-seed %d -statements %d -lane %s", seed, *randomCount, *randomLane)
	gen := newGenerator(seed)
	run := newRandomRun(t)
	var script []string
	for range *randomCount {
		run.learn(gen)
		script = append(script, gen.next())
		if why := run.statement(script[len(script)-1]); why != "" {
			run.pair.Close()
			short := shrink(t, script)
			t.Fatalf("seed %d, statement %d: %s\n%s\nshortest failing script:\n%s;", seed, len(script), script[len(script)-1], why, strings.Join(short, ";\n"))
		}
	}
	t.Logf("%d statements, %d failed alike, %d refused with 0A000", run.done, run.failed, run.refused)
	if run.failed > run.done/2 {
		t.Errorf("%d of %d statements failed: the generator tests little", run.failed, run.done)
	}
}

// randomRun is one replay on an empty pair.
type randomRun struct {
	pair                  *harness.Pair
	ref, got              *harness.Session
	done, failed, refused int
}

func newRandomRun(t *testing.T) *randomRun {
	t.Helper()
	r := &randomRun{pair: harness.NewPair(t)}
	r.ref, r.got = r.pair.Ref.Session("random"), r.pair.Got.Session("random")
	for _, q := range randomSchema {
		if diff, err := harness.Same(r.ref, r.got, harness.Statement{SQL: q}); err != nil || diff != "" {
			t.Fatalf("%s\n%v\n%s", q, err, diff)
		}
	}
	if r.pair.Got.Sluice {
		if reply, err := r.got.Query("set sluice.lane = '" + *randomLane + "'"); err != nil || reply.Err() != nil {
			t.Fatalf("set sluice.lane: %v %v", err, reply.Err())
		}
	}
	return r
}

// learn tells the generator the transaction status and the columns there are now.
func (r *randomRun) learn(g *generator) {
	g.status = r.ref.Status
	if g.status == 'E' {
		return
	}
	reply, err := r.ref.Query(`select c.relname, a.attname, format_type(a.atttypid, a.atttypmod) from pg_attribute a join pg_class c on c.oid = a.attrelid
		where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'v') and a.attnum > 0 and not a.attisdropped order by c.relname, a.attnum`)
	if err != nil || reply.Err() != nil {
		return
	}
	clear(g.columns)
	for _, row := range reply.Rows() {
		g.columns[*row[0]] = append(g.columns[*row[0]], column{*row[1], *row[2]})
	}
}

// statement runs one statement on both sides and says what differs.
func (r *randomRun) statement(sql string) string {
	st := randomStatement(sql)
	have, err := st.Run(r.got)
	if err != nil {
		return "sluice: " + err.Error()
	}
	r.done++
	if have.Code() == "0A000" {
		r.refused++
		if err := harness.Poison(r.ref, r.got); err != nil {
			return err.Error()
		}
		return r.state()
	}
	want, err := st.Run(r.ref)
	if err != nil {
		return "postgres: " + err.Error()
	}
	if want.Err() != nil {
		r.failed++
	}
	if diff := sameAnswer(st, want, have); diff != "" {
		return diff
	}
	if *randomFlush > 0 && r.done%*randomFlush == 0 && r.got.Status == 'I' {
		if err := r.pair.Got.Flush(); err != nil {
			return "flush: " + err.Error()
		}
	}
	if r.done%*randomState != 0 {
		return ""
	}
	return r.state()
}

// randomStatement is the statement that a text stands for: with the data of a COPY, and, for two in five texts, in the extended protocol.
func randomStatement(text string) harness.Statement {
	st := harness.Statement{SQL: text}
	if strings.HasPrefix(text, "copy ") {
		sql, data, _ := strings.Cut(text, copyData)
		st.SQL, st.Copy = sql, &harness.CopyInput{Data: []byte(data)}
	}
	h := fnv.New32a()
	h.Write([]byte(text))
	if h.Sum32()%5 < 2 && !strings.HasPrefix(text, "copy vk from") { // refused before the data: the harness has sent a second Sync then
		st.Bound = &harness.Bound{}
	}
	return st
}

// sameAnswer compares replies. Where several rows of a statement break something, the server may meet any of
// them first: two errors of the classes 22, 23 and 21 are alike; with one row they have to be the same.
func sameAnswer(st harness.Statement, want, have harness.Reply) string {
	w, h := want.Code(), have.Code()
	if w == "" || h == "" || w == h && w[:2] != "23" && w[:2] != "22" {
		return st.Compare(want, have)
	}
	if dataError(w) && dataError(h) && want.Status == have.Status && (w == h || manyRows(st.SQL)) {
		return ""
	}
	return st.Compare(want, have)
}

func dataError(code string) bool { return code[:2] == "22" || code[:2] == "23" || code == "21000" }

// manyRows says whether a statement may write or read more than one row.
func manyRows(sql string) bool {
	return !strings.HasPrefix(sql, "insert") || strings.Contains(sql, "select") || strings.Contains(sql, "), (")
}

// state compares all tables: as committed, or as the open transaction sees them. A failed transaction can be
// looked at neither from inside nor, while it holds the locks of its DDL, from outside; its end is compared.
func (r *randomRun) state() string {
	diff, err := "", error(nil)
	switch r.ref.Status {
	case 'I':
		diff, err = r.pair.SameState()
	case 'T':
		if err = r.lane("auto"); err == nil { // whatever the tables hold must be readable
			diff, err = harness.SameStateOf(r.ref, r.got)
		}
		err = errors.Join(err, r.lane(*randomLane))
	}
	if err != nil {
		return "state: " + err.Error()
	}
	if diff != "" {
		return "the tables differ:\n" + diff
	}
	return ""
}

// lane forces a lane inside the open block.
func (r *randomRun) lane(name string) error {
	if !r.pair.Got.Sluice || *randomLane == "auto" {
		return nil
	}
	reply, err := r.got.Query("set local sluice.lane = '" + name + "'")
	return errors.Join(err, reply.Err())
}

// shrink looks for a shorter script that still fails, by leaving out ever smaller pieces.
func shrink(t *testing.T, script []string) []string {
	t.Helper()
	replays := 0
	end := time.Now().Add(*randomPatience)
	more := func() bool { return replays < *randomShrink && time.Now().Before(end) }
	fails := func(try []string) (int, bool) {
		replays++
		ok, at := true, 0
		t.Run(fmt.Sprintf("replay%d", replays), func(t *testing.T) {
			run := newRandomRun(t)
			for at = 0; at < len(try) && ok; at++ {
				ok = run.statement(try[at]) == ""
			}
		})
		return at, !ok
	}
	for size := len(script) / 2; size > 0 && more(); size /= 2 {
		for begin := 0; begin+size < len(script) && more(); {
			try := append(append([]string{}, script[:begin]...), script[begin+size:]...)
			if at, failed := fails(try); failed {
				script = try[:at]
			} else {
				begin += size
			}
		}
	}
	return script
}
