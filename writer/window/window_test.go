package window

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"sluice/writer/catalog"
	"sluice/writer/table"
	"sluice/writer/wal"
)

var seed = flag.Uint64("seed", 0, "of the random test; 0: a new one")

const day = int64(24 * time.Hour / time.Microsecond)

func txn(writer string, sequence int64, pos table.Position, at int64) *wal.Txn {
	return &wal.Txn{Kind: wal.Commit, Writer: writer, Sequence: sequence, ID: id(pos), Position: pos, Time: at, Answer: fmt.Append(nil, "answer ", pos)}
}

func id(pos table.Position) [16]byte { return [16]byte{byte(pos >> 16), byte(pos >> 8), byte(pos)} }

// TestWindow is the cases of one writer's window.
//
// claims: M26 M39 P68
func TestWindow(t *testing.T) {
	type put struct {
		sequence int64
		at       int64 // day
	}
	many := func(from, n int64) (list []put) {
		for i := range n {
			list = append(list, put{from + i, 0})
		}
		return list
	}
	for _, c := range []struct {
		name     string
		puts     []put
		sequence int64
		now      int64 // day
		want     string
	}{
		{"an unknown writer is new", nil, 5, 0, "new"},
		{"a repeat", []put{{5, 0}}, 5, 0, "repeat"},
		{"the next", []put{{5, 0}}, 6, 0, "new"},
		{"a gap above", []put{{5, 0}}, 500, 0, "new"},
		{"a gap is filled later", []put{{5, 0}, {7, 0}}, 6, 0, "new"},
		{"what filled a gap is repeated", []put{{5, 0}, {7, 0}, {6, 0}}, 6, 0, "repeat"},
		{"lower than ever, nothing gone yet", []put{{5, 0}}, 3, 0, "new"},
		{"the oldest of a full window", many(1, Results), 1, 0, "repeat"},
		{"below a full window", many(1, Results+1), 1, 0, "below"},
		{"never used, but below", many(10, Results+1), 9, 0, "below"},
		{"the oldest that is left", many(1, Results+1), 2, 0, "repeat"},
		{"into a full window, below all of it", append(many(10, Results+1), put{5, 0}), 5, 0, "below"},
		{"after 6 days", []put{{5, 0}}, 5, 6, "repeat"},
		{"idle for 8 days: a new writer", []put{{5, 0}}, 5, 8, "new"},
		{"idle for 8 days: any sequence", []put{{5, 0}}, 1, 8, "new"},
		{"active, the answer is 8 days old", []put{{5, 0}, {6, 4}, {7, 8}}, 5, 8, "below"},
		{"active, the answer is 4 days old", []put{{5, 0}, {6, 4}, {7, 8}}, 6, 8, "repeat"},
		{"zero", []put{{0, 0}}, 0, 0, "repeat"},
		{"the highest", []put{{1<<63 - 1, 0}}, 1<<63 - 1, 0, "repeat"},
	} {
		for _, restart := range []string{"", "log", "flip"} {
			w := New(catalog.Results{})
			var pos table.Position
			for _, p := range c.puts {
				pos++
				w.Put(Of(txn("1/a", p.sequence, pos, p.at*day)))
			}
			w.Put(Of(txn("2/a", c.sequence, 1000, 0)))
			w.Put(Of(txn("1/b", c.sequence, 1001, 0)))
			switch restart {
			case "log":
				w = again(w, 0, pos)
			case "flip":
				w = again(w, pos, pos)
			}
			r, below := w.Find("1/a", c.sequence, c.now*day)
			got := "new"
			switch {
			case below:
				got = "below"
			case r != nil:
				got = "repeat"
			}
			if got != c.want {
				t.Errorf("%s (%s): %s, want %s", c.name, restart, got, c.want)
			}
			if r != nil && string(r.Answer) != fmt.Sprint("answer ", r.Position) {
				t.Errorf("%s: answer %q at %d", c.name, r.Answer, r.Position)
			}
		}
	}
}

// again is the windows after a restart: from what flips up to pos stored, and the log behind.
func again(w *Windows, pos, last table.Position) *Windows {
	out := w.Unsaved(pos)
	n := New(out)
	for _, r := range w.fresh[w.upTo(pos):] {
		n.Put(r)
	}
	return n
}

// TestOutcome: who had a token is told the truth, or that it is not known any more.
func TestOutcome(t *testing.T) {
	w := New(catalog.Results{})
	for i := range table.Position(Tokens + 2) { // positions 1 to Tokens + 2
		w.Put(Of(&wal.Txn{Writer: "1/", Sequence: wal.Unnumbered, ID: id(i + 1), Position: i + 1}))
	}
	w.Put(Of(txn("1/w", 8, 200_000, 0)))
	check := func(what string, committed, certain, wantCommitted, wantCertain bool) {
		t.Helper()
		if committed != wantCommitted || certain != wantCertain && !committed {
			t.Errorf("%s: committed %v, certain %v", what, committed, certain)
		}
	}
	token := func(what string, id [16]byte, after table.Position, committed, certain bool) {
		t.Helper()
		a, b := w.Knows(id, "1/", wal.Unnumbered, after)
		check(what, a, b, committed, certain)
	}
	token("the newest", id(Tokens+2), Tokens+1, true, true)
	token("the oldest that is kept", id(3), 2, true, true)
	token("another's", [16]byte{255}, 2, false, true)
	token("one that is gone", id(2), 1, false, false)
	token("before one that is gone", [16]byte{255}, 1, false, false)
	a, b := w.Knows(id(200_000), "1/w", 8, 5)
	check("under an identity", a, b, true, true)
	a, b = w.Knows([16]byte{255}, "1/w", 8, 5)
	check("its twin", a, b, false, true)
	a, b = w.Knows([16]byte{255}, "1/w", 9, 5)
	check("the next", a, b, false, true)
	w.Sweep(8 * day)
	a, b = w.Knows(id(200_000), "1/w", 8, 5)
	check("of a writer that was forgotten", a, b, false, false)
	a, b = w.Knows([16]byte{255}, "1/w", 9, 200_000)
	check("of the same later", a, b, false, true)
	w.ReplayedFrom(7)
	w.Put(&catalog.Result{Writer: Replayed, Sequence: 9, Position: 9, ID: id(9)})
	a, b = w.Knows(id(9), Replayed, wal.Unnumbered, 200_000)
	check("replayed", a, b, true, true)
	if a, b = New(catalog.Results{}).Knows(id(9), Replayed, wal.Unnumbered, 8); a || b {
		t.Error("a log that was not replayed tells outcomes")
	}
}

// TestRandomWindows: against a plain list of everything, over flips that happen and that do not, and over restarts.
func TestRandomWindows(t *testing.T) {
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("-seed %d", s)
	rng := rand.New(rand.NewPCG(s, 1))
	w, stored := New(catalog.Results{}), newStore()
	type key struct {
		writer   string
		sequence int64
	}
	first := map[key]table.Position{}
	var pos, saved table.Position
	var log []*wal.Txn
	next := map[string]int64{}
	for range 60_000 {
		writer := fmt.Sprint(rng.IntN(2), "/", rng.IntN(3))
		next[writer] += int64(rng.IntN(3))
		k := key{writer, max(0, next[writer]-int64(rng.IntN(4))*int64(rng.IntN(600)))}
		r, below := w.Find(k.writer, k.sequence, 0)
		was, did := first[k]
		switch {
		case r != nil && (!did || r.Position != was):
			t.Fatalf("%v: answer of %d, first was %d", k, r.Position, was)
		case r == nil && !below && did:
			t.Fatalf("%v: would run twice", k)
		case r == nil && !below:
			pos++
			x := txn(k.writer, k.sequence, pos, 0)
			log, first[k] = append(log, x), pos
			w.Put(Of(x))
		}
		switch rng.IntN(500) {
		case 0: // a flip
			at := saved + table.Position(rng.IntN(int(pos-saved)+1))
			u := w.Unsaved(at)
			if rng.IntN(3) > 0 {
				stored.flip(u)
				w.Saved(at, u)
				saved = at
			}
		case 1: // a restart
			w = New(stored.results())
			for _, x := range log[saved:] {
				w.Put(Of(x))
			}
		}
	}
	if n := len(w.fresh); n > int(pos-saved) {
		t.Errorf("%d answers are not stored", n)
	}
}

// store is what flips stored.
type store struct {
	list      map[string]map[int64]catalog.Result
	low       map[string]int64
	forgotten table.Position
}

func newStore() *store {
	return &store{list: map[string]map[int64]catalog.Result{}, low: map[string]int64{}}
}

func (s *store) flip(u catalog.Results) {
	for _, r := range u.List {
		if s.list[r.Writer] == nil {
			s.list[r.Writer] = map[int64]catalog.Result{}
		}
		s.list[r.Writer][r.Sequence] = r
	}
	for writer, low := range u.Low {
		s.low[writer] = low
		for n := range s.list[writer] {
			if n <= low {
				delete(s.list[writer], n)
			}
		}
	}
}

func (s *store) results() (out catalog.Results) {
	out.Low = s.low
	for _, list := range s.list {
		if len(list) > Results {
			panic("a window of more than its size is stored")
		}
		for _, r := range list {
			out.List = append(out.List, r)
		}
	}
	return out
}
