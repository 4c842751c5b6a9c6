package backend

import (
	"fmt"

	"sluice/server/wire"
)

// Call is one message to the backend that will be answered.
type Call struct {
	Kind    byte        // type of the message: P B D E C S Q F
	Err     *wire.Error // the ErrorResponse it was answered with
	Skipped bool        // not answered, because an error came before it
	Tag     string      // Execute, Query: of the last CommandComplete
	sink    Sink
	done    bool
}

// Done tells whether the call is answered or skipped.
func (call *Call) Done() bool { return call.done }

// Query queues a simple query.
func (c *Conn) Query(sink Sink, sql string) *Call {
	return c.enqueue(sink, 'Q', func(b []byte) []byte { return wire.AppendQuery(b, sql) })
}

// Parse queues a Parse.
func (c *Conn) Parse(sink Sink, name, sql string, types []uint32) *Call {
	return c.enqueue(sink, 'P', func(b []byte) []byte { return wire.AppendParse(b, name, sql, types) })
}

// Bind queues a Bind; see wire.AppendBind.
func (c *Conn) Bind(sink Sink, portal, statement string, paramFormats []int16, values [][]byte, resultFormats []int16) *Call {
	return c.enqueue(sink, 'B', func(b []byte) []byte {
		return wire.AppendBind(b, portal, statement, paramFormats, values, resultFormats)
	})
}

// Describe queues a Describe of kind 'S' or 'P'.
func (c *Conn) Describe(sink Sink, kind byte, name string) *Call {
	return c.enqueue(sink, 'D', func(b []byte) []byte { return wire.AppendDescribe(b, kind, name) })
}

// Execute queues an Execute; 0 rows asks for all.
func (c *Conn) Execute(sink Sink, portal string, maxRows int32) *Call {
	return c.enqueue(sink, 'E', func(b []byte) []byte { return wire.AppendExecute(b, portal, maxRows) })
}

// CloseNamed queues a Close of kind 'S' or 'P'.
func (c *Conn) CloseNamed(sink Sink, kind byte, name string) *Call {
	return c.enqueue(sink, 'C', func(b []byte) []byte { return wire.AppendClose(b, kind, name) })
}

// Sync queues a Sync.
func (c *Conn) Sync(sink Sink) *Call { return c.enqueue(sink, 'S', wire.AppendSync) }

// Forward queues a client's message of type P, B, D, E, C, S, Q or F as it came.
func (c *Conn) Forward(sink Sink, typ byte, body []byte) *Call {
	return c.enqueue(sink, typ, func(b []byte) []byte { return wire.AppendFrame(b, typ, body) })
}

// enqueue appends the message and its call. While the backend skips, only a Sync is worth sending.
func (c *Conn) enqueue(sink Sink, kind byte, appendTo func([]byte) []byte) *Call {
	call := &Call{Kind: kind, sink: sink}
	if c.skip && kind != 'S' {
		call.Skipped, call.done = true, true
		return call
	}
	if kind == 'S' {
		c.skip = false
	}
	c.out = appendTo(c.out)
	c.queue = append(c.queue, call)
	return call
}

// Drain sends what is queued and reads until every call is answered. It returns ErrCopyIn if the backend waits for COPY data,
// the error of a sink, or why the connection broke; errors of statements are in their calls.
func (c *Conn) Drain() error {
	return c.read(func() bool { return len(c.queue) == 0 })
}

// Wait is Drain up to the answer of one call.
func (c *Conn) Wait(call *Call) error {
	return c.read(func() bool { return call.done })
}

func (c *Conn) read(enough func() bool) error {
	if c.err != nil {
		return c.err
	}
	if c.watch != nil {
		c.Unwatch()
	}
	if err := c.push(); err != nil {
		return c.broken(err)
	}
	for !enough() {
		if err := c.step(); err != nil {
			return err
		}
	}
	c.release()
	return c.err
}

// push sends what is queued. Unless the last call asks for its answer by itself, a Flush does.
func (c *Conn) push() error {
	if n := len(c.queue); n > 0 && !c.copyIn {
		if kind := c.queue[n-1].Kind; kind != 'S' && kind != 'Q' && kind != 'F' {
			c.out = wire.AppendFlush(c.out)
		}
	}
	return c.pushRaw()
}

func (c *Conn) pushRaw() error {
	if len(c.out) == 0 {
		return nil
	}
	var err error
	c.out, err = c.writer.send(c.out)
	if err != nil {
		return fmt.Errorf("write backend: %w", err)
	}
	return nil
}

// step reads and delivers one message.
func (c *Conn) step() error {
	typ, frame, err := c.frame()
	if err != nil {
		return c.broken(fmt.Errorf("read backend: %w", err))
	}
	switch typ {
	case 'S', 'A':
		return c.async(typ, frame)
	case 'N':
		return c.deliver(typ, frame)
	}
	if len(c.queue) == 0 {
		return c.unasked(typ, frame)
	}
	return c.answer(c.queue[0], typ, frame)
}

// async is what the backend says on its own account.
func (c *Conn) async(typ byte, frame []byte) error {
	if typ == 'A' {
		if c.o.Hooks.Notification != nil {
			c.o.Hooks.Notification(frame)
		}
		return nil
	}
	name, value, err := wire.DecodeParameterStatus(frame[5:])
	if err != nil {
		return c.broken(fmt.Errorf("read backend: %w", err))
	}
	if c.o.Hooks.ParameterStatus != nil {
		c.o.Hooks.ParameterStatus(name, value, frame)
	}
	return nil
}

// unasked is a message that answers nothing: the FATAL of a backend that was terminated, or a lost count of ours.
func (c *Conn) unasked(typ byte, frame []byte) error {
	if typ == 'E' {
		if e, err := wire.DecodeError(frame[5:]); err == nil {
			return c.broken(e)
		}
	}
	return c.broken(fmt.Errorf("read backend: message %q answers nothing", typ))
}

// deliver hands a message to the call at the front.
func (c *Conn) deliver(typ byte, frame []byte) error {
	if len(c.queue) == 0 || c.queue[0].sink == nil {
		return nil
	}
	return c.queue[0].sink(typ, frame)
}

// answer delivers one message of call's answer and notes whether the answer ends with it. The sink's error comes last, so that
// the count of answers stays right whatever the sink says.
func (c *Conn) answer(call *Call, typ byte, frame []byte) error {
	sinkErr := c.deliver(typ, frame)
	switch typ {
	case 'E':
		if err := c.failed(call, frame); err != nil {
			return err
		}
	case 'Z':
		if len(frame) != 6 || call.Kind != 'S' && call.Kind != 'Q' && call.Kind != 'F' {
			return c.broken(fmt.Errorf("read backend: message %q answers %q", typ, call.Kind))
		}
		c.status = frame[5]
		c.copyIn = false
		c.finish()
	case 'C':
		call.Tag = string(frame[5 : len(frame)-1])
		c.copyIn = false
		c.finishIf(call.Kind == 'E')
	case 'G', 'W':
		c.copyIn = true
		c.dropSyncs()
		if sinkErr == nil {
			return ErrCopyIn
		}
	case '1', '2', '3':
		c.finish()
	case 'T', 'n':
		c.finishIf(call.Kind == 'D')
	case 'I', 's':
		c.finishIf(call.Kind == 'E')
	}
	return sinkErr
}

func (c *Conn) finishIf(ended bool) {
	if ended {
		c.finish()
	}
}

func (c *Conn) finish() {
	c.queue[0].done = true
	c.queue[0] = nil
	c.queue = c.queue[1:]
	if len(c.queue) == 0 {
		c.queue = c.queue[:0:0]
	}
}

// failed notes an ErrorResponse. In the extended protocol everything up to the next Sync goes unanswered.
func (c *Conn) failed(call *Call, frame []byte) error {
	e, err := wire.DecodeError(frame[5:])
	if err != nil {
		return c.broken(fmt.Errorf("read backend: %w", err))
	}
	call.Err = e
	c.copyIn = false
	if e.Fatal() {
		return c.broken(e)
	}
	switch call.Kind {
	case 'Q', 'F', 'S': // a ReadyForQuery follows
		return nil
	}
	c.finish()
	c.skip = true
	for len(c.queue) > 0 {
		if c.queue[0].Kind == 'S' {
			c.skip = false
			break
		}
		c.queue[0].Skipped = true
		c.finish()
	}
	return nil
}

// dropSyncs: a backend that reads COPY data ignores a Sync that was sent already.
func (c *Conn) dropSyncs() {
	for len(c.queue) > 1 && c.queue[1].Kind == 'S' {
		c.queue[1].Skipped, c.queue[1].done = true, true
		c.queue = append(c.queue[:1], c.queue[2:]...)
	}
}
