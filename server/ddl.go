package server

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"sluice/catalogpg"
	"sluice/server/wire"
	"sluice/sql"
	"sluice/sql/pgvalue"
	"sluice/writer"
)

// What a schema change means for the lake. No DDL is parsed: the strong locks that the transaction holds name the relations it touched
// (reference lanes section 4), their catalog content is compared with what was known before, and the difference is the change.

// definition is one lake table that a statement created, changed or dropped.
type definition struct {
	change writer.TableChange
}

// prepareAttempt takes the lake options out of the text and turns the statement's look-up into keys.
func (s *session) prepareAttempt(a *attempt, p params) error {
	text, opts, err := a.st.LakeOptions(a.text, lakeOptions)
	if err != nil {
		return fmt.Errorf("take out lake options: %w", err)
	}
	a.text, a.opts = text, opts
	if l := a.plan.Lookup; l != nil && len(a.plan.Fill) == 1 {
		oid := a.plan.Fill[0]
		if sets, ok := s.rel(oid).lookup(l, a.st.Kind == sql.Insert, p.value); ok {
			a.keys = map[uint32][]keySet{oid: sets}
		}
	}
	return nil
}

// reconcile finds what the statement's DDL did to lake tables, records it in the user's own transaction and in the session's overlay.
func (s *session) reconcile(ctx context.Context, a *attempt, candidates []catalogpg.Candidate, h hits, sn *seen) error {
	for _, c := range candidates {
		if err := s.reconcileRel(ctx, a, c, h, sn); err != nil {
			return err
		}
	}
	if a.plan.DDL || len(candidates) > 0 {
		s.tx.ddlRan = true
		s.names.clear()
	}
	return nil
}

// promotes reports whether the statement scanned one table, only to change columns to wider types of which each value is the same: then its
// rows need not be in place, and no file is written. Constraints on values and foreign keys could turn out otherwise, so they see the rows.
func (s *session) promotes(a *attempt, scanned []uint32, candidates []catalogpg.Candidate) bool {
	r := s.rel(scanned[0])
	if len(scanned) > 1 || r == nil || !a.st.ChangesTypes() || !r.plain() || s.linked(r) {
		return false
	}
	i := slices.IndexFunc(candidates, func(c catalogpg.Candidate) bool { return c.OID == r.OID })
	return i >= 0 && candidates[i].State != nil && slices.EqualFunc(r.desc.Columns, candidates[i].State.Columns, func(old, now catalogpg.Attr) bool {
		return old.Num == now.Num && (old.Type == now.Type && old.Typmod == now.Typmod || slices.Contains(wider[old.Type], now.Type))
	})
}

// wider is the types that Postgres rewrites a column to without a change of any value, and that Iceberg knows as the same or a promoted type.
var wider = map[uint32][]uint32{
	pgvalue.OIDInt2: {pgvalue.OIDInt4, pgvalue.OIDInt8}, pgvalue.OIDInt4: {pgvalue.OIDInt8}, pgvalue.OIDFloat4: {pgvalue.OIDFloat8},
}

// filenodesQuery asks where Postgres keeps each shadow. TRUNCATE moves it, and so do VACUUM FULL and rewrites: only a move during a statement
// that may truncate counts.
const filenodesQuery = "SELECT oid, relfilenode FROM pg_catalog.pg_class WHERE relam = (SELECT oid FROM pg_catalog.pg_am WHERE amname = 'lake')"

func readFilenodes(rows [][][]byte) map[uint32]uint32 {
	out := make(map[uint32]uint32, len(rows))
	for _, r := range rows {
		out[oidOf(r[0])] = oidOf(r[1])
	}
	return out
}

// mayTruncate reports whether the statement can hold a TRUNCATE. Other DDL that moves a shadow rewrites it, which its scan shows.
func (a *attempt) mayTruncate() bool {
	return a.st.Kind == sql.Truncate || a.plan.Keep && a.st.Kind != sql.DDL && a.st.Kind != sql.Declare && a.st.Kind != sql.Cursor
}

// truncated is the lake tables whose shadows the statement truncated: their rows are to go the same way. Copied rows that went are seen
// as deleted anyway.
func (s *session) truncated(ctx context.Context, a *attempt, g *guard) ([]uint32, error) {
	if !a.mayTruncate() {
		return nil, nil
	}
	rows, err := s.be.exec(ctx, filenodesQuery)
	if err != nil {
		return nil, err
	}
	now := readFilenodes(rows)
	var out []uint32
	for oid, node := range now {
		if was, ok := g.filenodes[oid]; ok && was != node && s.fillable(oid) != nil && g.filled[oid] == nil {
			out = append(out, oid)
		}
	}
	if a.st.Kind == sql.Truncate {
		out = s.truncateOwn(a, out)
	}
	slices.Sort(out)
	return out, nil
}

// truncateOwn adds the tables that Postgres truncated in place, without a trace: those that this transaction made. CASCADE reaches them
// through foreign keys.
func (s *session) truncateOwn(a *attempt, out []uint32) []uint32 {
	for _, oid := range a.plan.Fill {
		if !slices.Contains(out, oid) {
			out = append(out, oid)
		}
	}
	for i := 0; a.st.Cascades() && i < len(out); i++ {
		for oid, r := range s.tx.ddl {
			if r != nil && r.references(out[i]) && !slices.Contains(out, oid) {
				out = append(out, oid)
			}
		}
	}
	return out
}

// references reports whether the table has a foreign key to another.
func (r *rel) references(oid uint32) bool {
	return slices.ContainsFunc(r.desc.Constraints, func(k catalogpg.Constraint) bool { return k.Type == "f" && k.Ref == oid })
}

func (s *session) reconcileRel(ctx context.Context, a *attempt, c catalogpg.Candidate, h hits, sn *seen) error {
	old, d := s.rel(c.OID), c.State
	if d == nil {
		if old == nil {
			return nil
		}
		if err := s.refuseSnapshot(); err != nil {
			return err
		}
		if _, err := s.be.call(s.pg.Load().RelDropCall(c.OID)); err != nil {
			return err
		}
		s.overlay0()[c.OID] = nil
		sn.defined = append(sn.defined, definition{writer.TableChange{Kind: writer.Drop, Def: old.def()}})
		return nil
	}
	if lake := (d.RelKind == "r" || d.RelKind == "m") && d.AM == "lake"; !lake {
		if err := s.refuseDeferred(d); err != nil {
			return err
		}
		return refuseOther(d, old)
	}
	if d.RelKind == "m" {
		sn.noteStored(old, d, h)
	}
	if err := s.refuseDependents(ctx, d); err != nil {
		return err
	}
	if old != nil && reflect.DeepEqual(old.desc, d) {
		return nil
	}
	if err := refuse(d); err != nil {
		return err
	}
	if err := s.refuseDeferred(d); err != nil {
		return err
	}
	return s.define(ctx, a, d, old, sn)
}

// define records a new or changed lake table.
func (s *session) define(ctx context.Context, a *attempt, d *catalogpg.Rel, old *rel, sn *seen) error {
	r, err := newRel(d, old)
	if err != nil {
		return wire.Errorf(wire.CodeFeatureNotSupported, "table %q cannot be kept in the lake: %v", d.Name, err).WithHint("CREATE TABLE … USING heap keeps it in Postgres.")
	}
	if old == nil {
		if err := r.setOptions(a.opts, s.srv.CheckPartition); err != nil {
			return err
		}
	}
	if err := s.setTriggers(ctx, r, old); err != nil {
		return err
	}
	if old != nil && r.sameLake(old) { // comments, grants, plain indexes, defaults: nothing that the writer knows of
		r.Schema = old.Schema
		s.overlay0()[d.OID] = r
		return nil
	}
	if err := s.refuseSnapshot(); err != nil {
		return err
	}
	kind := writer.Alter
	if old == nil {
		kind = writer.Create
		if err := s.srv.Catalog.EnsureOwner(ctx, d.Owner); err != nil {
			return err
		}
	}
	if _, err := s.be.call(s.pg.Load().RelPutCall(d.OID, r.record())); err != nil {
		return err
	}
	s.overlay0()[d.OID] = r
	sn.defined = append(sn.defined, definition{writer.TableChange{Kind: kind, Def: r.def()}})
	if old != nil && r.refielded(old) {
		sn.anew = append(sn.anew, d.OID)
	}
	return nil
}

// refielded reports whether a column is another field in files than before: then rows have to be written anew, also where Postgres, which has
// one form for numeric(10,2) and numeric, leaves the table as it is.
func (r *rel) refielded(old *rel) bool {
	return slices.ContainsFunc(r.Columns, func(c column) bool {
		was := slices.IndexFunc(old.Columns, func(o column) bool { return o.Attnum == c.Attnum })
		now := slices.IndexFunc(r.Columns, func(o column) bool { return o.Attnum == c.Attnum })
		return was >= 0 && old.Schema.Columns[was].FieldID != r.Schema.Columns[now].FieldID
	})
}

// refuseSnapshot says no to schema changes above READ COMMITTED: a flip of others since the snapshot would fail this one's (40001).
func (s *session) refuseSnapshot() error {
	if s.tx.lake.Isolation() == writer.ReadCommitted {
		return nil
	}
	return unsupported("lake tables can be created, changed and dropped at READ COMMITTED only").
		WithHint("The pointers of all tables move in this transaction, whose snapshot is older than other flushes.")
}

// overlay0 is the transaction's DDL, to write to.
func (s *session) overlay0() map[uint32]*rel {
	next := maps.Clone(s.tx.ddl)
	if next == nil {
		next = map[uint32]*rel{}
	}
	s.tx.ddl = next
	return next
}

// sameLake reports whether the writer would see no difference.
func (r *rel) sameLake(old *rel) bool {
	same := r.Namespace == old.Namespace && r.Name == old.Name && slices.EqualFunc(r.Uniques, old.Uniques, func(a, b unique) bool {
		return a.OID == b.OID && a.Name == b.Name && slices.Equal(a.Cols, b.Cols)
	})
	return same && reflect.DeepEqual(r.Schema.Columns, old.Schema.Columns) && slices.Equal(r.Schema.Key, old.Schema.Key)
}

// unsupported is 0A000. Whoever says it says in a hint what to do instead; docs/sql.md prints both.
func unsupported(format string, args ...any) *wire.Error {
	return wire.Errorf(wire.CodeFeatureNotSupported, format, args...)
}

// refuseOther says no to what looks like a lake table and is none.
func refuseOther(d *catalogpg.Rel, old *rel) error {
	switch {
	case old != nil:
		return unsupported("relation %q cannot leave the lake", d.Name).WithHint("Use CREATE TABLE … USING heap AS TABLE …")
	case d.RelKind == "p":
		return unsupported("PARTITION BY is not supported on lake tables").
			WithHint("Use WITH (partition_by = '…') for the lake's own partitions, or USING heap.")
	}
	return nil
}

// refuse says no to what the lake cannot enforce. Nothing is accepted and ignored.
func refuse(d *catalogpg.Rel) error {
	switch {
	case len(d.Columns) == 0:
		return unsupported("lake tables need at least one column").WithHint("Add a column, or make it USING heap.")
	case d.Persistence != "p":
		return unsupported("UNLOGGED is not supported on lake tables").WithHint("Leave it out, or make the table USING heap.")
	case len(d.Parents) > 0 || d.Children || d.Partition:
		return unsupported("inheritance is not supported on lake tables").WithHint("Use LIKE, or make the tables USING heap.")
	case d.Rules > 0:
		return unsupported("rules are not supported on lake tables").WithHint("Use a trigger.")
	case d.ForceRLS:
		return unsupported("FORCE ROW LEVEL SECURITY is not supported on lake tables").WithHint("Use a role that does not own the table: policies hold for it.")
	}
	for _, k := range d.Constraints {
		switch {
		case !k.Validated:
			return unsupported("NOT VALID constraints are not supported on lake tables").WithHint("Leave NOT VALID out: the rows are checked.")
		case k.Deferrable && k.Type != "f" && k.Type != "t":
			return unsupported("deferrable unique constraints are not supported on lake tables").
				WithHint("Make it NOT DEFERRABLE.")
		case k.Type == "x":
			return unsupported("exclusion constraints are not supported on lake tables").WithHint("Use a UNIQUE constraint, or make the table USING heap.")
		}
	}
	for i := range d.Indexes {
		if d.RelKind == "m" {
			break // Postgres has the rows: it keeps any index of them
		}
		if err := refuseIndex(d, &d.Indexes[i]); err != nil {
			return err
		}
	}
	return nil
}

// refuseDependents says no to what else hangs on the table: checks that call functions of the user, which may read tables that are empty while
// rows are copied, and publications, which would never see a row.
func (s *session) refuseDependents(ctx context.Context, d *catalogpg.Rel) error {
	rows, err := s.be.exec(ctx, `SELECT EXISTS (SELECT FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_constraint k ON k.oid = d.objid
		WHERE d.classid = 'pg_catalog.pg_constraint'::pg_catalog.regclass AND d.refclassid = 'pg_catalog.pg_proc'::pg_catalog.regclass
		  AND d.refobjid >= 16384 AND k.contype = 'c'
		  AND (k.conrelid = $1 OR k.contypid IN (SELECT a.atttypid FROM pg_catalog.pg_attribute a WHERE a.attrelid = $1))),
		EXISTS (SELECT FROM pg_catalog.pg_publication_rel p WHERE p.prrelid = $1)`, oidText(d.OID))
	if err != nil {
		return err
	}
	switch {
	case string(rows[0][0]) == "t":
		return unsupported("CHECK constraints that call user functions are not supported on lake tables").WithHint("Write the expression itself, or use a trigger.")
	case string(rows[0][1]) == "t":
		return unsupported("publications of lake tables are not supported").WithHint("Read sluice.commits, or LISTEN sluice_commits.")
	}
	return nil
}

func refuseIndex(d *catalogpg.Rel, x *catalogpg.Index) error {
	switch {
	case !x.Unique:
		return nil
	case x.Expressions != "" || x.Predicate != "":
		return unsupported("unique indexes with expressions or conditions are not supported on lake tables").WithHint("Add a generated column with the expression, and a UNIQUE constraint on it: its NULLs do not conflict.")
	case !x.DefaultOps:
		return unsupported("unique indexes with operator classes are not supported on lake tables").WithHint("Leave the operator class out.")
	}
	for _, n := range x.Attnums {
		if a := d.Attr(n); a == nil || a.TypeKind != "e" && !pgvalue.KeyOK(a.Base) {
			return unsupported("type %s cannot be part of a key", a.TypeName).WithHint("Add a generated column of type text, and make that the key.")
		}
	}
	return nil
}

// params is the bound values of a statement.
type params struct {
	bind  *wire.Bind // nil: none
	types []uint32   // as declared by Parse; 0 or missing: inferred
}

// len is the number of parameters.
func (p params) len() int {
	if p.bind == nil {
		return 0
	}
	return len(p.bind.Values)
}

// at is parameter n, from 1.
func (p params) at(n int) (val []byte, binary bool) {
	return p.bind.Values[n-1], p.bind.ParamFormat(n-1) == 1
}

// declared is the type that parameter n was declared with, or else inferred.
func (p params) declared(n int, inferred uint32) uint32 {
	if n <= len(p.types) && p.types[n-1] != 0 {
		return p.types[n-1]
	}
	return inferred
}

// value is parameter n for comparison with column c. ok is false if its declared type is not the column's.
func (p params) value(n int, c *column) (val []byte, binary, ok bool) {
	if n > p.len() || p.declared(n, c.Codec.OID()) != c.Codec.OID() {
		return nil, false, false
	}
	val, binary = p.at(n)
	return val, binary, true
}
