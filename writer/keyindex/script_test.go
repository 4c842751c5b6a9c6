package keyindex

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"sluice/writer/table"
)

// TestScripts runs testdata/scripts. The verbs:
//
//	write run=NAME [label=L] [loose] [files=(1,2)]   a line an entry: hash file row, in any order, oldest first
//	merge into=NAME runs=(NEW,OLD) [dead=(file/row,…)] [moved=(from,to)]
//	dump run=NAME
//	lookup runs=(NEW,OLD)                            a line a hash, in order
//	pick max=N                                       a line: entries of the runs, newest first
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		s := &script{dir: t.TempDir()}
		datadriven.RunTest(t, path, s.run)
	})
}

type script struct{ dir string }

func (s *script) path(name string) string { return filepath.Join(s.dir, name) }

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	var out strings.Builder
	var err error
	switch d.Cmd {
	case "write":
		err = s.write(t, d)
	case "merge":
		err = s.merge(t, d)
	case "dump":
		err = s.dump(t, d, &out)
	case "lookup":
		err = s.lookup(t, d, &out)
	case "pick":
		err = pick(t, d, &out)
	default:
		t.Fatalf("no verb %s", d.Cmd)
	}
	if err != nil {
		fmt.Fprintf(&out, "error: %s\n", strings.ReplaceAll(err.Error(), s.dir, "DIR"))
	}
	return out.String()
}

func (s *script) write(t *testing.T, d *datadriven.TestData) error {
	var name string
	d.ScanArgs(t, "run", &name)
	m := Meta{Loose: d.HasArg("loose")}
	d.MaybeScanArgs(t, "label", &m.Label)
	for _, f := range list(d, "files") {
		var id table.FileID
		fmt.Sscan(f, &id)
		m.Files = append(m.Files, id)
	}
	sorter := NewSorter(s.dir, 0)
	defer sorter.Close()
	for line := range strings.Lines(d.Input) {
		var e Entry
		if _, err := fmt.Sscan(line, &e.Hash, &e.File, &e.Row); err != nil {
			return err
		}
		if err := sorter.Add(e); err != nil {
			return err
		}
	}
	w, err := Create(s.path(name), m)
	if err != nil {
		return err
	}
	return errors.Join(sorter.Write(w), w.Finish())
}

func list(d *datadriven.TestData, key string) []string {
	for _, a := range d.CmdArgs {
		if a.Key == key {
			return a.Vals
		}
	}
	return nil
}

func (s *script) runs(t *testing.T, d *datadriven.TestData) (runs []*Run) {
	for _, name := range list(d, "runs") {
		runs = append(runs, openRun(t, s.path(name)))
	}
	return runs
}

func (s *script) merge(t *testing.T, d *datadriven.TestData) error {
	var into string
	d.ScanArgs(t, "into", &into)
	dead, moved := list(d, "dead"), list(d, "moved")
	w, err := Create(s.path(into), Meta{})
	if err != nil {
		return err
	}
	err = Merge(w, s.runs(t, d), func(e Entry) (Entry, bool) {
		for _, name := range dead {
			if name == fmt.Sprintf("%d/%d", e.File, e.Row) {
				return e, false
			}
		}
		if len(moved) == 2 && moved[0] == fmt.Sprint(e.File) {
			fmt.Sscan(moved[1], &e.File)
		}
		return e, true
	})
	return errors.Join(err, w.Finish())
}

func (s *script) dump(t *testing.T, d *datadriven.TestData, out *strings.Builder) error {
	var name string
	d.ScanArgs(t, "run", &name)
	r, err := Open(s.path(name))
	if err != nil {
		return err
	}
	defer r.Close()
	fmt.Fprintf(out, "%d entries, label %q, files %v, loose %v, %d bytes\n", r.Len(), r.Label, r.Files, r.Loose, r.Size())
	return r.All(func(e Entry) error {
		fmt.Fprintln(out, e.Hash, e.File, e.Row)
		return nil
	})
}

func (s *script) lookup(t *testing.T, d *datadriven.TestData, out *strings.Builder) error {
	var hashes []uint64
	for line := range strings.Lines(d.Input) {
		var h uint64
		fmt.Sscan(line, &h)
		hashes = append(hashes, h)
	}
	for i, r := range s.runs(t, d) {
		err := r.Lookup(hashes, func(at int, e Entry) bool {
			fmt.Fprintf(out, "%d: run %d: %v\n", hashes[at], i, e.Ref())
			return true
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func pick(t *testing.T, d *datadriven.TestData, out *strings.Builder) error {
	var most int
	d.ScanArgs(t, "max", &most)
	for line := range strings.Lines(d.Input) {
		var sizes []uint64
		for _, f := range strings.Fields(line) {
			var n uint64
			fmt.Sscan(f, &n)
			sizes = append(sizes, n)
		}
		fmt.Fprintln(out, Pick(sizes, most))
	}
	return nil
}
