package lock

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"sluice/writer/keyindex"
)

// An owner with very many unique keys keeps them in files on local disk, by name and the number of the step that took them. Then there is
// neither a slot nor an entry for such a key: whoever wants one looks into the files of the others, without a mutex, and makes an entry of
// what it finds, to wait for. A generation tells whether anything has changed between the look and the shard's mutex.
//
//	the owner spills   names into its files; listed, generation raised; slots emptied
//	another looks      generation read, files; shard's mutex: the same generation, else it looks again
//	ROLLBACK TO, end   steps void, generation raised; entries made of them are revoked
//
// So a key is found in the slots by whoever read the generation before it was raised, and in the files by everybody else.

// spills is what all owners have in files.
type spills struct {
	generation atomic.Uint64
	list       atomic.Pointer[[]*spilledKeys]
	// mu guards list for writers, and the rest of each spilledKeys. A shard's mutex may be held; it is never held over I/O.
	mu sync.Mutex
}

// spilledKeys is the keys of one owner in files.
type spilledKeys struct {
	owner  *Owner
	keys   *keyindex.Spill
	next   uint32                 // number of the next step
	void   atomic.Pointer[[]span] // steps that were given back
	shared map[Key]uint32         // keys that somebody came for, which are entries by now, and their steps
}

// span is the numbers [begin, end).
type span struct{ begin, end uint32 }

// found is a key in somebody's files.
type found struct {
	in     *spilledKeys
	number uint32
}

// sight is what an owner has seen of the files.
type sight struct {
	generation uint64
	hits       map[uint64]found // by hash
}

// seek finds keys in the files of all owners, its own among them.
func (o *Owner) seek(c *claim, hashes []uint64) (l sight, err error) {
	l.generation = o.locks.spills.generation.Load()
	list := o.locks.spills.list.Load()
	if list == nil || len(*list) == 0 {
		return l, nil
	}
	names := make([]keyindex.Entry, len(hashes))
	for i, h := range hashes {
		names[i].Hash = c.key(h).name()
	}
	for _, sp := range *list {
		err := sp.keys.Find(names, func(i int, e keyindex.Entry) bool {
			if sp.given(e.Row) {
				return true
			}
			if l.hits == nil {
				l.hits = map[uint64]found{}
			}
			l.hits[hashes[i]] = found{sp, e.Row}
			return false
		})
		if err != nil {
			return l, fmt.Errorf("look for locks: %w", err)
		}
	}
	return l, nil
}

// given reports whether a step was given back.
func (sp *spilledKeys) given(number uint32) bool {
	void := sp.void.Load()
	return void != nil && slices.ContainsFunc(*void, func(s span) bool { return s.begin <= number && number < s.end })
}

// lend makes a key in somebody's files an entry, which others can wait for; false: that is out of date. The caller holds the shard.
func (m *Locks) lend(s *shard, k Key, f found, generation uint64) bool {
	m.spills.mu.Lock()
	defer m.spills.mu.Unlock()
	if m.spills.generation.Load() != generation {
		return false
	}
	m.share(s, k) // its slot has not gone yet
	e := s.entry(k)
	if e.held(f.in.owner) == 0 {
		e.grant(f.in.owner, ForUpdate)
	}
	f.in.shared[k] = f.number
	return true
}

// spill moves the owner's keys to files. After an error they are where they were.
func (o *Owner) spill() error {
	sp := o.spilled
	if sp == nil {
		sp = &spilledKeys{owner: o, keys: keyindex.NewSpill(o.locks.dir, o.locks.spillBytes), next: 1, shared: map[Key]uint32{}}
	}
	begin := sp.next
	for i := range o.journal {
		if c := o.journal[i].claim; c != nil && len(c.hashes) > 0 {
			if err := sp.keys.Put(c.names(sp.next)); err != nil {
				sp.next++
				if o.locks.unspill(sp, span{begin, sp.next}); o.spilled == nil {
					sp.keys.Close()
				}
				return fmt.Errorf("spill locks: %w", err)
			}
			sp.next++
		}
	}
	o.spilled = sp
	o.locks.spills.show(sp)
	o.leaveSlots(begin)
	return nil
}

// names is the keys of a claim under the number of its step.
func (c *claim) names(number uint32) []keyindex.Entry {
	list := make([]keyindex.Entry, len(c.hashes))
	for i, h := range c.hashes {
		list[i] = keyindex.Entry{Hash: c.key(h).name(), Row: number}
	}
	return list
}

// show lists an owner's files, which have new keys.
func (s *spills) show(sp *spilledKeys) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*spilledKeys
	if old := s.list.Load(); old != nil {
		list = *old
	}
	if !slices.Contains(list, sp) {
		list = append(slices.Clone(list), sp)
		s.list.Store(&list)
	}
	s.generation.Add(1)
}

// unspill makes steps void that are in slots still: whoever came for one of their keys has made an entry of its slot.
func (m *Locks) unspill(sp *spilledKeys, steps span) {
	m.spills.mu.Lock()
	defer m.spills.mu.Unlock()
	sp.giveBack(steps)
	m.spills.generation.Add(1)
}

// giveBack makes steps void and says which keys of theirs are entries. The caller holds the mutex of the spills.
func (sp *spilledKeys) giveBack(steps span) (entries []Key) {
	var void []span
	if old := sp.void.Load(); old != nil {
		void = slices.Clone(*old)
	}
	if last := len(void) - 1; last >= 0 && void[last].begin == steps.end {
		void[last].begin = steps.begin
	} else {
		void = append(void, steps)
	}
	sp.void.Store(&void)
	for k, number := range sp.shared {
		if steps.begin <= number && number < steps.end {
			entries = append(entries, k)
			delete(sp.shared, k)
		}
	}
	return entries
}

// leaveSlots empties the slots of keys that are in files by now; the first of their steps is number begin.
func (o *Owner) leaveSlots(begin uint32) {
	for i := range o.journal {
		c := o.journal[i].claim
		if c == nil || len(c.hashes) == 0 {
			continue
		}
		c.number = begin
		begin++
		o.keys -= len(c.hashes)
		for hashes := c.hashes; len(hashes) > 0; {
			n := c.run(hashes)
			o.leaveShard(c, hashes[:n])
			hashes = hashes[n:]
		}
		c.hashes = nil
	}
}

// leaveShard is leaveSlots of one shard.
func (o *Owner) leaveShard(c *claim, hashes []uint64) {
	s := o.locks.shardOf(c.key(hashes[0]))
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range hashes {
		k := c.key(h)
		if len(s.alone.list) > 0 {
			if at := s.alone.find(k.name()); s.alone.list[at].owner == o.id {
				s.alone.remove(at)
				continue
			}
		}
		o.locks.spills.mu.Lock() // somebody has come for it
		o.spilled.shared[k] = c.number
		o.locks.spills.mu.Unlock()
	}
	if s.alone.used == 0 {
		s.alone.clear()
	}
}

// giveSteps gives the keys of steps in files back.
func (o *Owner) giveSteps(steps span) {
	sp, m := o.spilled, o.locks
	m.spills.mu.Lock()
	entries := sp.giveBack(steps)
	m.spills.generation.Add(1)
	m.spills.mu.Unlock()
	for _, k := range entries {
		s := m.shardOf(k)
		s.mu.Lock()
		if e := s.entries[k]; e != nil {
			e.revoke(o, ForUpdate)
			e.wake()
			s.drop(e)
		}
		s.mu.Unlock()
	}
}

// endSpill gives all keys in files back, and the files.
func (o *Owner) endSpill() {
	sp, s := o.spilled, &o.locks.spills
	if sp == nil {
		return
	}
	o.giveSteps(span{0, sp.next})
	s.mu.Lock()
	list := slices.DeleteFunc(slices.Clone(*s.list.Load()), func(x *spilledKeys) bool { return x == sp })
	s.list.Store(&list)
	s.mu.Unlock()
	sp.keys.Close()
	o.spilled = nil
}
