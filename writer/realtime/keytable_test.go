package realtime_test

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"sluice/writer/realtime"
	"sluice/writer/table"
)

// numbers is a batch of n numbers from first on, and their constraint.
func numbers(first, n int) (*realtime.UniqueDef, *table.Batch) {
	def := &realtime.UniqueDef{Key: func(dst []byte, b *table.Batch, i int) ([]byte, bool) {
		return binary.BigEndian.AppendUint64(append(dst, 1), uint64(b.Cols[0].Int64(i))), false
	}}
	b := table.NewBatch(&table.Schema{Columns: []table.Column{{Name: "k", Type: table.Type{Kind: table.Int64}}}})
	for i := range n {
		b.Cols[0].AppendInt64(int64(first + i))
	}
	b.Rows = n
	return def, b
}

func keyBytes(u *realtime.Unique) int64 {
	tail, files := u.Bytes()
	return tail + files
}

// TestKeyMemory: a key takes at most 40 bytes, in the tail and in files, however many there are.
func TestKeyMemory(t *testing.T) {
	u := realtime.NewUnique()
	const step = 10_000
	for n := 0; n < 500_000; n += step {
		def, b := numbers(n, step)
		keys := realtime.KeysOf(def, b)
		u.PutRows(&keys, uint64(n)+1)
		if each := keyBytes(u) / int64(n+step); each > 40 {
			t.Fatalf("%d keys take %d bytes each", n+step, each)
		}
	}
	m := &realtime.RowMap{Begin: 1, End: 400_001}
	m.Add(1, 400_000, 1, 0)
	u.Moved(m, func(table.Ref) bool { return false })
	if each := keyBytes(u) / 500_000; each > 40 {
		t.Fatalf("after a flush keys take %d bytes each", each)
	}
	def, b := numbers(0, 500_000)
	keys := realtime.KeysOf(def, b)
	for i := range keys.Len() {
		h, _ := keys.At(i)
		want := table.Ref{File: 1, Row: uint64(i)}
		if i >= 400_000 {
			want = table.Ref{Row: uint64(i) + 1}
		}
		var got []table.Ref
		u.Lookup(h, func(ref table.Ref) bool { got = append(got, ref); return true })
		if len(got) != 1 || got[0] != want {
			t.Fatalf("key %d: %v, want %v", i, got, want)
		}
	}
}

// TestKeyTables does random things to a KeyTables and to a map.
func TestKeyTables(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var kt realtime.KeyTables
	model := map[uint64][]uint64{}
	next := uint64(0)
	def, _ := numbers(0, 0)
	for range 3000 {
		_, b := numbers(r.IntN(4000), 1+r.IntN(3)*r.IntN(60))
		keys := realtime.KeysOf(def, b)
		fresh := keys.Len() >= 64
		for _, h := range keys.Hashes() {
			fresh = fresh && len(model[h]) == 0
		}
		switch done := kt.PutNew(&keys, next); {
		case done != fresh:
			t.Fatalf("PutNew of %d: %v, want %v", keys.Len(), done, fresh)
		case !done:
			for i, h := range keys.Hashes() {
				kt.Put(h, next+uint64(i))
			}
		}
		for i, h := range keys.Hashes() {
			model[h] = append(model[h], next+uint64(i))
		}
		next += uint64(keys.Len())
		if r.IntN(3) > 0 { // taken back, newest first
			for _, h := range slices.Backward(keys.Hashes()) {
				kt.Undo(h)
				model[h] = model[h][:len(model[h])-1]
			}
		}
		for _, h := range keys.Hashes() {
			var got []uint64
			kt.Rows(h, func(row uint64) bool { got = append([]uint64{row}, got...); return true })
			if !slices.Equal(got, model[h]) {
				t.Fatalf("hash %x: %v, want %v", h, got, model[h])
			}
		}
	}
}

// TestForget takes rows out of chains at every place.
func TestForget(t *testing.T) {
	for gone := range uint64(3) {
		var k realtime.KeyTable
		for row := range uint64(3) {
			k.Put(7, row)
		}
		k.Forget(8, gone)
		k.Forget(7, 9)
		k.Forget(7, gone)
		var left []uint64
		k.Rows(7, func(row uint64) bool { left = append(left, row); return true })
		want := slices.DeleteFunc([]uint64{2, 1, 0}, func(r uint64) bool { return r == gone })
		if !slices.Equal(left, want) {
			t.Errorf("without %d: %v, want %v", gone, left, want)
		}
	}
}
