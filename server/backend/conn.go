package backend

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"sluice/server/wire"
)

// Options describe the connection.
type Options struct {
	Status byte        // transaction status after login; 0: 'I'
	Key    wire.Cancel // the backend's key, for Cancel
	Dial   func(ctx context.Context) (net.Conn, error)
	Hooks  Hooks
}

// Hooks get what the backend says on its own account, in its place between the answers and also during hidden calls. The frame
// is the whole message, valid until the hook returns. A nil hook drops it.
type Hooks struct {
	ParameterStatus func(name, value string, frame []byte)
	Notification    func(frame []byte)
}

// Sink takes one message of an answer: the frame is the whole message, valid until the sink returns. NoticeResponse and
// ErrorResponse are handed over like all others.
type Sink func(typ byte, frame []byte) error

// ErrCopyIn is Drain's answer when the backend waits for COPY data of the call at the front: go on with CopyIn.
var ErrCopyIn = errors.New("backend waits for copy data")

// Conn is a session backend. All methods but Cancel and Close belong to one goroutine at a time.
type Conn struct {
	nc net.Conn
	o  Options

	out    []byte  // queued, not yet sent
	queue  []*Call // sent or queued, not yet answered
	skip   bool    // the backend ignores everything up to the next Sync
	status byte
	copyIn bool
	err    error // sticky: the connection is of no more use

	in   []byte
	r, w int

	watch  *watch
	writer writer
}

// New takes over a connection that is past its login and its first ReadyForQuery.
func New(nc net.Conn, o Options) *Conn {
	if o.Status == 0 {
		o.Status = 'I'
	}
	c := &Conn{nc: nc, o: o, status: o.Status}
	c.writer.nc = nc
	return c
}

// Status is the transaction status of the last ReadyForQuery: 'I', 'T' or 'E'.
func (c *Conn) Status() byte { return c.status }

// Skipping tells whether an error made the backend ignore everything up to the next Sync.
func (c *Conn) Skipping() bool { return c.skip }

// Idle tells whether every call is answered.
func (c *Conn) Idle() bool { return len(c.queue) == 0 }

// Err is why the connection can no longer be used, or nil. A *wire.Error is the FATAL message that ended it.
func (c *Conn) Err() error { return c.err }

// Close ends the connection. It may be called from any goroutine and ends whatever is waiting.
func (c *Conn) Close() error {
	err := c.nc.Close()
	c.writer.wait()
	return err
}

// Terminate says good-bye and closes.
func (c *Conn) Terminate() error {
	c.Unwatch()
	if c.err == nil && c.Idle() {
		_, _ = c.nc.Write(wire.AppendTerminate(nil)) // the connection ends either way
	}
	return c.Close()
}

// Cancel asks the backend to stop what it is doing, over a connection of its own. It may be called from any goroutine. It
// returns when the request was taken; the call under way then fails with 57014, or not, if it was just done.
func (c *Conn) Cancel(ctx context.Context) error {
	nc, err := c.o.Dial(ctx)
	if err != nil {
		return fmt.Errorf("cancel backend: %w", err)
	}
	defer nc.Close()
	stop := context.AfterFunc(ctx, func() { nc.Close() })
	defer stop()
	if _, err := nc.Write(wire.AppendCancelRequest(nil, c.o.Key)); err != nil {
		return fmt.Errorf("cancel backend: %w", err)
	}
	// Postgres closes once it has sent the signal.
	if _, err := io.Copy(io.Discard, nc); err != nil && ctx.Err() != nil {
		return fmt.Errorf("cancel backend: %w", ctx.Err())
	}
	return nil
}

// frame reads the next message. It may be interrupted by a read deadline and called again.
func (c *Conn) frame() (typ byte, frame []byte, err error) {
	for {
		need := 5
		if c.w-c.r >= need {
			size := binary.BigEndian.Uint32(c.in[c.r+1:])
			if size < 4 || size > 1<<31-1 {
				return 0, nil, fmt.Errorf("read backend: message of length %d", size)
			}
			need = 1 + int(size)
		}
		if c.w-c.r >= need {
			frame := c.in[c.r : c.r+need : c.r+need]
			c.r += need
			return frame[0], frame, nil
		}
		if err := c.fill(need); err != nil {
			return 0, nil, err
		}
	}
}

const inSize = 16 << 10

var inPool = sync.Pool{New: func() any { return new([inSize]byte) }}

func (c *Conn) fill(need int) error {
	c.makeRoom(need)
	n, err := c.nc.Read(c.in[c.w:])
	c.w += n
	if n > 0 {
		return nil // an error comes again with the next read
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// makeRoom lets the buffer at most double at a time.
func (c *Conn) makeRoom(need int) {
	switch {
	case c.in == nil:
		c.in = inPool.Get().(*[inSize]byte)[:]
	case c.r == c.w:
		c.r, c.w = 0, 0
	case c.w < len(c.in):
	case c.r > 0:
		c.w = copy(c.in, c.in[c.r:c.w])
		c.r = 0
	default:
		in := make([]byte, min(2*len(c.in), max(need, inSize)))
		c.w = copy(in, c.in[c.r:c.w])
		c.r = 0
		c.in = in
	}
}

// release gives an empty read buffer back.
func (c *Conn) release() {
	if c.in == nil || c.r != c.w {
		return
	}
	if len(c.in) == inSize {
		inPool.Put((*[inSize]byte)(c.in))
	}
	c.in, c.r, c.w = nil, 0, 0
}

// broken remembers why the connection is of no more use.
func (c *Conn) broken(err error) error {
	if c.err == nil {
		c.err = err
	}
	return c.err
}

var past = time.Unix(1, 0)

// writer sends. A long write runs in the background, since a backend that is busy sending answers reads nothing until it was
// read itself.
type writer struct {
	nc net.Conn

	mu      sync.Mutex // guards the rest, never held during a write
	pending []byte
	active  bool
	err     error
	running sync.WaitGroup
}

// directSize is what the socket's buffer takes without waiting.
const directSize = 8 << 10

// send writes b or hands it to the background; b is not used afterwards unless it is returned for reuse.
func (w *writer) send(b []byte) (reuse []byte, err error) {
	w.mu.Lock()
	if w.err != nil || w.active {
		defer w.mu.Unlock()
		w.pending = append(w.pending, b...)
		return b[:0], w.err
	}
	if len(b) <= directSize {
		w.mu.Unlock()
		_, err := w.nc.Write(b)
		return b[:0], err
	}
	w.pending, w.active = b, true
	w.running.Add(1)
	w.mu.Unlock()
	go w.run()
	return nil, nil
}

func (w *writer) run() {
	defer w.running.Done()
	for {
		w.mu.Lock()
		b := w.pending
		w.pending = nil
		if len(b) == 0 || w.err != nil {
			w.active = false
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
		if _, err := w.nc.Write(b); err != nil {
			w.mu.Lock()
			w.err = err
			w.mu.Unlock()
		}
	}
}

func (w *writer) wait() { w.running.Wait() }
