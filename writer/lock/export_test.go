package lock

import "fmt"

// OnWait and OnCheck are called when a request has joined a queue, and when it has looked for a deadlock in vain.
func (m *Locks) OnWait(fn func(*Owner))  { m.onWait = fn }
func (m *Locks) OnCheck(fn func(*Owner)) { m.onCheck = fn }

// Waiting says whether o is in a queue.
func (o *Owner) Waiting() bool {
	o.locks.lockAll()
	defer o.locks.unlockAll()
	return o.waiting != nil
}

// Len is the number of entries.
func (m *Locks) Len() int {
	m.lockAll()
	defer m.unlockAll()
	n := 0
	for i := range m.shards {
		n += len(m.shards[i].entries) + m.shards[i].alone.used
	}
	return n
}

// Audit checks everything that must hold between two operations.
func (m *Locks) Audit() error {
	m.lockAll()
	defer m.unlockAll()
	for i := range m.shards {
		if err := m.auditSlots(&m.shards[i]); err != nil {
			return err
		}
		for k, e := range m.shards[i].entries {
			if err := m.auditEntry(&m.shards[i], k, e); err != nil {
				return fmt.Errorf("%v: %w", k, err)
			}
		}
	}
	return nil
}

func (m *Locks) auditEntry(s *shard, k Key, e *entry) error {
	if e.key != k || e.shard.Load() != s || m.shardOf(k) != s {
		return fmt.Errorf("entry in the wrong place")
	}
	gs := e.grants()
	if len(gs) == 0 && len(e.queue()) == 0 {
		return fmt.Errorf("entry without a reason")
	}
	if len(gs) == 0 && len(e.others()) > 0 {
		return fmt.Errorf("first holder missing")
	}
	for a := range gs {
		for b := range gs[:a] {
			if gs[a].owner == gs[b].owner {
				return fmt.Errorf("owner %d twice", gs[a].owner.id)
			}
			for mode := range modes {
				if gs[a].modes&(1<<mode) != 0 && conflicts[mode]&gs[b].modes != 0 {
					return fmt.Errorf("owners %d and %d hold conflicting modes", gs[a].owner.id, gs[b].owner.id)
				}
			}
		}
	}
	for _, w := range e.queue() {
		if w.entry != e || w.owner.waiting != w || w.granted {
			return fmt.Errorf("waiter %d is not in the queue it believes", w.owner.id)
		}
		if e.free(w.owner, w.mode) && !e.awaited(w.mode, w) {
			return fmt.Errorf("owner %d waits for what is free", w.owner.id)
		}
	}
	return nil
}

func (m *Locks) auditSlots(s *shard) error {
	used, contested := 0, 0
	for at, x := range s.alone.list {
		if x.owner == 0 {
			continue
		}
		used++
		if s.alone.find(x.name) != at {
			return fmt.Errorf("key %x is not found where it is", x.name)
		}
		if m.owner(x.owner) == nil {
			return fmt.Errorf("key %x is of an unknown owner", x.name)
		}
	}
	for k := range s.entries {
		if k.unique() {
			contested++
			if len(s.alone.list) > 0 && s.alone.list[s.alone.find(k.name())].owner != 0 {
				return fmt.Errorf("%v is held twice", k)
			}
		}
	}
	if used != s.alone.used || contested != s.contested {
		return fmt.Errorf("%d keys counted as %d, %d contested as %d", used, s.alone.used, contested, s.contested)
	}
	return nil
}
