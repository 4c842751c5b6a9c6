package server

import (
	"context"
	"errors"
	"slices"
	"strings"

	"sluice/catalogpg"
	"sluice/planner"
	"sluice/server/wire"
	"sluice/sql"
	"sluice/writer"
	"sluice/writer/lock"
	"sluice/writer/table"
)

// A statement of the exact lane that brings rows for a table with a merge engine. It runs first on a shadow without the rows that it will
// merge with; those whose keys it turns out to bring are in place when it runs again, and the trigger merges.

// A plain INSERT … SELECT runs without the trigger first: if all its keys are different, its rows are merged as in the fast lane.

// merging is what the attempt knows of it.
type merging struct {
	rel   *rel
	mode  string // for the trigger
	keyed bool   // the rows with the keys that the statement brings are in place, and no others
	named []int  // the columns that the statement names
	// merge is the mode for the next run if this one is without the trigger; "": it is not.
	merge string
}

// decides is the mode of statements that say themselves what becomes of a key that exists.
const decides = "-"

// prepareTarget finds out what rules the table has that the statement brings rows for.
func (s *session) prepareTarget(ctx context.Context, a *attempt) error {
	if !a.st.Write && a.st.Kind != sql.CopyFrom && a.st.Executes() == "" {
		return nil
	}
	l, err := s.laneSettings(ctx)
	if err != nil {
		return err
	}
	st, err := s.executed(ctx, a.st, l.overwrite)
	if err != nil || st == nil {
		return err
	}
	if l.overwrite && st.InsertsWithin() {
		return notOverwritten("WITH queries that are an INSERT")
	}
	t := st.Target()
	if t == nil {
		return nil
	}
	rels, err := s.Relations(ctx, []sql.Name{t.Table})
	if err != nil || len(rels) == 0 {
		return err
	}
	if l.overwrite {
		if a.overwrite, err = s.overwritten(t, rels[0]); err != nil {
			return err
		}
	}
	r := s.rel(rels[0].OID)
	if r == nil || r.engine == nil {
		return nil
	}
	if err := a.prepareMerge(r, st, t); err != nil {
		return err
	}
	if m := a.merge; m != nil && m.mode != decides && s.foldsAtApply(a, st, rels[0]) {
		m.mode, m.merge = decides, m.mode
	}
	return nil
}

// foldsAtApply reports whether the rows that a statement brings can be merged when it has run: Postgres has no word to say about merged rows.
func (s *session) foldsAtApply(a *attempt, st *sql.Statement, target planner.Relation) bool {
	m := a.merge
	return st.Kind == sql.Insert && st == a.st && !st.Returns() && !m.keyed && m.rel.mayFold(m.named) && m.rel.plain() && !a.plan.User &&
		target.Reads && target.Deletes && s.tx.lake.Isolation() == writer.ReadCommitted
}

// unfold has the trigger merge in the next run.
func (m *merging) unfold() bool {
	if m == nil || m.merge == "" {
		return false
	}
	m.mode, m.merge = m.merge, ""
	return true
}

// twice reports whether the statement failed because two of its rows, or one of its and one in place, have the same key.
func (m *merging) twice(err *wire.Error) bool {
	return m != nil && m.merge != "" && err.Code == wire.CodeUniqueViolation && err.Constraint == m.rel.engine.key.Name && err.Schema == m.rel.Namespace
}

// foldsInto reports whether rows of a table are merged at apply.
func (m *merging) foldsInto(oid uint32) bool { return m != nil && m.merge != "" && m.rel.OID == oid }

// prepareMerge finds out what the statement tells the trigger of a merge engine.
func (a *attempt) prepareMerge(r *rel, st *sql.Statement, t *sql.Target) error {
	a.merge = &merging{rel: r, mode: decides}
	if t.Decides {
		return nil
	}
	if t.Compound { // which of its INSERTs the trigger would see it cannot tell
		a.merge = nil
		return nil
	}
	named, err := r.targets(t)
	if err != nil {
		return err
	}
	kind := "insert"
	if t.Copy {
		kind = "copy"
	}
	a.merge.mode, a.merge.named = r.mode(kind, named), named
	if l := st.InsertedKeys(); l != nil && !a.fill[r.OID] {
		if sets, ok := r.lookup(l, true, a.bound.value); ok {
			a.putKeys(sets...)
		}
	}
	return nil
}

// putKeys has the rows with these keys in place for the next run.
func (a *attempt) putKeys(sets ...keySet) {
	oid := a.merge.rel.OID
	if a.keys == nil {
		a.keys = map[uint32][]keySet{}
	}
	a.fill[oid], a.merge.keyed = true, true
	a.keys[oid] = append(a.keys[oid], sets...)
}

// executed is the statement that runs: that of an EXECUTE, which Postgres knows and is asked for only if it can matter, or of an EXPLAIN.
func (s *session) executed(ctx context.Context, st *sql.Statement, overwrite bool) (*sql.Statement, error) {
	name := st.Executes()
	if name == "" {
		return st.Run(), nil
	}
	if !overwrite && !s.merging() {
		return st, nil
	}
	rows, err := s.be.exec(ctx, "SELECT statement FROM pg_catalog.pg_prepared_statements WHERE name = $1", []byte(name))
	if err != nil || len(rows) == 0 {
		return st, err
	}
	list, err := sql.Parse(string(rows[0][0]))
	if err != nil || len(list) != 1 {
		return st, err
	}
	return list[0].Run(), nil
}

// merging reports whether there is a table with a merge engine.
func (s *session) merging() bool {
	merges := func(r *rel) bool { return r != nil && r.engine != nil }
	for _, r := range s.tx.ddl {
		if merges(r) {
			return true
		}
	}
	return s.srv.rels.any(merges)
}

// targets is the columns that a statement names, which matter to partial updates only. Those must not leave out what a new row needs.
func (r *rel) targets(t *sql.Target) ([]int, error) {
	if r.engine.kind != partialUpdate {
		return nil, nil
	}
	var named []int
	for i := range r.Columns {
		if t.Columns == nil && len(named) < t.Values && !(t.Copy && r.Columns[i].Generated) {
			named = append(named, i)
		}
	}
	if t.Columns == nil && t.Values < 0 {
		return nil, unsupported("INSERT without column names from SELECT * is not supported on tables with merge_engine = 'partial-update'").
			WithHint("Name the columns that are to change.")
	}
	for _, name := range t.Columns {
		if at := r.Schema.Index(name); at >= 0 { // Postgres says what is wrong with the others
			named = append(named, at)
		}
	}
	return named, r.complete(named)
}

// complete reports the column that a partial update must name and does not.
func (r *rel) complete(named []int) error {
	for _, at := range r.others(named) {
		if c := &r.Columns[at]; r.engine.key.has(at) || c.needed() {
			e := wire.Errorf(wire.CodeNotNullViolation, "column \"%s\" of relation \"%s\" must be among the columns of a partial update", c.Name, r.Name)
			e.Schema, e.Table, e.Column = r.Namespace, r.Name, c.Name
			return e
		}
	}
	return nil
}

// needed reports whether a row cannot do without a value for the column.
func (c *column) needed() bool {
	return c.attr.NotNull && !c.Generated && c.attr.Identity == "" && c.attr.Default == nil
}

// merges reports whether a key that exists is to be merged with.
func (m *merging) merges(u *writer.UniqueConflict) bool {
	return m != nil && m.mode != decides && uint32(u.Table) == m.rel.OID && u.Unique == m.rel.engine.key.OID
}

// narrowed reports whether only the rows to merge with are in place: who scans the table for something else must see all.
func (m *merging) narrowed(oid uint32) bool { return m != nil && m.keyed && m.rel.OID == oid }

// only reports whether nobody but the trigger scanned the shadow: it does so once for each row that it lets in, and for the one that the statement
// failed at.
func (m *merging) only(now, before catalogpg.Activity, failed *wire.Error) bool {
	fired := now.Inserts - before.Inserts
	if m.keyed && m.failedAt(failed) {
		fired++
	}
	return now.Scans-before.Scans <= fired
}

// failedAt reports whether the error came from the trigger, or from a row behind it.
func (m *merging) failedAt(err *wire.Error) bool {
	return err != nil && (strings.HasPrefix(err.Where, "PL/pgSQL function sluice.merge()") || strings.Contains(err.Where, "\nPL/pgSQL function sluice.merge()") ||
		strings.HasPrefix(err.Code, "23") && err.Schema == m.rel.Namespace && err.Table == m.rel.Name)
}

// mergeTaken waits for the fate of the row that has a key, and puts the rows with all keys that the statement brings in place for the next run.
func (s *session) mergeTaken(ctx context.Context, a *attempt, u *writer.UniqueConflict, cause error, snapshot bool) (again bool, _ error) {
	oid := a.merge.rel.OID
	if _, err := s.tx.lake.LockRows(ctx, u.Table, u.Refs, lock.ForKeyShare, s.lockWait()); err != nil {
		return s.conflict(ctx, a, err)
	}
	var failed *insertError
	if !errors.As(cause, &failed) {
		return false, cause
	}
	keys := a.merge.rel.engine.key.keysIn(failed.rows)
	if snapshot && (a.fill[oid] && !a.merge.keyed || a.placed(oid, keys)) { // the snapshot is older than the row
		return false, errConcurrent
	}
	if !a.fill[oid] || a.merge.keyed { // else the statement reads all of the table: it will see the row
		a.putKeys(keys)
	}
	return true, nil
}

// placed reports whether all of these keys were looked up before.
func (a *attempt) placed(oid uint32, keys keySet) bool {
	known := map[string]bool{}
	for _, set := range a.keys[oid] {
		for _, key := range set.keys {
			known[string(key)] = known[string(key)] || set.unique == keys.unique
		}
	}
	return !slices.ContainsFunc(keys.keys, func(key []byte) bool { return !known[string(key)] })
}

// keysIn is the keys of rows.
func (u *unique) keysIn(rows *table.Batch) keySet {
	set := keySet{unique: u.OID}
	for i := range rows.Rows {
		if key, null := u.Key(nil, rows, i); !null {
			set.keys = append(set.keys, key)
		}
	}
	return set
}
