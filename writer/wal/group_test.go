package wal

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"sluice/writer/invariants"
	"sluice/writer/table"
)

// slowLog is a log over a device whose syncs last until every client has a commit on its way. Each client commits one row after the
// other.
type slowLog struct {
	*Log
	clients int

	mu        sync.Mutex // over the rest
	moved     *sync.Cond
	next      table.Position
	waiting   int // commits on their way
	finished  int // clients that have no more
	syncs     int
	failAt    int // this sync fails; 0: none
	published table.Position
	groups    map[table.Position]*Group
}

func newSlowLog(t *testing.T, clients, failAt int) *slowLog {
	d := newMemFolder()
	l, _ := replayAll(t, d, 8<<20, everyType()) // one segment is enough
	s := &slowLog{Log: l, clients: clients, next: 1, failAt: failAt, groups: map[table.Position]*Group{}}
	s.moved = sync.NewCond(&s.mu)
	d.hook = func(op, name string) error {
		if op != "sync" || !strings.HasSuffix(name, ".wal") {
			return nil
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for s.waiting+s.finished < s.clients {
			s.moved.Wait()
		}
		if s.syncs++; s.syncs == s.failAt {
			return errEffect
		}
		return nil
	}
	return s
}

// commit enqueues one row.
func (s *slowLog) commit() (*Group, table.Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := &Txn{Kind: Commit, Tables: []TableOps{{Table: 1, Schema: 1, Rows: seeded(uint64(s.next)).batch(everyType(), 1)}}}
	pos := s.next
	s.next++
	s.waiting++
	s.moved.Broadcast()
	s.groups[pos] = s.Enqueue(Encode(x), pos, []uint64{uint64(pos)})
	return s.groups[pos], pos
}

// publish is what Run calls.
func (s *slowLog) publish(t *testing.T, frames []*Frame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range frames {
		if s.published++; f.Txn().Position != s.published {
			t.Errorf("position %d is published after %d", f.Txn().Position, s.published-1)
		}
		select {
		case <-s.groups[s.published].Done():
			t.Errorf("position %d was acknowledged before it was published", s.published)
		default:
		}
	}
	s.waiting -= len(frames)
}

// client makes n commits, one after the other, until one fails.
func (s *slowLog) client(t *testing.T, n int) {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.finished++
		s.moved.Broadcast()
	}()
	for range n {
		g, pos := s.commit()
		<-g.Done()
		s.mu.Lock()
		published := s.published
		s.mu.Unlock()
		switch err := g.Err(); {
		case err == nil && pos > published:
			t.Errorf("position %d is acknowledged, published is %d", pos, published)
		case err != nil && pos <= published:
			t.Errorf("position %d is published up to %d, and fails: %v", pos, published, err)
		case err != nil:
			var u *UnknownError
			if s.failAt == 0 || !errors.As(err, &u) {
				t.Errorf("position %d: %v", pos, err)
			}
			return
		}
	}
}

func (s *slowLog) run(t *testing.T, commits int) error {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, func(fs []*Frame) { s.publish(t, fs) }) }()
	var clients sync.WaitGroup
	for range s.clients {
		clients.Go(func() { s.client(t, commits) })
	}
	clients.Wait()
	cancel()
	return <-done
}

// TestGroupCommit: alone, a commit costs one sync and lasts as long; many share them, so that commits a sync rise with the clients. A
// group is published in the order of its positions, and nobody is told before.
//
// claims: M29 M32
func TestGroupCommit(t *testing.T) {
	const commits = 20
	for _, clients := range []int{1, 64} {
		s := newSlowLog(t, clients, 0)
		if err := s.run(t, commits); err != nil {
			t.Fatal(err)
		}
		if s.published != table.Position(clients*commits) {
			t.Errorf("%d clients: published up to %d", clients, s.published)
		}
		if clients == 1 && s.syncs != commits || s.syncs > 2*commits+1 {
			t.Errorf("%d clients made %d commits with %d syncs", clients, s.published, s.syncs)
		}
	}
}

// TestGroupFails: when a sync fails, no commit of its group or behind it is acknowledged.
//
// claims: M29
func TestGroupFails(t *testing.T) {
	s := newSlowLog(t, 64, 5)
	var u *UnknownError
	if err := s.run(t, 20); !errors.As(err, &u) {
		t.Errorf("run: %v", err)
	}
	if s.syncs != 5 || s.published == 0 || s.published >= 64*4 {
		t.Errorf("%d syncs, published up to %d", s.syncs, s.published)
	}
}

// TestTimes: commit times never go back, though the clock does and commits overtake each other, over a restart too.
//
// claims: M28
func TestTimes(t *testing.T) {
	for _, size := range []int64{8 << 10, 1 << 20} { // the last frame before the restart is in its own segment, or not
		times(t, size)
	}
}

func times(t *testing.T, size int64) {
	d, s := newMemFolder(), everyType()
	l, _ := replayAll(t, d, size, s)
	at := func(times ...int64) {
		t.Helper()
		var all []*Txn
		for _, us := range times {
			all = append(all, &Txn{Kind: Commit, Time: us, Tables: []TableOps{{Table: 1, Schema: 1, Rows: seeded(uint64(us)).batch(s, 3)}}})
		}
		appendGroup(t, l, all...)
	}
	at(100, 90, 120)
	at(70)
	l, _ = replayAll(t, d, size, s)
	at(60, 130)
	var got []int64
	if _, err := reopen(d, size, 1, s, func(x *Txn) error {
		if int(x.Position) != len(got)+1 {
			t.Errorf("position %d after %d", x.Position, len(got))
		}
		got = append(got, x.Time)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	want := []int64{100, 100, 120, 120, 120, 130}
	for i := range want {
		if len(got) != len(want) || got[i] != want[i] {
			t.Fatalf("times %v, want %v", got, want)
		}
	}
}

// TestEnqueueRefuses: positions are the sequencer's; one that comes again, goes back or leaves a gap is never written, and nothing after
// it. (Checked builds stop at once.)
//
// claims: P29
func TestEnqueueRefuses(t *testing.T) {
	if invariants.Enabled {
		t.Skip("a checked build panics")
	}
	for _, pos := range []table.Position{0, 1, 2, 4, ^table.Position(0)} {
		d, s := newMemFolder(), everyType()
		l, _ := replayAll(t, d, 64<<10, s)
		want := appendGroup(t, l, seeded(1).txn(s), seeded(2).txn(s))
		x := seeded(3).txn(s)
		if g := l.Enqueue(Encode(x), pos, firsts(x, 1)); g.Err() == nil {
			t.Errorf("position %d after 2 is taken", pos)
		}
		if g := l.Enqueue(Encode(x), 3, firsts(x, 1)); g.Err() == nil {
			t.Errorf("position 3 is taken after %d was refused", pos)
		}
		_, got := replayAll(t, d, 64<<10, s)
		equal(t, "replay", got, want)
	}
}
