package server

import (
	"context"
	"net"
	"slices"

	"sluice/writer/lock"
)

// waiting is a session's wait for a lock of the gateway.
type waiting struct {
	key  lock.Key
	mode string
	pids []uint32 // of the sessions in front of it
}

// blocked is the waits of sessions whose backends wait in Postgres for those of other sessions: the search for deadlocks joins them with the
// gateway's own. Those who look at one time ask once.
func (s *Server) blocked(ctx context.Context) []lock.Edge {
	v, err, _ := s.asking.Do("", func() (any, error) {
		owners, pids := map[uint32]lock.OwnerID{}, []int32{}
		for _, ss := range s.all() {
			if pid, owner := ss.vitals.backend.Load(), ss.vitals.owner.Load(); pid != 0 && owner != 0 {
				owners[pid], pids = lock.OwnerID(owner), append(pids, int32(pid))
			}
		}
		waits, err := s.Catalog.Blocked(context.WithoutCancel(ctx), pids)
		var edges []lock.Edge
		for pid, blockers := range waits {
			for _, b := range blockers {
				if owner, ours := owners[b]; ours {
					edges = append(edges, lock.Edge{Waiter: owners[pid], Blocker: owner, Outside: true})
				}
			}
		}
		return edges, err
	})
	if err != nil {
		s.Log.Warn("deadlocks with waits in Postgres cannot be found", "error", err)
	}
	return v.([]lock.Edge)
}

// waits is who waits, by owner of locks.
func (s *Server) waits(sessions []*session) map[uint64]*waiting {
	pids := map[uint64]uint32{}
	for _, ss := range sessions {
		pids[ss.vitals.owner.Load()] = ss.pid
	}
	out := map[uint64]*waiting{}
	for _, e := range s.Writer.Locks().Waiters() {
		w := out[uint64(e.Waiter)]
		if w == nil {
			w = &waiting{key: e.Key, mode: e.Mode.String()}
			out[uint64(e.Waiter)] = w
		}
		if pid := pids[uint64(e.Blocker)]; pid != 0 && !slices.Contains(w.pids, pid) {
			w.pids = append(w.pids, pid)
		}
	}
	return out
}

// kind is what it waits for, in the words of pg_locks where it has one.
func (w *waiting) kind() string {
	switch w.key.Space {
	case lock.TableSpace:
		return "relation"
	case 0:
		return "tuple"
	}
	return "key"
}

func (w *waiting) blockers() string {
	slices.Sort(w.pids)
	return int4Array(w.pids)
}

// addressOf is a client's address and port; NULL and -1 for a Unix socket, as in pg_stat_activity.
func addressOf(a net.Addr) (addr, port any) {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return nil, -1
	}
	return tcp.IP.String(), tcp.Port
}
