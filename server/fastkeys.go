package server

import (
	"context"
	"errors"

	"sluice/server/wire"
	"sluice/writer"
	"sluice/writer/table"
)

// Foreign keys of rows that the fast lane inserts are checked by the gateway, as at the end of the statement in Postgres: the parents are found by
// their keys and locked, whatever the size of their table.

// insertable reports whether rows of a table need no more than their types, NOT NULL, keys, and foreign keys that the fast lane checks.
func (s *session) insertable(r *rel) bool {
	for _, k := range r.desc.Constraints {
		if k.Type != "f" {
			continue
		}
		if _, err := s.foreignKey(r, k); err != nil || k.Deferrable || r.engine != nil {
			return false
		}
	}
	return r.unchecked()
}

// keyChecks are the foreign keys of rows that a statement inserts. Whose parents are missing is told at the end: they may come with later rows.
type keyChecks struct {
	s    *session
	late []*childKeys // by foreign key: the keys without a parent so far
}

// newKeyChecks is nil where there is nothing to check. errNotFast above READ COMMITTED, where Postgres looks at two snapshots.
func (s *session) newKeyChecks(r *rel) (*keyChecks, error) {
	if !r.constrained("f") {
		return nil, nil
	}
	if s.tx.lake.Isolation() != writer.ReadCommitted {
		return nil, errNotFast
	}
	c := &keyChecks{s: s}
	for _, k := range r.desc.Constraints {
		if k.Type != "f" {
			continue
		}
		fk, err := s.foreignKey(r, k)
		if err != nil {
			return nil, err
		}
		c.late = append(c.late, fk.newKeys())
	}
	return c, nil
}

// add looks for the parents of rows that the transaction has just inserted.
func (c *keyChecks) add(ctx context.Context, b *table.Batch) error {
	if c == nil {
		return nil
	}
	for _, late := range c.late {
		now := late.fk.newKeys()
		if err := now.add(b); err != nil {
			return err
		}
		missing, err := c.hold(ctx, now)
		if err != nil {
			return err
		}
		for _, i := range missing {
			late.take(now, i)
		}
	}
	return nil
}

// hold finds and locks parents. One that changes meanwhile is looked for again.
func (c *keyChecks) hold(ctx context.Context, keys *childKeys) (missing []int, err error) {
	if len(keys.keys) == 0 {
		return nil, nil
	}
	for range maxAttempts {
		missing, err = c.s.holdParents(ctx, c.s.tx.lake.Statement(), keys)
		var moved *writer.RowMoved
		if !errors.As(err, &moved) {
			return missing, err
		}
	}
	return nil, errConcurrent
}

// end is the violation of the first key without a parent.
func (c *keyChecks) end(ctx context.Context) error {
	if c == nil {
		return nil
	}
	for _, late := range c.late {
		missing, err := c.hold(ctx, late)
		if err == nil && len(missing) > 0 {
			err = c.s.violation(ctx, late.fk, false, late.first, missing[0])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkKeys checks the rows of a whole statement. Where Postgres can see all parents the error is its own.
func (s *session) checkKeys(ctx context.Context, r *rel, b *table.Batch) error {
	c, err := s.newKeyChecks(r)
	if err != nil {
		return err
	}
	if err = c.add(ctx, b); err == nil {
		err = c.end(ctx)
	}
	if e := (*wire.Error)(nil); errors.As(err, &e) && e.Code == wire.CodeForeignKeyViolation && s.parentsFit(ctx, c) {
		return errNotFast
	}
	return err
}

func (s *session) parentsFit(ctx context.Context, c *keyChecks) bool {
	for _, late := range c.late {
		rows, size, err := s.Size(ctx, late.fk.parent.OID)
		if err != nil {
			return false
		}
		if fits, err := s.fitsExact(ctx, rows, size); err != nil || !fits {
			return false
		}
	}
	return true
}
