package server

import (
	"slices"
	"time"

	"sluice/server/wire"
)

// clientCopy reads a COPY FROM STDIN from the client.
type clientCopy struct{ s *session }

func (c clientCopy) next() (byte, []byte, error) {
	for {
		if !c.s.c.Buffered() {
			if err := c.s.c.Flush(); err != nil {
				return 0, nil, errGone
			}
		}
		typ, body, err := c.s.c.Read()
		switch {
		case err != nil || typ == 'X':
			return 0, nil, errGone
		case typ == 'd' || typ == 'c' || typ == 'f':
			c.s.vitals.fed(len(body))
			if c.s.tx != nil {
				c.s.tx.once.feed(body)
			}
			return typ, body, nil
		case typ == 'H' || typ == 'S': // clients that use the extended protocol send them behind Execute
		default:
			c.s.lost = wire.Errorf(wire.CodeProtocolViolation, "unexpected message type 0x%02X during COPY from stdin", typ)
			return 'f', append([]byte(c.s.lost.Message), 0), nil
		}
	}
}

func (c clientCopy) stop() {
	c.s.c.SetReadDeadline(time.Unix(1, 0))
}

func (c clientCopy) stopped() { c.s.c.SetReadDeadline(time.Time{}) }

// copySpool keeps the data of a guarded COPY FROM STDIN, so that the statement can run again.
type copySpool struct {
	s      *session
	types  []byte
	bodies [][]byte
	size   int
	whole  bool
	at     int
}

// sink takes the answer of a run: the request for data goes to the client, once.
func (c *copySpool) sink(out *spool) sink {
	return func(typ byte, frame []byte) {
		if typ != 'G' {
			out.add(typ, frame)
		} else if !c.whole {
			c.s.tx.opened(frame)
			c.s.c.Raw(frame)
		}
	}
}

// start goes to the beginning of the data.
func (c *copySpool) start() copySource {
	c.at = 0
	return c
}

func (c *copySpool) next() (byte, []byte, error) {
	if c.whole {
		c.at++
		return c.types[c.at-1], c.bodies[c.at-1], nil
	}
	typ, body, err := clientCopy{c.s}.next()
	if err != nil {
		return typ, body, err
	}
	if c.size += len(body); c.size > exactBytes && typ == 'd' {
		c.types, c.bodies = nil, nil // it will fail: only the end is waited for
		return c.overflow()
	}
	c.types, c.bodies = append(c.types, typ), append(c.bodies, slices.Clone(body))
	c.whole = typ != 'd'
	return typ, body, nil
}

// overflow lets a COPY fail that is too large for the exact lane: nothing of it stays.
func (c *copySpool) overflow() (byte, []byte, error) {
	for {
		typ, body, err := clientCopy{c.s}.next()
		if err != nil || typ != 'd' {
			return 'f', append([]byte("COPY is larger than the exact lane takes"), 0), err
		}
		_ = body
	}
}

func (c *copySpool) stop() { clientCopy{c.s}.stop() }

func (c *copySpool) stopped() { clientCopy{c.s}.stopped() }
