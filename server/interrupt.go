package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"sluice/server/wire"
)

// What ends a statement before its time. The backend ends what runs in Postgres; waits and reads of the gateway end with their context.

// work is the context of a session's messages. Once it was cancelled the next message gets a new one.
type work struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
}

var (
	errCanceled = wire.Errorf(wire.CodeQueryCanceled, "canceling statement due to user request")
	errTimedOut = wire.Errorf(wire.CodeQueryCanceled, "canceling statement due to statement timeout")
)

// working is the context of the next message. A cancel request is forgotten if the session has rested since, or has failed because of it; in the
// middle of a pipeline it is for the next message.
func (s *session) working(ctx context.Context, rested bool) context.Context {
	if w := s.work.Load(); w != nil && (w.ctx.Err() == nil || !rested && canceled(w.ctx) != nil) {
		return w.ctx
	}
	w := &work{}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	s.work.Store(w)
	return w.ctx
}

// canceled is the error of a cancel request that came under ctx. A backend forgets those that find it idle, so it is asked for before something
// is sent there.
func canceled(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), errCanceled) {
		return errCanceled
	}
	return nil
}

// interrupt cancels what the session is doing, if it does anything. It is called from another goroutine.
func (s *session) interrupt(ctx context.Context) {
	s.cancels.Lock()
	defer s.cancels.Unlock()
	if !s.vitals.busy.Load() {
		return
	}
	if w := s.work.Load(); w != nil {
		w.cancel(errCanceled)
	}
	if pg := s.pg.Load(); pg != nil {
		pg.Cancel(ctx)
	}
}

// interrupted waits for cancel requests that are under way: the backend has taken them when it gets the next message, and forgets those that
// find it idle.
func (s *session) interrupted() {
	s.cancels.Lock()
	defer s.cancels.Unlock()
}

// timed ends a statement's waits in the gateway at statement_timeout.
func (s *session) timed(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.timeout == 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, s.timeout, errTimedOut)
}

// eviction takes a statement that waits in Postgres off the tables that it has filled, if somebody else wants to fill them: it is cancelled, its
// copies are undone, and it runs again a little later.
type eviction struct {
	mu      sync.Mutex // guards the rest; it is held while the backend is asked and cancelled
	running bool       // the user's statement runs on copies
	done    bool       // it was cancelled for somebody else
}

// onRun is called before the statement runs on copies.
func (e *eviction) onRun() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running, e.done = true, false
}

// ran is called after it, and says whether it was cancelled for somebody else.
func (e *eviction) ran() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running = false
	return e.done
}

// makeWay evicts the session's statement if it waits for a lock of Postgres.
func (s *session) makeWay(ctx context.Context) error {
	s.evict.mu.Lock()
	defer s.evict.mu.Unlock()
	pid := s.vitals.backend.Load()
	if !s.evict.running || s.evict.done {
		return nil
	}
	waits, err := s.srv.Catalog.Blocked(ctx, []int32{int32(pid)})
	if err != nil || len(waits[pid]) == 0 {
		return err
	}
	s.evict.done = true
	return s.pg.Load().Cancel(ctx)
}

// pause waits before an evicted statement runs again.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
