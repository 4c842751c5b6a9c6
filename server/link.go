package server

import (
	"context"
	"errors"
	"fmt"

	"sluice/catalogpg"
	"sluice/server/backend"
)

// link is how the session speaks to its backend: one request, one answer. The gateway's own statements go through one reserved name in
// the extended protocol, since a simple Query would destroy the client's unnamed statement (reference lanes 2.1). They end with
// Sync inside a block, where Sync ends nothing, and without one while an implicit transaction of the client is open on the backend.
type link struct {
	be       *backend.Conn
	status   byte // of the last ReadyForQuery
	unsynced bool // extended messages were sent after it
	// lazy says that the client has begun a block that the backend does not know yet: as long as the fast lane does everything it need not,
	// and status is T. What is sent to run in the block begins it first (ready); what is only parsed does not.
	lazy bool
}

// sink takes the messages of an answer: complete frames, valid during the call, without ErrorResponse and ReadyForQuery.
type sink func(typ byte, frame []byte)

// copySource gives the messages of a COPY FROM STDIN, in a goroutine of its own; stop makes a waiting next return.
type copySource interface {
	next() (typ byte, body []byte, err error)
	stop()
	stopped() // next will not be called any more: undo stop
}

// bytea is a parameter that is sent in binary.
type bytea []byte

func newLink(be *backend.Conn) *link { return &link{be: be, status: be.Status()} }

// pass adapts a sink.
func pass(out sink) backend.Sink {
	if out == nil {
		return nil
	}
	return func(typ byte, frame []byte) error {
		if typ != 'E' && typ != 'Z' {
			out(typ, frame)
		}
		return nil
	}
}

// finish reads until call is answered.
func (l *link) finish(call *backend.Call, src copySource) error {
	err := l.be.Drain()
	if errors.Is(err, backend.ErrCopyIn) {
		if src == nil {
			return errors.New("backend asks for COPY data")
		}
		if err = l.be.CopyIn(src.next, src.stop); err == nil {
			err = l.be.Drain()
		}
		src.stopped()
	}
	l.told()
	if err != nil {
		return err
	}
	if call.Err != nil {
		return call.Err
	}
	return nil
}

// told takes the backend's status over.
func (l *link) told() {
	if !l.lazy {
		l.status = l.be.Status()
	}
}

// ready begins a lazy block on the backend.
func (l *link) ready() error {
	if !l.lazy {
		return nil
	}
	l.lazy = false
	_, err := l.control("BEGIN", nil, nil)
	return err
}

// query sends a simple Query and passes its answer on.
func (l *link) query(text string, out sink, src copySource) error {
	if err := l.ready(); err != nil {
		return err
	}
	call := l.be.Query(pass(out), text)
	l.unsynced = false
	return l.finish(call, src)
}

// exchange sends one extended message and passes the answer on. After an error the backend waits for sync.
func (l *link) exchange(typ byte, body []byte, out sink, src copySource) error {
	if typ == 'B' || typ == 'E' {
		if err := l.ready(); err != nil {
			return err
		}
	}
	l.unsynced = true
	return l.finish(l.be.Forward(pass(out), typ, body), src)
}

// sync ends the backend's pipeline.
func (l *link) sync(out sink) error {
	if !l.unsynced {
		return nil
	}
	l.unsynced = false
	return l.finish(l.be.Sync(pass(out)), nil)
}

// exec runs a statement of the gateway's own and returns its rows as text; nil is NULL.
func (l *link) exec(ctx context.Context, text string, params ...any) ([][][]byte, error) {
	r, err := l.run(text, params)
	if err != nil {
		return nil, err
	}
	return r.Rows, nil
}

// do is exec for statements without rows.
func (l *link) do(ctx context.Context, text string, params ...any) error {
	_, err := l.run(text, params)
	return err
}

// batch runs statements of the gateway's own in one round trip. The first failure is the error; what follows it was skipped.
func (l *link) batch(list ...backend.Statement) ([]*backend.Result, error) {
	results := make([]*backend.Result, len(list))
	if err := l.ready(); err != nil {
		return results, err
	}
	for i, st := range list {
		results[i] = l.be.Hidden(st)
	}
	synced := !l.unsynced || l.status != 'I'
	if synced {
		l.be.Sync(nil)
		l.unsynced = false
	}
	err := l.be.Drain()
	l.told()
	for _, r := range results {
		if err == nil && r.Err() != nil {
			err = r.Err()
		}
	}
	return results, err
}

// privileged is a call as a statement; its rows are binary.
func privileged(c catalogpg.Call) backend.Statement {
	st := backend.Statement{SQL: c.SQL, Types: c.Types, Values: c.Params, Formats: []int16{1}, ResultFormats: []int16{1}}
	if len(c.Params) == 0 {
		st.Formats = nil
	}
	return st
}

// call runs a privileged statement; its rows are binary.
func (l *link) call(c catalogpg.Call) ([][][]byte, error) {
	r, err := l.batch(privileged(c))
	if err != nil {
		return nil, err
	}
	return r[0].Rows, nil
}

func (l *link) run(text string, params []any) (*backend.Result, error) {
	st := backend.Statement{SQL: text}
	for _, p := range params {
		var v []byte
		format := int16(0)
		switch p := p.(type) {
		case nil:
		case string:
			v = append([]byte{}, p...)
		case []byte:
			v = p
		case bytea:
			v, format = p, 1
		default:
			panic(fmt.Sprintf("parameter of type %T", p))
		}
		st.Values, st.Formats = append(st.Values, v), append(st.Formats, format)
	}
	r, err := l.batch(st)
	return r[0], err // nil if the batch was not sent
}

// control runs a statement of the user under the reserved name; its notices go to out. A Query would destroy the unnamed statement. portal is
// the client's own for the same statement, which would be in the way of a rollback.
func (l *link) control(text string, out sink, portal *string) (tag string, err error) {
	const name = "_sluice_control"
	if err := l.ready(); err != nil {
		return "", err
	}
	notices := pass(func(typ byte, frame []byte) {
		if typ == 'N' && out != nil {
			out(typ, frame)
		}
	})
	if portal != nil {
		l.be.CloseNamed(nil, 'P', *portal)
	}
	calls := []*backend.Call{l.be.CloseNamed(nil, 'P', name), l.be.CloseNamed(nil, 'S', name), l.be.Parse(notices, name, text, nil), l.be.Bind(nil, name, name, nil, nil, nil),
		l.be.Execute(notices, name, 0)}
	exec := calls[len(calls)-1]
	l.be.CloseNamed(nil, 'S', name)
	l.unsynced = false
	err = l.finish(l.be.Sync(notices), nil)
	for _, c := range calls {
		if err == nil && c.Err != nil {
			err = c.Err
		}
	}
	return exec.Tag, err
}

// check parses a text as one statement without running it.
func (l *link) check(text string) error {
	call := l.be.Parse(nil, "_sluice_check", text, nil)
	l.be.CloseNamed(nil, 'S', "_sluice_check")
	l.be.Sync(nil)
	return l.finish(call, nil)
}
