package wire

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

// Conn is one client connection. Read belongs to one goroutine; the writers may be called from several.
type Conn struct {
	nc     net.Conn        // the TLS connection or the socket
	socket syscall.RawConn // nil: TLS, or not a socket
	budget Budget
	max    int // longest message, length word included

	// owned by the goroutine that calls Read
	authenticated bool
	in            []byte // nil while idle
	r, w          int    // in[r:w] is read and not yet given out
	charged       int    // bytes of in taken from the budget
	probe         func(fd uintptr) bool
	probed        int   // result of the last probe
	probeErr      error // likewise
	refused       refusal
	fatal         error // sticky

	mu     sync.Mutex // guards the output, for the span of one message or one write
	out    *output    // nil: nothing pending
	outErr error      // sticky
}

// Budget limits the memory of long messages over all connections.
type Budget interface {
	// Reserve takes bytes out of the budget or says why not. It does not wait.
	Reserve(bytes int) error
	// Release gives bytes back.
	Release(bytes int)
}

// refusal is a message that is being skipped because the budget refused it.
type refusal struct {
	typ  byte
	left int // bytes still to skip
	err  *Error
}

const (
	smallBuffer = 8 << 10  // what a waking connection takes
	largeBuffer = 64 << 10 // after a read that filled a small one; longer ones are charged to the budget
	headSize    = 5        // type and length

	unauthenticatedMax = 64 << 10 // Postgres' limit of an authentication token
	shortMax           = 10_000   // Postgres' limit of messages that hold no user data
)

var (
	smallPool = sync.Pool{New: func() any { return new([smallBuffer]byte) }}
	largePool = sync.Pool{New: func() any { return new([largeBuffer]byte) }}
)

func newConn(nc net.Conn, o Options) *Conn {
	c := &Conn{nc: nc, budget: o.Budget, max: o.MaxMessage}
	if s, ok := nc.(syscall.Conn); ok {
		if raw, err := s.SyscallConn(); err == nil {
			c.socket, c.probe = raw, c.tryRead
		}
	}
	return c
}

// Authenticated ends the start-up phase: its deadline and its limit of message length no longer hold.
func (c *Conn) Authenticated() {
	c.authenticated = true
	// An error means that the connection is gone, which the next Read reports.
	_ = c.nc.SetDeadline(time.Time{})
}

// Read returns the next message. body aliases the read buffer until the next Read. An *Error is to be answered: after a FATAL
// one nothing more can be read, after an ERROR the message was skipped and reading goes on. io.EOF: the client closed the
// connection between two messages.
func (c *Conn) Read() (typ byte, body []byte, err error) {
	if c.fatal != nil {
		return 0, nil, c.fatal
	}
	if c.refused.err != nil {
		return c.skip()
	}
	if err := c.need(headSize); err != nil {
		return 0, nil, c.failed(err)
	}
	typ, size := c.head()
	if err := c.check(typ, size); err != nil {
		return typ, nil, c.failed(err)
	}
	if err := c.need(1 + size); err != nil {
		var denied *Error
		if errors.As(err, &denied) {
			c.refused = refusal{typ: typ, left: 1 + size, err: denied}
			return c.skip()
		}
		return typ, nil, c.failed(err)
	}
	body = c.in[c.r+headSize : c.r+1+size]
	c.r += 1 + size
	return typ, body, nil
}

// head is the type and the length (length word included) of the message at the front of the buffer.
func (c *Conn) head() (typ byte, size int) {
	return c.in[c.r], int(int32(binary.BigEndian.Uint32(c.in[c.r+1:])))
}

// failed remembers errors after which the stream of messages has no known boundary. A deadline is not one: Read goes on later.
func (c *Conn) failed(err error) error {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return err
	}
	c.fatal = err
	c.giveBack()
	return err
}

// check tests type and length before anything is read for them.
func (c *Conn) check(typ byte, size int) error {
	limit := c.max
	switch typ {
	case 'Q', 'F', 'B', 'P', 'd':
	case 'C', 'D', 'E', 'H', 'S', 'X', 'c', 'f':
		limit = min(limit, shortMax)
	case 'p':
		if c.authenticated {
			return Fatalf(CodeProtocolViolation, "invalid frontend message type %d", typ)
		}
	default:
		return Fatalf(CodeProtocolViolation, "invalid frontend message type %d", typ)
	}
	if !c.authenticated {
		if typ != 'p' {
			return Fatalf(CodeProtocolViolation, "expected password response, got message type %d", typ)
		}
		limit = min(limit, unauthenticatedMax)
	}
	if size < 4 || size > limit {
		return Fatalf(CodeProtocolViolation, "invalid message length")
	}
	return nil
}

// Buffered tells whether a whole next message is already here. If not, now is the time to flush.
func (c *Conn) Buffered() bool {
	if c.w-c.r < headSize || c.refused.err != nil {
		return false
	}
	_, size := c.head()
	return c.w-c.r >= 1+size
}

// need reads until at least n bytes are in the buffer.
func (c *Conn) need(n int) error {
	for c.w-c.r < n {
		if err := c.fill(n); err != nil {
			if err == io.EOF && c.w != c.r {
				return io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}

func (c *Conn) fill(n int) error {
	if c.r == c.w {
		c.r, c.w = 0, 0
		return c.wait()
	}
	if c.w == len(c.in) {
		if err := c.makeRoom(n); err != nil {
			return err
		}
	}
	got, err := c.nc.Read(c.in[c.w:])
	c.w += got
	if got > 0 {
		return nil // an error comes again with the next read
	}
	return err
}

// makeRoom moves the begun message to the front of the buffer, of a larger one if this one is full or was filled by one read.
// A buffer at most doubles at a time, so that a declared length alone allocates nothing.
func (c *Conn) makeRoom(n int) error {
	switch {
	case len(c.in) < largeBuffer:
		c.moveTo(largePool.Get().(*[largeBuffer]byte)[:], 0)
	case c.r > 0:
		c.w = copy(c.in, c.in[c.r:c.w])
		c.r = 0
	default:
		size := min(2*len(c.in), n)
		if err := c.charge(size); err != nil {
			return err
		}
		c.moveTo(make([]byte, size), size)
	}
	return nil
}

func (c *Conn) charge(size int) error {
	if c.budget == nil {
		return nil
	}
	if err := c.budget.Reserve(size); err != nil {
		return Errorf(CodeOutOfMemory, "out of memory").WithDetail("Cannot hold a message of more than %d bytes: %v.", len(c.in), err)
	}
	return nil
}

func (c *Conn) moveTo(b []byte, charged int) {
	n := copy(b, c.in[c.r:c.w])
	c.giveBack()
	c.in, c.r, c.w, c.charged = b, 0, n, charged
}

// giveBack leaves the connection without a read buffer.
func (c *Conn) giveBack() {
	switch len(c.in) {
	case 0:
	case smallBuffer:
		smallPool.Put((*[smallBuffer]byte)(c.in))
	case largeBuffer:
		largePool.Put((*[largeBuffer]byte)(c.in))
	}
	if c.charged > 0 && c.budget != nil {
		c.budget.Release(c.charged)
	}
	c.in, c.r, c.w, c.charged = nil, 0, 0, 0
}

// wait reads the first bytes of a message, holding no buffer while there are none.
func (c *Conn) wait() error {
	if c.socket == nil {
		return c.waitStream()
	}
	c.probed, c.probeErr = 0, nil
	if err := c.socket.Read(c.probe); err != nil {
		c.giveBack()
		return err
	}
	if c.probeErr != nil {
		return c.probeErr
	}
	if c.probed == 0 {
		return io.EOF
	}
	c.w = c.probed
	return nil
}

// tryRead reads what there is; if there is nothing it gives the buffer back and lets the poller wait.
func (c *Conn) tryRead(fd uintptr) bool {
	if c.in == nil {
		c.in = smallPool.Get().(*[smallBuffer]byte)[:]
	}
	for {
		n, err := syscall.Read(int(fd), c.in)
		switch err {
		case nil:
			c.probed = n
			return true
		case syscall.EINTR:
		case syscall.EAGAIN:
			c.giveBack()
			return false
		default:
			c.probeErr = err
			return true
		}
	}
}

// waitStream is wait for TLS, which may hold decrypted bytes that the socket knows nothing about: it waits with a few bytes of
// its own instead of a buffer.
func (c *Conn) waitStream() error {
	c.giveBack()
	var head [headSize]byte
	n, err := c.nc.Read(head[:])
	if n == 0 {
		return err
	}
	c.in = smallPool.Get().(*[smallBuffer]byte)[:]
	c.w = copy(c.in, head[:n])
	return nil
}

// skip reads past a refused message and then reports the refusal.
func (c *Conn) skip() (byte, []byte, error) {
	for c.refused.left > c.w-c.r {
		c.refused.left -= c.w - c.r
		c.r, c.w = 0, 0
		n, err := c.nc.Read(c.in)
		if n == 0 && err != nil {
			return c.refused.typ, nil, c.failed(err)
		}
		c.w = n
	}
	c.r += c.refused.left
	refused := c.refused
	c.refused = refusal{}
	return refused.typ, nil, refused.err
}

// SetReadDeadline ends a waiting Read with os.ErrDeadlineExceeded; Read may be called again after the deadline was lifted.
// It may be called from any goroutine.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.nc.SetReadDeadline(t) }

// SetWriteDeadline ends a waiting write; a write that was cut short is final. It may be called from any goroutine.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.nc.SetWriteDeadline(t) }

// TLSConnection is the TLS layer, nil for a connection in clear text.
func (c *Conn) TLSConnection() *tls.Conn {
	t, _ := c.nc.(*tls.Conn)
	return t
}

// RemoteAddr is the client's address.
func (c *Conn) RemoteAddr() net.Addr { return c.nc.RemoteAddr() }

// Close closes the connection without flushing. It may be called from any goroutine and ends a waiting Read or write.
func (c *Conn) Close() error { return c.nc.Close() }
