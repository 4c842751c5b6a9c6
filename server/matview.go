package server

import (
	"context"
	"slices"

	"sluice/catalogpg"
	"sluice/sql/pgvalue"
	"sluice/writer"
	"sluice/writer/table"
)

// Materialized views (docs/design/0010). Their rows are Postgres': a REFRESH runs on copies of the tables that it reads, and what it made stays
// in the user's own transaction. Hence every statement reads them as in Postgres, and nothing is copied for it. The lake has the same rows
// as a table, for the scan lane and other engines: after each statement that may have refreshed one, its rows are read and the difference is
// an ordinary lake write, which Postgres' COMMIT decides.

// stored reports whether the relation's rows are in Postgres as well.
func (r *rel) stored() bool { return r.desc != nil && r.desc.RelKind == "m" }

// stored is one materialized view that may have other rows than the lake.
type stored struct {
	oid      uint32
	replaced bool // all of its rows are new
}

// noteStored notes a materialized view whose rows may have changed: REFRESH moves it, REFRESH CONCURRENTLY scans it under a strong lock.
func (sn *seen) noteStored(old *rel, d *catalogpg.Rel, h hits) {
	moved := old == nil || old.desc.Filenode != d.Filenode
	if moved || slices.Contains(h.scanned, d.OID) {
		sn.refreshed = append(sn.refreshed, stored{d.OID, moved})
	}
}

// readStored reads the rows of refreshed materialized views and finds what the lake lacks and has too much of.
func (s *session) readStored(ctx context.Context, sn *seen) error {
	for _, m := range sn.refreshed {
		ch := change{rel: s.rel(m.oid)}
		ch.added = table.NewBatch(ch.rel.Schema)
		if ch.rel.desc.Populated {
			rows, err := s.be.call(s.pg.Load().ChangeCall(m.oid, catalogpg.Fill{}))
			if err != nil {
				return err
			}
			if err := ch.read(&copied{}, rows); err != nil {
				return err
			}
		}
		if m.replaced {
			if !sn.created(m.oid) {
				sn.truncated = append(sn.truncated, m.oid)
			}
		} else if err := s.difference(ctx, &ch); err != nil {
			return err
		}
		sn.changes = append(sn.changes, ch)
	}
	return nil
}

// created reports whether the statement made the table.
func (sn *seen) created(oid uint32) bool {
	return slices.ContainsFunc(sn.defined, func(d definition) bool {
		return d.change.Kind == writer.Create && d.change.Def.ID == table.ID(oid)
	})
}

// difference leaves in ch.added the rows that the lake does not have yet, and puts into ch.gone those that it has too many of.
func (s *session) difference(ctx context.Context, ch *change) error {
	have := map[string][]table.Ref{}
	err := s.tx.lake.Statement().Scan(ctx, table.ID(ch.rel.OID), func(rows writer.Rows) error {
		b := table.NewBatch(rows.Batch.Schema)
		for i, ref := range appendRows(b, nil, rows) {
			text, err := ch.rel.rowText(b, i)
			if err != nil {
				return err
			}
			have[text] = append(have[text], ref)
		}
		return nil
	})
	if err != nil {
		return err
	}
	fresh := table.NewBatch(ch.added.Schema)
	for i := range ch.added.Rows {
		text, err := ch.rel.rowText(ch.added, i)
		if err != nil {
			return err
		}
		if refs := have[text]; len(refs) > 0 {
			have[text] = refs[1:]
			continue
		}
		fresh.AppendRow(ch.added, i)
	}
	for _, refs := range have {
		ch.gone = append(ch.gone, refs...)
	}
	ch.added = fresh
	return nil
}

// rowText is a row as text that differs where rows differ.
func (r *rel) rowText(b *table.Batch, row int) (string, error) {
	var text []byte
	var err error
	for i := range r.Columns {
		if text, err = pgvalue.ArrayLiteral(text, b.Cols[i], []int{row}, r.Columns[i].Codec); err != nil {
			return "", err
		}
	}
	return string(text), nil
}
