package sql

import (
	"strconv"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v5"
)

// Lookup says that a statement reads its one table only where columns equal known values: whatever row it can touch is among Rows.
// It is a superset, never an answer: Postgres still applies the whole condition.
type Lookup struct {
	Table Name
	Rows  []map[string]Operand // column → value; a row of the table matters only if it agrees with one of these
	// ByPlace says that the keys of Rows are places ("1", "2", …) of the table's columns: an INSERT without a column list.
	ByPlace bool
}

// Operand is a literal or a parameter.
type Operand struct {
	Text  string
	Param int // from 1; 0: Text
	Null  bool
	// Number says that Text was written as a number: no type but a number's has an operator for it.
	Number bool
	// Array says that Param is an array and the column equals any of its elements.
	Array bool
}

// Lookup finds the equalities of a single-table SELECT, UPDATE, DELETE, or of the rows of an INSERT … ON CONFLICT; nil if there are none
// to rely on.
func (s *Statement) Lookup() *Lookup {
	switch n := s.Node.Node.(type) {
	case *pg.Node_SelectStmt:
		sel := n.SelectStmt
		if len(sel.FromClause) != 1 || sel.WithClause != nil || sel.Op != pg.SetOperation_SETOP_NONE {
			return nil
		}
		return whereLookup(sel.FromClause[0].GetRangeVar(), sel.WhereClause, s)
	case *pg.Node_UpdateStmt:
		if len(n.UpdateStmt.FromClause) > 0 || n.UpdateStmt.WithClause != nil {
			return nil
		}
		return whereLookup(n.UpdateStmt.Relation, n.UpdateStmt.WhereClause, s)
	case *pg.Node_DeleteStmt:
		if len(n.DeleteStmt.UsingClause) > 0 || n.DeleteStmt.WithClause != nil {
			return nil
		}
		return whereLookup(n.DeleteStmt.Relation, n.DeleteStmt.WhereClause, s)
	case *pg.Node_InsertStmt:
		if n.InsertStmt.OnConflictClause != nil {
			return valuesLookup(n.InsertStmt, s)
		}
	}
	return nil
}

// InsertedKeys is the values of the rows of an INSERT … VALUES, as Lookup gives those with ON CONFLICT; nil if they are anything more.
func (s *Statement) InsertedKeys() *Lookup {
	if n := s.Node.GetInsertStmt(); n != nil {
		return valuesLookup(n, s)
	}
	return nil
}

// whereLookup reads the top-level conjuncts. The table must be the only relation the statement names, named once.
func whereLookup(rv *pg.RangeVar, where *pg.Node, s *Statement) *Lookup {
	if rv == nil || where == nil || s.names != 1 {
		return nil
	}
	alias := rv.GetAlias().GetAliasname()
	if alias == "" {
		alias = rv.Relname
	}
	rows := []map[string]Operand{{}}
	for _, c := range conjuncts(where) {
		col, ops := equality(c, alias)
		if col == "" || len(ops) == 0 || len(rows)*len(ops) > 100_000 {
			continue
		}
		rows = cross(rows, col, ops)
	}
	if len(rows[0]) == 0 {
		return nil
	}
	return &Lookup{Table: Name{rv.Schemaname, rv.Relname}, Rows: rows}
}

// cross adds one more equality to every row, once for each value it allows.
func cross(rows []map[string]Operand, col string, ops []Operand) []map[string]Operand {
	if _, twice := rows[0][col]; twice { // a = 1 and a = 2: either alone is a superset
		return rows
	}
	out := make([]map[string]Operand, 0, len(rows)*len(ops))
	for _, r := range rows {
		for _, op := range ops {
			m := map[string]Operand{col: op}
			for k, v := range r {
				m[k] = v
			}
			out = append(out, m)
		}
	}
	return out
}

func conjuncts(n *pg.Node) []*pg.Node {
	if b := n.GetBoolExpr(); b != nil && b.Boolop == pg.BoolExprType_AND_EXPR {
		var out []*pg.Node
		for _, a := range b.Args {
			out = append(out, conjuncts(a)...)
		}
		return out
	}
	return []*pg.Node{n}
}

// equality reads column = value, column IN (values) and column = ANY ($n).
func equality(n *pg.Node, alias string) (col string, ops []Operand) {
	e := n.GetAExpr()
	if e == nil || len(e.Name) != 1 || e.Name[0].GetString_().GetSval() != "=" {
		return "", nil
	}
	switch e.Kind {
	case pg.A_Expr_Kind_AEXPR_OP:
		if col = column(e.Lexpr, alias); col != "" {
			return col, operands(e.Rexpr)
		}
		return column(e.Rexpr, alias), operands(e.Lexpr)
	case pg.A_Expr_Kind_AEXPR_IN:
		for _, item := range e.Rexpr.GetList().GetItems() {
			op := operands(item)
			if op == nil {
				return "", nil
			}
			ops = append(ops, op...)
		}
		return column(e.Lexpr, alias), ops
	case pg.A_Expr_Kind_AEXPR_OP_ANY:
		if p := e.Rexpr.GetParamRef(); p != nil {
			return column(e.Lexpr, alias), []Operand{{Param: int(p.Number), Array: true}}
		}
	}
	return "", nil
}

func column(n *pg.Node, alias string) string {
	c := n.GetColumnRef()
	if c == nil || len(c.Fields) == 0 || len(c.Fields) > 2 {
		return ""
	}
	if len(c.Fields) == 2 && c.Fields[0].GetString_().GetSval() != alias {
		return ""
	}
	return c.Fields[len(c.Fields)-1].GetString_().GetSval()
}

// operands is the one value of a literal or parameter, or nil.
func operands(n *pg.Node) []Operand {
	if p := n.GetParamRef(); p != nil {
		return []Operand{{Param: int(p.Number)}}
	}
	if e := n.GetAExpr(); e != nil && e.Lexpr == nil && len(e.Name) == 1 && e.Name[0].GetString_().GetSval() == "-" {
		if op := operands(e.Rexpr); op != nil && op[0].Number && !strings.HasPrefix(op[0].Text, "-") {
			return []Operand{{Text: "-" + op[0].Text, Number: op[0].Number}}
		}
		return nil
	}
	c := n.GetAConst()
	if c == nil {
		return nil
	}
	switch v := c.Val.(type) {
	case *pg.A_Const_Ival:
		return []Operand{{Text: intText(v.Ival.Ival), Number: true}}
	case *pg.A_Const_Fval:
		return []Operand{{Text: v.Fval.Fval, Number: true}}
	case *pg.A_Const_Sval:
		return []Operand{{Text: v.Sval.Sval}}
	}
	if c.Isnull {
		return []Operand{{Null: true}}
	}
	return nil
}

// valuesLookup reads the rows of INSERT … VALUES … ON CONFLICT with a column list: only rows with equal values can conflict. A column
// whose value is an expression, or that is left to its default, is not known.
func valuesLookup(n *pg.InsertStmt, s *Statement) *Lookup {
	lists := n.SelectStmt.GetSelectStmt().GetValuesLists()
	if n.WithClause != nil || len(lists) == 0 || s.names != 1 {
		return nil
	}
	l := &Lookup{Table: Name{n.Relation.Schemaname, n.Relation.Relname}, ByPlace: len(n.Cols) == 0}
	for _, list := range lists {
		row := map[string]Operand{}
		for i, item := range list.GetList().GetItems() {
			name := strconv.Itoa(i + 1)
			if !l.ByPlace {
				t := n.Cols[min(i, len(n.Cols)-1)].GetResTarget()
				if name = t.Name; len(t.Indirection) > 0 || i >= len(n.Cols) {
					continue
				}
			}
			if op := operands(item); op != nil {
				row[name] = op[0]
			}
		}
		l.Rows = append(l.Rows, row)
	}
	return l
}
