package reader

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

// The frames of both directions.
const (
	frameRequest = 'Q' // description of a request, JSON
	frameRows    = 'R' // index of the table (2 bytes), then an Arrow stream of rows
	frameRun     = 'X' // end of a request
	frameBytes   = 'B' // part of the answer's Arrow stream
	frameDone    = 'Z' // end of the answer
	frameError   = 'E' // scan.Error, JSON: end of the answer
)

// maxFrame bounds what a peer may announce: rows of a large tail come in many frames.
const maxFrame = 1 << 30

func writeFrame(w io.Writer, typ byte, parts ...[]byte) error {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	if n > maxFrame {
		return fmt.Errorf("frame of %d bytes is too large", n)
	}
	head := [5]byte{typ}
	binary.LittleEndian.PutUint32(head[1:], uint32(n))
	if _, err := w.Write(head[:]); err != nil {
		return err
	}
	for _, p := range parts {
		if _, err := w.Write(p); err != nil {
			return err
		}
	}
	return nil
}

func readFrame(r io.Reader) (typ byte, body []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.LittleEndian.Uint32(head[1:])
	if n > maxFrame {
		return 0, nil, fmt.Errorf("frame of %d bytes is too large", n)
	}
	body = make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return 0, nil, noEOF(err)
	}
	return head[0], body, nil
}

// noEOF makes an end in the middle of something an error.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// frameWriter cuts what is written to it into frames.
type frameWriter struct {
	w   *bufio.Writer
	typ byte
}

func (f *frameWriter) Write(p []byte) (int, error) {
	if err := writeFrame(f.w, f.typ, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// answerReader is the Arrow stream of an answer: it joins frames and ends with io.EOF at the answer's end, or with its error.
type answerReader struct {
	r    io.Reader
	rest []byte
	end  error // set once the answer has ended; io.EOF is a good end
}

func (a *answerReader) Read(p []byte) (int, error) {
	for len(a.rest) == 0 {
		if a.end != nil {
			return 0, a.end
		}
		a.next()
	}
	n := copy(p, a.rest)
	a.rest = a.rest[n:]
	return n, nil
}

func (a *answerReader) next() {
	typ, body, err := readFrame(a.r)
	switch {
	case err != nil:
		a.end = &brokenError{noEOF(err)}
	case typ == frameBytes:
		a.rest = body
	case typ == frameDone:
		a.end = io.EOF
	case typ == frameError:
		a.end = decodeError(body)
	default:
		a.end = &brokenError{fmt.Errorf("unexpected frame %q", typ)}
	}
}

// drain reads to the end of the answer.
func (a *answerReader) drain() error {
	for a.end == nil {
		a.next()
	}
	if a.end == io.EOF {
		return nil
	}
	return a.end
}

// brokenError is a failure of the pipe: the child is gone or talks nonsense, and is not used again.
type brokenError struct{ err error }

func (e *brokenError) Error() string { return e.err.Error() }

func (e *brokenError) Unwrap() error { return e.err }
