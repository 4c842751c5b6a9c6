package iceberg

import (
	"container/list"
	"sync"
)

// cache keeps values of immutable objects by location, the least recently used go first. Errors are not kept.
type cache[V any] struct {
	limit int // in the unit that the values' costs have

	mu    sync.Mutex // protects what follows, never held while a value is loaded
	byLoc map[string]*list.Element
	order list.List // of *kept[V], most recently used first
	cost  int
}

type kept[V any] struct {
	location string
	value    V
	cost     int
}

func newCache[V any](limit int) *cache[V] {
	return &cache[V]{limit: limit, byLoc: map[string]*list.Element{}}
}

// get is the value at location; load reads it and says what keeping it costs.
func (c *cache[V]) get(location string, load func() (V, int, error)) (V, error) {
	c.mu.Lock()
	if e, ok := c.byLoc[location]; ok {
		c.order.MoveToFront(e)
		c.mu.Unlock()
		return e.Value.(*kept[V]).value, nil
	}
	c.mu.Unlock()
	v, cost, err := load() // two callers may load the same: it is the same value
	if err == nil {
		c.put(location, v, cost)
	}
	return v, err
}

func (c *cache[V]) put(location string, v V, cost int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.byLoc[location]; ok {
		return
	}
	c.byLoc[location] = c.order.PushFront(&kept[V]{location, v, cost})
	for c.cost += cost; c.cost > c.limit && c.order.Len() > 1; {
		k := c.order.Remove(c.order.Back()).(*kept[V])
		delete(c.byLoc, k.location)
		c.cost -= k.cost
	}
}
