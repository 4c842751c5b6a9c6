package wal

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"sluice/writer/table"
)

// TestMain fails the package if a test leaves a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// roundTrip encodes, patches and decodes t.
func roundTrip(t *Txn, s *table.Schema, alias bool) (*Txn, error) {
	f := Encode(t)
	f.patch(7, 3, 4, 5, firsts(t, 10))
	h, ok := readHeader(f.bytes, int64(len(f.bytes)))
	if !ok || !h.verify(f.bytes, 7) || !h.verifyFrame(f.bytes) || !h.known() || h.length != int64(len(f.bytes)) {
		return nil, fmt.Errorf("bad header %+v", h)
	}
	if n := bound(t); len(f.bytes) > n {
		return nil, fmt.Errorf("frame of %d bytes, bound %d", len(f.bytes), n)
	}
	return decode(f.bytes, &h, schemaOf(s), alias)
}

func TestRoundTrip(t *testing.T) {
	s := everyType()
	rapid.Check(t, func(rt *rapid.T) {
		d := seeded(rapid.Uint64().Draw(rt, "seed"))
		want := d.txn(s)
		got, err := roundTrip(want, s, d(2) == 0)
		if err != nil {
			rt.Fatal(err)
		}
		if g, w := printTxn(got), printTxn(want); g != w {
			rt.Fatalf("got\n%s\nwant\n%s", g, w)
		}
	})
}

// TestDecodedGrows checks that a decoded vector is an ordinary one: values can be appended to it.
func TestDecodedGrows(t *testing.T) {
	s := everyType()
	for _, rows := range []int{3, 20} {
		for _, alias := range []bool{false, true} {
			d := seeded(uint64(rows))
			in := d.batch(s, rows)
			got, err := roundTrip(&Txn{Kind: Commit, Tables: []TableOps{{Table: 1, Rows: in}}}, s, alias)
			if err != nil {
				t.Fatal(err)
			}
			out, more := got.Tables[0].Rows, seeded(9).batch(s, 40)
			out.AppendRange(more, 0, 40)
			in.AppendRange(more, 0, 40)
			if g, w := printBatch(out), printBatch(in); g != w {
				t.Fatalf("got\n%s\nwant\n%s", g, w)
			}
		}
	}
}

// TestEncodeView encodes a stable view of a batch whose owner goes on appending.
func TestEncodeView(t *testing.T) {
	s := everyType()
	owner := seeded(1).batch(s, 21)
	view := owner.Snap()
	want := printBatch(view)
	owner.AppendRange(seeded(2).batch(s, 30), 0, 30)
	got, err := roundTrip(&Txn{Kind: Commit, Tables: []TableOps{{Table: 1, Rows: view}}}, s, false)
	if err != nil {
		t.Fatal(err)
	}
	if g := printBatch(got.Tables[0].Rows); g != want {
		t.Fatalf("got\n%s\nwant\n%s", g, want)
	}
}

func TestDroppedTable(t *testing.T) {
	s := everyType()
	x := &Txn{Kind: Commit}
	for id := range 3 {
		x.Tables = append(x.Tables, TableOps{Table: table.ID(id), Rows: seeded(uint64(id)).batch(s, 10*id+1)})
	}
	f := Encode(x)
	f.patch(0, 1, 1, 1, firsts(x, 10))
	h, _ := readHeader(f.bytes, int64(len(f.bytes)))
	got, err := decode(f.bytes, &h, func(id table.ID, _ int) (*table.Schema, error) {
		if id == 1 {
			return nil, nil
		}
		return s, nil
	}, false)
	if err != nil {
		t.Fatal(err)
	}
	x.Tables = append(x.Tables[:1:1], x.Tables[2])
	if g, w := printTxn(got), printTxn(x); g != w {
		t.Fatalf("got\n%s\nwant\n%s", g, w)
	}
}

// TestRecycle also asks for positions that are trimmed, and for those that are not there: an error, never only a part.
//
// claims: P48
func TestRecycle(t *testing.T) {
	s, d := everyType(), newMemFolder()
	const size = 16 << 10
	l, _ := replayAll(t, d, size, s)
	var all []string
	for i := range 60 {
		all = append(all, appendGroup(t, l, seeded(uint64(i)).txn(s), seeded(uint64(i+1000)).txn(s))...)
		if i%7 == 6 {
			if err := l.Trim(context.Background(), l.next-4); err != nil {
				t.Fatal(err)
			}
		}
	}
	st := l.Stats()
	if st.Spares > 2 || st.Last != 120 || st.First > 116 || st.First < 90 {
		t.Fatalf("stats %+v", st)
	}
	var got []string
	if _, err := reopen(d.copyOf(), size, st.First, s, func(t *Txn) error { got = append(got, printTxn(t)); return nil }); err != nil {
		t.Fatal(err)
	}
	equal(t, "replay after recycling", got, all[st.First-1:])
	if _, err := reopen(d.copyOf(), size, st.First-1, s, nil); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("replay from a trimmed position: %v", err)
	}
	if _, err := reopen(d.copyOf(), size, 122, s, func(*Txn) error { return nil }); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("replay from behind the end: %v", err)
	}
}

// TestFlipEveryBit flips one bit in every byte of a small log: it is found, or it is in the append that may be torn, or
// nothing lies there.
//
// claims: M41
func TestFlipEveryBit(t *testing.T) {
	s, d := &table.Schema{ID: 1, Columns: []table.Column{{Type: table.Type{Kind: table.Int64}}, {Type: table.Type{Kind: table.String}}}}, newMemFolder()
	const size = 8 << 10
	l, _ := replayAll(t, d, size, s)
	var all []string
	for i, rows := range []int{1, 17, 20, 3, 20, 2} {
		x := func(k int) *Txn {
			return &Txn{Kind: Commit, Writer: "w", Tables: []TableOps{{Table: 5, Schema: 1, Rows: seeded(uint64(i+k)).batch(s, rows)}}}
		}
		all = append(all, appendGroup(t, l, x(0), x(50))...)
	}
	if len(l.segments) < 2 {
		t.Fatalf("%d segments", len(l.segments))
	}
	last := l.segments[len(l.segments)-1]
	torn := int64(0) // where the last append begins
	for _, sg := range l.segments {
		name := sg.name()
		r := newScan(mustOpen(t, d, name), &sg, l.seed, sg.end)
		for r.off < sg.end {
			if _, _, _, err := r.frame(); err != nil {
				t.Fatal(err)
			}
		}
		torn = r.appendOff
		end := sg.end
		for off := range len(d.raw(name)) {
			c := d.copyOf()
			c.raw(name)[off] ^= 1 << (off % 8)
			var read []*Txn
			_, err := reopen(c, size, 1, s, func(t *Txn) error { read = append(read, t); return nil })
			switch {
			case int64(off) >= end:
				if err != nil || len(read) != len(all) {
					t.Fatalf("%s %d: behind the end: %v, %d read", name, off, err, len(read))
				}
			case name == last.name() && int64(off) >= torn:
				if err != nil || len(read) < len(all)-2 || len(read) >= len(all) {
					t.Fatalf("%s %d: in the last append: %v, %d read", name, off, err, len(read))
				}
				for i, x := range read {
					equal(t, "prefix", []string{printTxn(x)}, all[i:i+1])
				}
			case !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion):
				t.Fatalf("%s %d: not found: %v", name, off, err)
			}
		}
	}
}

func mustOpen(t *testing.T, d folder, name string) file {
	f, err := d.open(name)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestPowerFailure runs a log over a device that loses power after some number of operations, again and again, and
// checks after each restart that what was acknowledged is there, in order, and that nothing is half there.
//
// claims: M5
func TestPowerFailure(t *testing.T) {
	s := &table.Schema{ID: 1, Columns: []table.Column{{Type: table.Type{Kind: table.Int64}}, {Type: table.Type{Kind: table.String}}}}
	rounds := 400
	if testing.Short() {
		rounds = 50
	}
	for seed := range rounds {
		powerFailure(t, uint64(seed), s)
	}
}

func powerFailure(t *testing.T, seed uint64, s *table.Schema) {
	rng := rand.New(rand.NewPCG(seed, 2))
	d := newMemFolder()
	const size = 8 << 10
	var acked, sent []string // sent: acked and the group in flight
	trimmed := table.Position(1)
	for restart := range 6 {
		arm(d, rng, rng.IntN(60))
		l, err := openFolder(context.Background(), d, testOptions(size))
		var got []string
		if err == nil {
			err = l.Replay(context.Background(), trimmed, schemaOf(s), func(t *Txn) error { got = append(got, printTxn(t)); return nil })
		}
		if err != nil && !errors.Is(err, errCrashed) {
			t.Fatalf("seed %d restart %d: %v", seed, restart, err)
		}
		if err == nil {
			n := int(trimmed) - 1
			if n+len(got) < len(acked) || n+len(got) > len(sent) {
				t.Fatalf("seed %d restart %d: %d replayed from %d, %d acknowledged, %d sent", seed, restart, len(got), trimmed, len(acked), len(sent))
			}
			equal(t, fmt.Sprintf("seed %d restart %d", seed, restart), got, sent[n:n+len(got)])
			acked = append([]string(nil), sent[:n+len(got)]...)
			sent = append([]string(nil), acked...)
		}
		for err == nil {
			var g *Group
			for range 1 + rng.IntN(4) {
				x := &Txn{Kind: Commit, Time: int64(rng.IntN(1000)), Tables: []TableOps{{Table: 5, Schema: 1, Rows: seeded(rng.Uint64()).batch(s, 1+rng.IntN(25))}}}
				g = l.Enqueue(Encode(x), l.next, firsts(x, 7))
				sent = append(sent, printTxn(x))
			}
			err = l.commit(func([]*Frame) {})
			<-g.Done()
			if err == nil {
				acked = append([]string(nil), sent...)
			}
			if err == nil && rng.IntN(5) == 0 {
				below := table.Position(1 + rng.IntN(len(acked)))
				trimmed = max(trimmed, below)
				err = l.Trim(context.Background(), trimmed)
			}
		}
		if !errors.Is(err, errCrashed) {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if rng.IntN(3) > 0 {
			d = d.crash(rng)
		}
		// Otherwise only the process died: what it wrote is there, but still not on the disk.
	}
}

// arm makes the folder fail for good after n operations.
func arm(d *memFolder, rng *rand.Rand, n int) {
	d.hook = func(op, name string) error {
		if n--; n < 0 {
			return errCrashed
		}
		return nil
	}
}

// TestDeviceErrors is the failure table: one write or sync of an append fails, with and without effect.
//
// claims: M36
func TestDeviceErrors(t *testing.T) {
	s := everyType()
	for _, c := range []struct {
		op       string
		err      error
		replayed int // by a new process on the same machine
		lost     int // after a power failure that follows its acknowledgement
	}{
		{"write", errNothing, 1, 1},
		{"write", errEffect, 2, 2},
		{"sync", errEffect, 2, 2},
	} {
		d := newMemFolder()
		l, _ := replayAll(t, d, 64<<10, s)
		appendGroup(t, l, seeded(1).txn(s))
		d.hook = func(op, name string) error {
			if op == c.op {
				return c.err
			}
			return nil
		}
		g := l.Enqueue(Encode(seeded(2).txn(s)), 2, firsts(seeded(2).txn(s), 1))
		err := l.commit(func([]*Frame) { t.Fatal("published what is not durable") })
		<-g.Done()
		var u *UnknownError
		if !errors.As(err, &u) || !errors.Is(err, c.err) || g.Err() != err || u.SafeToRetry() {
			t.Fatalf("%s %v: run %v, group %v", c.op, c.err, err, g.Err())
		}
		x := seeded(3).txn(s)
		if later := l.Enqueue(Encode(x), 3, firsts(x, 1)); !errors.As(later.Err(), &u) {
			t.Fatalf("later group: %v", later.Err())
		}
		d.hook = nil
		_, got := replayAll(t, d, 64<<10, s)
		if len(got) != c.replayed {
			t.Fatalf("%s %v: replayed %d", c.op, c.err, len(got))
		}
		// What this replay showed must survive the power failure behind it, though the first sync had lost the pages.
		none := rand.New(rand.NewPCG(0, 0))
		if _, got = replayAll(t, d.crash(none), 64<<10, s); len(got) != c.lost {
			t.Fatalf("%s %v: %d after power failure", c.op, c.err, len(got))
		}
	}
}

func TestConcurrentAppends(t *testing.T) {
	s, dir := everyType(), t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	l, err := Open(ctx, dir, Options{SegmentSize: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Replay(ctx, 1, schemaOf(s), nil); err != nil {
		t.Fatal(err)
	}
	var published []string
	done := make(chan error, 1)
	go func() {
		done <- l.Run(ctx, func(fs []*Frame) {
			for _, f := range fs {
				published = append(published, printTxn(f.Txn()))
			}
		})
	}()
	var sequencer sync.Mutex
	next := table.Position(1)
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			for i := range 40 {
				x := seeded(uint64(w*1000 + i)).txn(s)
				f := Encode(x)
				sequencer.Lock()
				g := l.Enqueue(f, next, firsts(x, uint64(next)))
				next++
				sequencer.Unlock()
				<-g.Done()
				if g.Err() != nil {
					t.Error(g.Err())
				}
			}
		})
	}
	writers.Wait()
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if g := l.Enqueue(Encode(&Txn{Kind: Commit}), next, nil); !errors.Is(g.Err(), ErrClosed) {
		t.Fatalf("after Run: %v", g.Err())
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	var got []string
	l, err = Open(context.Background(), dir, Options{SegmentSize: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.Replay(context.Background(), 1, schemaOf(s), func(t *Txn) error { got = append(got, printTxn(t)); return nil }); err != nil {
		t.Fatal(err)
	}
	equal(t, "replay", got, published)
	if len(got) != 320 {
		t.Fatalf("%d transactions", len(got))
	}
}

func TestHeld(t *testing.T) {
	dir := t.TempDir() + "/new/wal"
	now := func() time.Time { return time.Unix(1e9, 0) }
	l, err := Open(context.Background(), dir, Options{SegmentSize: 8 << 10, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(context.Background(), dir, Options{})
	var held *HeldError
	if !errors.As(err, &held) || !strings.Contains(held.Holder, "since 2001-09-09T01:46:40Z") || !strings.Contains(held.Holder, "pid ") {
		t.Fatalf("second open: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l, err = Open(context.Background(), dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

// TestLargeFrames writes frames that are not copied and one that is larger than a segment.
func TestLargeFrames(t *testing.T) {
	s := &table.Schema{ID: 1, Columns: []table.Column{{Type: table.Type{Kind: table.Binary}}}}
	blob := func(n int) *Txn {
		b := table.NewBatch(s)
		b.Cols[0].AppendBytes(seeded(uint64(n)).bytes(n))
		b.Rows = 1
		return &Txn{Kind: Commit, Tables: []TableOps{{Table: 1, Schema: 1, Rows: b}}}
	}
	dir := t.TempDir()
	open := func() (*Log, []string) {
		l, err := Open(context.Background(), dir, Options{SegmentSize: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		if err := l.Replay(context.Background(), 1, schemaOf(s), func(t *Txn) error { got = append(got, printTxn(t)); return nil }); err != nil {
			t.Fatal(err)
		}
		return l, got
	}
	l, _ := open()
	want := appendGroup(t, l, blob(10), blob(300<<10), blob(20), blob(400<<10), blob(3<<20), blob(30))
	want = append(want, appendGroup(t, l, blob(5<<20))...)
	if n := l.Stats().Segments; n != 3 { // the 30 bytes fit behind the 3 MiB
		t.Fatalf("%d segments", n)
	}
	l.Close()
	l, got := open()
	equal(t, "replay", got, want)
	want = append(want, appendGroup(t, l, blob(40))...)
	l.Close()
	l, got = open()
	equal(t, "replay", got, want)
	if err := l.Trim(context.Background(), 8); err != nil {
		t.Fatal(err)
	}
	if st := l.Stats(); st.Segments != 1 || st.Spares != 1 {
		t.Fatalf("stats %+v", st)
	}
	l.Close()
}

func FuzzDecode(f *testing.F) {
	s := everyType()
	for i := range 6 {
		x := seeded(uint64(i)).txn(s)
		fr := Encode(x)
		fr.patch(0, 1, 1, 1, firsts(x, 1))
		f.Add(fr.bytes)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, ok := readHeader(b, int64(len(b)))
		if !ok || !h.known() {
			return
		}
		x, err := decode(b[:h.length], &h, schemaOf(s), false)
		if err != nil {
			return
		}
		// What decodes is a transaction like any other.
		again, err := roundTrip(x, s, false)
		if err != nil {
			t.Fatal(err)
		}
		x.Position = 5
		if g, w := printTxn(again), printTxn(x); g != w {
			t.Fatalf("got\n%s\nwant\n%s", g, w)
		}
	})
}
