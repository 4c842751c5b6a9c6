package history

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func a(key, v int) Op        { return Op{Key: key, Append: v} }
func r(key int, v ...int) Op { return Op{Key: key, Read: v} }
func ok(ops ...Op) Txn       { return Txn{Ops: ops} }
func failed(ops ...Op) Txn   { return Txn{Ops: ops, Outcome: Failed} }
func kinds(f []Anomaly) []string {
	var out []string
	for _, x := range f {
		if !slices.Contains(out, x.Kind) {
			out = append(out, x.Kind)
		}
	}
	return out
}

// TestClasses: a smallest history of each class, drawn from the papers, is found and called by its name.
func TestClasses(t *testing.T) {
	for _, c := range []struct {
		kind string
		txns []Txn
	}{
		{"", []Txn{ok(a(1, 1), a(2, 1)), ok(a(1, 2), r(2, 1)), ok(r(1, 1, 2), r(2, 1))}},
		{"", []Txn{ok(a(1, 1), a(1, 2), r(1, 1, 2)), ok(r(1)), ok(r(1, 1, 2))}},
		{"", []Txn{failed(a(1, 1)), ok(a(1, 2)), ok(r(1, 2))}},
		{"", []Txn{{Ops: []Op{a(1, 1)}, Outcome: Unknown}, ok(a(1, 2)), ok(r(1, 1, 2))}},
		{"G0", []Txn{ok(a(1, 1), a(2, 1)), ok(a(1, 2), a(2, 2)), ok(r(1, 1, 2), r(2, 2, 1))}},
		{"G1a", []Txn{failed(a(1, 1)), ok(r(1, 1))}},
		{"G1b", []Txn{ok(a(1, 1), a(1, 2)), ok(r(1, 1)), ok(r(1, 1, 2))}},
		{"G1c", []Txn{ok(a(1, 1), r(2, 2)), ok(a(2, 2), r(1, 1)), ok(r(1, 1), r(2, 2))}},
		{"G-single", []Txn{ok(a(1, 1), a(2, 1)), ok(r(1, 1), r(2)), ok(r(1, 1), r(2, 1))}},
		{"G-nonadjacent", []Txn{ok(a(1, 1)), ok(a(2, 1)), ok(r(1, 1), r(2)), ok(r(1), r(2, 1)), ok(r(1, 1), r(2, 1))}},
		{"G2", []Txn{ok(r(1), a(2, 1)), ok(r(2), a(1, 1)), ok(r(1, 1), r(2, 1))}},
		{"internal", []Txn{ok(a(1, 1), r(1)), ok(r(1, 1))}},
		{"duplicate", []Txn{ok(a(1, 1)), ok(r(1, 1, 1))}},
		{"incompatible", []Txn{ok(a(1, 1)), ok(a(1, 2)), ok(r(1, 2)), ok(r(1, 1, 2))}},
		{"lost", []Txn{{Ops: []Op{a(1, 1)}, Begin: 1, End: 2}, {Ops: []Op{a(1, 2)}, Begin: 1, End: 2}, {Ops: []Op{r(1, 2)}, Begin: 3, End: 4}}},
	} {
		found := kinds(Check(c.txns, false))
		if c.kind == "" && len(found) > 0 || c.kind != "" && !slices.Contains(found, c.kind) {
			t.Errorf("%q: found %v in %v", c.kind, Check(c.txns, false), c.txns)
		}
	}
}

// TestRealTime: a read that begins after an append was acknowledged and does not show it is a cycle with the clock only.
func TestRealTime(t *testing.T) {
	txns := []Txn{{Ops: []Op{a(1, 1)}, Begin: 1, End: 2}, {Ops: []Op{r(1)}, Begin: 3, End: 4}, {Ops: []Op{r(1, 1)}, Begin: 5, End: 6}}
	if found := Check(txns, false); len(found) > 0 {
		t.Errorf("without the clock: %v", found)
	}
	if found := kinds(Check(txns, true)); !slices.Contains(found, "G-single") {
		t.Errorf("with the clock: %v", found)
	}
}

// serial is a history that ran one transaction at a time.
func serial(rng *rand.Rand, n int) []Txn {
	lists, next := map[int][]int{}, 1
	var txns []Txn
	for i := range n {
		t := Txn{Begin: int64(2 * i), End: int64(2*i + 1)}
		for range 1 + rng.IntN(5) {
			k := rng.IntN(6)
			if rng.IntN(2) == 0 {
				lists[k] = append(lists[k], next)
				t.Ops = append(t.Ops, a(k, next))
				next++
			} else {
				t.Ops = append(t.Ops, r(k, slices.Clone(lists[k])...))
			}
		}
		txns = append(txns, t)
	}
	last := Txn{Begin: int64(2 * n), End: int64(2*n + 1)}
	for k := range 6 {
		last.Ops = append(last.Ops, r(k, lists[k]...))
	}
	return append(txns, last)
}

// TestMutations: a good history has no anomaly, and with one element of one read moved, dropped or doubled it has.
func TestMutations(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 4))
		txns := serial(rng, 40)
		if found := Check(txns, true); len(found) > 0 {
			t.Fatalf("seed %d: a serial history: %v", seed, found)
		}
		var reads []*Op
		for i := range txns {
			for j := range txns[i].Ops {
				if op := &txns[i].Ops[j]; len(op.Read) > 2 {
					reads = append(reads, op)
				}
			}
		}
		op := reads[rng.IntN(len(reads))]
		list, at := slices.Clone(op.Read), rng.IntN(len(op.Read)-1)
		switch rng.IntN(3) {
		case 0:
			list[at], list[at+1] = list[at+1], list[at]
		case 1:
			list = slices.Delete(list, at, at+1)
		default:
			list = slices.Insert(list, at, list[at])
		}
		op.Read = list
		if len(Check(txns, true)) == 0 {
			t.Errorf("seed %d: nothing found in a history whose read of key %d became %v", seed, op.Key, list)
		}
	}
}
