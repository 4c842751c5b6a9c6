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
	for _, t := range n.TargetList {
		c, star := pointColumn(t.GetResTarget(), rv.Relname)
		if star && len(n.TargetList) == 1 {
			return p
		}
		if c.Name == "" {
			return nil
		}
		p.Columns = append(p.Columns, c)
	}
	return p
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
