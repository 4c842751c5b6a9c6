package objstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"
)

// Memory is a Store for tests. Its clock stands still, so that listings repeat.
type Memory struct {
	root string

	mu      sync.Mutex // protects objects for single map operations; bodies never change
	objects map[string][]byte
}

var _ Store = (*Memory)(nil)

// NewMemory makes an empty store with the given root, for example memory:///lake.
func NewMemory(root string) *Memory {
	return &Memory{root: strings.TrimRight(root, "/"), objects: map[string][]byte{}}
}

// Clone is a store with the same objects: what a crash at this moment would leave.
func (m *Memory) Clone() *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := NewMemory(m.root)
	for k, b := range m.objects {
		c.objects[k] = b
	}
	return c
}

// Root implements Store.
func (m *Memory) Root() string { return m.root }

// Put implements Store.
func (m *Memory) Put(ctx context.Context, location string, body []byte) error {
	k, err := newKey(m.root, location)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("put %s: %w", location, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.objects[k]; ok {
		return fmt.Errorf("put %s: %w", location, ErrExists)
	}
	m.objects[k] = bytes.Clone(body)
	return nil
}

func (m *Memory) find(ctx context.Context, location string) ([]byte, error) {
	k, err := key(m.root, location)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("get %s: %w", location, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	b, ok := m.objects[k]
	if !ok {
		return nil, fmt.Errorf("get %s: %w", location, ErrNotExist)
	}
	return b, nil
}

// Get implements Store.
func (m *Memory) Get(ctx context.Context, location string) ([]byte, error) {
	b, err := m.find(ctx, location)
	return append([]byte{}, b...), err
}

// GetRange implements Store.
func (m *Memory) GetRange(ctx context.Context, location string, offset, length int64) ([]byte, error) {
	b, err := m.find(ctx, location)
	if err != nil {
		return nil, err
	}
	offset = min(offset, int64(len(b)))
	return append([]byte{}, b[offset:min(offset+length, int64(len(b)))]...), nil
}

// Stat implements Store.
func (m *Memory) Stat(ctx context.Context, location string) (Object, error) {
	b, err := m.find(ctx, location)
	if err != nil {
		return Object{}, err
	}
	return Object{Location: location, Size: int64(len(b)), Modified: time.Unix(0, 0)}, nil
}

// Delete implements Store.
func (m *Memory) Delete(ctx context.Context, location string) error {
	k, err := key(m.root, location)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, k)
	return ctx.Err()
}

// List implements Store.
func (m *Memory) List(ctx context.Context, prefix string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		p, err := listKey(m.root, prefix)
		if err != nil {
			yield(Object{}, err)
			return
		}
		for _, k := range m.keys(p) {
			o, err := m.Stat(ctx, Join(m.root, k))
			if errors.Is(err, ErrNotExist) {
				continue // deleted meanwhile
			}
			if err != nil || !yield(o, nil) {
				yieldError(yield, err)
				return
			}
		}
	}
}

func (m *Memory) keys(prefix string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var keys []string
	for k := range m.objects {
		if strings.HasPrefix(k, prefix) {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}

func yieldError(yield func(Object, error) bool, err error) {
	if err != nil {
		yield(Object{}, err)
	}
}
