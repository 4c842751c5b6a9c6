package realtime

import (
	"sync"
	"sync/atomic"

	"sluice/writer/table"
)

// KeyFunc appends the key of a row to dst. Two rows are equal in the constraint's sense exactly if their keys are the same
// bytes. hasNull says that the row conflicts with no other (a NULL among the columns, unless NULLS NOT DISTINCT).
type KeyFunc func(dst []byte, b *table.Batch, row int) (key []byte, hasNull bool)

// UniqueDef is one unique constraint of a table.
type UniqueDef struct {
	ID   uint32 // unique in the whole database (the oid of the index), never reused
	Name string
	Key  KeyFunc
	// Columns are the columns that Key looks at (indexes into the schema), so that a start reads only these of the files; nil: all.
	Columns []int
}

// Keys are the keys of the rows of a batch under one constraint, in one piece of memory.
type Keys struct {
	text string
	ends []int // of key i in text; the key begins where the one before ends
	null []bool
}

// KeysOf makes the keys of all rows of b.
func KeysOf(key KeyFunc, b *table.Batch) Keys {
	k := Keys{ends: make([]int, b.Rows)}
	var text []byte
	for i := range b.Rows {
		at := len(text)
		var null bool
		if text, null = key(text, b, i); null {
			if text = text[:at]; k.null == nil {
				k.null = make([]bool, b.Rows)
			}
			k.null[i] = true
		}
		k.ends[i] = len(text)
	}
	k.text = string(text)
	return k
}

// Len is the number of rows.
func (k *Keys) Len() int { return len(k.ends) }

// At is the key of row i; false if the row conflicts with nothing.
func (k *Keys) At(i int) (string, bool) {
	if k.null != nil && k.null[i] {
		return "", false
	}
	begin := 0
	if i > 0 {
		begin = k.ends[i-1]
	}
	return k.text[begin:k.ends[i]], true
}

// Unique maps the keys of one constraint to rows of the newest committed state. It keeps keys of dead rows as long as it
// likes: whoever asks checks that the row is live. Methods may be called from any goroutine.
type Unique interface {
	// Lookup calls fn with the rows that may have key, newest first, until fn returns false.
	Lookup(key string, fn func(table.Ref) bool)
	// Put says that ref is now the newest row with key.
	Put(key string, ref table.Ref)
	// Cut begins a flush: rows put until now may be moved by the next Moved, later ones are not. It may come several times.
	Cut()
	// Moved renames the rows that a flush took.
	Moved(m *RowMap)
	// Bytes is the memory it holds.
	Bytes() int64
}

// keyed is one row that has or had a key, and the row before it.
type keyed struct {
	ref  table.Ref
	prev atomic.Pointer[keyed]
}

// keyMap is the plain Unique: all keys in memory. Older rows of a key stay reachable until the next flush, for views that
// began before the newest. A flush turns the map of the tail over as a whole: new rows go to young while the rows of old
// move to files a few at a time, so that nobody waits long.
type keyMap struct {
	mu    sync.RWMutex
	young map[string]*keyed // put since the last Cut
	old   map[string]*keyed // being flushed
	files map[string]table.Ref
	bytes int64
}

const keyOverhead = 64 // of one map entry beside the key's own bytes, about

// NewUnique makes an empty map that keeps every key in memory.
func NewUnique() Unique {
	return &keyMap{young: map[string]*keyed{}, files: map[string]table.Ref{}}
}

func (k *keyMap) Lookup(key string, fn func(table.Ref) bool) {
	k.mu.RLock()
	e := k.young[key]
	if e == nil {
		e = k.old[key]
	}
	file, inFile := k.files[key]
	k.mu.RUnlock()
	for ; e != nil; e = e.prev.Load() {
		if !fn(e.ref) {
			return
		}
	}
	if inFile {
		fn(file)
	}
}

func (k *keyMap) Put(key string, ref table.Ref) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if ref.File != 0 {
		k.putFile(key, ref)
		return
	}
	e := &keyed{ref: ref}
	k.bytes += keyOverhead / 2
	if before := k.young[key]; before != nil {
		e.prev.Store(before)
	} else {
		e.prev.Store(k.old[key])
		k.bytes += int64(len(key) + keyOverhead)
	}
	k.young[key] = e
}

func (k *keyMap) putFile(key string, ref table.Ref) {
	if _, ok := k.files[key]; !ok {
		k.bytes += int64(len(key) + keyOverhead)
	}
	k.files[key] = ref
}

func (k *keyMap) Cut() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.old == nil {
		k.old, k.young = k.young, map[string]*keyed{}
		return
	}
	// The flush before failed: its rows are still here and move with the next one.
	for key, e := range k.young {
		if k.old[key] != nil {
			k.bytes -= int64(len(key) + keyOverhead)
		}
		k.old[key] = e
	}
	k.young = map[string]*keyed{}
}

const moveStep = 1024 // keys that move under one hold of the mutex

func (k *keyMap) Moved(m *RowMap) {
	keys := make([]string, 0, moveStep)
	for key := range k.old { // nobody changes old meanwhile
		if keys = append(keys, key); len(keys) == moveStep {
			k.move(keys, m)
			keys = keys[:0]
		}
	}
	k.move(keys, m)
	k.mu.Lock()
	k.old = nil
	k.mu.Unlock()
}

// move makes the newest flushed row of each key its row in files. Whatever is older is cut off the chain.
func (k *keyMap) move(keys []string, m *RowMap) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range keys {
		k.bytes -= int64(len(key) + keyOverhead)
		moved := false
		for e := k.old[key]; e != nil; e = e.prev.Swap(nil) {
			k.bytes -= keyOverhead / 2
			if to, ok := m.Find(e.ref); ok && !moved {
				k.putFile(key, to)
				moved = true
			}
		}
	}
}

func (k *keyMap) Bytes() int64 {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.bytes
}
