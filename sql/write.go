package sql

import (
	"strings"

	pg "github.com/pganalyze/pg_query_go/v5"
)

// The forms of UPDATE, DELETE and ON CONFLICT that are simple enough for the fast lane. As with InsertValues, nil means that a statement is
// anything more.

// Assignment is column = expression, of an UPDATE or of ON CONFLICT DO UPDATE.
type Assignment struct {
	Column string
	Value  Expr
}

// Expr is one term, two with + or - between them, or several with ||.
type Expr struct {
	Left, Right Term
	Op          byte   // '+', '-'; '|': Joined; 0: Left alone
	Joined      []Term // from left to right; one of the first two is a column
}

// Terms is the terms of the expression.
func (e *Expr) Terms() []Term {
	switch e.Op {
	case 0:
		return []Term{e.Left}
	case '|':
		return e.Joined
	}
	return []Term{e.Left, e.Right}
}

// Term is a column of the row that is there, a column of the row that was proposed (excluded), or a value.
type Term struct {
	Column   string // "": Value
	Excluded bool
	Value    Value
}

// Conflict is the ON CONFLICT clause of an INSERT.
type Conflict struct {
	Columns    []string     // of the unique constraint, in any order
	Constraint string       // or its name
	Set        []Assignment // nil: DO NOTHING
}

// KeyWrite is UPDATE table SET … WHERE column = value AND …, or the DELETE, with or without RETURNING, and nothing else.
type KeyWrite struct {
	Table     Name
	Where     *Lookup      // all of the condition
	Set       []Assignment // of an UPDATE
	Returning *Returning
}

// KeyWrite is the statement in this simple form, or nil.
func (s *Statement) KeyWrite() *KeyWrite {
	var rv *pg.RangeVar
	var where *pg.Node
	var set, list []*pg.Node
	switch n := s.Node.Node.(type) {
	case *pg.Node_UpdateStmt:
		if len(n.UpdateStmt.FromClause) > 0 || n.UpdateStmt.WithClause != nil {
			return nil
		}
		rv, where, set, list = n.UpdateStmt.Relation, n.UpdateStmt.WhereClause, n.UpdateStmt.TargetList, n.UpdateStmt.ReturningList
	case *pg.Node_DeleteStmt:
		if len(n.DeleteStmt.UsingClause) > 0 || n.DeleteStmt.WithClause != nil {
			return nil
		}
		rv, where, list = n.DeleteStmt.Relation, n.DeleteStmt.WhereClause, n.DeleteStmt.ReturningList
	default:
		return nil
	}
	lookup := whereLookup(rv, where, s)
	if lookup == nil || !rv.Inh || len(lookup.Rows[0]) != len(conjuncts(where)) {
		return nil
	}
	w := &KeyWrite{Table: Name{rv.Schemaname, rv.Relname}, Where: lookup}
	var ok bool
	if w.Returning, ok = returning(list, aliasOf(rv)); !ok {
		return nil
	}
	if set != nil {
		if w.Set = assignments(set, aliasOf(rv)); w.Set == nil {
			return nil
		}
	}
	return w
}

func aliasOf(rv *pg.RangeVar) string {
	if a := rv.GetAlias().GetAliasname(); a != "" {
		return a
	}
	return rv.Relname
}

// conflict reads an ON CONFLICT clause; ok is false if it is anything more than a Conflict.
func conflict(n *pg.InsertStmt) (c *Conflict, ok bool) {
	on := n.OnConflictClause
	if on == nil {
		return nil, true
	}
	if on.Infer.GetWhereClause() != nil || on.WhereClause != nil {
		return nil, false
	}
	c = &Conflict{Constraint: on.Infer.GetConname()}
	for _, e := range on.Infer.GetIndexElems() {
		el := e.GetIndexElem()
		if el.Name == "" || len(el.Collation) > 0 || len(el.Opclass) > 0 {
			return nil, false
		}
		c.Columns = append(c.Columns, el.Name)
	}
	if on.Action == pg.OnConflictAction_ONCONFLICT_UPDATE {
		c.Set = assignments(on.TargetList, aliasOf(n.Relation))
		return c, c.Set != nil
	}
	return c, on.Action == pg.OnConflictAction_ONCONFLICT_NOTHING
}

// Returns reports whether the statement is a write with RETURNING.
func (s *Statement) Returns() bool {
	switch n := s.Node.Node.(type) {
	case *pg.Node_InsertStmt:
		return len(n.InsertStmt.ReturningList) > 0
	case *pg.Node_UpdateStmt:
		return len(n.UpdateStmt.ReturningList) > 0
	case *pg.Node_DeleteStmt:
		return len(n.DeleteStmt.ReturningList) > 0
	}
	return false
}

// assignments reads the targets of a SET; nil if one is anything more than an Assignment.
func assignments(list []*pg.Node, alias string) []Assignment {
	var out []Assignment
	for _, item := range list {
		t := item.GetResTarget()
		e, ok := setExpr(t.GetVal(), alias)
		if !ok || len(t.Indirection) > 0 {
			return nil
		}
		out = append(out, Assignment{t.Name, e})
	}
	return out
}

func setExpr(n *pg.Node, alias string) (Expr, bool) {
	if t, ok := term(n, alias); ok {
		return Expr{Left: t}, true
	}
	e, op := operator(n)
	if op == "||" {
		list, ok := joined(n, alias)
		return Expr{Op: '|', Joined: list}, ok && (list[0].Column != "" || list[1].Column != "")
	}
	if op != "+" && op != "-" {
		return Expr{}, false
	}
	left, ok := term(e.Lexpr, alias)
	right, too := term(e.Rexpr, alias)
	return Expr{Left: left, Op: op[0], Right: right}, ok && too
}

// operator is an expression of two operands and a built-in operator, or nil.
func operator(n *pg.Node) (e *pg.A_Expr, op string) {
	e = n.GetAExpr()
	if e == nil || e.Kind != pg.A_Expr_Kind_AEXPR_OP || e.Lexpr == nil || len(e.Name) != 1 {
		return nil, ""
	}
	return e, e.Name[0].GetString_().GetSval()
}

// joined is the terms of a || b || …
func joined(n *pg.Node, alias string) ([]Term, bool) {
	e, op := operator(n)
	if op != "||" {
		t, ok := term(n, alias)
		return []Term{t}, ok
	}
	list, ok := joined(e.Lexpr, alias)
	right, too := term(e.Rexpr, alias)
	return append(list, right), ok && too
}

func term(n *pg.Node, alias string) (Term, bool) {
	if n.GetColumnRef() == nil {
		v, ok := value(n)
		return Term{Value: v}, ok
	}
	// Postgres knows the proposed row by this name alone; a table that is called so is for the exact lane.
	if name := column(n, "excluded"); name != "" && alias != "excluded" && len(n.GetColumnRef().Fields) == 2 {
		return Term{Column: name, Excluded: true}, true
	}
	name := column(n, alias)
	return Term{Column: name}, name != ""
}

// Array is an array parameter of INSERT … SELECT unnest($1::type[], …), with the type it is cast to, as it was written.
type Array struct {
	Param int
	Type  string // of the elements, lower case: int8, text, timestamptz
}

// unnested reads SELECT * FROM unnest($1::t[], …) and SELECT unnest($1::t[]), …; nil if it is anything more.
func unnested(n *pg.SelectStmt) []Array {
	if n == nil || n.WhereClause != nil || more(n) {
		return nil
	}
	if len(n.FromClause) == 1 && len(n.TargetList) == 1 {
		f := n.FromClause[0].GetRangeFunction()
		star := n.TargetList[0].GetResTarget().GetVal().GetColumnRef()
		if f == nil || f.Lateral || f.Ordinality || f.IsRowsfrom || len(f.Functions) != 1 || len(f.Coldeflist) > 0 ||
			star == nil || len(star.Fields) != 1 || star.Fields[0].GetAStar() == nil {
			return nil
		}
		return arrays(f.Functions[0].GetList().GetItems()[0])
	}
	if len(n.FromClause) > 0 {
		return nil
	}
	var out []Array
	for _, t := range n.TargetList {
		a := arrays(t.GetResTarget().GetVal())
		if len(a) != 1 || len(t.GetResTarget().Indirection) > 0 {
			return nil
		}
		out = append(out, a...)
	}
	return out
}

// arrays is the arguments of a call of unnest.
func arrays(n *pg.Node) []Array {
	f := n.GetFuncCall()
	if f == nil || funcName(f.Funcname).Name != "unnest" || f.AggWithinGroup || f.AggDistinct || f.AggStar || f.AggFilter != nil ||
		f.AggOrder != nil || f.Over != nil || f.FuncVariadic {
		return nil
	}
	var out []Array
	for _, arg := range f.Args {
		c := arg.GetTypeCast()
		p, t := c.GetArg().GetParamRef(), c.GetTypeName()
		if p == nil || len(t.GetArrayBounds()) != 1 || len(t.Typmods) > 0 {
			return nil
		}
		out = append(out, Array{int(p.Number), strings.ToLower(funcName(t.Names).Name)})
	}
	return out
}

// Unnests reports whether the statement is an INSERT … SELECT of nothing but unnested array parameters.
func (s *Statement) Unnests() bool {
	in := s.Insert()
	return in != nil && in.Arrays != nil
}
