package conformance_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/conformance/harness"
)

// TestTPCHInScanLane asks the 22 queries of TPC-H with sluice.lane = scan, which fails where that lane cannot answer: once from files
// alone, once with deleted rows and rows in memory.
func TestTPCHInScanLane(t *testing.T) {
	pair := harness.NewPair(t)
	if !pair.Got.Sluice {
		t.Skip("there is no scan lane in Postgres")
	}
	const scale = "0.01"
	install(t, "tpch", scale)
	both(t, pair, statements(t, "testdata/tpch/schema.sql")...)
	for _, table := range []string{"region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem"} {
		psqlCopy(t, pair, table, filepath.Join(".cache", "tpch-"+scale, table+".csv"))
	}
	if err := pair.Got.Flush(); err != nil {
		t.Fatal(err)
	}
	both(t, pair, "set sluice.lane = 'scan'")
	t.Run("files", func(t *testing.T) { askTPCH(t, pair) })
	both(t, pair, "delete from orders where o_orderkey % 7 = 3", "update lineitem set l_quantity = l_quantity + 1 where l_orderkey % 11 = 5",
		"insert into region values (7, 'ATLANTIS', null)", "begin", "delete from lineitem where l_orderkey % 13 = 2")
	t.Run("changed", func(t *testing.T) { askTPCH(t, pair) })
	both(t, pair, "rollback")
}

func askTPCH(t *testing.T, pair *harness.Pair) {
	paths, err := filepath.Glob("testdata/tpch/q*.sql")
	if err != nil || len(paths) != 22 {
		t.Fatalf("%d queries, want 22: %v", len(paths), err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".sql"), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			both(t, pair, string(text))
		})
	}
}
