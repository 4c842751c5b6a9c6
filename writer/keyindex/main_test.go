package keyindex

import (
	"flag"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sluice/writer/table"
)

var seedFlag = flag.Uint64("seed", 0, "seed of randomised tests; 0 draws one")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func dice(t testing.TB) *rand.Rand {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-seed %d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// writeRun makes a run at path of entries in order.
func writeRun(t testing.TB, path string, m Meta, entries []Entry) {
	t.Helper()
	w, err := Create(path, m)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := w.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Finish(); err != nil {
		t.Fatal(err)
	}
}

func openRun(t testing.TB, path string) *Run {
	t.Helper()
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// anyHash draws a hash that is uniform, one of few, or at an end.
func anyHash(rng *rand.Rand) uint64 {
	switch rng.IntN(8) {
	case 0:
		return rng.Uint64N(200) * 0x0101010101010101
	case 1:
		return []uint64{0, 1, ^uint64(0), ^uint64(0) - 1, 1 << 63}[rng.IntN(5)]
	}
	return rng.Uint64()
}

func entryAt(hash uint64, i int) Entry {
	return Entry{Hash: hash, File: table.FileID(1 + i>>10), Row: uint32(i & 1023)}
}

func names(t *testing.T, dir string) (list []string) {
	t.Helper()
	found, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range found {
		list = append(list, e.Name())
	}
	return list
}

// openFiles is how many files the process has open.
func openFiles(t *testing.T) int { return len(names(t, "/proc/self/fd")) }
