package catalogpg_test

import "sluice/writer/catalog"

func flipOf(id string, tables ...catalog.TableFlip) catalog.Flip {
	return catalog.Flip{ID: id, Tables: tables}
}
