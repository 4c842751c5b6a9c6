package pgvalue_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"sluice/sql/pgvalue"
	"sluice/writer/table"
)

var rewrite = flag.Bool("rewrite", false, "write docs/types.md")

// pageTypes is the types of docs/types.md in its order. A typmod of -1 is none; numeric(p, s) is (p << 16 | s) + 4.
var pageTypes = []struct {
	name   string
	oid    uint32
	typmod int32
}{
	{"boolean", pgvalue.OIDBool, -1}, {"smallint", pgvalue.OIDInt2, -1}, {"integer", pgvalue.OIDInt4, -1}, {"bigint", pgvalue.OIDInt8, -1},
	{"real", pgvalue.OIDFloat4, -1}, {"double precision", pgvalue.OIDFloat8, -1},
	{"numeric(9, 2)", pgvalue.OIDNumeric, 9<<16 | 2 + 4}, {"numeric(18, 4)", pgvalue.OIDNumeric, 18<<16 | 4 + 4},
	{"numeric(38, 10)", pgvalue.OIDNumeric, 38<<16 | 10 + 4}, {"numeric", pgvalue.OIDNumeric, -1}, {"numeric(50, 2)", pgvalue.OIDNumeric, 50<<16 | 2 + 4},
	{"text", pgvalue.OIDText, -1}, {"varchar, varchar(n)", pgvalue.OIDVarchar, -1}, {"char(n)", pgvalue.OIDBpchar, -1}, {"name", pgvalue.OIDName, -1},
	{"bytea", pgvalue.OIDBytea, -1}, {"uuid", pgvalue.OIDUUID, -1}, {"date", pgvalue.OIDDate, -1}, {"time", pgvalue.OIDTime, -1},
	{"timestamp", pgvalue.OIDTimestamp, -1}, {"timestamptz", pgvalue.OIDTimestampTZ, -1}, {"json", pgvalue.OIDJSON, -1}, {"jsonb", pgvalue.OIDJSONB, -1},
	{"integer[]", 1007, -1}, {"text[]", 1009, -1}, {"timestamptz[]", 1185, -1}, {"interval", 1186, -1}, {"timetz", 1266, -1}, {"inet", 869, -1},
	{"money", 790, -1}, {"bit(n)", 1560, -1}, {"int4range", 3904, -1}, {"tsvector", 3614, -1}, {"xml", 142, -1}, {"point", 600, -1},
}

// iceberg is how Iceberg calls a lake type.
func iceberg(t table.Type) string {
	switch t.Kind {
	case table.Bool:
		return "boolean"
	case table.Int32:
		return "int"
	case table.Int64:
		return "long"
	case table.Float32:
		return "float"
	case table.Float64:
		return "double"
	case table.TimestampTZ:
		return "timestamptz"
	case table.List:
		return "list<" + iceberg(*t.Elem) + ">"
	}
	return t.String()
}

const pageHead = `# Types

Every Postgres type can be a column of a lake table. The lake's type is one that Iceberg knows; where it has none, the column is a string that holds
the exact text Postgres prints. Postgres' own type stands in the column's Iceberg doc, so nothing is lost on the way.
Printed by ` + "`TestTypesPage`" + ` in ` + "`sql/pgvalue`" + `; ` + "`conformance/testdata/sql/types_*.txt`" + ` compare values with a real Postgres.

* *Iceberg*: the type of the column in the table's Iceberg schema.
* *Companion*: the Postgres type has values that the Iceberg type cannot hold (infinity, NaN in numeric, years outside 0001 to 9999, numbers beyond the
  decimal, arrays of other dimensions or bounds). Such a value is NULL in the column and text in a second column, NAME__text, which a table
  gets with the first such value. The gateway gives back exactly what was written. A column with a companion is optional in Iceberg, NOT NULL or not.
* *Key*: may be part of a PRIMARY KEY or a unique constraint; others are refused with 0A000. An enum may, too.

| Postgres | Iceberg | Companion | Key |
|---|---|---|---|
`

// TestTypesPage keeps docs/types.md equal to what Lake and KeyOK say. With -rewrite it writes the page.
func TestTypesPage(t *testing.T) {
	const path = "../../docs/types.md"
	var page strings.Builder
	page.WriteString(pageHead)
	yes := map[bool]string{true: "yes"}
	for _, x := range pageTypes {
		lake, exact, ok := pgvalue.Lake(x.oid, x.typmod)
		name := iceberg(lake)
		if !ok {
			name += ", exact text"
		}
		fmt.Fprintf(&page, "| %s | %s | %s | %s |\n", x.name, name, yes[exact], yes[pgvalue.KeyOK(x.oid)])
	}
	page.WriteString("\nDomains are their base type. Enums, composite types, ranges and all other types are exact text.\n")
	if *rewrite {
		if err := os.WriteFile(path, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != page.String() {
		t.Errorf("docs/types.md is not what the code says (run with -rewrite): %v", err)
	}
}
