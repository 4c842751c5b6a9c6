package backend

import (
	"errors"
	"fmt"
	"net"
	"time"

	"sluice/server/wire"
)

// watch is a goroutine that reads an idle backend.
type watch struct {
	stopped chan struct{}
	err     error // read after stopped
}

// Watch reads what the backend says while the session waits for its client: NotificationResponse and ParameterStatus go to the
// hooks, notices and the FATAL message of a terminated backend to deliver, from another goroutine, until Unwatch. Every call
// must be answered before. A backend that is gone without a word is delivered as FATAL 57P01.
func (c *Conn) Watch(deliver Sink) {
	if c.err != nil || c.watch != nil || len(c.queue) > 0 {
		return
	}
	w := &watch{stopped: make(chan struct{})}
	c.watch = w
	go func() {
		defer close(w.stopped)
		w.err = c.watching(deliver)
	}()
}

// Unwatch ends Watch; when it returns the connection belongs to the caller again. A message that has begun to arrive stays in
// the buffer. Without a Watch it does nothing.
func (c *Conn) Unwatch() {
	w := c.watch
	if w == nil {
		return
	}
	c.watch = nil
	_ = c.nc.SetReadDeadline(past) // a closed connection ends the goroutine too
	<-w.stopped
	_ = c.nc.SetReadDeadline(time.Time{})
	if w.err != nil {
		c.broken(w.err)
	}
}

// watching returns nil when it was stopped.
func (c *Conn) watching(deliver Sink) error {
	for {
		typ, frame, err := c.frame()
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			return nil
		}
		if err != nil {
			gone := wire.Fatalf(wire.CodeAdminShutdown, "terminating connection: the session's backend is gone")
			_ = deliver('E', wire.AppendErrorResponse(nil, gone))
			return fmt.Errorf("read backend: %w", err)
		}
		if err := c.watched(typ, frame, deliver); err != nil {
			return err
		}
	}
}

func (c *Conn) watched(typ byte, frame []byte, deliver Sink) error {
	switch typ {
	case 'S', 'A':
		return c.async(typ, frame)
	case 'N':
		return deliver(typ, frame)
	case 'E':
		_ = deliver(typ, frame) // the connection ends either way
	}
	return c.unasked(typ, frame)
}
