package realtime

import (
	"sync"
	"sync/atomic"

	"sluice/writer/table"
)

// Unique finds the rows of one constraint in the newest committed state by the hashes of their keys. It keeps rows that are
// dead as long as it likes, and rows of other keys may have the same hash: whoever asks checks both. It may be used from
// any goroutine.
//
// Rows of the tail and rows in files have tables of their own, so that a flush costs what it moves. Both are cut into shards
// by the hash, so that nobody waits long for a table that grows or is moved.
type Unique struct {
	loose  atomic.Bool // some keys were not exact: see HashKey
	shards [keyShards]keyShard
}

const (
	keyShards = 64
	shardBits = 6
	groupKeys = 64 // so many keys or more are looked at shard by shard
)

type keyShard struct {
	mu    sync.RWMutex
	tail  KeyTable // by tail row number
	files KeyTable // by pack
	_     [64]byte // the mutex of the next shard is on another cache line
}

// NewUnique makes an empty one.
func NewUnique() *Unique { return &Unique{} }

// The shard is the hash's top bits, so its table uses those below.
func (u *Unique) shard(hash uint64) (*keyShard, uint64) {
	return &u.shards[hash>>(64-shardBits)], within(hash)
}

func within(hash uint64) uint64 { return hash<<shardBits | hash>>(64-shardBits) }

func pack(ref table.Ref) uint64 { return uint64(ref.File)<<32 | ref.Row }

func unpack(x uint64) table.Ref { return table.Ref{File: table.FileID(x >> 32), Row: x & (1<<32 - 1)} }

// Lookup calls fn with the rows that may have the key, newest first, until fn returns false. It may offer a row twice.
func (u *Unique) Lookup(hash uint64, fn func(table.Ref) bool) {
	s, h := u.shard(hash)
	var newest [2]table.Ref // fn may take its time, so it is called without the mutex; the newest rows are nearly always enough
	refs, more := s.rows(h, newest[:0], len(newest))
	if !offer(refs, fn) || !more {
		return
	}
	refs, _ = s.rows(h, nil, 1<<62)
	offer(refs, fn)
}

func offer(refs []table.Ref, fn func(table.Ref) bool) bool {
	for _, ref := range refs {
		if !fn(ref) {
			return false
		}
	}
	return true
}

// rows appends at most n rows to refs; more says that there are more.
func (s *keyShard) rows(h uint64, refs []table.Ref, n int) (_ []table.Ref, more bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	add := func(ref table.Ref) bool {
		if more = len(refs) == n; !more {
			refs = append(refs, ref)
		}
		return !more
	}
	if s.tail.Rows(h, func(row uint64) bool { return add(table.Ref{Row: row}) }) {
		s.files.Rows(h, func(x uint64) bool { return add(unpack(x)) })
	}
	return refs, more
}

// Hits says which of the keys some row here may have; nil: none.
func (u *Unique) Hits(keys *Keys) (hits []bool) {
	u.each(keys, func(s *keyShard, rows []int32) {
		s.mu.RLock()
		defer s.mu.RUnlock()
		if s.tail.used == 0 && s.files.used == 0 {
			return
		}
		for _, i := range rows {
			if h := within(keys.hash[i]); s.tail.Has(h) || s.files.Has(h) {
				if hits == nil {
					hits = make([]bool, keys.Len())
				}
				hits[i] = true
			}
		}
	})
	return hits
}

// Put says that ref is now the newest row with the key.
func (u *Unique) Put(hash uint64, exact bool, ref table.Ref) {
	u.note(exact)
	s, h := u.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if ref.File == 0 {
		s.tail.Put(h, ref.Row)
	} else {
		s.files.Put(h, pack(ref))
	}
}

// Reserve makes room for about n more rows in files. In the order of hashes a table must not grow: all there is so far would be one cluster.
func (u *Unique) Reserve(n int) {
	for i := range u.shards {
		s := &u.shards[i]
		s.mu.Lock()
		s.files.Reserve(n/keyShards + n/keyShards/16)
		s.mu.Unlock()
	}
}

// PutRows is Put of the tail rows from first on.
func (u *Unique) PutRows(keys *Keys, first uint64) {
	u.note(!keys.loose)
	u.each(keys, func(s *keyShard, rows []int32) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.tail.Reserve(len(rows))
		for _, i := range rows {
			s.tail.Put(within(keys.hash[i]), first+uint64(i))
		}
	})
}

func (u *Unique) note(exact bool) {
	if !exact && !u.loose.Load() {
		u.loose.Store(true) // before the key can be found
	}
}

// Forget takes a row in files out of those with a hash.
func (u *Unique) Forget(hash uint64, ref table.Ref) {
	s, h := u.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files.Forget(h, pack(ref))
}

// each calls fn shard by shard with the rows whose keys are in it, in order.
func (u *Unique) each(keys *Keys, fn func(s *keyShard, rows []int32)) {
	if keys.Len() < groupKeys {
		for i := range keys.Len() {
			if h, ok := keys.At(i); ok {
				fn(&u.shards[h>>(64-shardBits)], []int32{int32(i)})
			}
		}
		return
	}
	g := keys.grouped()
	for i := range u.shards {
		if rows := g.order[g.begin[i]:g.begin[i+1]]; len(rows) > 0 {
			fn(&u.shards[i], rows)
		}
	}
}

// Moved renames the rows that a flip took. Those that were dead by then are forgotten; so is the row in files that a moved tail row
// replaces, if gone says that it is dead.
func (u *Unique) Moved(m *RowMap, gone func(table.Ref) bool) {
	for i := range u.shards {
		s := &u.shards[i]
		if len(m.Moved) > 0 {
			s.rename(m)
		}
		if m.Begin < m.End {
			s.moved(m, func(x uint64) bool { return gone(unpack(x)) })
		}
	}
}

func (s *keyShard) rename(m *RowMap) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files.Rename(func(x uint64) (uint64, bool) {
		ref, ok := m.Next(unpack(x))
		return pack(ref), ok
	})
}

func (s *keyShard) moved(m *RowMap, gone func(uint64) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files.Reserve(s.tail.used) // now: Split goes by hash, and a table that grows meanwhile is one long cluster
	s.tail.Split(m.End, func(h, row uint64) {
		if to, ok := m.Find(table.Ref{Row: row}); ok {
			s.files.Replace(h, pack(to), gone)
		}
	})
}

// Bytes is the memory it holds for rows of the tail and of files.
func (u *Unique) Bytes() (tail, files int64) {
	for i := range u.shards {
		s := &u.shards[i]
		s.mu.RLock()
		tail += s.tail.Bytes()
		files += s.files.Bytes()
		s.mu.RUnlock()
	}
	return tail, files
}
