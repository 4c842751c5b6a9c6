package lock

import (
	"context"
	"math/bits"

	"sluice/writer/invariants"
	"sluice/writer/table"
)

// Unique keys are locked by the million and hardly ever contended, so a key that one owner holds alone is only a slot in an
// open-addressing table of its shard, and eight bytes in the owner's journal. It becomes an entry when somebody else wants it.

// claim is the keys of one unique index that one AcquireKeys took: a step of the journal.
type claim struct {
	table  table.ID
	space  uint32
	hashes []uint64
	number uint32 // of the step in files; 0: the keys are in slots, or entries
}

// slot is one key that an owner holds alone; owner 0 is no key.
type slot struct {
	name  uint64
	owner OwnerID
}

// slots is an open-addressing table with linear probing, at most three quarters full.
type slots struct {
	list []slot // its length is a power of two
	used int
}

const (
	minSlots  = 8
	keepSlots = 1 << 8 // an empty table that is larger is given back
	groupFrom = 64     // so many keys or more are taken shard by shard
)

// unique says whether k is a key of a unique index.
func (k Key) unique() bool { return k.Space != 0 && k.Space != TableSpace }

// name is a unique key in 64 bits. Two keys with one name only wait for each other without need.
func (k Key) name() uint64 {
	return k.A ^ k.B*0x9e3779b97f4a7c15 ^ (uint64(k.Table)<<32|uint64(k.Space))*0xd6e8feb86659fd93
}

// AcquireKeys takes keys of a unique index, given by their hashes, ForUpdate. Of many at a time the order is that of the
// hashes, so that two owners who want the same keys do not stand in each other's way.
func (o *Owner) AcquireKeys(ctx context.Context, t table.ID, space uint32, hashes []uint64, w Wait) (waited bool, err error) {
	invariants.Check(Key{Space: space}.unique(), "unique keys in space %d", space)
	o.locks.register(o)
	c := &claim{table: t, space: space}
	o.journal = append(o.journal, taken{claim: c})
	if len(hashes) >= groupFrom {
		hashes = c.grouped(hashes)
		c.hashes = hashes[:0] // what is taken is at most what was looked at
	}
	seen, err := o.seek(c, hashes)
	for len(hashes) > 0 && err == nil {
		n, free := o.claim(c, hashes, &seen)
		if hashes = hashes[n:]; free && n == 0 { // something has changed since the look
			seen, err = o.seek(c, hashes)
		}
		if free {
			continue
		}
		had, err := o.Acquire(ctx, c.key(hashes[0]), ForUpdate, w)
		if waited = waited || had; err != nil {
			return waited, err
		}
		hashes = hashes[1:]
	}
	if err == nil && o.keys > o.locks.spillKeys && o.locks.dir != "" {
		err = o.spill()
	}
	return waited, err
}

// KeyBytes is about the memory of the owner's locks on unique keys.
func (o *Owner) KeyBytes() int64 {
	n := int64(o.keys) * keyBytes
	if o.spilled != nil {
		n += o.spilled.keys.Bytes()
	}
	return n
}

// keyBytes is a slot of a table half full, and the hash in the journal.
const keyBytes = 32 + 8

func (c *claim) key(hash uint64) Key { return Key{Table: c.table, Space: c.space, A: hash} }

// grouped is the hashes in the order of their shards.
func (c *claim) grouped(hashes []uint64) []uint64 {
	var begin [shards + 1]int
	for _, h := range hashes {
		begin[c.key(h).name()>>58+1]++
	}
	for i := range shards {
		begin[i+1] += begin[i]
	}
	out := make([]uint64, len(hashes))
	for _, h := range hashes {
		i := c.key(h).name() >> 58
		out[begin[i]] = h
		begin[i]++
	}
	return out
}

// claim takes keys from the front as long as they are in one shard and free, or the owner's already. free is false if the next
// one is not. None, and free, is that seen is out of date.
func (o *Owner) claim(c *claim, hashes []uint64, seen *sight) (n int, free bool) {
	s := o.locks.shardOf(c.key(hashes[0]))
	run := c.run(hashes)
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.locks.spills.generation.Load() != seen.generation {
		return 0, true
	}
	s.alone.reserve(run)
	for i, h := range hashes[:run] {
		k := c.key(h)
		if f, hit := seen.hits[h]; hit {
			if f.in.owner == o {
				continue
			}
			return i, !o.locks.lend(s, k, f, seen.generation)
		}
		at := s.alone.find(k.name())
		switch holder := s.alone.list[at].owner; {
		case holder == o.id:
		case holder != 0 || s.contested > 0 && s.entries[k] != nil:
			return i, false
		default:
			s.alone.list[at] = slot{k.name(), o.id}
			s.alone.used++
			c.hashes = append(c.hashes, h)
			o.keys++
		}
	}
	return run, true
}

// run is how many hashes from the front are in one shard.
func (c *claim) run(hashes []uint64) int {
	first := c.key(hashes[0]).name() >> 58
	n := 1
	for n < len(hashes) && c.key(hashes[n]).name()>>58 == first {
		n++
	}
	return n
}

// unclaim gives the keys of a claim back.
func (o *Owner) unclaim(c *claim) {
	if c.number != 0 && o.spilled != nil {
		o.giveSteps(span{c.number, c.number + 1})
	}
	o.keys -= len(c.hashes)
	for hashes := c.hashes; len(hashes) > 0; {
		n := c.run(hashes)
		o.locks.shardOf(c.key(hashes[0])).unclaimAll(o, c, hashes[:n])
		hashes = hashes[n:]
	}
}

func (s *shard) unclaimAll(o *Owner, c *claim, hashes []uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.contested == 0 && s.alone.used == len(hashes) { // a claimed key is a slot or an entry, so all slots are these keys
		s.alone.clear()
		return
	}
	for _, h := range hashes {
		s.unclaim(o, c.key(h))
	}
	if s.alone.used == 0 {
		s.alone.clear()
	}
}

func (s *shard) unclaim(o *Owner, k Key) {
	if len(s.alone.list) > 0 {
		if at := s.alone.find(k.name()); s.alone.list[at].owner == o.id {
			s.alone.remove(at)
			return
		}
	}
	e := s.entries[k] // somebody else came for it
	invariants.Check(e != nil, "I12: %v released but not held", k)
	if e != nil {
		e.revoke(o, ForUpdate)
		e.wake()
		s.drop(e)
	}
}

// share makes a key that one owner holds alone an entry, which others can wait for.
func (m *Locks) share(s *shard, k Key) {
	if s.alone.used == 0 {
		return
	}
	at := s.alone.find(k.name())
	holder := s.alone.list[at].owner
	if holder == 0 {
		return
	}
	s.alone.remove(at)
	s.entry(k).grant(m.owner(holder), ForUpdate)
}

// register makes the owner known by its id as long as it holds keys.
func (m *Locks) register(o *Owner) {
	if o.registered {
		return
	}
	o.registered = true
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open[o.id] = o
}

func (m *Locks) unregister(o *Owner) {
	if !o.registered {
		return
	}
	o.registered = false
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.open, o.id)
}

func (m *Locks) owner(id OwnerID) *Owner {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.open[id]
}

func (t *slots) home(name uint64) int {
	return int(name << 6 >> (64 - bits.TrailingZeros(uint(len(t.list)))))
}

// find is the slot of name, or the empty one where it would be.
func (t *slots) find(name uint64) int {
	at := t.home(name)
	for t.list[at].owner != 0 && t.list[at].name != name {
		at = (at + 1) & (len(t.list) - 1)
	}
	return at
}

// reserve makes room for n more.
func (t *slots) reserve(n int) {
	size := max(len(t.list), minSlots)
	for (t.used+n)*4 > size*3 {
		size *= 2
	}
	if size == len(t.list) {
		return
	}
	old := t.list
	t.list = make([]slot, size)
	for _, s := range old {
		if s.owner != 0 {
			t.list[t.find(s.name)] = s
		}
	}
}

// remove empties a slot and closes the gap: no slot may lie behind an empty one that it would be found at.
func (t *slots) remove(at int) {
	mask := len(t.list) - 1
	for next := (at + 1) & mask; t.list[next].owner != 0; next = (next + 1) & mask {
		if (next-t.home(t.list[next].name))&mask >= (next-at)&mask {
			t.list[at] = t.list[next]
			at = next
		}
	}
	t.list[at] = slot{}
	t.used--
}

// clear empties the table.
func (t *slots) clear() {
	if t.used = 0; len(t.list) > keepSlots {
		t.list = nil
		return
	}
	clear(t.list)
}
