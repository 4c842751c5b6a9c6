package catalog

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"sluice/writer/table"
)

// Memory is a Catalog in memory, for tests of its users. The zero value is empty and ready.
type Memory struct {
	mu        sync.Mutex // guards all below, for the span of one call
	last      CommitID
	progress  map[string]table.Position
	tables    map[table.ID]Table
	flips     map[string]bool // settled ids: did it commit?
	decisions map[[16]byte]bool
	staged    map[string][]string
	results   map[resultKey]stored
	low       map[string]int64
	forgotten table.Position
	prepared  []Prepared
}

type resultKey struct {
	writer   string
	sequence int64
}

type stored struct {
	Result
	stream string
}

// Put sets a table as DDL would. A table that is known keeps its pointer and bookkeeping.
func (m *Memory) Put(id table.ID, namespace, name string, version int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.tables == nil {
		m.tables = map[table.ID]Table{}
	}
	t, ok := m.tables[id]
	if !ok {
		t = Table{ID: id, NextFile: 1, NextRow: 1}
	}
	t.Namespace, t.Name, t.Version = namespace, name, version
	m.tables[id] = t
}

// Decide records the fate of a transaction, unless it is settled; it reports whether it was this call that settled it.
func (m *Memory) Decide(txid [16]byte, committed bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.decisions[txid]; ok {
		return false
	}
	if m.decisions == nil {
		m.decisions = map[[16]byte]bool{}
	}
	m.decisions[txid] = committed
	return true
}

// Load implements Catalog.
func (m *Memory) Load(context.Context) (State, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := State{Last: m.last, Progress: map[string]table.Position{}}
	for k, p := range m.progress {
		s.Progress[k] = p
	}
	for _, t := range m.tables {
		t.RowMap = slices.Clone(t.RowMap)
		s.Tables = append(s.Tables, t)
	}
	slices.SortFunc(s.Tables, func(a, b Table) int { return int(int64(a.ID) - int64(b.ID)) })
	return s, nil
}

// Flip implements Catalog.
func (m *Memory) Flip(_ context.Context, f Flip) (CommitID, error) {
	if err := f.Validate(); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.flips[f.ID]; ok {
		return 0, ErrSettled
	}
	if f.Progress != 0 && f.Progress < m.progress[f.Stream] {
		return 0, &ConflictError{Reason: "the stream is beyond this position"}
	}
	for i := range f.Tables {
		if err := m.check(&f.Tables[i]); err != nil {
			return 0, err
		}
	}
	for i := range f.Tables {
		m.move(&f.Tables[i])
	}
	m.store(&f)
	m.settle(f)
	return m.last, nil
}

func (m *Memory) check(f *TableFlip) error {
	t, ok := m.tables[f.Table]
	if !ok {
		return &ConflictError{Table: f.Table, Reason: "it is gone"}
	}
	if f.Version != 0 && f.Version != t.Version {
		return &ConflictError{Table: f.Table, Reason: "its schema has changed"}
	}
	if f.From != t.Pointer {
		return &ConflictError{Table: f.Table, Reason: "its pointer has moved"}
	}
	return nil
}

func (m *Memory) move(f *TableFlip) {
	if f.To.Location == "" {
		delete(m.tables, f.Table)
		return
	}
	t := m.tables[f.Table]
	t.Pointer, t.NextFile, t.NextRow, t.Snapshot = f.To, f.NextFile, f.NextRow, f.Snapshot
	t.RowMap = slices.Clone(f.RowMap)
	m.tables[f.Table] = t
}

func (m *Memory) settle(f Flip) {
	if m.flips == nil {
		m.flips = map[string]bool{}
		m.progress = map[string]table.Position{}
	}
	m.last++
	m.flips[f.ID] = true
	if f.Progress != 0 {
		m.progress[f.Stream] = f.Progress
	}
}

func (m *Memory) store(f *Flip) {
	if m.results == nil {
		m.results, m.low = map[resultKey]stored{}, map[string]int64{}
	}
	for _, writer := range f.Results.Dropped {
		delete(m.low, writer)
		m.keep(func(r stored) bool { return r.Writer != writer })
	}
	for _, r := range f.Results.List {
		m.results[resultKey{r.Writer, r.Sequence}] = stored{r, f.Stream}
	}
	for writer, low := range f.Results.Low {
		m.low[writer] = low
		m.keep(func(r stored) bool { return r.Writer != writer || r.Sequence > low })
	}
	m.forgotten = max(m.forgotten, f.Results.Forgotten)
}

func (m *Memory) keep(fn func(stored) bool) {
	maps.DeleteFunc(m.results, func(_ resultKey, r stored) bool { return !fn(r) })
}

// Results implements Catalog. Low and Forgotten are as of one stream: tests have no other.
func (m *Memory) Results(_ context.Context, stream string) (Results, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := Results{Low: maps.Clone(m.low), Forgotten: m.forgotten}
	for _, r := range m.results {
		if r.stream != stream {
			if Tokens(r.Writer) {
				continue
			}
			r.Position = 0
		}
		r.Answer = slices.Clone(r.Answer)
		out.List = append(out.List, r.Result)
	}
	slices.SortFunc(out.List, func(a, b Result) int {
		return cmp.Or(cmp.Compare(a.Writer, b.Writer), cmp.Compare(a.Sequence, b.Sequence))
	})
	return out, nil
}

// Prepare implements Catalog.
func (m *Memory) Prepare(_ context.Context, p Prepared) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	p.State = slices.Clone(p.State)
	m.prepared = append(m.prepared, p)
	return nil
}

// PreparedTransactions implements Catalog. A transaction without a decision is pending: nobody else than a test decides.
func (m *Memory) PreparedTransactions(context.Context) ([]Prepared, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := slices.Clone(m.prepared)
	for i := range out {
		_, decided := m.decisions[out[i].ID]
		out[i].Pending = !decided
	}
	return out, nil
}

// ForgetPrepared implements Catalog.
func (m *Memory) ForgetPrepared(_ context.Context, txid [16]byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.prepared = slices.DeleteFunc(m.prepared, func(p Prepared) bool { return p.ID == txid })
	return nil
}

// Resolve implements Catalog.
func (m *Memory) Resolve(_ context.Context, flip string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.flips == nil {
		m.flips = map[string]bool{}
		m.progress = map[string]table.Position{}
	}
	if _, ok := m.flips[flip]; !ok {
		m.flips[flip] = false
	}
	return m.flips[flip], nil
}

// Decision implements Catalog.
func (m *Memory) Decision(_ context.Context, txid [16]byte) (bool, error) {
	m.Decide(txid, false)
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.decisions[txid], nil
}

// Stage implements Catalog.
func (m *Memory) Stage(_ context.Context, flip string, locations []string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.staged == nil {
		m.staged = map[string][]string{}
	}
	m.staged[flip] = append(m.staged[flip], locations...)
	return nil
}

// Staged implements Catalog.
func (m *Memory) Staged(context.Context) ([]Staged, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []Staged
	for flip, locations := range m.staged {
		if !m.flips[flip] {
			list = append(list, Staged{flip, slices.Clone(locations)})
		}
	}
	slices.SortFunc(list, func(a, b Staged) int { return cmp.Compare(a.Flip, b.Flip) })
	return list, nil
}

// Forget implements Catalog.
func (m *Memory) Forget(_ context.Context, flips []string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, flip := range flips {
		delete(m.staged, flip)
	}
	return nil
}
