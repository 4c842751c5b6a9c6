package sql_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"sluice/sql"
)

// duckTables is two tables with a column of every type.
func duckTables(n sql.Name) *sql.DuckTable {
	cols := []sql.DuckColumn{{Name: "i2", OID: 21}, {Name: "i4", OID: 23}, {Name: "i8", OID: 20}, {Name: "n", OID: 1700, Precision: 15, Scale: 2, Declared: true},
		{Name: "free", OID: 1700, Precision: 38, Scale: 18}, {Name: "v", OID: 1043}, {Name: "c", OID: 1042, Length: 5}, {Name: "d", OID: 1082},
		{Name: "ts", OID: 1114}, {Name: "f8", OID: 701}, {Name: "b", OID: 16}, {Name: "j", OID: 0}}
	switch n.Name {
	case "t":
		return &sql.DuckTable{ID: 1, Columns: cols}
	case "u":
		for i := range cols {
			cols[i].Name = "u" + cols[i].Name
		}
		return &sql.DuckTable{ID: 2, Columns: cols}
	}
	return nil
}

// TestDuckDB prints statements for the scan lane, or why they are not for it.
func TestDuckDB(t *testing.T) {
	datadriven.RunTest(t, "testdata/duckdb.txt", func(t *testing.T, d *datadriven.TestData) string {
		var out strings.Builder
		for _, line := range strings.Split(d.Input, "\n") {
			stmts, err := sql.Parse(line)
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			q, err := stmts[0].DuckDB(sql.DuckOptions{Tables: duckTables, Params: []sql.DuckParam{{OID: 23, Text: "7"}, {OID: 25, Text: "it's"}}, Wide: d.Cmd == "wide"})
			if err != nil {
				fmt.Fprintln(&out, err)
				continue
			}
			fmt.Fprintln(&out, q.Text)
			if d.HasArg("outputs") {
				fmt.Fprintf(&out, "%+v\n%+v\n", q.Uses, q.Outputs)
			}
		}
		return out.String()
	})
}
