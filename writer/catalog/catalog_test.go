package catalog_test

import (
	"testing"

	"sluice/writer/catalog"
	"sluice/writer/catalog/catalogtest"
	"sluice/writer/table"
)

func TestMemory(t *testing.T) {
	catalogtest.Run(t, func(*testing.T) catalogtest.Subject {
		m := &catalog.Memory{}
		return catalogtest.Subject{
			Catalog: m,
			Put: func(_ *testing.T, n int, name string, version int) table.ID {
				m.Put(table.ID(n), "public", name, version)
				return table.ID(n)
			},
			Decide: func(_ *testing.T, txid [16]byte) { m.Decide(txid, true) },
		}
	})
}
