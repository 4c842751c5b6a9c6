package wal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"sluice/writer/table"
)

// TestScripts runs testdata/wal. The verbs:
//
//	append                 one group; a line a transaction: commit|prepared|resolved [table=ID rows=N deletes=N truncate]
//	  commit table=7 rows=3  [writer=w seq=1] [resolves=P committed]; several table= start several tables
//	tear from=A to=B [segment=N]     the bytes of the file become zero (of the last segment by default)
//	flip-bit at=A [bit=B] [segment=N]
//	cut at=A [segment=N]             the file ends there
//	fail op=write|sync [effect]      the next such operation fails
//	replay [from=P] [dropped=ID]     a new process: opens, replays, goes on appending
//	trim below=P
//	dump                             what Print says
//	files                            names and sizes
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/wal", func(t *testing.T, path string) {
		s := &script{folder: newMemFolder()}
		datadriven.RunTest(t, path, s.run)
	})
}

type script struct {
	folder *memFolder
	log    *Log
	time   int64
}

var scriptSchema = &table.Schema{ID: 1, Columns: []table.Column{{Name: "id", Type: table.Type{Kind: table.Int64}}, {Name: "name", Type: table.Type{Kind: table.String}}}}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "append":
		return s.append(t, d.Input)
	case "tear":
		from, to := 0, 0
		d.ScanArgs(t, "from", &from)
		d.ScanArgs(t, "to", &to)
		clear(s.raw(t, d)[from:to])
	case "flip-bit":
		at, bit := 0, 0
		d.ScanArgs(t, "at", &at)
		d.MaybeScanArgs(t, "bit", &bit)
		s.raw(t, d)[at] ^= 1 << bit
	case "cut":
		at := 0
		d.ScanArgs(t, "at", &at)
		f := s.folder.names[s.segment(t, d)]
		f.cache = f.cache[:at]
	case "fail":
		s.fail(t, d)
	case "replay":
		return s.replay(t, d)
	case "trim":
		below := uint64(0)
		d.ScanArgs(t, "below", &below)
		if err := s.log.Trim(context.Background(), table.Position(below)); err != nil {
			return err.Error() + "\n"
		}
	case "dump":
		var w strings.Builder
		_ = printFolder(&w, s.folder) // a damage is in the text
		return w.String()
	case "files":
		return s.files()
	default:
		t.Fatalf("unknown verb %s", d.Cmd)
	}
	return ""
}

func (s *script) segment(t *testing.T, d *datadriven.TestData) string {
	n := s.log.segments[len(s.log.segments)-1].number
	d.MaybeScanArgs(t, "segment", &n)
	return segmentName(n)
}

func (s *script) raw(t *testing.T, d *datadriven.TestData) []byte {
	return s.folder.raw(s.segment(t, d))
}

func (s *script) fail(t *testing.T, d *datadriven.TestData) {
	var op string
	d.ScanArgs(t, "op", &op)
	err := errNothing
	if d.HasArg("effect") {
		err = errEffect
	}
	s.folder.hook = func(o, _ string) error {
		if o != op {
			return nil
		}
		s.folder.hook = nil
		return err
	}
}

func (s *script) append(t *testing.T, input string) string {
	var g *Group
	first := s.log.next
	for line := range strings.Lines(input) {
		x := s.txn(t, strings.Fields(line))
		g = s.log.Enqueue(Encode(x), s.log.next, firsts(x, uint64(s.log.next)*100))
	}
	_ = s.log.commit(func([]*Frame) {}) // the group has the error
	<-g.Done()
	if g.Err() != nil {
		return g.Err().Error() + "\n"
	}
	return fmt.Sprintf("durable %d to %d\n", first, s.log.durable)
}

func (s *script) txn(t *testing.T, words []string) *Txn {
	s.time++
	x := &Txn{Time: s.time * 1e6, ID: [16]byte{byte(s.time)}}
	kinds := map[string]Kind{"commit": Commit, "prepared": Prepared, "resolved": Resolved}
	if x.Kind = kinds[words[0]]; x.Kind == 0 {
		t.Fatalf("unknown kind %s", words[0])
	}
	for _, w := range words[1:] {
		key, text, _ := strings.Cut(w, "=")
		n := 0
		fmt.Sscan(text, &n)
		last := len(x.Tables) - 1
		switch key {
		case "writer":
			x.Writer = text
		case "seq":
			x.Sequence = int64(n)
		case "resolves":
			x.Resolves = table.Position(n)
		case "committed":
			x.Committed = true
		case "table":
			x.Tables = append(x.Tables, TableOps{Table: table.ID(n), Schema: 1})
		case "rows":
			x.Tables[last].Rows = scriptRows(n)
		case "deletes":
			for i := range n {
				x.Tables[last].Deletes = append(x.Tables[last].Deletes, table.Ref{File: 1, Row: uint64(i)})
			}
		case "truncate":
			x.Tables[last].Truncate = true
		default:
			t.Fatalf("unknown word %s", w)
		}
	}
	return x
}

func scriptRows(n int) *table.Batch {
	b := table.NewBatch(scriptSchema)
	for i := range n {
		b.Cols[0].AppendInt64(int64(i))
		b.Cols[1].AppendString(fmt.Sprintf("name %d", i))
		b.Rows++
	}
	return b
}

func (s *script) replay(t *testing.T, d *datadriven.TestData) string {
	from, dropped := uint64(1), uint64(0)
	d.MaybeScanArgs(t, "from", &from)
	d.MaybeScanArgs(t, "dropped", &dropped)
	var w strings.Builder
	l, err := openFolder(context.Background(), s.folder, Options{SegmentSize: 8 << 10, Random: bytes.NewReader(make([]byte, 16))}.withDefaults())
	if err == nil {
		s.log = l
		err = l.Replay(context.Background(), table.Position(from), func(id table.ID, _ int) (*table.Schema, error) {
			if uint64(id) == dropped {
				return nil, nil
			}
			return scriptSchema, nil
		}, func(x *Txn) error {
			printShort(&w, x)
			return nil
		})
	}
	if err != nil {
		fmt.Fprintf(&w, "%v (corrupt %v)\n", err, errors.Is(err, ErrCorrupt))
		return w.String()
	}
	fmt.Fprintf(&w, "next %d\n", l.next)
	return w.String()
}

func printShort(w *strings.Builder, x *Txn) {
	fmt.Fprintf(w, "%d %s", x.Position, x.Kind)
	if x.Writer != "" {
		fmt.Fprintf(w, " writer %s sequence %d", x.Writer, x.Sequence)
	}
	if x.Kind == Resolved {
		fmt.Fprintf(w, " of %d committed %v", x.Resolves, x.Committed)
	}
	for _, o := range x.Tables {
		fmt.Fprintf(w, " [table %d", o.Table)
		if o.Truncate {
			fmt.Fprint(w, " truncate")
		}
		if len(o.Deletes) > 0 {
			fmt.Fprintf(w, " deletes %v", o.Deletes)
		}
		if o.Rows != nil {
			fmt.Fprintf(w, " rows %d from %d, last %s", o.Rows.Rows, o.First, printValue(o.Rows.Cols[1], o.Rows.Rows-1))
		}
		fmt.Fprint(w, "]")
	}
	fmt.Fprintln(w)
}

func (s *script) files() string {
	var w strings.Builder
	names, _ := s.folder.list()
	for _, n := range sorted(names) {
		fmt.Fprintf(&w, "%s %d\n", n, len(s.folder.raw(n)))
	}
	return w.String()
}
