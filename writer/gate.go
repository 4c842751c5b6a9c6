package writer

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/semaphore"
)

// Gate keeps Postgres and the stream of positions in step: a transaction that Postgres decides commits and is published under
// it exclusively; whoever needs a Postgres snapshot and a position together takes both under it shared. First come, first served.
type Gate struct{ places *semaphore.Weighted }

const gatePlaces = 1 << 20

func newGate() *Gate { return &Gate{places: semaphore.NewWeighted(gatePlaces)} }

// Shared waits until no Postgres-decided transaction is between its decision and its publication. release may be called twice.
func (g *Gate) Shared(ctx context.Context) (release func(), err error) { return g.take(ctx, 1) }

// Exclusive waits for all others.
func (g *Gate) Exclusive(ctx context.Context) (release func(), err error) {
	return g.take(ctx, gatePlaces)
}

func (g *Gate) take(ctx context.Context, n int64) (func(), error) {
	if err := g.places.Acquire(ctx, n); err != nil {
		return nil, fmt.Errorf("wait for commit gate: %w", err)
	}
	var once sync.Once
	return func() { once.Do(func() { g.places.Release(n) }) }, nil
}
