package planner_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"sluice/planner"
	"sluice/sql"
)

// world is a catalog with a plain lake table p, one with hooks h, one with a merge engine m, the same without the privileges to change rows as weak, one
// whose rows stay as k, a large one big, a heap table t, a temporary one tmp, a view v, and a user
// function f.
type world struct {
	lane      string
	overwrite bool
}

var relations = map[string]planner.Relation{
	"p":        {OID: 1, Kind: 'r', Lake: true, Plain: true, Reads: true},
	"h":        {OID: 2, Kind: 'r', Lake: true, Hooks: true, Reads: true},
	"big":      {OID: 3, Kind: 'r', Lake: true, Plain: true, Reads: true},
	"m":        {OID: 8, Kind: 'r', Lake: true, Plain: true, Reads: true, Writes: true, Merges: true},
	"weak":     {OID: 9, Kind: 'r', Lake: true, Plain: true, Reads: true, Merges: true},
	"k":        {OID: 10, Kind: 'r', Lake: true, Plain: true, Reads: true, Writes: true, Keeps: true},
	"t":        {OID: 4, Kind: 'r'},
	"tmp":      {OID: 5, Kind: 'r', Temp: true},
	"v":        {OID: 6, Kind: 'v'},
	"pg_class": {OID: 7, Kind: 'r', System: true},
}

func (w world) Relations(_ context.Context, names []sql.Name) (out []planner.Relation, err error) {
	for _, n := range names {
		if r, ok := relations[n.Name]; ok {
			r.Name = n
			out = append(out, r)
		}
	}
	return out, nil
}

func (w world) UserCode(_ context.Context, s *sql.Statement) (bool, error) {
	for _, f := range s.Functions {
		if f.Name == "f" {
			return true, nil
		}
	}
	return false, nil
}

func (w world) Database() string { return "lake" }

func (w world) Choice(context.Context) (planner.Choice, error) {
	return planner.Choice{Lane: w.lane, Rows: 1000, Bytes: 1 << 20, Overwrite: w.overwrite}, nil
}

func (w world) Size(_ context.Context, oid uint32) (rows, bytes int64, err error) {
	if oid == 3 {
		return 1 << 20, 1 << 30, nil
	}
	return 10, 1000, nil
}

// TestDecide prints the plan of each line of a script; the argument lane is what sluice.lane says.
func TestDecide(t *testing.T) {
	datadriven.RunTest(t, "testdata/lanes.txt", func(t *testing.T, d *datadriven.TestData) string {
		w := world{lane: "auto"}
		d.MaybeScanArgs(t, "lane", &w.lane)
		w.overwrite = d.HasArg("overwrite")
		var out strings.Builder
		for _, line := range strings.Split(d.Input, "\n") {
			stmts, err := sql.Parse(line)
			if err != nil {
				t.Fatal(err)
			}
			p, err := planner.Decide(context.Background(), stmts[0], w)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&out, "%v fill=%v keep=%t ddl=%t lookup=%t: %s\n", p.Lane, p.Fill, p.Keep, p.DDL, p.Lookup != nil, p.Reason)
		}
		return out.String()
	})
}
