package sql_test

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/datadriven"

	"sluice/sql"
)

// TestFacts prints what Parse finds in statements.
func TestFacts(t *testing.T) {
	datadriven.RunTest(t, "testdata/facts.txt", func(t *testing.T, d *datadriven.TestData) string {
		stmts, err := sql.Parse(d.Input)
		if err != nil {
			return "error: " + err.Error() + "\n"
		}
		out := ""
		for _, s := range stmts {
			out += fmt.Sprintf("%q kind=%d relations=%v reads=%v functions=%v write=%t locking=%t system=%t\n", s.Text, s.Kind, s.Relations, s.Reads,
				s.Functions, s.Write, s.Locking, s.System)
		}
		return out
	})
}
