package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
)

// stage is one part of the program that runs until its context ends. Parts are listed from the bottom up and stopped from the
// top down, each only when those above it have ended, so that nobody's foundation goes away under him.
type stage struct {
	name string
	run  func(ctx context.Context) error
}

// runStages runs all stages until ctx ends or one of them does, stops them in order and returns the first failure. A part that
// ends by itself takes all down: a gateway without one of its parts keeps no promises.
func runStages(ctx context.Context, log *slog.Logger, stages ...stage) error {
	ctx, quit := context.WithCancelCause(ctx)
	defer quit(nil)
	parts := make([]*running, len(stages))
	for i, s := range stages {
		parts[i] = startStage(context.WithoutCancel(ctx), s, quit)
	}
	<-ctx.Done()
	log.Info("stopping", "because", context.Cause(ctx).Error())
	errs := []error{failure(context.Cause(ctx))}
	for i := len(parts) - 1; i >= 0; i-- {
		errs = append(errs, parts[i].end(log))
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// running is a started stage.
type running struct {
	stage stage
	stop  context.CancelFunc
	group errgroup.Group
}

func startStage(ctx context.Context, s stage, quit context.CancelCauseFunc) *running {
	ctx, stop := context.WithCancel(ctx)
	r := &running{stage: s, stop: stop}
	r.group.Go(func() error {
		err := s.run(ctx)
		if ctx.Err() == nil {
			if err == nil {
				err = errors.New("ended by itself")
			}
			quit(&stageError{s.name, err})
		}
		return err
	})
	return r
}

// end stops the stage and waits for it. That its context ended is not a failure.
func (r *running) end(log *slog.Logger) error {
	began := time.Now()
	r.stop()
	err := r.group.Wait()
	log.Info("stopped", "part", r.stage.name, "took", time.Since(began))
	if err == nil || errors.Is(err, context.Canceled) {
		return nil
	}
	return &stageError{r.stage.name, err}
}

// stageError is the failure of a part.
type stageError struct {
	name string
	err  error
}

func (e *stageError) Error() string { return fmt.Sprintf("%s: %v", e.name, e.err) }

func (e *stageError) Unwrap() error { return e.err }

// failure is cause if a stage gave it; a signal is none.
func failure(cause error) error {
	var failed *stageError
	if errors.As(cause, &failed) {
		return failed
	}
	return nil
}
