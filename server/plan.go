package server

import (
	"context"
	"slices"
	"strconv"

	"sluice/planner"
	"sluice/sql"
	"sluice/sql/pgvalue"
	"sluice/writer/table"
)

// resolution caches what names stand for in this session, for as long as nothing can have changed it.
type resolution struct {
	id        uint64 // of this one in the session, from 1; 0: empty
	version   uint64 // of the registry, when the cache was filled
	relations map[sql.Name]planner.Relation
	missing   map[sql.Name]bool
	builtin   map[string]bool // functions (f…), operators (o…) and types (t…) that are Postgres' own
}

func (n *resolution) clear() { *n = resolution{} }

// plan decides the lane of a statement.
func (s *session) plan(ctx context.Context, st *sql.Statement) (planner.Plan, error) {
	if s.be.status == 'E' {
		return planner.Plan{Lane: planner.Relay, Reason: "failed transaction"}, nil
	}
	s.noteSettings(st)
	if v := s.srv.rels.version.Load(); s.names.version != v || s.names.relations == nil {
		s.namings++
		s.names = resolution{id: s.namings, version: v, relations: map[sql.Name]planner.Relation{}, missing: map[sql.Name]bool{}, builtin: map[string]bool{}}
	}
	if st.Kind == sql.Cursor && (s.cursors[st.CursorName()] || st.CursorName() == "") || s.be.status == 'I' && (st.Kind == sql.Declare && !st.Held() || st.Kind == sql.LockTable || st.SetsConstraints()) {
		return planner.Plan{Lane: planner.Relay, Reason: "needs a block, or is a cursor's"}, nil
	}
	p, err := planner.Decide(ctx, st, s)
	s.userCode = s.userCode || p.User
	if err == nil && len(p.Lake) > 0 {
		err = s.refuseEncoding()
	}
	return s.vitals.planned(p, err)
}

// linked reports whether foreign keys lead from or to a table: then Postgres may look at more of it than the statement says.
func (s *session) linked(r *rel) bool {
	for _, k := range r.desc.Constraints {
		if k.Type == "f" {
			return true
		}
	}
	return s.referenced(r.OID)
}

// Relations implements planner.Resolver in the session's own view of the catalog.
func (s *session) Relations(ctx context.Context, names []sql.Name) ([]planner.Relation, error) {
	var ask []sql.Name
	for _, n := range names {
		if _, ok := s.names.relations[n]; !ok && !s.names.missing[n] {
			ask = append(ask, n)
		}
	}
	if len(ask) > 0 {
		if err := s.resolve(ctx, ask); err != nil {
			return nil, err
		}
	}
	var out []planner.Relation
	for _, n := range names {
		if r, ok := s.names.relations[n]; ok {
			out = append(out, r)
		}
	}
	return out, nil
}

const resolveRelations = `SELECT * FROM sluice.resolve_relations($1)`

func (s *session) resolve(ctx context.Context, names []sql.Name) error {
	lit := []byte{'{'}
	for i, n := range names {
		if i > 0 {
			lit = append(lit, ',')
		}
		lit = appendQuoted(lit, []byte(n.String()))
		s.names.missing[n] = true
	}
	rows, err := s.be.exec(ctx, resolveRelations, append(lit, '}'))
	if err != nil {
		return err
	}
	for _, r := range rows {
		n := names[intOf(r[0])-1]
		found := planner.Relation{Name: n, OID: oidOf(r[1]), Kind: r[2][0], Temp: r[3][0] == 't', System: string(r[4]) == "t", Hooks: string(r[5]) == "t"}
		var lake *rel
		if string(r[9]) == "t" {
			if lake, err = s.learn(ctx, found.OID); err != nil {
				return err
			}
		}
		if lake != nil {
			found.Linked = s.linked(lake)
			found.Reads, found.Writes = string(r[7]) == "t", string(r[8]) == "t"
			found.Stored, found.Deletes = lake.stored(), string(r[10]) == "t"
			found.Merges, found.Keeps = lake.engine != nil, lake.keepsRows()
			found.Lake, found.Plain = true, s.insertable(lake) && !found.Hooks && string(r[6]) == "t"
		}
		found.Made = s.srv.inside[found.OID] != nil
		s.names.relations[n] = found
		delete(s.names.missing, n)
	}
	if s.tx != nil && s.tx.ddl != nil { // what this transaction made may be undone: ask again next time
		clear(s.names.missing)
	}
	return nil
}

const resolveCode = `SELECT * FROM sluice.resolve_code($1, $2, $3)`

// UserCode implements planner.Resolver. What is Postgres' own is remembered until names may have changed. The operators of the extensions that
// may be created run no SQL and read no table.
func (s *session) UserCode(ctx context.Context, st *sql.Statement) (bool, error) {
	kinds, names := []byte{'{'}, []byte{'{'}
	var ask []string
	add := func(kind byte, list []sql.Name) {
		for _, n := range list {
			key := string(kind) + n.Name
			if s.names.builtin[key] || slices.Contains(ask, key) {
				continue
			}
			if len(ask) > 0 {
				kinds, names = append(kinds, ','), append(names, ',')
			}
			ask = append(ask, key)
			kinds, names = append(kinds, kind), appendQuoted(names, []byte(n.Name))
		}
	}
	add('f', st.Functions)
	add('o', st.Operators)
	add('t', st.Types)
	if len(ask) == 0 {
		return false, nil
	}
	rows, err := s.be.exec(ctx, resolveCode, append(kinds, '}'), append(names, '}'), extensionNames)
	if err != nil {
		return false, err
	}
	if len(rows) > 0 || s.tx != nil && s.tx.ddlRan {
		return len(rows) > 0, nil
	}
	for _, key := range ask {
		s.names.builtin[key] = true
	}
	return false, nil
}

// afterRelay notes what a relayed statement may have changed about names.
func (s *session) afterRelay(st *sql.Statement) {
	if s.tx != nil {
		s.tx.stale = true
	}
	if st.Kind == sql.Deallocate || st.Kind == sql.Session {
		clear(s.stmts) // a statement that is not known here is asked of the backend
	}
	s.listens = s.listens || st.Kind == sql.Session
	switch st.Kind {
	case sql.Declare:
		s.noteCursor(st)
	case sql.Set, sql.Session, sql.Alone, sql.Call, sql.Execute, sql.DDL:
		s.names.clear()
		s.defaults = nil
	}
}

// plain reports whether a row needs no more than its types, NOT NULL and its keys.
func (r *rel) plain() bool {
	return r.unchecked() && !r.constrained("f")
}

// unchecked reports whether a row needs no more than its types, NOT NULL, its keys and its foreign keys.
func (r *rel) unchecked() bool {
	return !slices.ContainsFunc(r.Columns, func(c column) bool { return c.Generated }) && !r.constrained("c")
}

// constrained reports whether a table has a constraint of a type, as pg_constraint has it.
func (r *rel) constrained(kind string) bool {
	for i := range r.desc.Constraints {
		if r.desc.Constraints[i].Type == kind {
			return true
		}
	}
	return false
}

// keySet is the keys of one unique constraint.
type keySet struct {
	unique uint32
	keys   [][]byte
}

// lookupTypes is the types whose literals mean the same whatever the session's settings are.
var lookupTypes = map[uint32]bool{
	pgvalue.OIDInt2: true, pgvalue.OIDInt4: true, pgvalue.OIDInt8: true, pgvalue.OIDText: true, pgvalue.OIDVarchar: true,
	pgvalue.OIDBpchar: true, pgvalue.OIDUUID: true, pgvalue.OIDNumeric: true,
}

// lookup turns the statement's equalities into keys of the table's unique constraints. ok is false if they do not cover one (or, for an
// INSERT, all of them): then the table is filled whole.
func (r *rel) lookup(l *sql.Lookup, insert bool, param func(n int, c *column) ([]byte, bool, bool)) (sets []keySet, ok bool) {
	for i := range r.Uniques {
		set, covered := r.keysOf(&r.Uniques[i], l, param)
		switch {
		case covered && !insert:
			return []keySet{set}, true
		case covered:
			sets = append(sets, set)
		case insert:
			return nil, false
		}
	}
	return sets, len(sets) > 0
}

func (r *rel) keysOf(u *unique, l *sql.Lookup, param func(int, *column) ([]byte, bool, bool)) (keySet, bool) {
	set := keySet{unique: u.OID}
	for _, row := range l.Rows {
		b := table.NewBatch(r.Schema)
		for i := range r.Columns {
			c := &r.Columns[i]
			name := c.Name
			if l.ByPlace {
				name = strconv.Itoa(i + 1)
			}
			op, named := row[name]
			in := u.has(i)
			if in && (!named || op.Array || !lookupTypes[c.Codec.OID()]) {
				return set, false
			}
			if !in || op.Null {
				b.Cols[i].AppendNull()
				continue
			}
			if !appendOperand(b.Cols[i], c, op, param) {
				return set, false
			}
		}
		b.Rows = 1
		if key, hasNull := u.Key(nil, b, 0); !hasNull { // NULLs that are not distinct are a key
			set.keys = append(set.keys, key)
		}
	}
	return set, true
}

func appendOperand(v *table.Vec, c *column, op sql.Operand, param func(int, *column) ([]byte, bool, bool)) bool {
	if op.Number && !numeric(c.Codec.OID(), sql.Integer) {
		return false
	}
	if op.Param == 0 {
		return c.Codec.AppendText(v, []byte(op.Text), nil) == nil
	}
	val, binary, ok := param(op.Param, c)
	switch {
	case !ok:
		return false
	case val == nil:
		v.AppendNull()
		return true
	case binary:
		return c.Codec.AppendBinary(v, val) == nil
	}
	return c.Codec.AppendText(v, val, nil) == nil
}
