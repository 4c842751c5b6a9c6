package conformance_test

import (
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strconv"
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
	randomTrace    = flag.Bool("trace", false, "print each statement, with the transaction status and SQLSTATE that it led to")
	randomUntil    = flag.Int("until", 0, "run seed after seed until so many statements are in -log")
	randomLog      = flag.String("log", "", "append a line for each seed to this file")
	randomLabel    = flag.String("label", "", "what is tested, for -log: a commit")
	randomShrink   = flag.Int("shrink", 60, "how many replays may be spent on a shorter failure")
)

// TestRandom runs seeded random statements on Postgres and Sluice and compares every reply and, after it, every
// table. A statement that Sluice refuses with 0A000 must have changed nothing. With -until it goes on from seed to seed until so many
// statements are in the log of earlier runs and its own; a difference ends it.
func TestRandom(t *testing.T) {
	seed := *randomSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	if *randomUntil == 0 {
		randomSeedRun(t, seed)
		return
	}
	for {
		done, err := randomDone(*randomLog)
		if err != nil {
			t.Fatal(err)
		}
		if t.Logf("%d of %d statements are done", done, *randomUntil); done >= *randomUntil || !t.Run(fmt.Sprint(seed), func(t *testing.T) { randomSeedRun(t, seed) }) {
			return
		}
		seed++
	}
}

// randomSeedRun runs the statements of one seed on an empty pair.
func randomSeedRun(t *testing.T, seed uint64) {
	t.Logf("-seed %d -statements %d -lane %s", seed, *randomCount, *randomLane)
	gen, run, begin := newGenerator(seed), newRandomRun(t), time.Now()
	var script []string
	for range *randomCount {
		run.learn(gen)
		script = append(script, gen.next())
		if why := run.statement(script[len(script)-1]); why != "" {
			run.pair.Close()
			run.note(t, seed, 1, begin)
			short := shrink(t, script)
			t.Fatalf("seed %d, statement %d: %s\n%s\nshortest failing script:\n%s", seed, len(script), script[len(script)-1], why, scriptText(short))
		}
	}
	run.note(t, seed, 0, begin)
	t.Logf("%d statements, %d failed alike, %d refused with 0A000", run.done, run.failed, run.refused)
	if run.failed > run.done/2 {
		t.Errorf("%d of %d statements failed: the generator tests little", run.failed, run.done)
	}
}

// note appends a line to the log: when, seed, statements compared, failed alike, refused, differences, seconds, what was tested.
func (r *randomRun) note(t *testing.T, seed uint64, differences int, begin time.Time) {
	t.Helper()
	if *randomLog == "" {
		return
	}
	f, err := os.OpenFile(*randomLog, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintf(f, "%s\t%d\t%d\t%d\t%d\t%d\t%.0f\t%s\n", begin.UTC().Format(time.RFC3339), seed, r.done-r.refused, r.failed, r.refused, differences, time.Since(begin).Seconds(), *randomLabel)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// randomDone is the number of statements in the log.
func randomDone(path string) (n int, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	for _, line := range strings.Split(string(text), "\n") {
		if f := strings.Split(line, "\t"); len(f) > 2 && err == nil {
			m, bad := strconv.Atoi(f[2])
			n, err = n+m, bad
		}
	}
	return n, err
}

// randomRun is one replay on an empty pair.
type randomRun struct {
	pair                  *harness.Pair
	ref, got              *harness.Session
	done, failed, refused int
	learnt                bool // the generator knows the columns as they are
}

func newRandomRun(t *testing.T) *randomRun {
	t.Helper()
	r := &randomRun{pair: harness.NewPair(t)}
	r.ref, r.got = r.pair.Ref.Session("random"), r.pair.Got.Session("random")
	for _, q := range randomSchema {
		want, err := r.ref.Query(strings.TrimSuffix(q, engine))
		if err != nil || want.Err() != nil {
			t.Fatalf("%s\n%v %v", q, err, want.Err())
		}
		if !r.pair.Got.Sluice {
			q = strings.TrimSuffix(q, engine)
		}
		have, err := r.got.Query(q)
		if diff := (harness.Statement{SQL: q}).Compare(want, have); err != nil || diff != "" {
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

// keepsColumns reports whether a statement leaves tables, columns and views as they are.
func keepsColumns(text string) bool {
	word, _, _ := strings.Cut(text, " ")
	return slices.Contains([]string{"insert", "update", "delete", "merge", "copy", "fetch", "move", "truncate", "refresh", "savepoint", "set", "begin"}, word) ||
		word == "select" && !strings.Contains(text, " into ")
}

// learn tells the generator the transaction status and the columns there are now.
func (r *randomRun) learn(g *generator) {
	g.status = r.ref.Status
	if g.status == 'E' || r.learnt {
		return
	}
	reply, err := r.ref.Query(`select c.relname, a.attname, format_type(a.atttypid, a.atttypmod) from pg_attribute a join pg_class c on c.oid = a.attrelid
		where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'v') and a.attnum > 0 and not a.attisdropped order by c.relname, a.attnum`)
	if err != nil || reply.Err() != nil {
		return
	}
	r.learnt = true
	clear(g.columns)
	for _, row := range reply.Rows() {
		g.columns[*row[0]] = append(g.columns[*row[0]], column{*row[1], *row[2]})
	}
}

// statement runs one statement on both sides and says what differs.
func (r *randomRun) statement(text string) string {
	r.learnt = r.learnt && keepsColumns(text)
	st := randomStatement(text)
	have, err := st.Run(r.got)
	if err != nil {
		return "sluice: " + err.Error()
	}
	r.done++
	if *randomTrace {
		fmt.Printf("%d\t%c\t%s\t%s\n", r.done, have.Status, have.Code(), strings.ReplaceAll(text, "\n", `\n`))
	}
	if have.Code() == "0A000" && !postgresRefuses.MatchString(have.Err().Error()) {
		return r.refuse(text)
	}
	want, err := r.reference(st)
	if err != nil {
		return "postgres: " + err.Error()
	}
	if want.Err() != nil {
		r.failed++
	}
	if diff := sameAnswer(st, want, have); diff != "" {
		return diff
	}
	if strings.HasPrefix(text, "prepare transaction") { // it holds its locks: who looked at the tables would wait for ever
		return ""
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

// postgresRefuses are Postgres' own words with 0A000.
var postgresRefuses = regexp.MustCompile(`cannot truncate a table referenced in a foreign key constraint|cannot alter type of a column used by|cannot PREPARE a transaction|cursor can only scan forward`)

// refuse brings the reference, which does not run a refused statement, to the other side's transaction status.
func (r *randomRun) refuse(text string) string {
	r.refused++
	if strings.HasPrefix(text, "prepare transaction") && r.got.Status == 'I' {
		if _, err := r.ref.Query("rollback"); err != nil {
			return err.Error()
		}
	}
	if err := harness.Poison(r.ref, r.got); err != nil {
		return err.Error()
	}
	return r.state()
}

// reference runs a statement on Postgres: what a merge engine does is said with ON CONFLICT.
func (r *randomRun) reference(st harness.Statement) (harness.Reply, error) {
	if strings.HasPrefix(st.SQL, "insert into me ") && !strings.Contains(st.SQL, " on conflict ") {
		rows, returning, found := strings.Cut(st.SQL, " returning ")
		st.SQL = rows + " on conflict (id) do update set (a, b, n) = (excluded.a, excluded.b, excluded.n)"
		if found {
			st.SQL += " returning " + returning
		}
	}
	return st.Run(r.ref)
}

// randomStatement is the statement that a text stands for: with the data of a COPY, parameters, and, for two in five texts, in the extended protocol.
func randomStatement(text string) harness.Statement {
	st := harness.Statement{SQL: text}
	if sql, params, ok := strings.Cut(text, bindData); ok {
		values, formats := decodeParams(params)
		return harness.Statement{SQL: sql, Bound: &harness.Bound{Text: values, Formats: formats, Binary: len(text)%3 == 0}}
	}
	if sql, data, ok := strings.Cut(text, copyFail); ok {
		st.SQL, st.Copy = sql, &harness.CopyInput{Data: []byte(data), Fail: "the client gave up", Chunk: 7}
	} else if strings.HasPrefix(text, "copy ") {
		sql, data, _ := strings.Cut(text, copyData)
		st.SQL, st.Copy = sql, &harness.CopyInput{Data: []byte(data)}
	}
	if strings.HasPrefix(text, severalMark) {
		st.Shuffled = true // an ORDER BY is only one statement's
		return st
	}
	h := fnv.New32a()
	h.Write([]byte(text))
	if h.Sum32()%5 < 2 && !strings.HasPrefix(text, "copy vk from") { // refused before the data: the harness has sent a second Sync then
		st.Bound = &harness.Bound{}
	}
	return st
}

// scriptText prints statements as a script of testdata/sql.
func scriptText(texts []string) string {
	var out strings.Builder
	for _, text := range texts {
		sql, params, bound := strings.Cut(text, bindData)
		sql, failed, broken := strings.Cut(sql, copyFail)
		sql, data, fed := strings.Cut(sql, copyData)
		switch st := randomStatement(text); {
		case bound:
			fmt.Fprintf(&out, "bind %s:\n", params)
		case strings.HasPrefix(text, severalMark):
			fmt.Fprintf(&out, "multi:\n%s;\nend:\n", sql)
			continue
		case broken:
			fmt.Fprint(&out, "copyfail the client gave up:\nchunk 7:\n")
		case st.Bound != nil:
			fmt.Fprint(&out, "bind []:\n")
		}
		if fmt.Fprintf(&out, "%s;\n", sql); fed || broken {
			fmt.Fprintf(&out, "%s\\.\n", data+failed)
		}
	}
	return out.String()
}

// sameAnswer compares replies. Where several rows of a statement break something, the server may meet any of
// them first: two errors of the classes 22, 23, 21 and 44 are alike; with one row they have to be the same.
func sameAnswer(st harness.Statement, want, have harness.Reply) string {
	w, h := want.Code(), have.Code()
	if w == "" || h == "" || w == h && !dataError(w) {
		return st.Compare(want, have)
	}
	if dataError(w) && dataError(h) && want.Status == have.Status && (w == h || manyRows(st.SQL)) {
		return ""
	}
	return st.Compare(want, have)
}

func dataError(code string) bool {
	return code[:2] == "22" || code[:2] == "23" || code == "21000" || code == "44000"
}

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

// shrink looks for a shorter script whose last statement still fails: among the script's ends first, then by leaving out ever smaller pieces.
func shrink(t *testing.T, script []string) []string {
	t.Helper()
	replays := 0
	end := time.Now().Add(*randomPatience)
	more := func() bool { return replays < *randomShrink && time.Now().Before(end) }
	fails := func(try []string) bool {
		replays++
		at, ok := 0, true
		t.Run(fmt.Sprintf("replay%d", replays), func(t *testing.T) {
			run := newRandomRun(t)
			for ; at < len(try) && ok; at++ {
				ok = run.statement(try[at]) == "" && (at < len(try)-1 || run.state() == "")
			}
		})
		return !ok && at == len(try)
	}
	for n := 10; n < len(script) && more(); n *= 3 {
		if try := script[len(script)-n:]; fails(try) {
			script = try
		}
	}
	for size := len(script) / 2; size > 0 && more(); size /= 2 {
		for begin := 0; begin+size < len(script) && more(); {
			if try := append(append([]string{}, script[:begin]...), script[begin+size:]...); fails(try) {
				script = try
			} else {
				begin += size
			}
		}
	}
	return script
}
