package keyindex

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"sluice/writer/table"
)

// spilled is a Spill with the keys it should have: key per row, and which rows died.
type spilled struct {
	*Spill
	keys []uint64
	dead map[uint32]bool
	live map[uint64]bool // keys of live rows
}

// hashOf has twins: two keys share a hash.
func hashOf(key uint64) uint64 { return (key / 2) * 0x9e3779b97f4a7c15 }

func (s *spilled) batch(keys []uint64) (list []Entry) {
	for i, k := range keys {
		list = append(list, Entry{Hash: hashOf(k), File: table.Own, Row: uint32(len(s.keys) + i)})
	}
	return list
}

// add adds keys and says whether the first conflict is where it should be.
func (s *spilled) add(t *testing.T, keys []uint64) {
	t.Helper()
	batch := s.batch(keys)
	want, seen := false, map[uint64]bool{}
	for _, k := range keys {
		want = want || s.live[k] || seen[k]
		seen[k] = true
	}
	keyOf := func(row uint32) uint64 {
		if n := int(row) - len(s.keys); n >= 0 {
			return keys[n]
		}
		return s.keys[row]
	}
	got, err := s.Add(batch, func(i int, old Entry) bool { return keyOf(old.Row) == keys[i] && !s.dead[old.Row] })
	if err != nil {
		t.Fatal(err)
	}
	if got >= 0 != want {
		t.Fatalf("conflict at %d, want one: %v", got, want)
	}
	if got >= 0 {
		return
	}
	s.keys = append(s.keys, keys...)
	for _, k := range keys {
		s.live[k] = true
	}
}

// kill lets a row die.
func (s *spilled) kill(row uint32) {
	if !s.dead[row] {
		s.dead[row] = true
		delete(s.live, s.keys[row])
	}
}

// TestSpill adds and kills at random: conflicts are found exactly, memory is bounded, and no file is seen or left.
func TestSpill(t *testing.T) {
	const memory = 1 << 20
	rng, dir, before := dice(t), t.TempDir(), openFiles(t)
	s := &spilled{Spill: NewSpill(dir, memory), dead: map[uint32]bool{}, live: map[uint64]bool{}}
	for len(s.keys) < 300000 {
		keys := make([]uint64, 1+rng.IntN(3000))
		for i := range keys {
			keys[i] = rng.Uint64()
		}
		if rng.IntN(4) == 0 && len(s.keys) > 0 {
			keys[rng.IntN(len(keys))] = s.keys[rng.IntN(len(s.keys))] ^ rng.Uint64N(2) // the key or its twin
		}
		if rng.IntN(8) == 0 {
			keys[rng.IntN(len(keys))] = keys[rng.IntN(len(keys))] ^ rng.Uint64N(2)
		}
		s.add(t, keys)
		for range rng.IntN(20) * min(len(s.keys), 1) {
			s.kill(uint32(rng.IntN(len(s.keys))))
		}
		if b := s.Bytes(); b > memory+int64(len(s.keys))*3/2 {
			t.Fatalf("%d keys hold %d bytes", len(s.keys), b)
		}
		if got := names(t, dir); got != nil {
			t.Fatalf("files are seen: %v", got)
		}
	}
	if n := len(s.runs); n < 2 {
		t.Fatalf("%d runs: nothing was spilled", n)
	}
	s.becomesRun(t, filepath.Join(t.TempDir(), "run"))
	s.Close()
	if got := openFiles(t); got != before {
		t.Fatalf("%d files are open, %d before", got, before)
	}
}

// becomesRun writes the live rows to a run, as rows of file 7, and finds each there.
func (s *spilled) becomesRun(t *testing.T, path string) {
	t.Helper()
	w, err := Create(path, Meta{})
	if err != nil {
		t.Fatal(err)
	}
	left := map[uint32]bool{}
	err = s.Write(w, func(e Entry) (Entry, bool) { e.File = 7; return e, !s.dead[e.Row] })
	if err := errors.Join(err, w.Finish()); err != nil {
		t.Fatal(err)
	}
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	err = r.All(func(e Entry) error {
		if e.File != 7 || s.dead[e.Row] || left[e.Row] || e.Hash != hashOf(s.keys[e.Row]) {
			t.Fatalf("%v is dead, twice there, or not what it was", e)
		}
		left[e.Row] = true
		return nil
	})
	if err != nil || len(left) != len(s.keys)-len(s.dead) {
		t.Fatalf("%d rows of %d, %d dead: %v", len(left), len(s.keys), len(s.dead), err)
	}
}

// TestSpillMerges has more runs than a lookup should ask, and one hash in all of them.
func TestSpillMerges(t *testing.T) {
	s := NewSpill(t.TempDir(), 0)
	defer s.Close()
	rows := (MaxRuns + 5) * minSpill
	for i := range rows {
		h := uint64(i) << 20
		if i%1000 == 0 {
			h = 77
		}
		if err := s.Put([]Entry{{Hash: h, Row: uint32(i)}}); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.runs) > MaxRuns {
		t.Fatalf("%d runs", len(s.runs))
	}
	at := uint32((rows - 1) / 1000 * 1000)
	err := s.Find([]Entry{{Hash: 77}}, func(_ int, old Entry) bool {
		if old.Row != at {
			t.Fatalf("got row %d, want %d: newest first", old.Row, at)
		}
		at -= 1000
		return old.Row > 0
	})
	if err != nil || int32(at) != -1000 {
		t.Fatalf("stopped at %d: %v", int32(at), err)
	}
}

// TestSpillFails takes the folder away: what was put stays findable, and the next try goes on.
func TestSpillFails(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spill")
	s := NewSpill(dir, 0)
	defer s.Close()
	put := func(i int) error { return s.Put([]Entry{{Hash: uint64(i), Row: uint32(i)}}) }
	found := func(i int) (ok bool) {
		if err := s.Find([]Entry{{Hash: uint64(i)}}, func(int, Entry) bool { ok = true; return false }); err != nil {
			t.Fatal(err)
		}
		return ok
	}
	for i := range minSpill {
		if err := put(i); err != nil {
			t.Fatal(err)
		}
	}
	if err := put(minSpill); err == nil {
		t.Fatal("spilled to nowhere")
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	err := put(minSpill)
	for i := range minSpill + 1 {
		if !found(i) {
			t.Fatalf("%d is lost", i)
		}
	}
	if err = errors.Join(err); err != nil || len(s.runs) != 1 {
		t.Fatalf("%d runs, %v", len(s.runs), err)
	}
}

// TestSpillReaders looks while somebody puts, for the race detector and for what was there before.
func TestSpillReaders(t *testing.T) {
	s := NewSpill(t.TempDir(), 0)
	defer s.Close()
	if err := s.Put([]Entry{{Hash: 1}}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range 2000 {
				ok := false
				if err := s.Find([]Entry{{Hash: 1}}, func(int, Entry) bool { ok = true; return false }); err != nil || !ok {
					t.Errorf("found %v, %v", ok, err)
					return
				}
			}
		})
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 3 * minSpill {
		if err := s.Put([]Entry{{Hash: rng.Uint64()}}); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
}
