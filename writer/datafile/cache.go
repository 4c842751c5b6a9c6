package datafile

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/metadata"

	"sluice/writer/objstore"
	"sluice/writer/table"
)

const (
	// blockRows and blockBytes cap what one read of a row decodes and keeps. As many eight-byte values are a page, so a block of a table
	// without long values costs a page or two of each column.
	blockRows  = pageBytes / 8
	blockBytes = 1 << 20
	// streamBytes is read at a time where pages are sought: about a page, compressed.
	streamBytes = 16 << 10
)

// Cache reads rows of data files by position, and keeps what the next reads need: footers, and blocks of decoded rows. The least
// recently used go first. Objects never change (invariant I5), so nothing in it is ever stale. It may be used from any goroutine.
type Cache struct {
	store objstore.Store
	limit int64

	mu    sync.Mutex
	bytes atomic.Int64 // changed under mu
	order list.List    // of *cached, the most recently used first
	items map[cacheKey]*list.Element
}

// cacheKey names a block of a file as rows of a schema, or, without a schema, the file's footer.
type cacheKey struct {
	location string
	schema   *table.Schema
	block    uint64
}

// cached is one value; whoever asks while it is being loaded waits for ready.
type cached struct {
	key   cacheKey
	ready chan struct{}
	value any
	size  int64
	err   error

	counted bool // in Cache.bytes
}

// footer is the end of a file, decoded.
type footer struct {
	meta  *metadata.FileMetaData
	block uint64 // rows of a block
}

// NewCache makes a cache that keeps about limit bytes.
func NewCache(store objstore.Store, limit int64) *Cache {
	return &Cache{store: store, limit: limit, items: map[cacheKey]*list.Element{}}
}

// Bytes is what it keeps.
func (c *Cache) Bytes() int64 { return c.bytes.Load() }

// Clear forgets everything.
func (c *Cache) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trim(0)
}

// ReadRows is the rows at the given positions of a file, in the order of rows.
func (c *Cache) ReadRows(ctx context.Context, f File, schema *table.Schema, rows []uint64) (*table.Batch, error) {
	out := table.NewBatch(schema)
	var have Chunk
	for _, row := range rows {
		if have.Rows == nil || row < have.First || row >= have.First+uint64(have.Rows.Rows) {
			var err error
			if have, err = c.around(ctx, f, schema, row); err != nil {
				return nil, fmt.Errorf("read rows of %s: %w", f.Location, err)
			}
		}
		out.AppendRow(have.Rows, int(row-have.First))
	}
	return out, nil
}

// around is the block that holds row.
func (c *Cache) around(ctx context.Context, f File, schema *table.Schema, row uint64) (Chunk, error) {
	end, err := get(ctx, c, cacheKey{location: f.Location}, func() (*footer, int64, error) { return c.loadFooter(ctx, f) })
	if err != nil {
		return Chunk{}, err
	}
	if row >= uint64(end.meta.NumRows) {
		return Chunk{}, fmt.Errorf("row %d of %d", row, end.meta.NumRows)
	}
	n := row / end.block
	key := cacheKey{location: f.Location, schema: schema, block: n}
	rows, err := get(ctx, c, key, func() (*table.Batch, int64, error) { return c.loadBlock(ctx, f, schema, end, n) })
	return Chunk{First: n * end.block, Rows: rows}, err
}

// get is the value of key, loaded by the first who asks. A load that fails fails for him alone: its reason may be his context.
func get[T any](ctx context.Context, c *Cache, key cacheKey, load func() (T, int64, error)) (value T, err error) {
	for {
		it, mine := c.find(key)
		if mine {
			value, it.size, it.err = load()
			it.value = value
			c.loaded(it)
			return value, it.err
		}
		select {
		case <-it.ready:
		case <-ctx.Done():
			return value, ctx.Err()
		}
		if it.err == nil {
			return it.value.(T), nil
		}
	}
}

// find is the entry of key; mine says that the caller has to load it.
func (c *Cache) find(key cacheKey) (it *cached, mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.items[key]; ok {
		c.order.MoveToFront(e)
		return e.Value.(*cached), false
	}
	it = &cached{key: key, ready: make(chan struct{})}
	c.items[key] = c.order.PushFront(it)
	return it, true
}

// loaded accounts for a value that was loaded and makes room for it.
func (c *Cache) loaded(it *cached) {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(it.ready)
	if it.err != nil {
		c.order.Remove(c.items[it.key])
		delete(c.items, it.key)
		return
	}
	it.counted = true
	c.bytes.Add(it.size)
	c.trim(c.limit)
}

// trim forgets the oldest until limit bytes are left. What is being loaded stays: it counts once it is there.
func (c *Cache) trim(limit int64) {
	for e := c.order.Back(); e != nil && c.bytes.Load() > limit; {
		it := e.Value.(*cached)
		before := e.Prev()
		if it.counted {
			c.bytes.Add(-it.size)
			c.order.Remove(e)
			delete(c.items, it.key)
		}
		e = before
	}
}

func (c *Cache) loadFooter(ctx context.Context, f File) (*footer, int64, error) {
	pf, err := file.NewParquetReader(newObjectReader(ctx, c.store, f))
	if err != nil {
		return nil, 0, err
	}
	meta := pf.MetaData()
	if f.Rows != 0 && f.Rows != meta.NumRows {
		return nil, 0, fmt.Errorf("file has %d rows, want %d", meta.NumRows, f.Rows)
	}
	var raw int64
	for i := range meta.NumRowGroups() {
		raw += meta.RowGroup(i).TotalByteSize()
	}
	perRow := raw/max(meta.NumRows, 1) + 1
	// A column chunk's metadata takes some hundred bytes once decoded.
	size := int64(meta.NumRowGroups()*meta.Schema.NumColumns())*512 + 1024
	return &footer{meta: meta, block: uint64(min(max(blockBytes/perRow, 1), blockRows))}, size, nil
}

// loadBlock decodes block n. Pages are found through the offset index, so that only those that hold the rows are read.
func (c *Cache) loadBlock(ctx context.Context, f File, schema *table.Schema, end *footer, n uint64) (*table.Batch, int64, error) {
	props := parquet.NewReaderProperties(memory.NewGoAllocator())
	props.BufferedStreamEnabled, props.BufferSize = true, streamBytes
	r, err := open(ctx, c.store, f, schema, int(end.block), file.WithMetadata(end.meta), file.WithReadProps(props))
	if err != nil {
		return nil, 0, err
	}
	block := table.NewBatch(schema)
	err = r.read(n*end.block, min((n+1)*end.block, r.rows), func(chunk Chunk) bool {
		if block.Rows == 0 {
			block = chunk.Rows // all of it, unless a row group ends inside
		} else {
			block.AppendRange(chunk.Rows, 0, chunk.Rows.Rows)
		}
		return true
	})
	return block, int64(block.Size()) + 512, err
}
