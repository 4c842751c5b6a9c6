package conformance_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/conformance/harness"
)

// guardCases is how many ways to reach an empty shadow were found; each must be a case of testdata/guard.
const guardCases = 74

// TestGuard runs every way a statement can reach a shadow relation: the answer is what Postgres gives on a
// table with the same rows, or 0A000 with nothing changed, never the answer of an empty table. The rows lie
// partly in files and partly in the tail.
func TestGuard(t *testing.T) {
	paths, err := filepath.Glob("testdata/guard/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	cases := 0
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		cases += bytes.Count(text, []byte("# case: "))
		for _, mode := range []string{"simple", "extended"} {
			t.Run(mode+"/"+strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
				script, err := harness.ReadScript(path)
				if err != nil {
					t.Fatal(err)
				}
				script.Run(t, harness.NewPair(t), harness.Mode{Extended: mode == "extended", Show: *sqlShow})
			})
		}
	}
	if cases < guardCases {
		t.Errorf("%d guard cases, want at least %d", cases, guardCases)
	}
}
