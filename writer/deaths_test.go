package writer

import (
	"flag"
	"math/rand/v2"
	"testing"
)

var deathSeed = flag.Uint64("deaths-seed", 1, "of the deaths of own rows")

// TestDeaths: rows die one by one, all at once, or never were, and come back in reverse order, as in a map of all rows.
func TestDeaths(t *testing.T) {
	const rows = 300
	r := rand.New(rand.NewPCG(*deathSeed, 0))
	var d deaths
	var want [rows]int32
	var undo []func()
	for time := 1; time < 20_000; time++ {
		before := want
		row, k := r.IntN(rows), r.IntN(10)
		switch {
		case k < 5 && want[row] == 0:
			d.bury(row, time)
			want[row] = int32(time + 1)
			undo = append(undo, func() { d.revive(row); want = before })
		case k == 5 && r.IntN(10) == 0:
			row = rows - 100 + len(d.cuts) // there are more rows each time
			d.cut(row, time)
			for i := range row {
				if want[i] == 0 {
					want[i] = int32(time + 1)
				}
			}
			undo = append(undo, func() { d.uncut(); want = before })
		case k > 5 && len(undo) > 0:
			undo[len(undo)-1]()
			undo = undo[:len(undo)-1]
		}
		begin := r.IntN(rows)
		n := r.IntN(rows - begin)
		died := false
		for i := begin; i < begin+n; i++ {
			died = died || want[i] != 0
		}
		if died && !d.any(begin, n) {
			t.Fatalf("seed %d, time %d: none of [%d, %d) died", *deathSeed, time, begin, begin+n)
		}
		for i := range want {
			if got := d.at(i); got != want[i] {
				t.Fatalf("seed %d, time %d: row %d died at %d, want %d", *deathSeed, time, i, got, want[i])
			}
		}
	}
}

// TestVoid: rows that were rolled back are dead from the beginning, until others have their numbers.
func TestVoid(t *testing.T) {
	var d deaths
	d.void(10, 20)
	d.cut(30, 7)
	if d.at(9) != 8 || d.at(10) != rolledBack || d.at(19) != rolledBack || d.at(20) != 8 || d.at(30) != 0 || d.any(30, 5) {
		t.Error("rows that were rolled back, and a cut")
	}
	d.uncut()
	d.unvoid(10, 20)
	if d.any(0, 100) || d.at(15) != 0 {
		t.Error("rows are dead whose numbers are others' now")
	}
}
