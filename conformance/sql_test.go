package conformance_test

import (
	"flag"
	"path/filepath"
	"strings"
	"testing"

	"sluice/conformance/harness"
)

var (
	sqlModes = flag.String("modes", "simple,extended", "how scripts are sent: simple, extended, flush (flush after every statement)")
	sqlShow  = flag.Bool("show", false, "log what Postgres answers to the scripts")
	sqlLane  = flag.String("sql-lane", "", "SET sluice.lane in every session of the scripts")
)

// TestSQL runs every script of testdata/sql against Postgres and Sluice in each mode.
func TestSQL(t *testing.T) {
	paths, err := filepath.Glob("testdata/sql/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, mode := range strings.Split(*sqlModes, ",") {
		for _, path := range paths {
			name := mode + "/" + strings.TrimSuffix(filepath.Base(path), ".txt")
			t.Run(name, func(t *testing.T) {
				script, err := harness.ReadScript(path)
				if err != nil {
					t.Fatal(err)
				}
				script.Run(t, harness.NewPair(t), harness.Mode{Extended: mode == "extended", Flush: mode == "flush", Lane: *sqlLane, Show: *sqlShow})
			})
		}
	}
}
