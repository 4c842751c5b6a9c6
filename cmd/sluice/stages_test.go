package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
)

// record notes the order in which parts end.
type record struct {
	mu    sync.Mutex
	ended []string
}

func (r *record) stage(name string, run func(ctx context.Context) error) stage {
	return stage{name, func(ctx context.Context) error {
		err := run(ctx)
		r.mu.Lock()
		r.ended = append(r.ended, name)
		r.mu.Unlock()
		return err
	}}
}

func untilStopped(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestStagesStopFromTheTop(t *testing.T) {
	var r record
	ctx, cancel := context.WithCancel(context.Background())
	started := make(chan struct{})
	err := runStages(ctx, slog.New(slog.DiscardHandler), r.stage("catalog", untilStopped), r.stage("writer", untilStopped),
		r.stage("server", func(ctx context.Context) error {
			close(started)
			return untilStopped(ctx)
		}), r.stage("signal", func(ctx context.Context) error {
			<-started
			cancel()
			return untilStopped(ctx)
		}))
	if want := []string{"signal", "server", "writer", "catalog"}; err != nil || !slices.Equal(r.ended, want) {
		t.Errorf("ended %v, %v", r.ended, err)
	}
}

func TestStageFailureStopsAll(t *testing.T) {
	broken := errors.New("disk is gone")
	for name, result := range map[string]error{"failed": broken, "ended": nil} {
		var r record
		err := runStages(context.Background(), slog.New(slog.DiscardHandler), r.stage("catalog", untilStopped),
			r.stage("writer", func(context.Context) error { return result }), r.stage("server", untilStopped))
		if err == nil || result != nil && !errors.Is(err, broken) {
			t.Errorf("%s: %v", name, err)
		}
		if want := []string{"writer", "server", "catalog"}; !slices.Equal(r.ended, want) {
			t.Errorf("%s: ended %v", name, r.ended)
		}
	}
}

func TestStageFailureWhileStopping(t *testing.T) {
	broken := errors.New("could not drain")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := runStages(ctx, slog.New(slog.DiscardHandler), stage{"writer", func(ctx context.Context) error {
		<-ctx.Done()
		return broken
	}})
	if !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}
