package sql

import (
	pg "github.com/pganalyze/pg_query_go/v5"
)

// Point is SELECT columns FROM table WHERE column = value AND …, and nothing else: if the columns are those of a key, it is one row or
// none. Or there is no WHERE: all rows.
type Point struct {
	Table   Name
	Columns []PointColumn // nil: all
	Where   *Lookup       // one row; nil: all
}

// PointColumn is one column of the result.
type PointColumn struct{ Name, As string }

// Returning is RETURNING * or RETURNING column [AS name], … of a write.
type Returning struct {
	Columns []PointColumn // nil: all
}

// returning reads the list of a RETURNING; nil without one. ok is false if it is anything more than a Returning.
func returning(list []*pg.Node, table string) (r *Returning, ok bool) {
	if len(list) == 0 {
		return nil, true
	}
	r = &Returning{}
	r.Columns, ok = pointColumns(list, table)
	return r, ok
}

// Point is the statement in this simple form, or nil if it is anything more.
func (s *Statement) Point() *Point {
	n := s.Node.GetSelectStmt()
	if n == nil || s.names != 1 || len(n.FromClause) != 1 || more(n) {
		return nil
	}
	rv := n.FromClause[0].GetRangeVar()
	if rv == nil || rv.GetAlias() != nil || !rv.Inh {
		return nil
	}
	p := &Point{Table: Name{rv.Schemaname, rv.Relname}}
	if n.WhereClause != nil {
		p.Where = whereLookup(rv, n.WhereClause, s)
		if p.Where == nil || len(p.Where.Rows) != 1 || len(p.Where.Rows[0]) != len(conjuncts(n.WhereClause)) {
			return nil
		}
	}
	var ok bool
	if p.Columns, ok = pointColumns(n.TargetList, rv.Relname); !ok {
		return nil
	}
	return p
}

// pointColumns reads * (nil) or a list of columns of table.
func pointColumns(list []*pg.Node, table string) (cols []PointColumn, ok bool) {
	for _, t := range list {
		c, star := pointColumn(t.GetResTarget(), table)
		if star && len(list) == 1 {
			return nil, true
		}
		if c.Name == "" {
			return nil, false
		}
		cols = append(cols, c)
	}
	return cols, true
}

// more reports whether a SELECT has any clause beyond target list, FROM and WHERE.
func more(n *pg.SelectStmt) bool {
	return n.DistinctClause != nil || n.IntoClause != nil || n.GroupClause != nil || n.HavingClause != nil || n.WindowClause != nil ||
		n.ValuesLists != nil || n.SortClause != nil || n.LimitOffset != nil || n.LimitCount != nil || n.LockingClause != nil ||
		n.WithClause != nil || n.Op != pg.SetOperation_SETOP_NONE || len(n.TargetList) == 0
}

func pointColumn(t *pg.ResTarget, table string) (c PointColumn, star bool) {
	ref := t.GetVal().GetColumnRef()
	if ref == nil || len(t.Indirection) > 0 {
		return c, false
	}
	if len(ref.Fields) == 1 && ref.Fields[0].GetAStar() != nil {
		return c, true
	}
	if c.Name = column(t.Val, table); c.Name != "" {
		if c.As = c.Name; t.Name != "" {
			c.As = t.Name
		}
	}
	return c, false
}
