package server

import (
	"bytes"
	"context"
	"math"
	"strconv"
	"strings"

	"sluice/planner"
	"sluice/server/wire"
	"sluice/sql"
)

// The extended protocol. Every Parse and Bind goes to the backend under the client's name, so that types, names and their errors are
// Postgres' own; the Execute of a guarded statement binds it once more, under the guard.

// guardPortal is the portal of guarded statements on the backend; no client can see it, since it never outlives an attempt.
const guardPortal = "_sluice_portal"

// extended handles the failure of an extended message: answered at once, then everything up to Sync is discarded.
func (s *session) extended(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	s.skip = true
	return s.failed(ctx, err)
}

func (s *session) parse(ctx context.Context, body []byte) error {
	var m wire.Parse
	if err := wire.DecodeParse(body, &m); err != nil {
		return err
	}
	s.release()
	name, text := string(m.Name), string(m.Query)
	if err := s.escaped(text); err != nil {
		return err
	}
	stmts, parseErr := sql.Parse(text)
	if told := s.srv.textWithBackends(ctx, stmts, text); told != text {
		copy(m.Query, told) // where it stands in body
		stmts, parseErr = sql.Parse(told)
	}
	if err := s.forward('P', withoutPassword(&m, body)); err != nil {
		return err
	}
	if parseErr != nil {
		return wire.Errorf(wire.CodeFeatureNotSupported, "this statement is not supported: %v", parseErr).WithHint("Write it in another way: the gateway has to understand it.")
	}
	p := &prepared{name: name, parsed: s.srv.rels.version.Load(), types: make([]uint32, m.NumTypes())}
	for i := range p.types {
		p.types[i] = m.Type(i)
	}
	if len(stmts) > 0 {
		p.stmt = stmts[0]
	}
	if s.stmts == nil {
		s.stmts, s.portals = map[string]*prepared{}, map[string]*portal{}
	}
	s.stmts[name] = p
	return nil
}

func (s *session) bind(ctx context.Context, body []byte) error {
	m := &s.bindMessage
	if err := wire.DecodeBind(body, m); err != nil {
		return err
	}
	s.release()
	st := s.stmts[string(m.Statement)]
	if st == nil { // made by SQL PREPARE: the backend knows it, its text is not ours to see
		st = &prepared{name: string(m.Statement), stmt: sql.ExecuteOf(string(m.Statement))}
	}
	if st.stmt != nil && speaksOfPIDs(st.stmt) {
		s.srv.bindWithBackends(ctx, m)
	}
	p := s.newPortal(m.Portal)
	p.st, p.bind = st, append(p.bind, body...)
	if st.stmt != nil {
		var err error
		if p.plan, err = s.planned(ctx, st); err != nil {
			return err
		}
		if !m.KnownFormats() { // for Postgres to refuse
			p.plan.Lane = planner.Exact
		}
	}
	if p.local = s.ownBind(st, m); p.local {
		s.c.BindComplete()
	} else if p.plan.Lane == planner.Fast && len(m.Values) == max(len(st.types), st.stmt.Params) && (st.stmt.Kind == sql.Select && s.bindPoint(p, m) || st.stmt.Kind != sql.Select && s.bindFast(p, m)) {
		s.c.BindComplete()
	} else if err := s.forward('B', body); err != nil {
		return err
	}
	s.portals[string(m.Portal)] = p
	return nil
}

// ownBind reports whether a statement is bound here only: BEGIN, COMMIT and ROLLBACK, which the gateway runs under a name of its own.
func (s *session) ownBind(st *prepared, m *wire.Bind) bool {
	return st.stmt != nil && (st.stmt.Kind == sql.Begin || st.stmt.Kind == sql.Commit || st.stmt.Kind == sql.Rollback) &&
		len(m.Values) == 0 && s.be.status != 'E'
}

// newPortal is an empty portal. The unnamed one is made over and over again, so its memory is kept.
func (s *session) newPortal(name []byte) *portal {
	if s.portals == nil {
		s.portals = map[string]*portal{}
	}
	if len(name) > 0 {
		return &portal{}
	}
	delete(s.portals, "") // Bind may fail
	p := &s.unnamed
	*p = portal{bind: p.bind[:0], rows: p.rows}
	return p
}

// planned is the plan of a prepared statement. One for the fast lane is kept until names may stand for something else.
func (s *session) planned(ctx context.Context, st *prepared) (planner.Plan, error) {
	lasting := s.be.status != 'E' && !s.lanes.touched && (s.tx == nil || s.tx.ddl == nil)
	if lasting && st.names != 0 && st.names == s.names.id && s.names.version == s.srv.rels.version.Load() {
		return s.vitals.planned(st.plan, nil)
	}
	p, err := s.plan(ctx, st.stmt)
	if st.names = 0; err == nil && lasting && p.Lane == planner.Fast {
		st.plan, st.names = p, s.names.id
	}
	return p, err
}

// bindFast converts the parameters of a compiled write. Where it cannot, the backend says what is wrong with them, or the exact lane
// knows better.
func (s *session) bindFast(p *portal, m *wire.Bind) bool {
	plan := s.writeOf(p.st, p.plan)
	if plan == nil || plan.result() != nil && !p.formats(m, plan.result()) {
		return false
	}
	var err error
	p.write, err = plan.bind(s, p, params{m, p.st.types})
	return err == nil
}

// writeOf is the compiled write of a prepared statement, or nil. Schema changes make it stale, and so does the end of a transaction with some.
func (s *session) writeOf(st *prepared, p planner.Plan) writePlan {
	v, changing := s.srv.rels.version.Load(), s.tx != nil && s.tx.ddlRan
	if st.write != nil && st.asOf == v && !changing {
		return st.write
	}
	plan := s.compileWrite(st.stmt, p)
	if plan != nil && plan.result() != nil {
		var before *projection
		if st.write != nil {
			before = st.write.result()
		}
		if s.resultChanged(st, before, plan.result()) {
			return nil
		}
	}
	if st.write, st.asOf = plan, v; changing {
		st.asOf = never
	}
	return plan
}

// never is a version that the registry does not get to.
const never = math.MaxUint64

func (s *session) describe(body []byte) error {
	s.release()
	var m wire.Describe
	if err := wire.DecodeDescribe(body, &m); err != nil {
		return err
	}
	p := s.portals[string(m.Name)]
	if m.Kind != 'P' || p == nil || p.write == nil && !p.local && !p.isPoint {
		return s.forward('D', body)
	}
	if out := p.result(); out != nil {
		s.c.RowDescription(out.describe(p.format))
	} else {
		s.c.NoData()
	}
	return nil
}

// result is the result of a portal that is bound here only, or nil if it has none.
func (p *portal) result() *projection {
	switch {
	case p.isPoint:
		return p.st.point.projection
	case p.write != nil:
		return p.write.returning
	}
	return nil
}

func (s *session) closeNamed(body []byte) error {
	var m wire.Close
	if err := wire.DecodeClose(body, &m); err != nil {
		return err
	}
	s.release()
	if m.Kind == 'S' {
		delete(s.stmts, string(m.Name))
	} else {
		delete(s.portals, string(m.Name))
	}
	return s.forward('C', body)
}

// forward sends one message to the backend and passes the answer on.
func (s *session) forward(typ byte, body []byte) error {
	return s.be.exchange(typ, body, s.sink(), clientCopy{s})
}

func (s *session) execute(ctx context.Context, body []byte) error {
	var m wire.Execute
	if err := wire.DecodeExecute(body, &m); err != nil {
		return err
	}
	s.release()
	if err := canceled(ctx); err != nil {
		return err
	}
	p := s.portals[string(m.Portal)]
	switch {
	case p == nil || p.st.stmt == nil: // unknown, empty, or a cursor: the backend's
		return s.relayExecute(body, nil)
	case p.out != nil:
		return s.resume(p, string(m.Portal), int(m.MaxRows))
	}
	name := string(m.Portal)
	s.executing = &name
	handled, err := s.control(ctx, p.st.stmt, p.st.stmt.Text)
	if s.executing = nil; handled {
		return err
	}
	if err := s.gatewayCalls(ctx, p.st.stmt, p.params); err != nil {
		return err
	}
	if out, err := s.again(ctx, p.st.stmt, p.plan, p.st.stmt.Text, p.bind); out != nil || err != nil {
		if p.out = out; out != nil {
			s.sendRows(p, int(m.MaxRows))
		}
		return err
	}
	if p.isPoint {
		out, done, err := s.readPoint(ctx, p.st.point, p.key, p.format)
		if err != nil {
			return err
		}
		if done {
			p.out = out
			s.sendRows(p, int(m.MaxRows))
			return nil
		}
		p.isPoint = false
		if err := s.be.exchange('B', p.bind, nil, nil); err != nil {
			return err
		}
	}
	if p.write != nil {
		out, err := s.write(ctx, p.write, p.format)
		if err != nil {
			return err
		}
		if out != nil {
			p.out = out
			s.tx.answered(out.frames...)
			s.sendRows(p, int(m.MaxRows))
			return nil
		}
		p.write = nil
		if err := s.be.exchange('B', p.bind, nil, nil); err != nil {
			return err
		}
	}
	if p.plan.Lane == planner.Fast && p.st.stmt.Kind == sql.CopyFrom {
		if done, err := s.fastCopy(ctx, p.st.stmt, p.plan); done || err != nil {
			return err
		}
	}
	if p.plan.Lane == planner.Scan {
		out, done, err := s.scanPortal(ctx, p)
		if done {
			p.out = out
			s.sendRows(p, int(m.MaxRows))
		}
		if done || err != nil {
			return err
		}
	}
	if p.st.stmt.Kind == sql.CopyTo {
		if done, err := s.largeCopy(ctx, p.st.stmt, p.plan); done || err != nil {
			return err
		}
	}
	if p.plan.Lane == planner.Relay && (s.tx == nil || !s.tx.readOnly) {
		if err := canceled(ctx); err != nil {
			return err
		}
		return s.relayExecute(body, p.st.stmt)
	}
	if s.be.status == 'I' {
		if err := s.beginImplicit(ctx); err != nil {
			return err
		}
	}
	out, err := s.guarded(ctx, p.st.stmt, p.plan, p.st.stmt.Text, p.params(), s.roleRun(ctx, p.st.stmt, s.extendedRun(p)))
	if err != nil {
		return err
	}
	p.out = out
	s.tx.answered(out.frames...)
	s.sendRows(p, int(m.MaxRows))
	return nil
}

func (s *session) relayExecute(body []byte, st *sql.Statement) error {
	err := s.forward('E', body)
	if st != nil {
		s.afterRelay(st)
	}
	return err
}

// resume answers one more Execute of a portal that has run. At its end there are no more rows; without a result it cannot run again.
func (s *session) resume(p *portal, name string, limit int) error {
	n := len(p.out.frames)
	switch {
	case p.next < n:
		s.sendRows(p, limit)
	case p.st.stmt.Kind == sql.Select || p.st.stmt.Returns():
		s.complete(retag(p.out.frames[n-1], 0))
	case p.st.stmt.Kind == sql.Explain:
		s.complete(p.out.frames[n-1])
	default:
		return wire.Errorf(wire.CodeObjectNotInPrerequisiteState, "portal \"%s\" cannot be run", name)
	}
	return nil
}

// sendRows sends the next rows of a spooled result, at most limit of them if it is positive. The tag counts the rows of the last Execute.
func (s *session) sendRows(p *portal, limit int) {
	resumed, rows := p.next > 0, 0
	for ; p.next < len(p.out.frames); p.next++ {
		f := p.out.frames[p.next]
		switch {
		case f[0] == 'D':
			if rows++; rows == limit { // whether there are more, only the next Execute tells
				s.c.Raw(f)
				p.next++
				s.c.PortalSuspended()
				return
			}
		case f[0] == 'C':
			if resumed {
				f = retag(f, rows)
			}
			s.complete(f)
			continue
		}
		s.c.Raw(f)
	}
}

// retag is a CommandComplete with another row count.
func retag(frame []byte, rows int) []byte {
	tag := string(frame[5 : len(frame)-1])
	return wire.AppendCommandComplete(nil, tag[:strings.LastIndexByte(tag, ' ')+1]+strconv.Itoa(rows))
}

// sync ends a pipeline: an implicit transaction is decided now.
func (s *session) sync(ctx context.Context, body []byte) error {
	s.skip = false
	err := s.be.sync(s.sink())
	if bad := wire.CheckEmpty(body); err == nil && bad != nil {
		s.release()
		err = bad
	}
	if err == nil {
		err = s.endImplicit(ctx)
	}
	if err != nil {
		if err := s.failed(ctx, err); err != nil {
			return err
		}
	}
	if s.be.status == 'I' {
		clear(s.portals)
	}
	return s.readyForQuery()
}

// extendedRun binds the client's statement once more, under the guard, and executes it.
func (s *session) extendedRun(p *portal) runner {
	data := &copySpool{s: s}
	return func(text string) (*spool, error) {
		out := &spool{}
		if text != p.st.stmt.Text { // the gateway changed it: parameters are not allowed in such statements
			return out.done(s.be.query(text, data.sink(out), data.start()))
		}
		err := s.be.exchange('B', rebind(p.bind), nil, nil)
		if err == nil {
			err = s.be.exchange('E', wire.AppendExecute(nil, guardPortal, 0)[5:], data.sink(out), data.start())
		}
		if err == nil { // a kept statement's portal would outlive it
			err = s.be.exchange('C', wire.AppendClose(nil, 'P', guardPortal)[5:], nil, nil)
		}
		if serr := s.be.sync(nil); err == nil {
			err = serr
		}
		return out.done(err)
	}
}

// params is the values the client bound.
func (p *portal) params() params {
	var m wire.Bind
	if err := wire.DecodeBind(p.bind, &m); err != nil {
		return params{}
	}
	return params{&m, p.st.types}
}

// rebind is a Bind body with the guard's portal in place of the client's.
func rebind(body []byte) []byte {
	rest := body[bytes.IndexByte(body, 0):]
	return append([]byte(guardPortal), rest...)
}

// functionCall relays the large object interface of old clients.
func (s *session) functionCall(ctx context.Context, body []byte) error {
	s.release()
	err := s.be.ready()
	if err == nil {
		err = s.be.finish(s.be.be.Forward(pass(s.sink()), 'F', body), nil)
	}
	if err != nil {
		if err := s.failed(ctx, err); err != nil {
			return err
		}
	}
	return s.readyForQuery()
}
