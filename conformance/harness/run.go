package harness

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Mode is how statements without their own choice are sent.
type Mode struct {
	Extended bool   // Parse/Bind/Execute instead of Query
	Flush    bool   // move the tail into files after every statement that leaves no transaction open
	Lane     string // SET sluice.lane in every session
	Show     bool   // log what Postgres answers, for the author of a script

	Refused func(message string) // is told what Sluice refuses, if not nil
}

// Run executes the script on both sides of the pair and reports every difference with file and line.
func (s *Script) Run(t testing.TB, p *Pair, mode Mode) {
	t.Helper()
	r := &scriptRun{t: t, pair: p, mode: mode, script: s, current: "a", waiting: map[string]*pending{}, seen: map[string]bool{}}
	for i := range s.Steps {
		r.line = s.Steps[i].Line
		if !r.step(&s.Steps[i]) {
			return
		}
	}
	for name := range r.waiting {
		r.fatalf("session %s still waits at the end", name)
		return
	}
	r.compareState()
}

type scriptRun struct {
	t       testing.TB
	pair    *Pair
	mode    Mode
	script  *Script
	line    int
	current string
	only    string // who runs the next statement: "", "sluice only", "postgres only", "refused", "waits"
	code    string // SQLSTATE of a refusal other than 0A000
	waiting map[string]*pending
	seen    map[string]bool // sessions that have been set up
}

// pending is a statement that was sent and has not returned.
type pending struct {
	st       Statement
	ref, got chan answer
}

type answer struct {
	reply Reply
	err   error
}

func (r *scriptRun) errorf(format string, args ...any) {
	r.t.Helper()
	r.t.Errorf("%s:%d: %s", filepath.Base(r.script.Name), r.line, fmt.Sprintf(format, args...))
}

// fatalf reports a failure after which the rest of the script means nothing.
func (r *scriptRun) fatalf(format string, args ...any) bool {
	r.t.Helper()
	r.errorf(format, args...)
	return false
}

// step says whether the script can go on.
func (r *scriptRun) step(st *Step) bool {
	r.t.Helper()
	switch st.Verb {
	case "session":
		r.current = st.Arg
	case "close":
		r.pair.Ref.Disconnect(st.Arg)
		r.pair.Got.Disconnect(st.Arg)
		delete(r.seen, st.Arg)
	case "waits", "sends", "refused", "either", "unchecked", "sluice only", "postgres only":
		r.only, r.code = st.Verb, st.Arg
	case "returns":
		return r.returns(st.Arg)
	case "deadlock":
		return r.deadlock(strings.Fields(st.Arg))
	case "flush":
		return r.flush()
	case "state":
		return r.compareState()
	case "multi":
		return r.statement(st.Statement)
	default:
		if r.mode.Extended && st.Bound == nil {
			st.Statement.Bound = &Bound{}
		}
		return r.statement(st.Statement)
	}
	return true
}

// sessions are the two ends of the current session, set up at first use.
func (r *scriptRun) sessions() (ref, got *Session) {
	r.t.Helper()
	ref, got = r.pair.Ref.Session(r.current), r.pair.Got.Session(r.current)
	if !r.seen[r.current] {
		r.seen[r.current] = true
		if r.mode.Lane != "" && r.pair.Got.Sluice {
			mustExec(r.t, got, "set sluice.lane = '"+r.mode.Lane+"'")
		}
	}
	return ref, got
}

func (r *scriptRun) statement(st Statement) bool {
	r.t.Helper()
	who := r.only
	r.only = ""
	ref, got := r.sessions()
	switch who {
	case "waits":
		return r.wait(st, ref, got)
	case "sends":
		r.waiting[r.current] = &pending{st: st, ref: start(st, ref), got: start(st, got)}
		return true
	case "refused":
		return r.refused(st, ref, got)
	case "either":
		return r.either(st, ref, got)
	case "sluice only":
		return !r.pair.Got.Sluice || r.alone(st, got)
	case "postgres only":
		return r.alone(st, ref) && (r.pair.Got.Sluice || r.alone(st, got))
	}
	want, have, err := Both(ref, got, st)
	if err != nil {
		return r.fatalf("%s\n%v", st.SQL, err)
	}
	if r.mode.Show {
		r.t.Logf("%s> %s\n%s", r.current, st.SQL, strings.Join(want.Lines(true), "\n"))
	}
	if who == "unchecked" {
		want, have = outcome(want), outcome(have)
	}
	if diff := st.Compare(want, have); diff != "" {
		r.errorf("%s\n%s", st.SQL, diff)
	}
	if r.mode.Flush && got.Status == 'I' && len(r.waiting) == 0 {
		return r.flush()
	}
	return true
}

func (r *scriptRun) alone(st Statement, s *Session) bool {
	r.t.Helper()
	reply, err := st.Run(s)
	if err == nil {
		err = reply.Err()
	}
	if err != nil {
		return r.fatalf("%s\n%v", st.SQL, err)
	}
	return true
}

// refused checks that Sluice says 0A000 and that nothing has changed.
func (r *scriptRun) refused(st Statement, ref, got *Session) bool {
	r.t.Helper()
	if !r.pair.Got.Sluice {
		return true
	}
	reply, err := st.Run(got)
	if err != nil {
		return r.fatalf("%s\n%v", st.SQL, err)
	}
	code := "0A000"
	if r.code != "" {
		code = r.code
	}
	if reply.Code() != code {
		r.errorf("%s\nwant a refusal with %s, got:\n%s", st.SQL, code, strings.Join(reply.Lines(false), "\n"))
	}
	if r.mode.Refused != nil && reply.Err() != nil {
		var f *Failure
		if errors.As(reply.Err(), &f) {
			r.mode.Refused(f.Message)
		}
	}
	if err := Poison(ref, got); err != nil {
		return r.fatalf("%v", err)
	}
	return r.compareState()
}

// either lets Sluice refuse what Postgres does; the reference is then brought to the same transaction status.
func (r *scriptRun) either(st Statement, ref, got *Session) bool {
	r.t.Helper()
	refused, diff, err := SameOrRefused(ref, got, st)
	if err != nil {
		return r.fatalf("%s\n%v", st.SQL, err)
	}
	if diff != "" {
		r.errorf("%s\n%s", st.SQL, diff)
	}
	if refused {
		r.t.Logf("%s:%d: refused: %s", filepath.Base(r.script.Name), r.line, st.SQL)
		return r.compareState()
	}
	return true
}

// outcome keeps of a reply only whether it failed, and how.
func outcome(r Reply) Reply {
	out := Reply{Status: r.Status}
	for _, res := range r.Results {
		if res.Fail != nil {
			out.Results = append(out.Results, Result{Fail: res.Fail})
		}
	}
	return out
}

func (r *scriptRun) flush() bool {
	r.t.Helper()
	if err := r.pair.Got.Flush(); err != nil {
		return r.fatalf("flush: %v", err)
	}
	return true
}

func (r *scriptRun) compareState() bool {
	r.t.Helper()
	diff, err := r.pair.SameState()
	if err != nil {
		return r.fatalf("state: %v", err)
	}
	if diff != "" {
		r.errorf("the tables differ:\n%s", diff)
	}
	return true
}

// settle is how long a statement that must wait is watched for an answer it must not give.
const settle = 150 * time.Millisecond

func start(st Statement, s *Session) chan answer {
	c := make(chan answer, 1)
	go func() {
		reply, err := st.Run(s)
		c <- answer{reply, err}
	}()
	return c
}

// wait sends the statement to both sides and sees that neither answers. On Postgres the wait is read from
// pg_stat_activity; on Sluice the only proof from outside is that no answer comes.
func (r *scriptRun) wait(st Statement, ref, got *Session) bool {
	r.t.Helper()
	p := &pending{st: st, ref: start(st, ref), got: start(st, got)}
	r.waiting[r.current] = p
	blocked := fmt.Sprintf("select count(*) from pg_stat_activity where pid = %d and wait_event_type = 'Lock'", ref.PID)
	if !Poll(5*time.Second, func() bool { return *mustExec(r.t, r.pair.Ref.Control(), blocked).Rows()[0][0] == "1" }) {
		return r.fatalf("%s\nthe script is wrong: Postgres does not wait", st.SQL)
	}
	select {
	case a := <-p.got:
		return r.fatalf("%s\nmust wait, but answered: %v %v", st.SQL, a.reply.Lines(false), a.err)
	case <-time.After(settle):
		return true
	}
}

// await takes the answer of a waiting session from both sides.
func (r *scriptRun) await(name string) (want, have Reply, st Statement, ok bool) {
	r.t.Helper()
	p := r.waiting[name]
	if p == nil {
		return want, have, st, r.fatalf("session %s does not wait", name)
	}
	delete(r.waiting, name)
	a, b := <-p.ref, <-p.got
	if a.err != nil || b.err != nil {
		return want, have, st, r.fatalf("%s\npostgres: %v\nsluice: %v", p.st.SQL, a.err, b.err)
	}
	return a.reply, b.reply, p.st, true
}

func (r *scriptRun) returns(name string) bool {
	r.t.Helper()
	want, have, st, ok := r.await(name)
	if !ok {
		return false
	}
	if diff := st.Compare(want, have); diff != "" {
		r.errorf("%s (waited)\n%s", st.SQL, diff)
	}
	return true
}

// deadlock expects exactly one victim among two sessions that wait for each other; which one is the server's
// choice. Its locks are gone with the error, so the other returns by itself.
func (r *scriptRun) deadlock(names []string) bool {
	r.t.Helper()
	if len(names) != 2 || r.waiting[names[0]] == nil || r.waiting[names[1]] == nil {
		return r.fatalf("deadlock needs two sessions that wait")
	}
	a, b := r.waiting[names[0]], r.waiting[names[1]]
	delete(r.waiting, names[0])
	delete(r.waiting, names[1])
	return r.victim(r.pair.Ref, names, <-a.ref, <-b.ref) && r.victim(r.pair.Got, names, <-a.got, <-b.got)
}

// victim checks the two answers of one side and rolls both transactions back.
func (r *scriptRun) victim(side *Side, names []string, answers ...answer) bool {
	r.t.Helper()
	victims := 0
	for i, a := range answers {
		switch {
		case a.err != nil:
			return r.fatalf("%s: session %s: %v", side.Name, names[i], a.err)
		case a.reply.Code() == "40P01":
			victims++
		case a.reply.Err() != nil:
			return r.fatalf("%s: session %s: %v", side.Name, names[i], a.reply.Err())
		}
	}
	if victims != 1 {
		return r.fatalf("%s: deadlock: %d sessions failed with 40P01, want one", side.Name, victims)
	}
	for _, n := range names {
		mustExec(r.t, side.Session(n), "rollback")
	}
	return true
}
