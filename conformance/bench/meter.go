package main

import (
	"context"
	"slices"
	"sync"
	"time"
)

// outcome is what one turn of one server came to.
type outcome struct {
	Rows    int64         // rows written or read, all acknowledged
	Wall    time.Duration // time in which that happened
	CPU     time.Duration // of the server's processes, until the last acknowledgement
	Settled time.Duration // CPU, plus what the server did afterwards until it was at rest
	P50     time.Duration // latency of one transaction; 0 if the turn was one statement
	P99     time.Duration
	Memory  int64 // peak, bytes
}

// meter measures one turn.
type meter struct {
	server  *server
	length  time.Duration
	outcome outcome
}

// measure runs a turn and what the server still has to do after it.
func measure(ctx context.Context, s *server, length time.Duration, work func(context.Context, *meter) error) (outcome, error) {
	m := &meter{server: s, length: length}
	watch := watchMemory(s)
	err := work(ctx, m)
	if err == nil {
		after := s.tree().cpu
		s.rest(ctx)
		m.outcome.Settled = m.outcome.CPU + s.tree().cpu - after
	}
	m.outcome.Memory = watch.end()
	return m.outcome, err
}

// cpu is what the server used while f ran.
func (m *meter) cpu(f func() error) (time.Duration, error) {
	before := m.server.tree()
	err := f()
	after := m.server.tree()
	// A process that served f counts once its parent has waited for it. Only the system knows when: look while processes end.
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Second)
	for ending := true; ending && after.live > before.live; {
		select {
		case <-deadline:
			return after.cpu - before.cpu, err
		case <-tick.C:
		}
		now := m.server.tree()
		ending = now.live < after.live
		after = now
	}
	return after.cpu - before.cpu, err
}

// latencies takes the times of all transactions of the turn.
func (m *meter) latencies(all []time.Duration) {
	slices.Sort(all)
	m.outcome.P50, m.outcome.P99 = quantile(all, 0.50), quantile(all, 0.99)
}

// quantile of sorted durations, by the nearest rank.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// rest waits until the server has nothing left to do, so that it does not disturb the other side's turn. The gateway is
// asked to bring all rows into files; Postgres' next checkpoint is minutes away and is not waited for.
func (s *server) rest(ctx context.Context) {
	if s.gateway {
		_ = s.run(ctx, "select sluice.flush()") // the workloads check the rows; a gateway without the function flushes by age
	}
	const step = 100 * time.Millisecond
	last := s.tree().cpu
	for range 100 {
		select {
		case <-ctx.Done():
			return
		case <-time.After(step):
		}
		now := s.tree().cpu
		if now-last <= step/10 {
			return
		}
		last = now
	}
}

// memoryWatch looks at a server's memory four times a second.
type memoryWatch struct {
	stop chan struct{}
	done sync.WaitGroup
	peak int64
}

func watchMemory(s *server) *memoryWatch {
	w := &memoryWatch{stop: make(chan struct{})}
	w.done.Go(func() {
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		for {
			w.peak = max(w.peak, memory(s.tree().pids))
			select {
			case <-w.stop:
				return
			case <-tick.C:
			}
		}
	})
	return w
}

func (w *memoryWatch) end() int64 {
	close(w.stop)
	w.done.Wait()
	return w.peak
}
