package keyindex

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sluice/writer/table"
)

// model is what a run should say: entries by hash, newest first.
type model map[uint64][]Entry

func (m model) add(e Entry) { m[e.Hash] = slices.Insert(m[e.Hash], 0, e) }

// check looks all hashes up, and as many that are not there.
func (m model) check(t *testing.T, rng *rand.Rand, runs ...*Run) {
	t.Helper()
	hashes := make([]uint64, 0, 2*len(m))
	for h := range m {
		hashes = append(hashes, h, rng.Uint64())
	}
	slices.Sort(hashes)
	hashes = slices.Compact(hashes)
	got := model{}
	for _, r := range runs {
		err := r.Lookup(hashes, func(i int, e Entry) bool {
			if e.Hash != hashes[i] {
				t.Fatalf("asked for %x, got %v", hashes[i], e)
			}
			got[e.Hash] = append(got[e.Hash], e)
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, h := range hashes {
		if !slices.Equal(got[h], m[h]) {
			t.Fatalf("hash %x: got %v, want %v", h, got[h], m[h])
		}
	}
}

// TestRandom sorts, merges, renames and drops against a map. The sizes leave one section and one sorter's memory behind.
func TestRandom(t *testing.T) {
	rng, dir := dice(t), t.TempDir()
	n := 0
	var runs []*Run // newest first
	all := model{}
	for i, size := range []int{0, 1, blockEntries, blockEntries*sectionBlocks + rng.IntN(3) - 1, rng.IntN(150000)} {
		s, m := NewSorter(dir, 1<<20), model{}
		for range size {
			e := entryAt(anyHash(rng), n)
			n++
			m.add(e)
			all.add(e)
			if err := s.Add(e); err != nil {
				t.Fatal(err)
			}
		}
		path := filepath.Join(dir, string(rune('a'+i)))
		w, err := Create(path, Meta{Label: path, Files: []table.FileID{table.FileID(i)}})
		if err == nil {
			err = errors.Join(s.Write(w), w.Finish())
		}
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		r := openRun(t, path)
		if r.Len() != uint64(size) || r.Label != path || r.Loose || !slices.Equal(r.Files, []table.FileID{table.FileID(i)}) {
			t.Fatalf("run %+v of %d", r.Meta, size)
		}
		m.check(t, rng, r)
		runs = slices.Insert(runs, 0, r)
	}
	all.check(t, rng, runs...)

	// A third of the rows is dead, a third of the files moved.
	keep := func(e Entry) (Entry, bool) {
		if e.File%3 == 1 {
			e.File += 1 << 20
		}
		return e, e.Row%3 != 0
	}
	w, err := Create(filepath.Join(dir, "merged"), Meta{Loose: true})
	if err == nil {
		err = errors.Join(Merge(w, runs, keep), w.Finish())
	}
	if err != nil {
		t.Fatal(err)
	}
	want, left := model{}, 0
	for h, list := range all {
		for _, e := range list {
			if e, ok := keep(e); ok {
				want[h] = append(want[h], e)
				left++
			}
		}
	}
	r := openRun(t, filepath.Join(dir, "merged"))
	want.check(t, rng, r)
	if r.Len() != uint64(left) || !r.Loose {
		t.Fatalf("merged %d (loose %v), want %d", r.Len(), r.Loose, left)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"a", "b", "c", "d", "e", "merged"}) {
		t.Fatalf("left over: %v", got)
	}
}

// TestDamage changes every byte of a run, and cuts it at every length: no change goes unnoticed.
func TestDamage(t *testing.T) {
	rng, path := dice(t), filepath.Join(t.TempDir(), "run")
	var entries []Entry
	for i := range 300 {
		entries = append(entries, entryAt(uint64(i/2)<<50, i))
	}
	writeRun(t, path, Meta{Label: "pkey", Files: []table.FileID{1, 7}}, entries)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	put := func(b []byte, at int) {
		if _, err := file.WriteAt(b, int64(at)); err != nil {
			t.Fatal(err)
		}
	}
	whole := func() error {
		r, err := Open(path)
		if err != nil {
			return err
		}
		defer r.Close()
		return r.All(func(Entry) error { return nil })
	}
	if err := whole(); err != nil {
		t.Fatal(err)
	}
	for at := range good {
		put([]byte{good[at] ^ 1<<rng.IntN(8)}, at)
		if err := whole(); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("byte %d changed: %v", at, err)
		}
		put(good[at:at+1], at)
	}
	put(good[blockSize:2*blockSize], 2*blockSize)
	put(good[2*blockSize:3*blockSize], blockSize)
	if err := whole(); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("blocks swapped: %v", err)
	}
	put(append(slices.Clone(good), 0), 0)
	if err := whole(); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("a byte more: %v", err)
	}
	for n := len(good) - 1; n >= 0; n -= 97 {
		if err := file.Truncate(int64(n)); err != nil {
			t.Fatal(err)
		}
		if err := whole(); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("cut at %d: %v", n, err)
		}
	}
}

// TestStrangeBlock puts a good block of another run in place: a lookup notices.
func TestStrangeBlock(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b"} {
		writeRun(t, filepath.Join(dir, name), Meta{Label: name}, []Entry{{Hash: 5, File: 1}})
	}
	a, err := os.ReadFile(filepath.Join(dir, "a"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.OpenFile(filepath.Join(dir, "b"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.WriteAt(a[blockSize:2*blockSize], blockSize); err != nil {
		t.Fatal(err)
	}
	b.Close()
	r := openRun(t, filepath.Join(dir, "b"))
	err = r.Lookup([]uint64{5}, func(i int, e Entry) bool { t.Errorf("got %v", e); return true })
	if !errors.Is(err, ErrCorrupt) {
		t.Fatal(err)
	}
}

func TestMissing(t *testing.T) {
	if _, err := Open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
}

// TestUnfinished leaves nothing at the path: neither a run that was given up nor one that could not be written.
func TestUnfinished(t *testing.T) {
	dir, before := t.TempDir(), openFiles(t)
	w, err := Create(filepath.Join(dir, "run"), Meta{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Add(Entry{Hash: 2}); err != nil {
		t.Fatal(err)
	}
	if err := w.Add(Entry{Hash: 1}); err == nil {
		t.Fatal("hashes out of order were taken")
	}
	if got := names(t, dir); !slices.Equal(got, []string{"run" + Suffix}) {
		t.Fatalf("%v", got)
	}
	if err := w.Abort(); err != nil {
		t.Fatal(err)
	}
	w, err = Create(filepath.Join(dir, "run"), Meta{})
	if err != nil {
		t.Fatal(err)
	}
	w.file.Close() // as a disk that takes nothing
	if err := w.Finish(); err == nil {
		t.Fatal("finished without a file")
	}
	if got := names(t, dir); got != nil {
		t.Fatalf("left over: %v", got)
	}
	if got := openFiles(t); got != before {
		t.Fatalf("%d files are open, %d before", got, before)
	}
}

// TestGolden reads the kept bytes, and writes them again. A new version of the format adds a file; it never changes one.
func TestGolden(t *testing.T) {
	entries := []Entry{{Hash: 1, File: 3, Row: 7}, {Hash: 1, File: 2, Row: 1<<32 - 1}, {Hash: 0x123456789abcdef0, File: 1<<31 + 5, Row: 0}, {Hash: ^uint64(0), File: 1, Row: 9}}
	path := filepath.Join(t.TempDir(), "run")
	writeRun(t, path, Meta{Label: "golden", Files: []table.FileID{1, 2, 3, 1<<31 + 5}, Loose: true}, entries)
	now, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if flag.Lookup("rewrite").Value.String() == "true" {
		if err := errors.Join(os.WriteFile("testdata/run-v1.bin", now, 0o644), os.WriteFile("testdata/run-v1.hex", []byte(dump(now)), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.ReadFile("testdata/run-v1.bin")
	if err != nil {
		t.Fatal(err)
	}
	if twin, err := os.ReadFile("testdata/run-v1.hex"); err != nil || string(twin) != dump(kept) {
		t.Fatalf("run-v1.hex is not the dump of run-v1.bin (%v)", err)
	}
	if !bytes.Equal(kept, now) {
		t.Fatalf("written is\n%s\nkept is\n%s", dump(now), dump(kept))
	}
	var got []Entry
	r := openRun(t, "testdata/run-v1.bin")
	if err := r.All(func(e Entry) error { got = append(got, e); return nil }); err != nil || !slices.Equal(got, entries) {
		t.Fatalf("got %v, %v", got, err)
	}
}

// dump is hex.Dump with runs of zero lines as one star.
func dump(b []byte) string {
	var out strings.Builder
	star := false
	for i := 0; i < len(b); i += 16 {
		row := b[i:min(i+16, len(b))]
		zero := len(bytes.Trim(row, "\x00")) == 0
		if !zero {
			line := hex.Dump(append(make([]byte, 0, 16), row...))
			out.WriteString(strings.Replace(line, "00000000", hex.EncodeToString([]byte{byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)}), 1))
		} else if !star {
			out.WriteString("*\n")
		}
		star = zero
	}
	return out.String()
}
