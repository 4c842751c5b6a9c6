package realtime

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"

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
	// Hash makes 64 bits of a key; nil: HashKey. Tests put a bad one here.
	Hash func(key []byte) uint64
}

// HashKey makes 64 bits of a key. exact says that no other exact key has the same: keys of one number (a mark and eight bytes)
// are only mixed, so they need not be compared.
func HashKey(key []byte) (hash uint64, exact bool) {
	if len(key) == 9 && key[0] == 1 {
		return mix(binary.BigEndian.Uint64(key[1:])), true
	}
	return xxh3.Hash(key), false
}

// mix is a bijection (the finalizer of splitmix64).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// HashOf is HashKey, or what the constraint has instead.
func (d *UniqueDef) HashOf(key []byte) (hash uint64, exact bool) {
	if d.Hash != nil {
		return d.Hash(key), false
	}
	return HashKey(key)
}

// Keys are the hashed keys of rows under one constraint.
type Keys struct {
	hash  []uint64
	null  []bool    // nil: no row's key has NULL
	loose bool      // equal hashes may be of different keys
	group *grouping // once it was asked for
}

// grouping is the rows that may conflict by shard: those of shard i are order[begin[i]:begin[i+1]].
type grouping struct {
	order []int32
	begin [keyShards + 1]int
}

func (k *Keys) grouped() *grouping {
	if k.group != nil {
		return k.group
	}
	g := &grouping{}
	for i := range k.hash {
		if h, ok := k.At(i); ok {
			g.begin[h>>(64-shardBits)+1]++
		}
	}
	for i := range keyShards {
		g.begin[i+1] += g.begin[i]
	}
	g.order = make([]int32, g.begin[keyShards])
	next := g.begin
	for i := range k.hash {
		if h, ok := k.At(i); ok {
			at := h >> (64 - shardBits)
			g.order[next[at]] = int32(i)
			next[at]++
		}
	}
	k.group = g
	return g
}

// KeysOf makes the keys of all rows of b.
func KeysOf(def *UniqueDef, b *table.Batch) Keys {
	k := Keys{hash: make([]uint64, b.Rows)}
	var key []byte
	for i := range b.Rows {
		var null, exact bool
		if key, null = def.Key(key[:0], b, i); null {
			k.setNull(i)
			continue
		}
		k.hash[i], exact = def.HashOf(key)
		k.loose = k.loose || !exact
	}
	return k
}

func (k *Keys) setNull(i int) {
	if k.null == nil {
		k.null = make([]bool, len(k.hash))
	}
	k.null[i] = true
}

// Len is the number of rows.
func (k *Keys) Len() int { return len(k.hash) }

// At is the hash of row i's key; false if the row conflicts with nothing.
func (k *Keys) At(i int) (uint64, bool) {
	if k.null != nil && k.null[i] {
		return 0, false
	}
	return k.hash[i], true
}

// Hashes lists the hashes of the keys that may conflict.
func (k *Keys) Hashes() []uint64 {
	if k.null == nil {
		return k.hash
	}
	var list []uint64
	for i := range k.hash {
		if !k.null[i] {
			list = append(list, k.hash[i])
		}
	}
	return list
}

// Loose says that rows with equal hashes may have different keys, so that they have to be compared.
func (k *Keys) Loose() bool { return k.loose }

// Append adds the keys of further rows.
func (k *Keys) Append(more *Keys) {
	k.group = nil
	if k.null == nil && more.null != nil {
		k.null = make([]bool, len(k.hash), len(k.hash)+len(more.hash))
	}
	k.hash = append(k.hash, more.hash...)
	if more.null != nil {
		k.null = append(k.null, more.null...)
	} else if k.null != nil {
		k.null = append(k.null, make([]bool, len(more.hash))...)
	}
	k.loose = k.loose || more.loose
}
