package writer

import (
	"context"
	"fmt"
	"math"

	"sluice/writer/keyindex"
	"sluice/writer/realtime"
	"sluice/writer/table"
)

// ownKeys are the keys of all own rows under one constraint. Both rows and spilled find them, those that died included: whoever asks looks.
type ownKeys struct {
	realtime.Keys                    // of the rows in memory
	rows          realtime.KeyTables // of them; no row that was rolled back
	spilled       *keyindex.Spill    // of the rows in files, those included that were rolled back since; nil: none is
	loose         bool               // equal hashes may be of different keys
}

func (o *ownTable) resetKeys() { o.keys = make([]ownKeys, len(o.def.Uniques)) }

// rekey makes the keys of the rows in memory anew, those of dead rows included: they may come back. Two live rows with one key: the second is
// returned.
func (o *ownTable) rekey() (unique, row int, dup bool) {
	for u := range o.keys {
		k := &o.keys[u]
		k.Keys, k.rows = realtime.KeysOf(&o.def.Uniques[u], o.rows), realtime.KeyTables{}
		k.loose = k.loose || k.Loose()
		for i := range k.Len() {
			h, ok := k.At(i)
			if !ok || o.died(o.base+i) == rolledBack {
				continue
			}
			if !dup && o.died(o.base+i) == 0 && o.twin(u, h, i) {
				unique, row, dup = u, o.base+i, true
			}
			k.rows.Put(h, uint64(o.base+i))
		}
	}
	return unique, row, dup
}

// twin reports whether a live row in memory before row i of them has its key, whose hash is h.
func (o *ownTable) twin(u int, h uint64, i int) (found bool) {
	w := wanted{o: o, unique: u, def: &o.def.Uniques[u], rows: o.rows, keys: &o.keys[u].Keys}
	o.keys[u].rows.Rows(h, func(r uint64) bool {
		found = o.died(int(r)) == 0 && (!w.keys.Loose() || w.equal(o.rows, int(r)-o.base, i))
		return !found
	})
	return found
}

// unkey takes the keys of the own rows [begin, end) out, the newest that there are. Those in files stay: they are dead from the beginning.
func (o *ownTable) unkey(begin, end int) {
	for i := end - 1; i >= max(begin, o.base); i-- {
		for u := range o.keys {
			if h, ok := o.keys[u].At(i - o.base); ok {
				o.keys[u].rows.Undo(h)
			}
		}
	}
}

// each calls fn with the own rows that may have a key with this hash, newest first, until fn returns false.
func (o *ownTable) each(u int, hash uint64, fn func(row int) bool) (err error) {
	k, more := &o.keys[u], true
	k.rows.Rows(hash, func(r uint64) bool {
		more = fn(int(r))
		return more
	})
	if k.spilled == nil || !more {
		return nil
	}
	return k.spilled.Find([]keyindex.Entry{{Hash: hash}}, func(_ int, e keyindex.Entry) bool {
		return o.died(int(e.Row)) == rolledBack || fn(int(e.Row))
	})
}

// spilledHits says which of the keys some row in a file may have; nil: none.
func (o *ownTable) spilledHits(u int, keys *realtime.Keys) (hits []bool, err error) {
	if o.keys[u].spilled == nil {
		return nil, nil
	}
	var entries []keyindex.Entry
	var rows []int
	for i := range keys.Len() {
		if h, ok := keys.At(i); ok {
			entries, rows = append(entries, keyindex.Entry{Hash: h}), append(rows, i)
		}
	}
	err = o.keys[u].spilled.Find(entries, func(i int, e keyindex.Entry) bool {
		if o.died(int(e.Row)) == rolledBack {
			return true
		}
		if hits == nil {
			hits = make([]bool, keys.Len())
		}
		hits[rows[i]] = true
		return false
	})
	return hits, err
}

// spillKeys moves the keys of the rows in memory to files on local disk. After an error they are where they were; some may be in the
// files, too.
func (t *Txn) spillKeys(o *ownTable) error {
	if o.count() > math.MaxUint32 {
		return fmt.Errorf("%d rows in one transaction: %w", o.count(), ErrMemory)
	}
	o.noted = o.count()
	for u := range o.keys {
		k := &o.keys[u]
		if k.spilled == nil {
			k.spilled = keyindex.NewSpill(t.w.opts.Keys, t.w.opts.Memory/spillShare)
		}
		if err := k.spilled.Put(o.entries(u)); err != nil {
			return err
		}
	}
	return nil
}

// Shares of the memory: of keys of one transaction on their way to files, and of its locks on keys that are not there.
const (
	spillShare = 32
	lockShare  = 32
)

// entries is the keys of the rows in memory.
func (o *ownTable) entries(u int) []keyindex.Entry {
	k := &o.keys[u]
	list := make([]keyindex.Entry, 0, k.Len())
	for i := range k.Len() {
		if h, ok := k.At(i); ok && o.died(o.base+i) != rolledBack {
			list = append(list, keyindex.Entry{Hash: h, File: table.Own, Row: uint32(o.base + i)})
		}
	}
	return list
}

// forgetKeys ends the keys of rows in memory: there are none.
func (o *ownTable) forgetKeys() {
	for u := range o.keys {
		o.keys[u].Keys, o.keys[u].rows = realtime.Keys{}, realtime.KeyTables{}
	}
}

// closeKeys frees memory and disk.
func (o *ownTable) closeKeys() {
	for u := range o.keys {
		if o.keys[u].spilled != nil {
			o.keys[u].spilled.Close()
			o.keys[u].spilled = nil
		}
	}
}

// held is about the bytes of rows and keys in memory.
func (o *ownTable) held() int64 {
	n := o.bytes
	for u := range o.keys {
		n += int64(o.keys[u].Len()) * rowKeyCost
		if o.keys[u].spilled != nil {
			n += o.keys[u].spilled.Bytes()
		}
	}
	return n
}

// shrink gives memory and files of rows back that were rolled back. Rows in memory stay where they are if most of them live: somebody may
// read a snapshot that shares their memory, so they would have to be copied.
func (t *Txn) shrink(ctx context.Context, o *ownTable) {
	live := 0
	if n := len(o.born); n > 0 {
		live = o.born[n-1].rows
	}
	if live <= o.base && o.base > 0 {
		t.dropSpills(ctx, o, live)
		return
	}
	if kept, all := live-o.base, o.rows.Rows; all > kept && all-kept >= kept && live >= o.noted {
		b := table.NewBatch(o.rows.Schema)
		b.AppendRange(o.rows, 0, kept)
		o.dead.unvoid(live, o.count())
		o.rows, o.bytes = b, int64(b.Size())
		_, _, _ = o.rekey()
	}
}

// dropSpills forgets all rows from row number live on, of which some are in files: their numbers are not used again.
func (t *Txn) dropSpills(ctx context.Context, o *ownTable, live int) {
	o.base, o.rows, o.bytes = o.count(), table.NewBatch(o.def.Schema), 0
	if o.forgetKeys(); live == 0 {
		o.closeKeys()
	}
	for n := len(o.spills) - 1; n >= 0 && o.spills[n].first >= live; n-- {
		t.w.discard(ctx, o.spills[n].locations())
		o.spills = o.spills[:n]
	}
}
