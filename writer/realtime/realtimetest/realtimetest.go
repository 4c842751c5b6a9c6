// Package realtimetest says what every store of row versions owes: the same rows for the same view, for ever.
//
// It owns one random suite and the plainest store there is (Naive, a list of all versions). Start with Run.
package realtimetest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"sluice/writer/table"
)

// ID is the table that the suite uses.
const ID = table.ID(1)

// Schema is (v bigint): a number that no other row has.
func Schema() *table.Schema {
	return &table.Schema{ID: 1, Columns: []table.Column{{Name: "v", FieldID: 1, Type: table.Type{Kind: table.Int64}}}}
}

// Key is the key of a row: v modulo ten, so that keys come again.
func Key(dst []byte, b *table.Batch, row int) ([]byte, bool) {
	return append(dst, byte('0'+b.Cols[0].Int64(row)%10)), false
}

// Op is what a transaction does: truncate, then delete rows by the names that View gave at some time, then insert.
type Op struct {
	Truncate bool
	Deletes  []table.Ref
	First    uint64
	Rows     []int64
}

// View is a snapshot.
type View interface {
	// Rows is v and name of every row that the view sees.
	Rows() map[int64]table.Ref
}

// Store is a store under test.
type Store interface {
	Apply(pos table.Position, op Op)
	View() View
	// Cut takes everything so far for a flush, and returns the function that publishes it.
	Cut() (publish func())
	// Move writes rows that are live in files, of those files that pick says, anew, and returns the function that publishes it.
	Move(pick func(file table.FileID) bool) (publish func())
	// Current is the newest name of a row and whether it is live.
	Current(ref table.Ref) (table.Ref, bool)
	// Live is the row that has the key now.
	Live(key []byte) (table.Ref, bool)
}

// Run drives a store and a Naive with the same random operations and compares all views, old ones too, at every step.
func Run(t *testing.T, open func(t *testing.T) Store) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			s := &suite{t: t, r: rand.New(rand.NewPCG(seed, 2)), store: open(t), naive: &Naive{}, next: 1}
			for range 120 {
				s.step()
			}
		})
	}
}

type pair struct {
	got  View
	want map[int64]table.Ref
}

type suite struct {
	t     *testing.T
	r     *rand.Rand
	store Store
	naive *Naive
	views []pair
	names map[int64][]table.Ref // every name a row ever had
	pos   table.Position
	next  uint64
	v     int64
	flip  func()
}

func (s *suite) step() {
	switch n := s.r.IntN(10); {
	case n < 6:
		s.apply()
	case n < 7 && s.flip == nil:
		s.flip = s.store.Cut()
	case n == 7 && s.flip == nil:
		s.flip = s.store.Move(func(table.FileID) bool { return s.r.IntN(2) == 0 })
	case n < 8 && s.flip != nil:
		s.flip()
		s.flip = nil
	default:
		s.views = append(s.views, pair{s.store.View(), s.naive.View().Rows()})
	}
	s.compare()
}

func (s *suite) apply() {
	live := s.store.View().Rows()
	op := Op{First: s.next}
	keys := map[int64]bool{}
	all := slices.Sorted(maps.Keys(live))
	if s.r.IntN(25) == 0 {
		op.Truncate, all = true, nil
	}
	for _, v := range all {
		if s.r.IntN(4) == 0 {
			names := s.names[v]
			op.Deletes = append(op.Deletes, names[s.r.IntN(len(names))])
		} else {
			keys[v%10] = true
		}
	}
	for range s.r.IntN(5) {
		if s.v++; !keys[s.v%10] {
			op.Rows = append(op.Rows, s.v)
			keys[s.v%10] = true
		}
	}
	s.pos++
	s.next += uint64(len(op.Rows))
	s.store.Apply(s.pos, op)
	s.naive.Apply(s.pos, op, s.dead(op))
	if s.r.IntN(10) == 0 {
		s.next += 3 // a prepared transaction was rolled back
	}
}

// dead is the rows that the op's names mean.
func (s *suite) dead(op Op) []int64 {
	var list []int64
	for v, names := range s.names {
		if slices.ContainsFunc(names, func(r table.Ref) bool { return slices.Contains(op.Deletes, r) }) {
			list = append(list, v)
		}
	}
	return list
}

func (s *suite) compare() {
	s.t.Helper()
	now := s.store.View().Rows()
	want := s.naive.View().Rows()
	s.same(now, want)
	if s.names == nil {
		s.names = map[int64][]table.Ref{}
	}
	for v, ref := range now {
		if !slices.Contains(s.names[v], ref) {
			s.names[v] = append(s.names[v], ref)
		}
	}
	for _, p := range s.views {
		s.same(p.got.Rows(), p.want)
	}
	for v, names := range s.names {
		for _, name := range names {
			cur, live := s.store.Current(name)
			if _, is := now[v]; live != is || live && cur != now[v] {
				s.t.Fatalf("row %d, once called %v: current %v %v, want %v %v", v, name, cur, live, now[v], is)
			}
		}
	}
	s.keys(now)
}

func (s *suite) keys(now map[int64]table.Ref) {
	s.t.Helper()
	holder := map[int64]table.Ref{}
	for v, ref := range now {
		holder[v%10] = ref
	}
	for k := range int64(10) {
		ref, ok := s.store.Live([]byte{byte('0' + k)})
		if want, is := holder[k]; ok != is || ok && ref != want {
			s.t.Fatalf("key %d: %v %v, want %v %v", k, ref, ok, want, is)
		}
	}
}

func (s *suite) same(got, want map[int64]table.Ref) {
	s.t.Helper()
	if g, w := slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)); !slices.Equal(g, w) {
		s.t.Fatalf("position %d: view has %v, want %v", s.pos, g, w)
	}
}

// Naive is a list of all versions of all rows.
type Naive struct {
	versions []version
	now      table.Position
}

type version struct {
	v          int64
	born, died table.Position
}

// Apply is Store.Apply, with the deleted rows by value.
func (n *Naive) Apply(pos table.Position, op Op, deletes []int64) {
	for i := range n.versions {
		r := &n.versions[i]
		if r.died == 0 && (op.Truncate || slices.Contains(deletes, r.v)) {
			r.died = pos
		}
	}
	for _, v := range op.Rows {
		n.versions = append(n.versions, version{v: v, born: pos})
	}
	n.now = pos
}

// View is all rows at the newest position. It has no names for them.
func (n *Naive) View() View { return naiveView{n, n.now} }

type naiveView struct {
	n  *Naive
	at table.Position
}

func (v naiveView) Rows() map[int64]table.Ref {
	rows := map[int64]table.Ref{}
	for _, r := range v.n.versions {
		if r.born <= v.at && (r.died == 0 || r.died > v.at) {
			rows[r.v] = table.Ref{}
		}
	}
	return rows
}
