package keyindex_test

import (
	"os"
	"path/filepath"
	"testing"

	"sluice/writer/keyindex"
)

// TestSpillAll: a Spill gives back every entry that was put, of runs and of memory, and counts them.
func TestSpillAll(t *testing.T) {
	s := keyindex.NewSpill(t.TempDir(), 0)
	defer s.Close()
	const n = 10_000
	for i := range n {
		if err := s.Put([]keyindex.Entry{{Hash: uint64(i) * 0x9e3779b97f4a7c15, Row: uint32(i)}}); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[uint32]bool{}
	err := s.All(func(e keyindex.Entry) error {
		if seen[e.Row] || e.Hash != uint64(e.Row)*0x9e3779b97f4a7c15 {
			t.Errorf("entry %+v twice, or wrong", e)
		}
		seen[e.Row] = true
		return nil
	})
	if err != nil || len(seen) != n || s.Len() != n {
		t.Errorf("%d entries, counted as %d, want %d; %v", len(seen), s.Len(), n, err)
	}
}

// TestClear makes the folder, and removes unfinished files, not others.
func TestClear(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a [b]")
	if err := keyindex.Clear(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"keys-1" + keyindex.Suffix, "1.run"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := keyindex.Clear(dir); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 || left[0].Name() != "1.run" {
		t.Errorf("left are %v, %v", left, err)
	}
}
