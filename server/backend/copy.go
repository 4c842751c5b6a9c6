package backend

import (
	"fmt"

	"sluice/server/wire"
)

// CopyIn relays COPY data after ErrCopyIn. next gives the client's messages, one after the other: type d (data), c (done), f
// (fail), with H and S passed on and ignored by the backend; it runs in a goroutine of its own, so that an early error and
// notices of the backend pass while the client is still sending. After such an error stop is called, which must make a waiting
// next return (wire.Conn.SetReadDeadline does); what next then returns is of no interest. CopyIn returns when the call that
// copies is answered and next is no longer running; the caller goes on with Drain.
//
// An error of next while the backend still reads ends the copy: it is reported to the backend as a CopyFail and returned.
func (c *Conn) CopyIn(next func() (typ byte, body []byte, err error), stop func()) error {
	call := c.queue[0]
	fed := make(chan error, 1)
	go func() { fed <- c.feed(next, call.Kind == 'E') }()
	err := c.copyAnswer(call)
	select {
	case feedErr := <-fed:
		return first(err, feedErr)
	default:
	}
	stop()
	// The rest of the data is nobody's any more: whether next ended by itself or was stopped makes no difference.
	<-fed
	return err
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// copyAnswer reads until the backend stops copying: the CommandComplete, or the error, of call.
func (c *Conn) copyAnswer(call *Call) error {
	for c.copyIn && !call.done {
		if err := c.step(); err != nil {
			return err
		}
	}
	return nil
}

// feed writes the client's data, as fast as the backend takes it. In the extended protocol the answer needs a Flush, since the
// client's Sync comes only later.
func (c *Conn) feed(next func() (typ byte, body []byte, err error), flush bool) error {
	var out []byte
	for {
		typ, body, err := next()
		if err != nil {
			// If this cannot be sent either, reading says why.
			_, _ = c.nc.Write(wire.AppendFlush(wire.AppendCopyFail(out, "lost connection to the client")))
			return fmt.Errorf("read copy data: %w", err)
		}
		out = wire.AppendFrame(out, typ, body)
		last := typ == 'c' || typ == 'f'
		if last && flush {
			out = wire.AppendFlush(out)
		}
		if last || len(out) >= 32<<10 {
			if _, err := c.nc.Write(out); err != nil {
				return fmt.Errorf("write backend: %w", err)
			}
			out = out[:0]
		}
		if last {
			return nil
		}
	}
}
