package server

import (
	"context"
	"encoding/binary"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"sluice/server/wire"
	"sluice/sql"
)

// A client knows its session by the process id of BackendKeyData, which is given before there is a backend and which no process has. Where it
// gives such a number back, to end or to cancel a session or to look for it, the number becomes that of the session's backend.

// firstPID is above the process ids of all systems.
const firstPID = 1 << 23

// speaksOfPIDs reports whether the numbers in a statement may be process ids.
func speaksOfPIDs(st *sql.Statement) bool {
	return slices.ContainsFunc(st.Functions, func(n sql.Name) bool {
		switch n.Name {
		case "pg_terminate_backend", "pg_cancel_backend", "pg_blocking_pids", "pg_safe_snapshot_blocking_pids", "pg_stat_get_activity":
			return true
		}
		return false
	}) || slices.ContainsFunc(st.Relations, func(n sql.Name) bool { return n.Name == "pg_stat_activity" || n.Name == "pg_locks" })
}

var longNumber = regexp.MustCompile(`\b[0-9]{7,10}\b`)

// withBackends puts the backends' process ids into a text. It keeps its length, so that positions in errors stay right.
func (s *Server) withBackends(ctx context.Context, text []byte) {
	for _, at := range longNumber.FindAllIndex(text, -1) {
		number := text[at[0]:at[1]]
		n, err := strconv.ParseUint(string(number), 10, 32)
		if err != nil {
			continue
		}
		if pid := s.backendOf(ctx, uint32(n)); pid != 0 {
			copy(number, fmt.Sprintf("%0*d", len(number), pid))
		}
	}
}

// textWithBackends is the text of statements that speak of process ids.
func (s *Server) textWithBackends(ctx context.Context, stmts []*sql.Statement, text string) string {
	if !slices.ContainsFunc(stmts, speaksOfPIDs) {
		return text
	}
	out := []byte(text)
	s.withBackends(ctx, out)
	return string(out)
}

// bindWithBackends changes the values of a Bind of such a statement where they are: text, or integers of four bytes, also in an array or as the
// lower half of eight bytes.
func (s *Server) bindWithBackends(ctx context.Context, m *wire.Bind) {
	for i, v := range m.Values {
		if m.ParamFormat(i) == 0 {
			s.withBackends(ctx, v)
			continue
		}
		for ; len(v) >= 4; v = v[4:] {
			if pid := s.backendOf(ctx, binary.BigEndian.Uint32(v)); pid != 0 {
				binary.BigEndian.PutUint32(v, pid)
			}
		}
	}
}

// backendOf is the process id of the backend of the session that clients know as pid, 0 if there is none. A session that has said nothing yet
// gets its backend now.
func (s *Server) backendOf(ctx context.Context, pid uint32) uint32 {
	if pid < firstPID {
		return 0
	}
	ss, wait := s.summon(pid)
	if ss == nil {
		return 0
	}
	if wait != nil {
		ctx, stop := context.WithTimeout(ctx, 5*time.Second)
		defer stop()
		select {
		case <-wait:
		case <-ctx.Done():
		}
	}
	return ss.vitals.backend.Load()
}

// summon asks the session for a backend. wait is nil if it has one.
func (s *Server) summon(pid uint32) (ss *session, wait chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ss = s.sessions[pid]; ss == nil || ss.vitals.backend.Load() != 0 {
		return ss, nil
	}
	if ss.summon == nil {
		ss.summon = make(chan struct{})
		ss.c.SetReadDeadline(time.Unix(1, 0))
	}
	return ss, ss.summon
}

// summoned gives the session a backend because somebody asked for it.
func (s *session) summoned() error { return s.attach(s.working(context.Background(), true)) }

// attached notes the session's backend and tells whoever waits for it.
func (s *Server) attached(ss *session, backend uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ss.vitals.backend.Store(backend)
	if ss.summon != nil {
		close(ss.summon)
		ss.summon = nil
	}
}

// signed is a NotificationResponse with the sender's process id as clients know it.
func (s *Server) signed(frame []byte) []byte {
	pid := s.sessionOf(binary.BigEndian.Uint32(frame[5:]))
	if pid == 0 {
		return frame
	}
	out := slices.Clone(frame)
	binary.BigEndian.PutUint32(out[5:], pid)
	return out
}

// sessionOf is the process id, as clients know it, of the session that has a backend or had it lately; 0: none.
func (s *Server) sessionOf(backend uint32) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	for pid, ss := range s.sessions {
		if ss.vitals.backend.Load() == backend {
			return pid
		}
	}
	for _, p := range slices.Backward(s.past) {
		if p.backend == backend {
			return p.session
		}
	}
	return 0
}

// pastSession is the process ids of a session that has ended: its notifications may come later.
type pastSession struct{ session, backend uint32 }

const pastSessions = 1000

// passed notes the end of a session, under s.mu.
func (s *Server) passed(ss *session) {
	if s.past = append(s.past, pastSession{ss.pid, ss.vitals.backend.Load()}); len(s.past) > 2*pastSessions {
		s.past = slices.Clone(s.past[pastSessions:])
	}
}
