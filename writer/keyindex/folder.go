package keyindex

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"sluice/writer/table"
)

// Folder is the runs of one constraint, each a file NUMBER.run; later ones have higher numbers. There is no list of them: a run says
// which data files it covers, so a crash leaves at worst one too many or too few. Any goroutine may use it.
type Folder struct {
	dir, label string

	mu   sync.RWMutex // shared while runs are read
	runs []numbered   // newest first
	next uint64
}

type numbered struct {
	*Run
	number uint64
}

const runSuffix = ".run"

// OpenFolder opens the runs in dir, which it makes. What is of no use is deleted: unfinished runs, those with another label, corrupt ones,
// and those whose data files are all gone or covered by later runs.
func OpenFolder(dir, label string, live func(table.FileID) bool) (*Folder, error) {
	f := &Folder{dir: dir, label: label, next: 1}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open key index: %w", err)
	}
	found, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("open key index: %w", err)
	}
	for _, e := range found {
		if err := f.open(e.Name()); err != nil {
			f.Close()
			return nil, err
		}
	}
	slices.SortFunc(f.runs, func(a, b numbered) int { return cmp.Compare(b.number, a.number) })
	if err := f.prune(live); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// open takes the run called name in, or deletes it. Files with other names are not the folder's.
func (f *Folder) open(name string) error {
	path := filepath.Join(f.dir, name)
	if strings.HasSuffix(name, Suffix) {
		return os.Remove(path)
	}
	hex, ok := strings.CutSuffix(name, runSuffix)
	number, err := strconv.ParseUint(hex, 16, 64)
	if !ok || err != nil {
		return nil
	}
	f.next = max(f.next, number+1)
	switch r, err := Open(path); {
	case errors.Is(err, ErrCorrupt):
		return os.Remove(path)
	case err != nil:
		return err
	case r.Label != f.label:
		return errors.Join(r.Close(), os.Remove(path))
	default:
		f.runs = append(f.runs, numbered{r, number})
		return nil
	}
}

// prune deletes runs without which every live file is covered as well.
func (f *Folder) prune(live func(table.FileID) bool) error {
	covered := map[table.FileID]bool{}
	for _, r := range slices.Clone(f.runs) {
		need := false
		for _, id := range r.Files {
			need = need || live(id) && !covered[id]
			covered[id] = true
		}
		if !need {
			if err := f.drop(r.Run); err != nil {
				return err
			}
		}
	}
	return nil
}

// Missing is those of the files that no run covers.
func (f *Folder) Missing(files []table.FileID) []table.FileID {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return slices.DeleteFunc(slices.Clone(files), func(id table.FileID) bool {
		return slices.ContainsFunc(f.runs, func(r numbered) bool {
			_, ok := slices.BinarySearch(r.Files, id)
			return ok
		})
	})
}

// Loose says that equal hashes may be of different keys.
func (f *Folder) Loose() bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return slices.ContainsFunc(f.runs, func(r numbered) bool { return r.Loose })
}

// Lookup is that of all runs, newest first: fn may be called again with a hash for which it said false, and does not use the Folder. A run
// that is found corrupt is deleted, and the error wraps ErrCorrupt: files are Missing then.
func (f *Folder) Lookup(hashes []uint64, fn func(i int, e Entry) bool) error {
	r, err := f.lookup(hashes, fn)
	if errors.Is(err, ErrCorrupt) {
		f.mu.Lock()
		defer f.mu.Unlock()
		err = errors.Join(err, f.drop(r))
	}
	return err
}

func (f *Folder) lookup(hashes []uint64, fn func(i int, e Entry) bool) (*Run, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, r := range f.runs {
		if err := r.Lookup(hashes, fn); err != nil {
			return r.Run, err
		}
	}
	return nil, nil
}

// drop closes and deletes a run, unless somebody else has.
func (f *Folder) drop(r *Run) error {
	i := slices.IndexFunc(f.runs, func(n numbered) bool { return n.Run == r })
	if i < 0 {
		return nil
	}
	f.runs = slices.Delete(f.runs, i, i+1)
	return errors.Join(r.Close(), os.Remove(r.name))
}

// Add makes a run that covers files, in order, of what fill adds to it. It is found once Add returns.
func (f *Folder) Add(files []table.FileID, loose bool, fill func(*Writer) error) error {
	r, err := f.write(Meta{Label: f.label, Files: files, Loose: loose}, fill)
	if err != nil {
		return fmt.Errorf("add to key index: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.insert(r)
	return nil
}

func (f *Folder) write(m Meta, fill func(*Writer) error) (numbered, error) {
	f.mu.Lock()
	number := f.next
	f.next++
	f.mu.Unlock()
	path := filepath.Join(f.dir, fmt.Sprintf("%016x%s", number, runSuffix))
	w, err := Create(path, m)
	if err != nil {
		return numbered{}, err
	}
	if err := fill(w); err != nil {
		return numbered{}, errors.Join(err, w.Abort())
	}
	if err := w.Finish(); err != nil {
		return numbered{}, err
	}
	r, err := Open(path)
	return numbered{r, number}, err
}

func (f *Folder) insert(r numbered) {
	at, _ := slices.BinarySearchFunc(f.runs, r.number, func(a numbered, number uint64) int { return cmp.Compare(number, a.number) })
	f.runs = slices.Insert(f.runs, at, r)
}

// Merge makes one run of several if there is reason to (Pick), and says whether there was. files says what the covered files have
// become (in order), keep what the rows. One goroutine merges at a time; others look up and add meanwhile.
//
// A crash before the new run has its name leaves an unfinished one; one before the old runs are deleted leaves them covered
// by the new one.
func (f *Folder) Merge(files func([]table.FileID) []table.FileID, keep func(Entry) (Entry, bool)) (bool, error) {
	old := f.picked()
	if len(old) == 0 {
		return false, nil
	}
	m := Meta{Label: f.label}
	for _, r := range old {
		m.Files = append(m.Files, r.Files...)
		m.Loose = m.Loose || r.Loose
	}
	slices.Sort(m.Files)
	m.Files = files(slices.Compact(m.Files))
	r, err := f.write(m, func(w *Writer) error { return Merge(w, old, keep) })
	if err != nil {
		return false, fmt.Errorf("merge key index: %w", err)
	}
	return true, f.swap(old, r)
}

func (f *Folder) picked() (runs []*Run) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	var sizes []uint64
	for _, r := range f.runs {
		sizes = append(sizes, r.Len())
	}
	for _, r := range f.runs[:Pick(sizes, MaxRuns)] {
		runs = append(runs, r.Run)
	}
	return runs
}

// swap puts a run in the place of those that it was made of. It waits for look-ups under way. If one of those was deleted meanwhile the new
// one says that it covers what may be no longer covered: it goes as well.
func (f *Folder) swap(old []*Run, r numbered) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.insert(r)
	for _, o := range old {
		if !slices.ContainsFunc(f.runs, func(n numbered) bool { return n.Run == o }) {
			return f.drop(r.Run)
		}
	}
	var err error
	for _, o := range old {
		err = errors.Join(err, f.drop(o))
	}
	return err
}

// Uncover deletes the runs that cover a file: rows of it that they left out as dead are alive again. What else they covered is Missing, too.
// The next start does not find them, even if the machine crashes.
func (f *Folder) Uncover(id table.FileID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var err error
	for _, r := range slices.Clone(f.runs) {
		if _, ok := slices.BinarySearch(r.Files, id); ok {
			err = errors.Join(err, f.drop(r.Run))
		}
	}
	return errors.Join(err, syncFolder(f.dir))
}

// Bytes is the memory it holds.
func (f *Folder) Bytes() (n int64) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, r := range f.runs {
		n += r.Bytes()
	}
	return n
}

// Close closes the runs; they stay on disk.
func (f *Folder) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.runs {
		r.Close()
	}
	f.runs = nil
}
