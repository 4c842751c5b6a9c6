package keyindex

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"sluice/writer/table"
)

// lake is a table with a key: the rows of its files, and which are dead. The Folder has to find all live ones.
type lake struct {
	t     *testing.T
	rng   *rand.Rand
	dir   string
	keys  *Folder
	files map[table.FileID][]uint64 // hash per row
	dead  map[Entry]bool
	moved map[table.FileID]table.FileID // merged files, whose rows follow each other in the new one
	from  map[table.FileID]uint32       // where they begin there
	next  table.FileID
	most  int // runs there were at a time
}

func (l *lake) live(id table.FileID) bool { return l.files[id] != nil }

// now is the newest name of a row.
func (l *lake) now(e Entry) Entry {
	for l.moved[e.File] != 0 {
		e.Row += l.from[e.File]
		e.File = l.moved[e.File]
	}
	return e
}

func (l *lake) alive(e Entry) bool { return l.live(e.File) && !l.dead[e] }

// file makes a data file; index says that its keys are added at once.
func (l *lake) file(rows int, index bool) {
	id := l.next
	l.next++
	l.files[id] = make([]uint64, rows)
	for i := range rows {
		l.files[id][i] = anyHash(l.rng)
	}
	if index {
		l.index(id)
	}
}

// index adds the keys of files.
func (l *lake) index(ids ...table.FileID) {
	s := NewSorter(l.dir, 0)
	defer s.Close()
	for _, id := range ids {
		for row, h := range l.files[id] {
			if e := (Entry{h, id, uint32(row)}); l.alive(e) {
				if err := s.Add(e); err != nil {
					l.t.Fatal(err)
				}
			}
		}
	}
	if err := l.keys.Add(ids, false, s.Write); err != nil {
		l.t.Fatal(err)
	}
	l.most = max(l.most, len(l.keys.runs))
}

func (l *lake) ids() (ids []table.FileID) {
	for id := range l.files {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (l *lake) kill() {
	for id, rows := range l.files {
		if row := l.rng.IntN(len(rows) + 1); row < len(rows) {
			l.dead[Entry{rows[row], id, uint32(row)}] = true
		}
	}
}

// compact makes one data file of some.
func (l *lake) compact() {
	ids := l.ids()
	if len(ids) < 3 {
		return
	}
	to := l.next
	l.next++
	for _, id := range ids[:2+l.rng.IntN(2)] {
		l.moved[id], l.from[id] = to, uint32(len(l.files[to]))
		for row, h := range l.files[id] {
			if e := (Entry{h, id, uint32(row)}); l.dead[e] {
				l.dead[l.now(e)] = true
			}
		}
		l.files[to] = append(l.files[to], l.files[id]...)
		delete(l.files, id)
	}
}

// merge merges until there is no reason to; files that came from covered ones only are covered.
func (l *lake) merge() {
	covers := func(old []table.FileID) (now []table.FileID) {
		for id := range l.files {
			all := true
			for from, to := range l.moved {
				if to == id {
					_, ok := slices.BinarySearch(old, from)
					all = all && ok
				}
			}
			if _, ok := slices.BinarySearch(old, id); ok || all && slices.Contains(values(l.moved), id) {
				now = append(now, id)
			}
		}
		slices.Sort(now)
		return now
	}
	for more := true; more; {
		var err error
		more, err = l.keys.Merge(covers, func(e Entry) (Entry, bool) { e = l.now(e); return e, l.alive(e) })
		if err != nil {
			l.t.Fatal(err)
		}
	}
}

func values(m map[table.FileID]table.FileID) (list []table.FileID) {
	for _, v := range m {
		list = append(list, v)
	}
	return list
}

// restart opens the folder anew, as after a crash that left something, and covers what is missing.
func (l *lake) restart(label string) {
	l.keys.Close()
	l.check(os.WriteFile(filepath.Join(l.dir, "00000000000000ff.run"+Suffix), []byte("half"), 0o600))
	keys, err := OpenFolder(l.dir, label, l.live)
	l.check(err)
	l.keys = keys
	l.moved, l.from = map[table.FileID]table.FileID{}, map[table.FileID]uint32{} // names of before are forgotten
	if ids := keys.Missing(l.ids()); len(ids) > 0 {
		l.index(ids...)
	}
}

func (l *lake) check(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

// verify looks every live row up.
func (l *lake) verify() {
	l.t.Helper()
	want := map[Entry]bool{}
	var hashes []uint64
	for id, rows := range l.files {
		for row, h := range rows {
			if e := (Entry{h, id, uint32(row)}); l.alive(e) {
				want[e] = true
				hashes = append(hashes, h)
			}
		}
	}
	slices.Sort(hashes)
	hashes = slices.Compact(hashes)
	l.check(l.keys.Lookup(hashes, func(i int, e Entry) bool {
		if e = l.now(e); l.alive(e) {
			if l.files[e.File][e.Row] != hashes[i] {
				l.t.Fatalf("%v has not the hash %x", e, hashes[i])
			}
			delete(want, e)
		}
		return true
	}))
	for e := range want {
		l.t.Fatalf("%d rows are not found, one is %v", len(want), e)
	}
}

func newLake(t *testing.T) *lake {
	l := &lake{t: t, rng: dice(t), dir: t.TempDir(), files: map[table.FileID][]uint64{}, dead: map[Entry]bool{},
		moved: map[table.FileID]table.FileID{}, from: map[table.FileID]uint32{}, next: 1}
	keys, err := OpenFolder(l.dir, "key", l.live)
	l.check(err)
	l.keys = keys
	t.Cleanup(func() { l.keys.Close() })
	return l
}

// TestFolder flushes, deletes, compacts, merges, restarts and loses runs at random. Every live row is found at all times.
func TestFolder(t *testing.T) {
	l := newLake(t)
	for range 150 {
		switch l.rng.IntN(10) {
		default:
			l.file(1+l.rng.IntN(400), true)
		case 0:
			l.compact()
		case 1, 2:
			l.merge()
		case 3:
			l.kill()
		case 4:
			l.file(1+l.rng.IntN(50), false) // the process dies before the keys are written
			l.restart("key")
		case 5:
			l.restart([]string{"key", l.keys.label + "'"}[l.rng.IntN(2)])
		}
		l.verify()
	}
	l.merge()
	if n := len(l.keys.runs); n > MaxRuns || l.most < 3 {
		t.Fatalf("%d runs after a merge, %d before", n, l.most)
	}
}

// TestFolderLeftOver has runs that a crash in a merge leaves, and of files that are gone.
func TestFolderLeftOver(t *testing.T) {
	l := newLake(t)
	l.file(3, true)
	l.file(3, true)
	first := names(t, l.dir)
	kept := map[string][]byte{}
	for _, n := range first {
		b, err := os.ReadFile(filepath.Join(l.dir, n))
		l.check(err)
		kept[n] = b
	}
	l.merge()
	for n, b := range kept { // the merge did not get to deleting them
		l.check(os.WriteFile(filepath.Join(l.dir, n), b, 0o600))
	}
	l.restart("key")
	if got := names(t, l.dir); len(got) != 1 || slices.Contains(first, got[0]) {
		t.Fatalf("left %v", got)
	}
	l.files = map[table.FileID][]uint64{}
	l.restart("key")
	if got := names(t, l.dir); len(got) != 0 {
		t.Fatalf("left %v", got)
	}
}

// TestFolderReopens has all that it had, under its label; under another one it has nothing.
func TestFolderReopens(t *testing.T) {
	l := newLake(t)
	for range 20 {
		l.file(3, true)
	}
	missing := func(label string) []table.FileID {
		l.keys.Close()
		keys, err := OpenFolder(l.dir, label, l.live)
		l.check(err)
		l.keys = keys
		return keys.Missing(l.ids())
	}
	if got := missing("key"); len(got) != 0 {
		t.Fatalf("missing %v", got)
	}
	l.verify()
	if got := missing("other"); !slices.Equal(got, l.ids()) {
		t.Fatalf("missing %v", got)
	}
	if got := names(t, l.dir); len(got) != 0 {
		t.Fatalf("left %v", got)
	}
}

// TestFolderDamage changes a block: the look-up says so, the run goes, its files are missing; so do those of a file that is uncovered.
func TestFolderDamage(t *testing.T) {
	l := newLake(t)
	l.file(5, true)
	l.file(5, true)
	file, err := os.OpenFile(l.keys.runs[1].name, os.O_RDWR, 0)
	l.check(err)
	_, err = file.WriteAt([]byte("x"), blockSize+100)
	l.check(errors.Join(err, file.Close()))
	err = l.keys.Lookup(slices.Sorted(slices.Values(l.files[1])), func(int, Entry) bool { return true })
	if !errors.Is(err, ErrCorrupt) {
		t.Fatal(err)
	}
	if got := l.keys.Missing(l.ids()); !slices.Equal(got, []table.FileID{1}) {
		t.Fatalf("missing %v", got)
	}
	l.index(1)
	l.verify()
	l.check(l.keys.Uncover(2))
	if got := l.keys.Missing(l.ids()); !slices.Equal(got, []table.FileID{2}) {
		t.Fatalf("missing %v", got)
	}
	if got := names(t, l.dir); len(got) != 1 {
		t.Fatalf("left %v", got)
	}
}

// TestFolderUncoverInMerge uncovers a file while the run that covers it is merged: the merged one must not cover it either.
func TestFolderUncoverInMerge(t *testing.T) {
	l := newLake(t)
	l.file(5, true)
	l.file(5, true)
	same := func(ids []table.FileID) []table.FileID { return ids }
	_, err := l.keys.Merge(same, func(e Entry) (Entry, bool) {
		if e.File == 1 && len(l.keys.Missing(l.ids())) == 0 {
			// The merge goes on with a closed run: one block, which is in memory.
			l.check(l.keys.Uncover(1))
		}
		return e, true
	})
	l.check(err)
	if got := l.keys.Missing(l.ids()); !slices.Equal(got, []table.FileID{1}) {
		t.Fatalf("missing %v", got)
	}
	if got := names(t, l.dir); len(got) != 1 {
		t.Fatalf("left %v", got)
	}
	l.index(1)
	l.verify()
}

// TestFolderReaders looks up while runs come and are merged.
func TestFolderReaders(t *testing.T) {
	l := newLake(t)
	l.file(100, true)
	hashes := slices.Sorted(slices.Values(l.files[1]))
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				found := map[uint64]bool{}
				if err := l.keys.Lookup(hashes, func(i int, e Entry) bool { found[e.Hash] = true; return true }); err != nil {
					t.Error(err)
					return
				}
				for _, h := range hashes {
					if !found[h] {
						t.Errorf("%x is not found", h)
						return
					}
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for range 40 {
		l.file(50, true)
		l.merge()
	}
	close(done)
	wg.Wait()
}
