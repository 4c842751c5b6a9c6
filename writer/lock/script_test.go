package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"sluice/writer/lock"
	"sluice/writer/table"
)

// TestScripts runs testdata. After each command it says which waits have ended, in order of the owners' names. The verbs:
//
//	begin A B                                         owners; their ids are 1, 2, …
//	lock A MODE row=N|file=(F,N)|unique=(I,HASH)|table=T [nowait] [skip-locked] [timeout=5s]
//	keys A I HASH …  [nowait]                         locks keys of unique index I
//	mark A                                            prints the mark
//	release-to A mark=M
//	release A                                         everything
//	cancel A                                          cancels the context of A's wait
//	wait 1s                                           lets the time pass
//	rename row=N to=(F,N)                              the row has moved to a file
//	move row=N row=N                                   the row has a newer version
//	show                                              the locks
//	waits                                             the wait graph
//	outside A>B B>C                                   who waits for whom outside, from now on
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := newScript()
		datadriven.RunTest(t, path, s.run)
		s.end(t)
	})
}

type script struct {
	locks    *lock.Locks
	clock    *clock
	sessions map[string]*session
	events   chan event
}

type session struct {
	name    string
	owner   *lock.Owner
	pending bool // an Acquire is running
	cancel  context.CancelFunc
	result  string
}

// event is what a waiting goroutine tells the script: it waits, it has looked for a deadlock, or it has a result.
type event struct {
	owner  lock.OwnerID
	result string // "" for the first two
}

func newScript() *script {
	s := &script{clock: &clock{}, sessions: map[string]*session{}, events: make(chan event, 100)}
	s.locks = lock.New(lock.Options{DeadlockTimeout: time.Second, Clock: s.clock.timer})
	tell := func(o *lock.Owner) { s.events <- event{owner: o.ID()} }
	s.locks.OnWait(tell)
	s.locks.OnCheck(tell)
	return s
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	var out strings.Builder
	args := make([]string, len(d.CmdArgs))
	for i, a := range d.CmdArgs {
		args[i] = a.String()
	}
	switch d.Cmd {
	case "begin":
		for _, n := range args {
			s.sessions[n] = &session{name: n, owner: s.locks.NewOwner()}
		}
	case "lock":
		out.WriteString(s.lock(t, args))
	case "keys":
		out.WriteString(s.keys(args))
	case "mark":
		fmt.Fprintf(&out, "%d\n", s.sessions[args[0]].owner.Mark())
	case "release-to":
		m := 0
		d.ScanArgs(t, "mark", &m)
		s.sessions[args[0]].owner.ReleaseTo(lock.Mark(m))
	case "release":
		s.sessions[args[0]].owner.ReleaseAll()
	case "cancel":
		s.sessions[args[0]].cancel()
		s.await(s.sessions[args[0]])
	case "wait":
		s.advance(t, args[0])
	case "rename":
		s.rename(t, d)
	case "move":
		s.locks.Move(keyOf(t, args[0]), keyOf(t, args[1]))
	case "show":
		out.WriteString(s.show())
	case "waits":
		out.WriteString(s.waits())
	case "outside":
		s.outside(args)
	default:
		t.Fatalf("unknown verb %s", d.Cmd)
	}
	s.settle(&out)
	if err := s.locks.Audit(); err != nil {
		t.Fatalf("%s: %v", d.Pos, err)
	}
	return out.String()
}

func (s *script) lock(t *testing.T, args []string) string {
	x := s.sessions[args[0]]
	mode := modeOf(t, args[1])
	k := keyOf(t, args[2])
	w := waitOf(t, args[3:])
	return s.start(x, func(ctx context.Context, o *lock.Owner) (bool, error) { return o.Acquire(ctx, k, mode, w) })
}

// start runs a request until it has ended or waits.
func (s *script) start(x *session, do func(context.Context, *lock.Owner) (bool, error)) string {
	ctx, cancel := context.WithCancel(context.Background())
	x.pending, x.cancel, x.result = true, cancel, ""
	go func() {
		defer cancel()
		waited, err := do(ctx, x.owner)
		s.events <- event{owner: x.owner.ID(), result: s.describe(waited, err)}
	}()
	s.take(<-s.events)
	if x.result == "" {
		return "waits\n"
	}
	x.pending = false
	return x.result
}

func (s *script) keys(args []string) string {
	var w lock.Wait
	if n := len(args) - 1; args[n] == "nowait" {
		w.Policy, args = lock.NoWait, args[:n]
	}
	var space uint32
	fmt.Sscan(args[1], &space)
	hashes := make([]uint64, len(args)-2)
	for i := range hashes {
		fmt.Sscan(args[2+i], &hashes[i])
	}
	return s.start(s.sessions[args[0]], func(ctx context.Context, o *lock.Owner) (bool, error) {
		return o.AcquireKeys(ctx, 7, space, hashes, w)
	})
}

func (s *script) describe(waited bool, err error) string {
	text := "granted\n"
	if err != nil {
		text = err.Error() + "\n"
	}
	var dead *lock.DeadlockError
	if errors.As(err, &dead) {
		text += dead.Detail(func(id lock.OwnerID) string { return s.nameOf(id) }) + "\n"
	}
	if waited {
		text = "waited, " + text
	}
	return text
}

func (s *script) nameOf(id lock.OwnerID) string {
	for n, x := range s.sessions {
		if x.owner.ID() == id {
			return n
		}
	}
	return "?"
}

func (s *script) take(e event) {
	for _, x := range s.sessions {
		if x.owner.ID() == e.owner && e.result != "" {
			x.result = e.result
		}
	}
}

func (s *script) await(x *session) {
	for x.result == "" {
		s.take(<-s.events)
	}
}

// quiet waits for every Acquire that has left its queue, so that its timers are stopped.
func (s *script) quiet() {
	for _, x := range s.sorted() {
		if x.pending && !x.owner.Waiting() {
			s.await(x)
		}
	}
}

// settle waits for every Acquire that is not in a queue any more and prints how it ended.
func (s *script) settle(out *strings.Builder) {
	for _, x := range s.sorted() {
		if !x.pending || x.owner.Waiting() {
			continue
		}
		s.await(x)
		x.pending = false
		fmt.Fprintf(out, "%s: %s", x.name, x.result)
	}
}

func (s *script) sorted() []*session {
	var all []*session
	for _, x := range s.sessions {
		all = append(all, x)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].name < all[j].name })
	return all
}

// advance fires the timers one by one and waits for what each leads to.
func (s *script) advance(t *testing.T, text string) {
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	end := s.clock.now + d
	for tm := s.clock.next(end); tm != nil; tm = s.clock.next(end) {
		s.clock.now = tm.at
		tm.fire <- time.Time{}
		s.take(<-s.events)
		s.quiet()
	}
	s.clock.now = end
}

func (s *script) rename(t *testing.T, d *datadriven.TestData) {
	var from, dest lock.Key
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "row":
			from = keyOf(t, a.String())
		case "to":
			dest = keyOf(t, "file="+strings.Join(a.Vals, ","))
		}
	}
	s.locks.Rename(func(k lock.Key) (lock.Key, bool) { return dest, k == from })
}

func (s *script) show() string {
	var out strings.Builder
	for _, l := range s.locks.Snapshot() {
		state := "has"
		if !l.Granted {
			state = "waits for"
		}
		fmt.Fprintf(&out, "%s %s %v on %v\n", s.nameOf(l.Owner), state, l.Mode, l.Key)
	}
	return out.String()
}

func (s *script) waits() string {
	var out strings.Builder
	for _, e := range s.locks.Waiters() {
		fmt.Fprintf(&out, "%s -> %s", s.nameOf(e.Waiter), s.nameOf(e.Blocker))
		if e.Queued {
			fmt.Fprint(&out, " (queued)")
		}
		fmt.Fprintf(&out, " %v on %v\n", e.Mode, e.Key)
	}
	return out.String()
}

func (s *script) outside(args []string) {
	var edges []lock.Edge
	for _, a := range args {
		from, to, _ := strings.Cut(a, ">")
		edges = append(edges, lock.Edge{Waiter: s.sessions[from].owner.ID(), Blocker: s.sessions[to].owner.ID(), Outside: true})
	}
	s.locks.SetOutside(func(context.Context) []lock.Edge { return edges })
}

// end lets everybody go, so that no goroutine is left.
func (s *script) end(t *testing.T) {
	for _, x := range s.sorted() {
		if x.pending {
			x.cancel()
			s.await(x)
		}
		x.owner.ReleaseAll()
	}
	if n := s.locks.Len(); n != 0 {
		t.Fatalf("%d entries left", n)
	}
}

func modeOf(t *testing.T, name string) lock.Mode {
	for m := lock.ForKeyShare; m <= lock.AccessExclusive; m++ {
		if m.String() == name || m.String() == name+"Lock" {
			return m
		}
	}
	t.Fatalf("unknown mode %s", name)
	return 0
}

func keyOf(t *testing.T, text string) lock.Key {
	kind, rest, _ := strings.Cut(text, "=")
	rest = strings.Trim(strings.ReplaceAll(rest, ",", " "), "()")
	var a, b uint64
	fmt.Sscan(rest, &a, &b)
	switch kind {
	case "row":
		return row(a)
	case "file":
		return lock.Row(7, table.Ref{File: table.FileID(a), Row: b})
	case "unique":
		return lock.Key{Table: 7, Space: uint32(a), A: b}
	case "table":
		return lock.Table(table.ID(a))
	}
	t.Fatalf("unknown key %s", text)
	return lock.Key{}
}

func waitOf(t *testing.T, args []string) (w lock.Wait) {
	for _, a := range args {
		key, text, _ := strings.Cut(a, "=")
		switch key {
		case "nowait":
			w.Policy = lock.NoWait
		case "skip-locked":
			w.Policy = lock.SkipLocked
		case "timeout":
			w.Timeout, _ = time.ParseDuration(text)
		default:
			t.Fatalf("unknown word %s", a)
		}
	}
	return w
}

// clock is a clock that stands still until it is told to go on.
type clock struct {
	mu     sync.Mutex
	now    time.Duration
	timers []*timer
}

type timer struct {
	at   time.Duration
	fire chan time.Time
}

func (c *clock) timer(d time.Duration) (<-chan time.Time, func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &timer{at: c.now + d, fire: make(chan time.Time, 1)}
	c.timers = append(c.timers, t)
	return t.fire, func() bool { return c.remove(t) }
}

func (c *clock) remove(t *timer) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.timers, t)
	if i >= 0 {
		c.timers = slices.Delete(c.timers, i, i+1)
	}
	return i >= 0
}

// next takes out the timer that is due first, up to end.
func (c *clock) next(end time.Duration) *timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	var first *timer
	for _, t := range c.timers {
		if t.at <= end && (first == nil || t.at < first.at) {
			first = t
		}
	}
	c.timers = slices.DeleteFunc(c.timers, func(t *timer) bool { return t == first })
	return first
}
