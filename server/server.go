// Package server is the front door: it speaks the Postgres protocol, keeps sessions, and takes every statement through its lane.
//
// Start with Serve. One session (session.go) is one client: simple.go and extended.go read its messages, guard.go is the exact
// lane, txn.go the end of transactions, ddl.go what a schema change means for the lake. The packages below it hold what needs
// no session: wire (bytes), auth (who), backend (a Postgres connection), reader (DuckDB), rest (HTTP). It never writes a file.
package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"

	"sluice/catalogpg"
	"sluice/server/auth"
	"sluice/server/wire"
	"sluice/writer"
	"sluice/writer/catalog"
	"sluice/writer/format"
	"sluice/writer/table"
)

// Options are what a Server stands on.
type Options struct {
	Catalog *catalogpg.Catalog
	Writer  *writer.Writer
	Log     *slog.Logger
	Wire    wire.Options
	// History tells the snapshots of a table, for sluice.snapshots; nil: it has no rows.
	History func(ctx context.Context, p table.Pointer) ([]format.Past, error)
	// CheckPartition says why a new table cannot be partitioned by its spec; nil: CREATE TABLE fails at its end instead.
	CheckPartition func(s *table.Schema) error

	Trust      bool    // roles without a password may log in
	Reader     Queryer // runs the scan lane; nil: there is none
	ExactLimit int64   // rows that the exact lane copies at most, per table; default 200,000
	ScanRows   int64   // tables with more rows are read in the scan lane where it can; default ExactLimit, -1 is all
	MaxClients int     // connections at once; default 1,000
}

// Server accepts client connections.
type Server struct {
	Options
	rels   *registry
	params map[string]string // ParameterStatus of a session without settings of its own
	fills  fillLocks
	frames frames
	inside map[uint32]*insideView // the views over the inside, by oid
	live   atomic.Int64           // connections

	stopping atomic.Bool

	mu       sync.Mutex // guards the rest, and summon of every session
	sessions map[uint32]*session
	past     []pastSession

	asking singleflight.Group // who waits in Postgres
}

// New makes a Server. tables is what Tables made of the catalog when the writer was opened.
func New(ctx context.Context, o Options, tables *Tables) (*Server, error) {
	o.ExactLimit = cmp.Or(o.ExactLimit, 200_000)
	o.ScanRows = cmp.Or(o.ScanRows, o.ExactLimit)
	o.MaxClients = cmp.Or(o.MaxClients, 1000)
	be, err := o.Catalog.Attach(ctx, catalogpg.User, o.Catalog.Database(), nil)
	if err != nil {
		return nil, fmt.Errorf("read default settings: %w", err)
	}
	defer be.Close()
	srv := &Server{Options: o, rels: &tables.registry, params: be.Params, sessions: map[uint32]*session{}}
	o.Writer.Locks().SetOutside(srv.blocked)
	return srv, srv.openInside(ctx)
}

// Tables is all lake tables, as the catalog describes them. Its Defs is what writer.Open asks for.
type Tables struct{ registry registry }

// Defs describes all tables to the writer, each where state says that it stands.
func (t *Tables) Defs(ctx context.Context, c *catalogpg.Catalog, state catalog.State) ([]writer.TableDef, error) {
	rels, err := c.Rels(ctx)
	if err != nil {
		return nil, err
	}
	at := map[table.ID]catalog.Table{}
	for _, s := range state.Tables {
		at[s.ID] = s
	}
	var defs []writer.TableDef
	t.registry.rels = map[uint32]*rel{}
	for _, d := range rels {
		if d.Lake.Kind != "lake" && d.Lake.Kind != "matview" {
			continue
		}
		r, err := newRel(d, nil)
		if err != nil {
			return nil, fmt.Errorf("describe table %s.%s: %w", d.Namespace, d.Name, err)
		}
		def, s := r.def(), at[table.ID(d.OID)]
		def.Pointer, def.NextFile, def.NextRow, def.RowMap = s.Pointer, s.NextFile, s.NextRow, s.RowMap
		defs = append(defs, def)
		d.Lake = nil
		t.registry.rels[d.OID] = r
	}
	return defs, nil
}

// Serve accepts connections on ln until ctx ends, then waits for the sessions to end: idle ones at once, running statements
// after their answer.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	if err := s.Writer.SettleHeld(ctx); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	stop := context.AfterFunc(ctx, func() { ln.Close(); s.wakeIdle() })
	defer stop()
	for {
		nc, err := ln.Accept()
		if err != nil {
			if ctx.Err() != nil {
				err = nil
			}
			return errors.Join(err, g.Wait())
		}
		g.Go(func() error { s.connection(ctx, nc); return nil })
	}
}

// connection serves one accepted connection. A panic ends this session only (rule R33).
func (s *Server) connection(ctx context.Context, nc net.Conn) {
	defer nc.Close()
	defer func() {
		if r := recover(); r != nil {
			s.Log.Error("session panic", "panic", r, "stack", stack())
		}
	}()
	defer s.live.Add(-1)
	full := s.live.Add(1) > int64(s.MaxClients)
	c, st, err := wire.Accept(ctx, nc, s.Wire)
	if err != nil {
		s.Log.Debug("start-up refused", "remote", nc.RemoteAddr().String(), "error", err)
		return
	}
	if st.Cancel != nil {
		s.cancel(ctx, st.Cancel)
		return
	}
	if full {
		c.ErrorResponse(wire.Fatalf(wire.CodeTooManyConnections, "sorry, too many clients already"))
		c.Flush()
		return
	}
	s.session(ctx, c, st)
}

// session logs the client in and runs it.
func (s *Server) session(ctx context.Context, c *wire.Conn, st *wire.Startup) {
	ss := &session{srv: s, c: c, user: st.User, db: st.Database, settings: st.Settings, secret: wire.NewSecret(st.Protocol)}
	if err := ss.login(ctx, st); err != nil {
		s.Log.Info("login refused", "user", st.User, "database", st.Database, "error", err)
		return
	}
	ss.vitals.born(ss.setting("application_name"))
	s.add(ss)
	defer s.remove(ss)
	if err := ss.greet(ctx); err != nil {
		return
	}
	if err := ss.run(ctx); err != nil {
		s.Log.Info("session ended", "pid", ss.pid, "user", ss.user, "error", err)
	}
}

// add gives the session its process id, unique among the live ones.
func (s *Server) add(ss *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ss.pid = firstPID + rand.Uint32N(1<<30); s.sessions[ss.pid] != nil; ss.pid++ {
	}
	s.sessions[ss.pid] = ss
}

func (s *Server) remove(ss *session) {
	s.mu.Lock()
	delete(s.sessions, ss.pid)
	s.passed(ss)
	s.mu.Unlock()
}

// wakeIdle ends the wait of sessions that wait for their client.
func (s *Server) wakeIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopping.Store(true)
	for _, ss := range s.sessions {
		ss.c.SetReadDeadline(time.Unix(1, 0))
	}
}

// cancel interrupts the statement of the session that the request names; anything else about it is ignored, as in Postgres.
func (s *Server) cancel(ctx context.Context, c *wire.Cancel) {
	s.mu.Lock()
	ss := s.sessions[c.PID]
	s.mu.Unlock()
	if ss != nil && auth.SameSecret(ss.secret, c.Secret) {
		ss.interrupt(ctx)
	}
}
