package server

import (
	"sync"
	"sync/atomic"
	"time"

	"sluice/planner"
	"sluice/writer/lock"
)

// vitals is what others may know of a session while it works: sluice.sessions and sluice.progress read it. Only the session's own goroutine
// and its backend's watcher write it.
type vitals struct {
	busy  atomic.Bool   // inside a message
	owner atomic.Uint64 // of the locks of the last transaction; owners' ids are never used twice

	backend atomic.Uint32 // process id of the session's backend

	copied atomic.Pointer[copyCount]

	mu      sync.Mutex // guards the rest, for the span of a copy
	started time.Time
	state   string
	changed time.Time
	xact    time.Time // zero: no transaction is open between messages
	lane    string
	target  uint32 // the lake table of the last statement, if it names one
	app     string
}

// copyCount counts a COPY FROM STDIN under way.
type copyCount struct {
	relid       uint32
	started     time.Time
	rows, bytes atomic.Int64
}

// The states, in the words of pg_stat_activity.
const (
	stateActive  = "active"
	stateIdle    = "idle"
	stateInBlock = "idle in transaction"
	stateAborted = "idle in transaction (aborted)"
)

// born notes the beginning of a session.
func (v *vitals) born(app string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.started = time.Now()
	v.state, v.changed, v.app = stateIdle, v.started, app
}

// active notes that a message is worked off, and says whether the session was at rest. In a pipeline only the first one counts.
func (v *vitals) active() bool {
	if v.busy.Swap(true) {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.state, v.changed = stateActive, time.Now()
	return true
}

// rest notes that the session waits for its client.
func (s *session) rest() {
	state := stateIdle
	switch {
	case s.be == nil:
	case s.be.status == 'E':
		state = stateAborted
	case s.be.status == 'T' && !s.implicit:
		state = stateInBlock
	case s.implicit || s.tx != nil:
		return // an implicit transaction of a pipeline goes on
	}
	s.vitals.rest(state)
}

func (v *vitals) rest(state string) {
	if !v.busy.Swap(false) {
		return
	}
	v.copied.Store(nil)
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case state == stateIdle:
		v.xact = time.Time{}
	case v.xact.IsZero():
		v.xact = v.changed // the statement that opened it
	}
	v.state, v.changed = state, time.Now()
}

// planned notes the lane of a statement and hands the plan through.
func (v *vitals) planned(p planner.Plan, err error) (planner.Plan, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lane, v.target = p.Lane.String(), 0
	if len(p.Lake) == 1 {
		v.target = p.Lake[0]
	}
	return p, err
}

// owns notes who takes the locks of the transaction.
func (v *vitals) owns(o *lock.Owner) { v.owner.Store(uint64(o.ID())) }

// parameter notes what the backend reports about a setting.
func (v *vitals) parameter(name, value string) {
	if name != "application_name" {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.app = value
}

// fed counts the bytes of a COPY.
func (v *vitals) fed(n int) {
	c := v.copied.Load()
	if c == nil {
		v.mu.Lock()
		c = &copyCount{relid: v.target, started: time.Now()}
		v.mu.Unlock()
		v.copied.Store(c)
	}
	c.bytes.Add(int64(n))
}

// loaded notes how many rows a COPY has brought.
func (v *vitals) loaded(rows int64) {
	if c := v.copied.Load(); c != nil {
		c.rows.Store(rows)
	}
}

// vital is a copy of what others may know.
type vital struct {
	started, changed, xact time.Time
	state, lane, app       string
}

func (v *vitals) read() vital {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := vital{started: v.started, changed: v.changed, xact: v.xact, state: v.state, lane: v.lane, app: v.app}
	if out.state == stateActive && out.xact.IsZero() {
		out.xact = v.changed
	}
	return out
}
