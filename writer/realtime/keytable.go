package realtime

import "math/bits"

// KeyTable finds rows, by number, from the hashes of their keys: open addressing, 16 bytes a slot, one slot a hash, at most three
// quarters full. Older rows with the same hash (earlier versions, or other keys) are chained behind the newest one. The zero
// value is empty.
type KeyTable struct {
	slots  []keySlot
	used   int
	before map[uint64]uint64 // the next older row with the same hash
}

// keySlot is the newest row with a hash, + 1; 0 is an empty slot.
type keySlot struct{ hash, row uint64 }

const (
	minKeySlots = 8
	chainBytes  = 40            // of one entry of before, about
	noRow       = ^uint64(0)    // + 1 is never: the slot stays although its only row was taken back
	slotBytes   = 16            // of one slot
	keyBytes    = slotBytes * 2 // of one key, about
)

// find is the slot of hash, or the empty one where it would be. There is one.
func (t *KeyTable) find(hash uint64) *keySlot {
	n := uint64(len(t.slots))
	at, _ := bits.Mul64(hash, n)
	for t.slots[at].row != 0 && t.slots[at].hash != hash {
		if at++; at == n {
			at = 0
		}
	}
	return &t.slots[at]
}

// Reserve makes room for n more hashes.
func (t *KeyTable) Reserve(n int) {
	need := t.used + n
	if n == 0 || need*4 <= len(t.slots)*3 {
		return
	}
	old := t.slots
	t.slots = make([]keySlot, max(minKeySlots, need*4/3+1, len(old)*3/2))
	for i := range old {
		if old[i].row != 0 {
			*t.find(old[i].hash) = old[i]
		}
	}
}

// Put says that row is the newest one with hash.
func (t *KeyTable) Put(hash, row uint64) {
	t.Reserve(1)
	s := t.find(hash)
	switch s.row {
	case 0:
		t.used++
	case noRow:
	default:
		if t.before == nil {
			t.before = map[uint64]uint64{}
		}
		t.before[row] = s.row - 1
	}
	*s = keySlot{hash, row + 1}
}

// putNew is Put unless a row has hash.
func (t *KeyTable) putNew(hash, row uint64) bool {
	s := t.find(hash)
	switch s.row {
	case 0:
		t.used++
	case noRow:
	default:
		return false
	}
	*s = keySlot{hash, row + 1}
	return true
}

// Undo takes back the newest Put of hash.
func (t *KeyTable) Undo(hash uint64) {
	s := t.find(hash)
	row := s.row - 1
	older, ok := t.before[row]
	if s.row = noRow; ok {
		s.row = older + 1
		delete(t.before, row)
	}
}

// Rows calls fn with the rows that have hash, newest first, until fn returns false.
func (t *KeyTable) Rows(hash uint64, fn func(row uint64) bool) bool {
	if t.used == 0 {
		return true
	}
	s := t.find(hash)
	if s.row == 0 || s.row == noRow {
		return true
	}
	row := s.row - 1
	for ok := true; ok; row, ok = t.before[row] {
		if !fn(row) {
			return false
		}
	}
	return true
}

// Has reports whether a row has hash.
func (t *KeyTable) Has(hash uint64) bool {
	if t.used == 0 {
		return false
	}
	s := t.find(hash)
	return s.row != 0 && s.row != noRow
}

// Replace is Put where the newest row with hash is forgotten if gone says so.
func (t *KeyTable) Replace(hash, row uint64, gone func(row uint64) bool) {
	t.Reserve(1)
	s := t.find(hash)
	if s.row == 0 || s.row == noRow || !gone(s.row-1) {
		t.Put(hash, row)
		return
	}
	if older, ok := t.before[s.row-1]; ok {
		delete(t.before, s.row-1)
		t.before[row] = older
	}
	s.row = row + 1
}

// Split forgets the rows below limit and calls fn with each, newest first among those with one hash.
func (t *KeyTable) Split(limit uint64, fn func(hash, row uint64)) {
	var rest KeyTable
	rest.Reserve(t.above(limit)) // in the order of hashes a table must not grow: all there is so far would be one cluster
	for i := range t.slots {
		if s := &t.slots[i]; s.row != 0 && s.row != noRow {
			t.splitChain(s, limit, &rest, fn)
		}
	}
	rest.before, t.before = t.before, nil
	if len(rest.before) == 0 {
		rest.before = nil
	}
	*t = rest
}

// above is how many slots have a row from limit on.
func (t *KeyTable) above(limit uint64) (n int) {
	for i := range t.slots {
		if s := &t.slots[i]; s.row != 0 && s.row != noRow && s.row > limit {
			n++
		}
	}
	return n
}

func (t *KeyTable) splitChain(s *keySlot, limit uint64, rest *KeyTable, fn func(hash, row uint64)) {
	row, last, kept := s.row-1, uint64(0), false
	if row >= limit {
		rest.Put(s.hash, row)
	}
	for ok := true; ok; {
		older, more := t.before[row]
		if row >= limit {
			last, kept = row, true
		} else {
			if kept {
				delete(t.before, last)
				kept = false
			}
			delete(t.before, row)
			fn(s.hash, row)
		}
		row, ok = older, more
	}
}

// Rename gives rows other names, which no row has, or forgets them where fn says false.
func (t *KeyTable) Rename(fn func(row uint64) (uint64, bool)) {
	for i := range t.slots {
		s := &t.slots[i]
		if s.row == 0 || s.row == noRow {
			continue
		}
		if _, chain := t.before[s.row-1]; chain {
			t.renameChain(s, fn)
		} else if row, ok := fn(s.row - 1); ok {
			s.row = row + 1
		} else {
			s.row = noRow
		}
	}
}

func (t *KeyTable) renameChain(s *keySlot, fn func(row uint64) (uint64, bool)) {
	var rows []uint64
	row := s.row - 1
	for more := true; more; {
		older, ok := t.before[row]
		delete(t.before, row)
		if to, live := fn(row); live {
			rows = append(rows, to)
		}
		row, more = older, ok
	}
	s.row = noRow
	for i, row := range rows {
		if i == 0 {
			s.row = row + 1
		} else {
			t.before[rows[i-1]] = row
		}
	}
}

// Bytes is the memory it holds.
func (t *KeyTable) Bytes() int64 {
	return int64(len(t.slots))*slotBytes + int64(len(t.before))*chainBytes
}

// KeyTables is a KeyTable that is cut into parts, each of which fits into a processor's cache, once many keys come at a time. The
// zero value is empty. One goroutine uses it.
type KeyTables struct {
	few   KeyTable // what came before the parts were made
	parts *[keyShards]KeyTable
}

// Put says that row is the newest one with hash.
func (t *KeyTables) Put(hash, row uint64) {
	if t.parts == nil {
		t.few.Put(hash, row)
		return
	}
	t.parts[hash>>(64-shardBits)].Put(within(hash), row)
}

// PutNew puts the rows from first on if there are many, none of their hashes has a row yet, and none comes twice. Otherwise it does
// nothing, and they have to be looked at one by one.
func (t *KeyTables) PutNew(keys *Keys, first uint64) bool {
	if keys.Len() < groupKeys {
		return false
	}
	if t.parts == nil {
		t.parts = new([keyShards]KeyTable)
	}
	g := keys.grouped()
	for i := range t.parts {
		rows := g.order[g.begin[i]:g.begin[i+1]]
		if n := t.putNew(&t.parts[i], keys, rows, first); n < len(rows) {
			for _, row := range g.order[:g.begin[i]+n] {
				t.Undo(keys.hash[row])
			}
			return false
		}
	}
	return true
}

// putNew puts the rows up to the first whose hash has a row already, and says how many that were.
func (t *KeyTables) putNew(part *KeyTable, keys *Keys, rows []int32, first uint64) int {
	part.Reserve(len(rows))
	for n, i := range rows {
		h := keys.hash[i]
		if t.few.Has(h) || !part.putNew(within(h), first+uint64(i)) {
			return n
		}
	}
	return len(rows)
}

// Undo takes back the newest Put of hash.
func (t *KeyTables) Undo(hash uint64) {
	if t.parts != nil {
		if p, h := &t.parts[hash>>(64-shardBits)], within(hash); p.Has(h) {
			p.Undo(h)
			return
		}
	}
	t.few.Undo(hash)
}

// Rows calls fn with the rows that have hash, newest first, until fn returns false.
func (t *KeyTables) Rows(hash uint64, fn func(row uint64) bool) {
	if t.parts == nil || t.parts[hash>>(64-shardBits)].Rows(within(hash), fn) {
		t.few.Rows(hash, fn)
	}
}
