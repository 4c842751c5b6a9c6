package wire

import "sync"

// writeSize is the pending output from which on it is written without a Flush.
const writeSize = 64 << 10

// output is the pending output of one connection. Pooled, since most of the time most connections have none.
type output struct{ b []byte }

var outputPool = sync.Pool{New: func() any { return &output{b: make([]byte, 0, 4<<10)} }}

// emit appends one message whole.
func (c *Conn) emit(appendTo func([]byte) []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.outErr != nil {
		return
	}
	if c.out == nil {
		c.out = outputPool.Get().(*output)
	}
	c.out.b = appendTo(c.out.b)
	if len(c.out.b) >= writeSize {
		c.write()
	}
}

// write writes what is pending; c.mu is held.
func (c *Conn) write() {
	if _, err := c.nc.Write(c.out.b); err != nil {
		c.outErr = err
	}
	c.out.b = c.out.b[:0]
}

// Flush writes what is pending and reports the first error of any write since the connection began.
func (c *Conn) Flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.out == nil {
		return c.outErr
	}
	if len(c.out.b) > 0 && c.outErr == nil {
		c.write()
	}
	c.release()
	return c.outErr
}

// release returns the output buffer to the pool unless one long message has made it huge; c.mu is held.
func (c *Conn) release() {
	if cap(c.out.b) <= 4*writeSize {
		c.out.b = c.out.b[:0]
		outputPool.Put(c.out)
	}
	c.out = nil
}

// Pending is the number of bytes that wait for a Flush.
func (c *Conn) Pending() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.out == nil {
		return 0
	}
	return len(c.out.b)
}

// Raw appends whole messages of a backend as they are.
func (c *Conn) Raw(frames []byte) {
	if len(frames) < writeSize {
		c.emit(func(b []byte) []byte { return append(b, frames...) })
		return
	}
	c.emit(func(b []byte) []byte { return b })
	c.writeThrough(frames)
}

// writeThrough writes long messages from where they are instead of copying them.
func (c *Conn) writeThrough(frames []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.outErr == nil && c.out != nil && len(c.out.b) > 0 {
		c.write()
	}
	if c.outErr != nil {
		return
	}
	if _, err := c.nc.Write(frames); err != nil {
		c.outErr = err
	}
}

// ErrorResponse appends an ErrorResponse.
func (c *Conn) ErrorResponse(e *Error) {
	c.emit(func(b []byte) []byte { return AppendErrorResponse(b, e) })
}

// NoticeResponse appends a NoticeResponse.
func (c *Conn) NoticeResponse(e *Error) {
	c.emit(func(b []byte) []byte { return AppendNoticeResponse(b, e) })
}

// RowDescription appends a RowDescription.
func (c *Conn) RowDescription(fields []Field) {
	c.emit(func(b []byte) []byte { return AppendRowDescription(b, fields) })
}

// DataRow appends a DataRow; a nil value is NULL.
func (c *Conn) DataRow(values [][]byte) {
	c.emit(func(b []byte) []byte { return AppendDataRow(b, values) })
}

// CommandComplete appends a CommandComplete.
func (c *Conn) CommandComplete(tag string) {
	c.emit(func(b []byte) []byte { return AppendCommandComplete(b, tag) })
}

// EmptyQueryResponse appends an EmptyQueryResponse.
func (c *Conn) EmptyQueryResponse() { c.bare('I') }

// ReadyForQuery appends a ReadyForQuery with status 'I', 'T' or 'E'.
func (c *Conn) ReadyForQuery(status byte) {
	c.emit(func(b []byte) []byte { return AppendReadyForQuery(b, status) })
}

// ParseComplete appends a ParseComplete.
func (c *Conn) ParseComplete() { c.bare('1') }

// BindComplete appends a BindComplete.
func (c *Conn) BindComplete() { c.bare('2') }

// CloseComplete appends a CloseComplete.
func (c *Conn) CloseComplete() { c.bare('3') }

// NoData appends a NoData.
func (c *Conn) NoData() { c.bare('n') }

// PortalSuspended appends a PortalSuspended.
func (c *Conn) PortalSuspended() { c.bare('s') }

func (c *Conn) bare(typ byte) {
	c.emit(func(b []byte) []byte { return appendBare(b, typ) })
}

// ParameterDescription appends a ParameterDescription.
func (c *Conn) ParameterDescription(types []uint32) {
	c.emit(func(b []byte) []byte { return AppendParameterDescription(b, types) })
}

// AppendCopyInResponse appends a CopyInResponse to dst; format is 0 (text, csv) or 1 (binary).
func AppendCopyInResponse(dst []byte, format byte, columns int) []byte {
	return appendCopyStart(dst, 'G', format, columns)
}

// CopyOutResponse appends a CopyOutResponse; format is 0 (text, csv) or 1 (binary).
func (c *Conn) CopyOutResponse(format byte, columns int) {
	c.emit(func(b []byte) []byte { return appendCopyStart(b, 'H', format, columns) })
}

// CopyData appends a CopyData.
func (c *Conn) CopyData(chunk []byte) {
	c.emit(func(b []byte) []byte { return AppendCopyData(b, chunk) })
}

// CopyDone appends a CopyDone.
func (c *Conn) CopyDone() { c.bare('c') }

// ParameterStatus appends a ParameterStatus.
func (c *Conn) ParameterStatus(name, value string) {
	c.emit(func(b []byte) []byte { return AppendParameterStatus(b, name, value) })
}

// BackendKeyData appends a BackendKeyData.
func (c *Conn) BackendKeyData(pid uint32, secret []byte) {
	c.emit(func(b []byte) []byte { return AppendBackendKeyData(b, pid, secret) })
}

// NotificationResponse appends a NotificationResponse.
func (c *Conn) NotificationResponse(n Notification) {
	c.emit(func(b []byte) []byte { return AppendNotificationResponse(b, n) })
}

// AuthenticationOK appends an AuthenticationOk.
func (c *Conn) AuthenticationOK() { c.authentication(0, nil) }

// AuthenticationSASL appends the list of mechanisms, the preferred one first.
func (c *Conn) AuthenticationSASL(mechanisms ...string) {
	var list []byte
	for _, m := range mechanisms {
		list = appendCString(list, m)
	}
	c.authentication(10, append(list, 0))
}

// AuthenticationSASLContinue appends the server's challenge.
func (c *Conn) AuthenticationSASLContinue(challenge []byte) { c.authentication(11, challenge) }

// AuthenticationSASLFinal appends the server's last word.
func (c *Conn) AuthenticationSASLFinal(outcome []byte) { c.authentication(12, outcome) }

func (c *Conn) authentication(kind uint32, rest []byte) {
	c.emit(func(b []byte) []byte { return appendAuthentication(b, kind, rest) })
}
