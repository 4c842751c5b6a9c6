package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"sluice/catalogpg"
	"sluice/server/wire"
	"sluice/sql"
	"sluice/sql/pgvalue"
	"sluice/writer"
	"sluice/writer/lock"
	"sluice/writer/table"
)

// Deferred foreign keys (docs/design/0013). Postgres keeps the checks that a statement leaves for later as events of its transaction, and the
// exact lane rolls them back with the copies. So the gateway looks itself, at SET CONSTRAINTS … IMMEDIATE and before COMMIT: own rows of the child
// need a parent, which is locked to the end; keys that own deletes and updates took from the parent need to have no child. Constraints that
// are not deferred are Postgres' own, within the statement.

// foreignKey is a deferrable foreign key between two lake tables.
type foreignKey struct {
	catalogpg.Constraint
	child, parent *rel
	unique        *unique // of the parent
	cols          []int   // columns of the child, in the order of unique's
}

// foreignKey describes a constraint of child.
func (s *session) foreignKey(child *rel, k catalogpg.Constraint) (*foreignKey, error) {
	fk := &foreignKey{Constraint: k, child: child, parent: s.rel(k.Ref)}
	if k.Ref == child.OID {
		fk.parent = child
	}
	if fk.parent == nil {
		return nil, unsupported("deferrable foreign keys between lake tables and other tables are not supported").WithHint("Make it NOT DEFERRABLE.")
	}
	i := slices.IndexFunc(fk.parent.Uniques, func(u unique) bool { return u.OID == k.Index })
	if i < 0 {
		return nil, fmt.Errorf("foreign key %q: relation %d has no unique index %d", k.Name, k.Ref, k.Index)
	}
	fk.unique = &fk.parent.Uniques[i]
	for _, c := range fk.unique.Cols {
		at := slices.Index(k.RefAttnums, fk.parent.Columns[c].Attnum)
		mine := child.columnsAt(k.Attnums[at : at+1])[0]
		if a, b := child.Columns[mine].attr, fk.parent.Columns[c].attr; !sameKey(a, b) {
			return nil, unsupported("checking foreign key \"%s\" from type %s to type %s is not supported here", k.Name, a.TypeName, b.TypeName).
				WithHint("Give both columns the same type, or make it NOT DEFERRABLE and use READ COMMITTED.")
		}
		fk.cols = append(fk.cols, mine)
	}
	return fk, nil
}

// sameKey reports whether pgvalue.Key compares values of the two columns.
func sameKey(a, b *catalogpg.Attr) bool {
	ints := []uint32{pgvalue.OIDInt2, pgvalue.OIDInt4, pgvalue.OIDInt8}
	texts := []uint32{pgvalue.OIDText, pgvalue.OIDVarchar}
	both := func(list []uint32) bool { return slices.Contains(list, a.Base) && slices.Contains(list, b.Base) }
	return a.Base == b.Base || both(ints) || both(texts)
}

// refuseDeferred says no to deferrable foreign keys whose check would be lost.
func (s *session) refuseDeferred(d *catalogpg.Rel) error {
	lake := d.AM == "lake"
	for _, k := range d.Constraints {
		switch {
		case k.Type != "f" || !k.Deferrable || !lake && s.rel(k.Ref) == nil:
		case !lake:
			return unsupported("deferrable foreign keys between lake tables and other tables are not supported").WithHint("Make it NOT DEFERRABLE.")
		default:
			child, err := newRel(d, s.rel(d.OID))
			if err == nil {
				_, err = s.foreignKey(child, k)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// foreignKeys calls fn with each foreign key that leads from or to a table, as the session sees them.
func (s *session) foreignKeys(oid uint32, fn func(child *rel, k catalogpg.Constraint)) {
	look := func(r *rel) bool {
		for _, k := range r.desc.Constraints {
			if k.Type == "f" && (k.Ref == oid || r.OID == oid) {
				fn(r, k)
			}
		}
		return false
	}
	s.srv.rels.any(func(r *rel) bool {
		_, mine := s.tx.ddl[r.OID]
		return !mine && look(r)
	})
	for _, r := range s.tx.ddl {
		if r != nil {
			look(r)
		}
	}
}

// owe notes the tables whose deferrable foreign keys a statement's change may have broken. Those that are not deferrable Postgres has checked
// on copies, which are as old as the transaction's snapshot: where others may have written newer children, they are looked for here.
func (s *session) owe(ctx context.Context, changes []change) error {
	var now []catalogpg.Constraint
	var children []*rel
	for i := range changes {
		c := &changes[i]
		taken := len(c.gone)+len(c.replaced) > 0
		if !taken && (c.added == nil || c.added.Rows == 0) {
			continue
		}
		s.foreignKeys(c.rel.OID, func(child *rel, k catalogpg.Constraint) {
			switch {
			case k.Deferrable && s.tx.owed == nil:
				s.tx.owed = map[uint32]bool{c.rel.OID: true}
			case k.Deferrable:
				s.tx.owed[c.rel.OID] = true
			case taken && k.Ref == c.rel.OID && s.tx.lake.Isolation() != writer.ReadCommitted:
				now, children = append(now, k), append(children, child)
			}
		})
	}
	for i, k := range now {
		fk, err := s.foreignKey(children[i], k)
		if err == nil {
			err = s.checkParents(ctx, fk)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// setConstraints checks what SET CONSTRAINTS … IMMEDIATE makes due.
func (s *session) setConstraints(ctx context.Context, st *sql.Statement) error {
	names, ok := st.SetsImmediate()
	if !ok || len(s.tx.owed) == 0 {
		return nil
	}
	var only map[uint32]bool
	for _, n := range names {
		rows, err := s.be.exec(ctx, constraintsNamed, []byte(n.Name), []byte(n.Schema))
		if err != nil {
			return err
		}
		for _, r := range rows {
			if only == nil {
				only = map[uint32]bool{}
			}
			only[oidOf(r[0])] = true
		}
	}
	return s.checkOwed(ctx, only)
}

// constraintsNamed is the constraints that SET CONSTRAINTS means: those of the first schema of the path that has any of the name.
const constraintsNamed = `SELECT k.oid FROM pg_catalog.pg_constraint k WHERE k.conname = $1::pg_catalog.name AND k.connamespace = (
  SELECT x.connamespace FROM pg_catalog.pg_constraint x JOIN pg_catalog.pg_namespace n ON n.oid = x.connamespace
    JOIN pg_catalog.unnest(CASE WHEN $2::pg_catalog.name = '' THEN pg_catalog.current_schemas(true) ELSE ARRAY[$2::pg_catalog.name] END)
      WITH ORDINALITY s(name, i) ON s.name = n.nspname
   WHERE x.conname = $1::pg_catalog.name ORDER BY s.i LIMIT 1)`

// checkOwed checks the foreign keys that may be owed, all or those in only.
func (s *session) checkOwed(ctx context.Context, only map[uint32]bool) error {
	due := map[uint32]*foreignKey{}
	var failed error
	for oid := range s.tx.owed {
		s.foreignKeys(oid, func(child *rel, k catalogpg.Constraint) {
			if k.Deferrable && (only == nil || only[k.OID]) {
				fk, err := s.foreignKey(child, k)
				due[k.OID], failed = fk, cmp.Or(failed, err)
			}
		})
	}
	if failed != nil {
		return failed
	}
	for _, oid := range slices.Sorted(maps.Keys(due)) {
		if err := s.checkKey(ctx, due[oid]); err != nil {
			return err
		}
	}
	return nil
}

// checkKey looks at both sides. What another transaction does meanwhile is waited for, and then looked at again.
func (s *session) checkKey(ctx context.Context, fk *foreignKey) error {
	var checks []func(context.Context, *foreignKey) error
	if s.tx.owed[fk.child.OID] {
		checks = append(checks, s.checkChildren)
	}
	if s.tx.owed[fk.parent.OID] && (fk.OnDelete == "a" || fk.OnUpdate == "a") {
		checks = append(checks, s.checkParents)
	}
	for _, check := range checks {
		var moved *writer.RowMoved
		err := error(&writer.RowMoved{})
		for n := 0; n < maxAttempts && errors.As(err, &moved); n++ {
			err = check(ctx, fk)
			if errors.As(err, &moved) && s.tx.lake.Isolation() != writer.ReadCommitted {
				return concurrent(moved)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkChildren looks for the parents of the child rows that the transaction wrote, and locks them.
func (s *session) checkChildren(ctx context.Context, fk *foreignKey) error {
	view := s.tx.lake.Statement()
	c := fk.newKeys()
	err := view.Own(ctx, table.ID(fk.child.OID), func(rows writer.Rows) error {
		b := table.NewBatch(fk.child.Schema)
		appendRows(b, nil, rows)
		return c.add(b)
	})
	if err != nil {
		return err
	}
	missing, err := s.holdParents(ctx, view, c)
	if err != nil || len(missing) == 0 {
		return err
	}
	return s.violation(ctx, fk, false, c.first, missing[0])
}

// holdParents looks for the parents of children's keys, and locks them. missing is the places of the keys that no parent has.
func (s *session) holdParents(ctx context.Context, view *writer.View, c *childKeys) (missing []int, err error) {
	fk := c.fk
	found, refs, err := fk.parents(ctx, view, c.keys)
	if err != nil {
		return nil, err
	}
	for i, key := range c.keys {
		if !found[string(key)] {
			missing = append(missing, i)
		}
	}
	if _, err = s.tx.lake.LockRows(ctx, table.ID(fk.parent.OID), refs, lock.ForKeyShare, s.lockWait()); err != nil {
		return nil, s.lockFailed(err, fk.parent.OID, "row")
	}
	return missing, nil
}

// childKeys is the different keys of child rows, each with the first row that has it.
type childKeys struct {
	fk    *foreignKey
	key   writer.KeyFunc
	seen  map[string]bool
	first *table.Batch
	keys  [][]byte
}

func (fk *foreignKey) newKeys() *childKeys {
	return &childKeys{fk: fk, key: keyFunc(fk.cols, fk.child.keyTypes(fk.cols), true), seen: map[string]bool{}, first: table.NewBatch(fk.child.Schema)}
}

func (c *childKeys) add(b *table.Batch) error {
	fk := c.fk
	for row := range b.Rows {
		k, missing := c.key(nil, b, row)
		if missing && fk.Match == "f" && !fk.allNull(b, row) {
			e := fk.errorf("insert or update on table \"%s\" violates foreign key constraint \"%s\"", fk.child.Name, fk.Name)
			return e.WithDetail("MATCH FULL does not allow mixing of null and nonnull key values.")
		}
		if !missing && !c.seen[string(k)] {
			c.seen[string(k)] = true
			c.first.AppendRow(b, row)
			c.keys = append(c.keys, k)
		}
	}
	return nil
}

// take takes over one of the keys of others.
func (c *childKeys) take(o *childKeys, i int) {
	if k := string(o.keys[i]); !c.seen[k] {
		c.seen[k] = true
		c.first.AppendRow(o.first, i)
		c.keys = append(c.keys, o.keys[i])
	}
}

func (fk *foreignKey) allNull(b *table.Batch, row int) bool {
	return !slices.ContainsFunc(fk.cols, func(c int) bool { return !null(b, c, row) })
}

// parents finds the rows of the parent that have one of keys.
func (fk *foreignKey) parents(ctx context.Context, view *writer.View, keys [][]byte) (found map[string]bool, refs []table.Ref, err error) {
	b := table.NewBatch(fk.parent.Schema)
	err = view.ByKeys(ctx, table.ID(fk.parent.OID), fk.unique.OID, keys, func(rows writer.Rows) error {
		refs = appendRows(b, refs, rows)
		return nil
	})
	found = map[string]bool{}
	for row := range b.Rows {
		k, _ := fk.unique.Key(nil, b, row)
		found[string(k)] = true
	}
	return found, refs, err
}

// checkParents looks for children of the keys that the transaction took from the parent, in the newest state: who wrote them held the parent,
// so that this transaction has waited for him.
func (s *session) checkParents(ctx context.Context, fk *foreignKey) error {
	rows, row, refs, err := s.orphans(ctx, fk)
	if err != nil || len(refs) == 0 {
		return err
	}
	if _, err = s.tx.lake.LockRows(ctx, table.ID(fk.child.OID), refs, lock.ForKeyShare, s.lockWait()); err != nil {
		return s.lockFailed(err, fk.child.OID, "row")
	}
	if !strings.Contains("ar", fk.OnDelete) { // the action on rows that are newer than the snapshot
		return errConcurrent
	}
	return s.violation(ctx, fk, true, rows, row)
}

// orphans finds the rows of the child whose parents the transaction took, in the newest state; row is the first of those parents in rows.
func (s *session) orphans(ctx context.Context, fk *foreignKey) (rows *table.Batch, row int, refs []table.Ref, err error) {
	if rows, err = s.tx.lake.Deleted(ctx, table.ID(fk.parent.OID)); err != nil || rows.Rows == 0 {
		return nil, 0, nil, err
	}
	view := s.tx.lake.Newest()
	gone, err := fk.goneKeys(ctx, view, rows)
	if err != nil || len(gone) == 0 {
		return nil, 0, nil, err
	}
	row, refs, err = fk.children(ctx, view, gone)
	return rows, row, refs, err
}

// newChildren reports whether others wrote children of parents that the statement takes, after it looked at view. Their parents were not locked
// then; now they are, so when the statement runs again it sees all children there will be.
func (s *session) newChildren(ctx context.Context, view *writer.View, changes []change) (found bool, err error) {
	var fks []*foreignKey
	for i := range changes {
		c := &changes[i]
		if len(c.gone)+len(c.replaced) == 0 {
			continue
		}
		s.foreignKeys(c.rel.OID, func(child *rel, k catalogpg.Constraint) {
			if k.Ref != c.rel.OID || k.Deferrable || !view.Stale(table.ID(child.OID)) {
				return
			}
			if fk, err := s.foreignKey(child, k); err == nil { // else the types differ, and children come through Postgres only
				fks = append(fks, fk)
			}
		})
	}
	for _, fk := range fks {
		_, _, refs, err := s.orphans(ctx, fk)
		if err != nil || len(refs) > 0 {
			return err == nil, err
		}
	}
	return false, nil
}

// goneKeys is the keys of rows that no row of the parent has any more, each with its row.
func (fk *foreignKey) goneKeys(ctx context.Context, view *writer.View, rows *table.Batch) (map[string]int, error) {
	gone := map[string]int{}
	var keys [][]byte
	for row := range rows.Rows {
		if k, missing := fk.unique.Key(nil, rows, row); !missing {
			keys, gone[string(k)] = append(keys, k), row
		}
	}
	found, _, err := fk.parents(ctx, view, keys)
	for k := range found {
		delete(gone, k)
	}
	return gone, err
}

// children finds the rows of the child that have one of keys, and the first of these.
func (fk *foreignKey) children(ctx context.Context, view *writer.View, keys map[string]int) (first int, refs []table.Ref, err error) {
	at := make([]int, len(fk.cols)) // of the columns in a batch that has only them
	for i := range at {
		at[i] = i
	}
	first, key := math.MaxInt, keyFunc(at, fk.child.keyTypes(fk.cols), true)
	err = view.ScanColumns(ctx, table.ID(fk.child.OID), fk.cols, func(rows writer.Rows) error {
		b := table.NewBatch(rows.Batch.Schema)
		for row, ref := range appendRows(b, nil, rows) {
			k, missing := key(nil, b, row)
			if parent, ok := keys[string(k)]; ok && !missing {
				first, refs = min(first, parent), append(refs, ref)
			}
		}
		return nil
	})
	return first, refs, err
}

// violation is Postgres' error for a key of a row of the child, or of the parent.
func (s *session) violation(ctx context.Context, fk *foreignKey, ofParent bool, b *table.Batch, row int) error {
	side, attnums := fk.child, fk.Attnums
	e := fk.errorf("insert or update on table \"%s\" violates foreign key constraint \"%s\"", fk.child.Name, fk.Name)
	end := fmt.Sprintf("is not present in table \"%s\".", fk.parent.Name)
	if ofParent {
		side, attnums = fk.parent, fk.RefAttnums
		e = fk.errorf("update or delete on table \"%s\" violates foreign key constraint \"%s\" on table \"%s\"", fk.parent.Name, fk.Name, fk.child.Name)
		end = fmt.Sprintf("is still referenced from table \"%s\".", fk.child.Name)
	}
	if shown, err := s.mayShow(ctx, side.OID, attnums); err != nil {
		return err
	} else if !shown {
		return e.WithDetail("Key %s", end)
	}
	names, vals := side.keyText(side.columnsAt(attnums), b, row)
	return e.WithDetail("Key (%s)=(%s) %s", names, vals, end)
}

func (fk *foreignKey) errorf(format string, args ...any) *wire.Error {
	e := wire.Errorf(wire.CodeForeignKeyViolation, format, args...)
	e.Schema, e.Table, e.Constraint = fk.child.Namespace, fk.child.Name, fk.Name
	return e
}

// mayShow reports whether Postgres would show the role the values of a key.
func (s *session) mayShow(ctx context.Context, oid uint32, attnums []int16) (bool, error) {
	list := []byte{'{'}
	for i, n := range attnums {
		if i > 0 {
			list = append(list, ',')
		}
		list = strconv.AppendInt(list, int64(n), 10)
	}
	rows, err := s.be.exec(ctx, `SELECT NOT pg_catalog.row_security_active($1::pg_catalog.oid) AND (pg_catalog.has_table_privilege($1::pg_catalog.oid, 'SELECT')
		OR NOT EXISTS (SELECT FROM pg_catalog.unnest($2::pg_catalog.int2[]) a WHERE NOT pg_catalog.has_column_privilege($1::pg_catalog.oid, a, 'SELECT')))`,
		oidText(oid), append(list, '}'))
	return err == nil && string(rows[0][0]) == "t", err
}
