package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"

	"sluice/server/rest"
)

// web is what is on --http. It answers from the first moment of a start, which can take long: until show it says that the gateway is
// not ready.
type web struct {
	addr    string // with the port that the system chose for 0
	handler atomic.Pointer[http.Handler]
	stop    context.CancelFunc
	ended   chan struct{}
	err     error // why it ended, for whoever has seen ended
}

var errStarting = errors.New("the gateway is starting: the log and the catalog are being read")

func openWeb(addr string, log *slog.Logger) (*web, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for http: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	w := &web{addr: l.Addr().String(), stop: stop, ended: make(chan struct{})}
	w.show(rest.New(rest.Options{Ready: func(context.Context) error { return errStarting }, Log: log}))
	go func() {
		defer close(w.ended)
		w.err = rest.Serve(ctx, l, w, log)
	}()
	return w, nil
}

// show answers with h from now on.
func (w *web) show(h http.Handler) { w.handler.Store(&h) }

// ServeHTTP implements http.Handler.
func (w *web) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	(*w.handler.Load()).ServeHTTP(rw, r)
}

// run is the stage: it ends with ctx, or when serving fails.
func (w *web) run(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-w.ended:
	}
	return w.close()
}

// close lets the requests under way finish. It may be called more than once.
func (w *web) close() error {
	w.stop()
	<-w.ended
	return w.err
}
