package server

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sluice/catalogpg"
	"sluice/planner"
	"sluice/server/backend"
	"sluice/server/wire"
	"sluice/sql"
	"sluice/sql/pgvalue"
	"sluice/writer"
	"sluice/writer/table"
)

// session is one client connection. It is one goroutine; only asynchronous messages of the backend come from another.
//
// Client messages are worked off one by one. What Postgres can answer alone is relayed; lake statements run under the guard
// (guard.go); the end of a transaction goes through its decider (txn.go).
type session struct {
	srv      *Server
	c        *wire.Conn
	user, db string
	settings []wire.Setting
	pid      uint32
	secret   []byte

	be  *link                             // nil until the first statement that needs Postgres
	pg  atomic.Pointer[catalogpg.Backend] // the same connection, for cancelling
	key bytea                             // proves gateway calls on be

	implicit bool        // the open block is ours and stands for an implicit transaction
	held     []byte      // the CommandComplete of an implicit transaction, kept until the decider has answered
	lost     *wire.Error // the client sent something else in the middle of a COPY
	skip     bool        // an extended message failed: discard up to Sync

	stmts       map[string]*prepared
	portals     map[string]*portal
	unnamed     portal
	bindMessage wire.Bind // of the last Bind; its values are those of the read buffer

	tx        *txn    // the open transaction's lake side; nil until a guarded statement ran
	listens   bool    // LISTEN may have run on the backend
	executing *string // portal of the control statement under way
	names     resolution
	namings   uint64            // how many resolutions there were
	told      map[string]string // settings as the client knows them
	reports   map[string]string // what the backend reported since
	cursors   map[string]bool   // declared here, their tables filled

	work    atomic.Pointer[work] // what a cancel request ends
	cancels sync.Mutex           // held while one is carried out
	evict   eviction
	lanes   laneSettings

	retries    bool   // sluice.writer or sluice.sequence may be set: there was a statement that did
	userCode   bool   // or they may be, since user code has run after the last look
	retriesSet bool   // one of them may have been set since the last look
	role       string // oid of the role that is logged in, once it was asked for

	vitals vitals
	summon chan struct{} // somebody waits for the session to have a backend: closed then

	env         *pgvalue.Env       // settings that values depend on
	backslashes bool               // standard_conforming_strings is off
	foreign     bool               // client_encoding is one that the gateway cannot read
	defaults    *writer.TxnOptions // of an implicit transaction; nil: ask Postgres
	waits       bool               // synchronous_commit = remote_apply, as of the last look
	lazily      bool               // a block may begin without the backend, as of the last look
	readsOnly   bool               // default_transaction_read_only, as of the last look
	idles       bool               // the backend ends a session that is idle for too long, as of the last look
	lockTimeout time.Duration      // lock_timeout, as of the last look
	timeout     time.Duration      // statement_timeout, as of the last look
}

// prepared is a protocol-level prepared statement; the backend has it under the same name.
type prepared struct {
	name   string
	stmt   *sql.Statement // nil: the empty statement
	point  *pointPlan     // compiled, if it is a point read
	plan   planner.Plan   // for the fast lane, as of names
	names  uint64         // 0: there is no plan
	write  writePlan      // compiled, if it is a write for the fast lane
	asOf   uint64         // version of the registry that write was compiled for
	parsed uint64         // version of the registry when it was parsed
	types  []uint32       // of the parameters, as the client declared them; 0: inferred
}

// portal is a bound statement. The backend has it under the same name unless its rows are spooled here.
type portal struct {
	st      *prepared
	bind    []byte // the client's Bind body, to bind again under the guard
	out     *spool // not nil: executed under the guard, rows are here
	next    int    // first frame of out that was not sent yet
	plan    planner.Plan
	isPoint bool // a point read of key, its values in format; bound here only
	key     keySet
	format  func(int) int16
	write   *fastWrite   // bound here only, the backend does not know it
	local   bool         // bound here only, too: it ends or begins a block
	rows    *table.Batch // of write if it is one row; kept for the next
}

var errGone = errors.New("client is gone")

// run serves the connection until the client leaves, the context ends or the protocol is broken.
func (s *session) run(ctx context.Context) error {
	defer s.close()
	for {
		if !s.c.Buffered() {
			s.rest()
			if err := s.c.Flush(); err != nil {
				return errGone
			}
		}
		typ, body, err := s.read()
		if err != nil {
			return s.readFailed(err)
		}
		if typ == 'X' {
			return nil
		}
		s.interrupted()
		rested := s.vitals.active()
		if err := s.message(s.working(ctx, rested), typ, body); err != nil {
			return s.fatal(err)
		}
		if s.lost != nil {
			return s.fatal(wire.Fatalf(wire.CodeProtocolViolation, "terminating connection because protocol synchronization was lost"))
		}
	}
}

// silence is how long a client says nothing until its backend is watched: one that is terminated then ends the session at once.
const silence = 100 * time.Millisecond

// read waits for the client. A deadline that is not the server's stop is of silence, or of somebody who wants to know the session's backend.
func (s *session) read() (byte, []byte, error) {
	silent := false
	for {
		typ, body, err := s.listen(silent)
		if !errors.Is(err, os.ErrDeadlineExceeded) || s.srv.stopping.Load() {
			return typ, body, err
		}
		if s.be != nil {
			silent = true
		} else if err := s.summoned(); err != nil {
			return 0, nil, err
		}
		s.setDeadline(time.Time{})
	}
}

// setDeadline is the client's read deadline, unless the server stops.
func (s *session) setDeadline(t time.Time) {
	s.c.SetReadDeadline(t)
	if s.srv.stopping.Load() {
		s.c.SetReadDeadline(time.Unix(1, 0))
	}
}

// listen reads the next message. What a backend says by itself is passed on meanwhile, if it listens, may end an idle session, or the client is
// silent; before that it is not worth a goroutine.
func (s *session) listen(silent bool) (byte, []byte, error) {
	if s.be == nil || s.c.Buffered() {
		return s.c.Read()
	}
	if !s.listens && !s.idles && !silent {
		s.setDeadline(time.Now().Add(silence))
		typ, body, err := s.c.Read()
		s.setDeadline(time.Time{})
		return typ, body, err
	}
	s.be.be.Watch(func(typ byte, frame []byte) error {
		if s.async(frame); typ == 'E' {
			s.c.SetReadDeadline(time.Unix(1, 0)) // it was the last word: what the session holds must go now
		}
		return nil
	})
	typ, body, err := s.c.Read()
	s.be.be.Unwatch()
	if s.be.be.Err() != nil {
		return 0, nil, errGone
	}
	return typ, body, err
}

func (s *session) readFailed(err error) error {
	var e *wire.Error
	if errors.As(err, &e) {
		return s.fatal(e)
	}
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed), errors.Is(err, errGone):
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded): // the server stops
		s.fatal(wire.Fatalf(wire.CodeAdminShutdown, "terminating connection due to administrator command"))
		return nil
	}
	return s.fatal(err)
}

// fatal tells the client why the connection ends.
func (s *session) fatal(err error) error {
	if errors.Is(err, errGone) {
		return nil
	}
	var e *wire.Error
	if !errors.As(err, &e) {
		e = wire.Fatalf(wire.CodeConnectionFailure, "connection to the catalog database was lost: %v", err)
	}
	if e.Severity != "FATAL" {
		e = wire.Fatalf(e.Code, "%s", e.Message)
	}
	s.c.ErrorResponse(e)
	s.c.Flush()
	return err
}

func (s *session) close() {
	if w := s.work.Load(); w != nil {
		w.cancel(nil)
	}
	if s.tx != nil {
		s.tx.rollback()
		s.tx = nil
	}
	if s.be != nil {
		s.be.be.Terminate()
	}
	s.c.Close()
}

// message works off one client message. An error ends the connection; a statement's failure does not.
func (s *session) message(ctx context.Context, typ byte, body []byte) error {
	if s.skip && typ != 'S' {
		return nil
	}
	if s.be == nil {
		if err := s.attach(ctx); err != nil {
			return err
		}
	}
	switch typ {
	case 'Q':
		return s.query(ctx, body)
	case 'P':
		return s.extended(ctx, s.parse(ctx, body))
	case 'B':
		return s.extended(ctx, s.bind(ctx, body))
	case 'D':
		return s.extended(ctx, s.describe(body))
	case 'E':
		return s.extended(ctx, s.execute(ctx, body))
	case 'C':
		return s.extended(ctx, s.closeNamed(body))
	case 'S':
		return s.sync(ctx, body)
	case 'H':
		s.release()
		return errors.Join(s.extended(ctx, wire.CheckEmpty(body)), s.c.Flush())
	case 'd', 'c', 'f':
		return nil // late COPY messages are ignored, as in Postgres
	case 'F':
		return s.functionCall(ctx, body)
	}
	return wire.Fatalf(wire.CodeProtocolViolation, "invalid frontend message type %d", typ)
}

// attachTimeout bounds the login of a backend.
const attachTimeout = time.Minute

// attach binds a backend to the session, logged in as the user. A cancel request meanwhile is for the statement, not for the session.
func (s *session) attach(ctx context.Context) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), attachTimeout)
	defer stop()
	pg, err := s.srv.attach(ctx, s)
	if err != nil {
		return err
	}
	s.pg.Store(pg)
	s.srv.attached(s, pg.PID)
	s.key = pg.Key
	s.env = pgvalue.DefaultEnv()
	for name, value := range pg.Params {
		s.reported(name, value)
	}
	s.be = newLink(backend.New(pg.Conn, backend.Options{Hooks: backend.Hooks{
		ParameterStatus: func(name, value string, frame []byte) {
			s.reported(name, value)
			s.reports[name] = value
			s.vitals.parameter(name, value)
		},
		Notification: s.async,
	}}))
	return nil
}

// reported takes a value that the backend reported.
func (s *session) reported(name, value string) {
	s.env.Set(name, value)
	switch name {
	case "standard_conforming_strings":
		s.backslashes = value == "off"
	case "client_encoding":
		s.foreign = foreign(value)
	}
}

// async passes on what the backend says on its own: notifications, notices, its end.
func (s *session) async(frame []byte) {
	if frame[0] == 'A' {
		frame = s.srv.signed(frame)
	}
	s.c.Raw(frame)
	s.c.Flush()
}

// readyForQuery ends a simple Query or a Sync.
func (s *session) readyForQuery() error {
	if s.implicit {
		return errors.New("internal error: implicit transaction left open")
	}
	status := byte('I')
	if s.be != nil {
		status = s.be.status
	}
	if s.lost != nil {
		return nil
	}
	s.report()
	s.c.ReadyForQuery(status)
	return nil
}

// report tells the client which settings have another value than it knows, as Postgres does before ReadyForQuery.
func (s *session) report() {
	for _, name := range slices.Sorted(maps.Keys(s.reports)) {
		if value := s.reports[name]; s.told[name] != value {
			s.c.ParameterStatus(name, value)
			s.told[name] = value
		}
	}
	clear(s.reports)
}

// noteCursor notes a cursor that was declared with all its tables in place: fetching from it is Postgres' own business.
func (s *session) noteCursor(st *sql.Statement) {
	if s.cursors == nil {
		s.cursors = map[string]bool{}
	}
	s.cursors[st.CursorName()] = true
}

// hold takes an implicit transaction's CommandComplete; it goes out when something follows it or when the transaction is decided.
func (s *session) hold(frame []byte) {
	s.release()
	s.held = append(s.held[:0], frame...)
}

func (s *session) release() {
	if len(s.held) > 0 {
		s.c.Raw(s.held)
		s.held = s.held[:0]
	}
}
