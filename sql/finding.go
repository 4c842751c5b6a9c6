package sql

import (
	"errors"

	pg "github.com/pganalyze/pg_query_go/v5"
)

// RowName is the column by which a printed query tells a row of a lake table. No column of a user can be called so.
const RowName = "\x00row"

// Finding prints a SELECT of RowName for the rows that the statement's one table must have in place: those that the conjuncts of its
// condition select, as far as they can be printed. It is a superset of the rows that the statement touches. The error is an *UnfitError.
func (s *Statement) Finding(o DuckOptions) (*DuckQuery, error) {
	rv, where := s.condition()
	if rv == nil || where == nil || s.names != 1 || s.System || s.Sampling {
		return nil, &UnfitError{"it has no condition on its one table"}
	}
	var kept []*pg.Node
	var why error = &UnfitError{"it has no condition"}
	for _, c := range conjuncts(where) {
		if _, err := finding(rv, c).DuckDB(o); err != nil {
			why = err
			continue
		}
		kept = append(kept, c)
	}
	if len(kept) == 0 {
		return nil, why
	}
	q, err := finding(rv, &pg.Node{Node: &pg.Node_BoolExpr{BoolExpr: &pg.BoolExpr{Boolop: pg.BoolExprType_AND_EXPR, Args: kept}}}).DuckDB(o)
	if len(kept) == 1 {
		q, err = finding(rv, kept[0]).DuckDB(o)
	}
	if err == nil && len(q.Uses) != 1 {
		err = errors.New("internal error: a search in more than one table")
	}
	return q, err
}

// condition is the one table of a SELECT, UPDATE or DELETE and its WHERE.
func (s *Statement) condition() (*pg.RangeVar, *pg.Node) {
	switch n := s.Node.GetNode().(type) {
	case *pg.Node_SelectStmt:
		if sel := n.SelectStmt; len(sel.FromClause) == 1 && sel.WithClause == nil && sel.Op == pg.SetOperation_SETOP_NONE {
			return sel.FromClause[0].GetRangeVar(), sel.WhereClause
		}
	case *pg.Node_UpdateStmt:
		if len(n.UpdateStmt.FromClause) == 0 && n.UpdateStmt.WithClause == nil {
			return n.UpdateStmt.Relation, n.UpdateStmt.WhereClause
		}
	case *pg.Node_DeleteStmt:
		if len(n.DeleteStmt.UsingClause) == 0 && n.DeleteStmt.WithClause == nil {
			return n.DeleteStmt.Relation, n.DeleteStmt.WhereClause
		}
	}
	return nil, nil
}

// finding is SELECT RowName FROM rv WHERE where.
func finding(rv *pg.RangeVar, where *pg.Node) *Statement {
	ref := &pg.ColumnRef{Fields: []*pg.Node{{Node: &pg.Node_String_{String_: &pg.String{Sval: RowName}}}}}
	target := &pg.ResTarget{Val: &pg.Node{Node: &pg.Node_ColumnRef{ColumnRef: ref}}}
	sel := &pg.SelectStmt{
		TargetList:  []*pg.Node{{Node: &pg.Node_ResTarget{ResTarget: target}}},
		FromClause:  []*pg.Node{{Node: &pg.Node_RangeVar{RangeVar: rv}}},
		WhereClause: where,
		LimitOption: pg.LimitOption_LIMIT_OPTION_DEFAULT,
		Op:          pg.SetOperation_SETOP_NONE,
	}
	return &Statement{Kind: Select, Node: &pg.Node{Node: &pg.Node_SelectStmt{SelectStmt: sel}}}
}

// Refine changes how a query is printed after a reader said what would help: more digits, or more decimals. false: nothing would.
func (o *DuckOptions) Refine(wide bool, decimals int) bool {
	switch {
	case wide && !o.Wide:
		o.Wide = true // 64 bits were not enough
	case decimals > o.Decimals && decimals < 38:
		o.Decimals = decimals
	default:
		return false
	}
	return true
}
