package sql

import (
	"strconv"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v5"
)

// InsertValues is INSERT INTO table [(columns)] VALUES rows of literals, parameters and DEFAULT, or DEFAULT VALUES, or SELECT of unnested arrays, with or
// without ON CONFLICT and RETURNING, and nothing else.
type InsertValues struct {
	Table     Name
	Columns   []string // nil: all, in order
	Rows      [][]Value
	Arrays    []Array // instead of Rows: one for each column, its elements are the rows
	Conflict  *Conflict
	Returning *Returning
}

// ValueKind says what kind of literal a Value is: the types that Postgres gives them decide what they may be assigned to.
type ValueKind uint8

// The kinds.
const (
	Param   ValueKind = iota + 1 // Number
	String                       // 'text': of unknown type, read by the column's input function
	Integer                      // 1
	Numeric                      // 1.5, 1e3
	Bool                         // true, false: t, f
	Null
	Default
)

// Value is one value of an InsertValues.
type Value struct {
	Kind   ValueKind
	Number int // of the parameter, from 1
	Text   string
}

// Insert is the statement in this simple form, or nil if it is anything more.
func (s *Statement) Insert() *InsertValues {
	if !s.looked {
		s.insert, s.looked = s.readInsert(), true
	}
	return s.insert
}

func (s *Statement) readInsert() *InsertValues {
	n := s.Node.GetInsertStmt()
	if n == nil || n.WithClause != nil || n.Override != pg.OverridingKind_OVERRIDING_NOT_SET {
		return nil
	}
	in := &InsertValues{Table: Name{n.Relation.Schemaname, n.Relation.Relname}}
	var ok bool
	if in.Conflict, ok = conflict(n); !ok || in.Conflict == nil && n.Relation.GetAlias() != nil {
		return nil
	}
	if in.Returning, ok = returning(n.ReturningList, aliasOf(n.Relation)); !ok {
		return nil
	}
	for _, c := range n.Cols {
		t := c.GetResTarget()
		if len(t.Indirection) > 0 {
			return nil
		}
		in.Columns = append(in.Columns, t.Name)
	}
	if n.SelectStmt == nil { // DEFAULT VALUES
		in.Columns, in.Rows = []string{}, [][]Value{{}}
		return in
	}
	sel := n.SelectStmt.GetSelectStmt()
	if in.Arrays = unnested(sel); in.Arrays != nil {
		return in
	}
	if len(sel.ValuesLists) == 0 || sel.SortClause != nil || sel.LimitCount != nil || sel.LimitOffset != nil || sel.WithClause != nil ||
		sel.LockingClause != nil {
		return nil
	}
	for _, list := range sel.ValuesLists {
		row, ok := values(list.GetList().GetItems())
		if !ok {
			return nil
		}
		in.Rows = append(in.Rows, row)
	}
	return in
}

func values(items []*pg.Node) ([]Value, bool) {
	row := make([]Value, len(items))
	for i, item := range items {
		v, ok := value(item)
		if !ok {
			return nil, false
		}
		row[i] = v
	}
	return row, true
}

func value(n *pg.Node) (Value, bool) {
	switch x := n.Node.(type) {
	case *pg.Node_ParamRef:
		return Value{Kind: Param, Number: int(x.ParamRef.Number)}, true
	case *pg.Node_SetToDefault:
		return Value{Kind: Default}, true
	case *pg.Node_AConst:
		switch v := x.AConst.Val.(type) {
		case *pg.A_Const_Ival:
			return Value{Kind: Integer, Text: intText(v.Ival.Ival)}, true
		case *pg.A_Const_Fval:
			if _, err := strconv.ParseInt(v.Fval.Fval, 10, 64); err == nil {
				return Value{Kind: Integer, Text: v.Fval.Fval}, true
			}
			return Value{Kind: Numeric, Text: v.Fval.Fval}, true
		case *pg.A_Const_Sval:
			return Value{Kind: String, Text: v.Sval.Sval}, true
		case *pg.A_Const_Boolval:
			if v.Boolval.Boolval {
				return Value{Kind: Bool, Text: "t"}, true
			}
			return Value{Kind: Bool, Text: "f"}, true
		}
		return Value{Kind: Null}, x.AConst.Isnull
	}
	return Value{}, false
}

// Copy is COPY table [(columns)] FROM STDIN or TO STDOUT with its options as written.
type Copy struct {
	Table   Name
	Columns []string
	Options []CopyOption
}

// CopyOption is one option: a value, a list of columns, or all columns (Star).
type CopyOption struct {
	Name   string
	Value  string
	HasArg bool
	List   []string
	Star   bool
}

// Copy is the parts of a COPY FROM STDIN of a table, or nil for any other COPY.
func (s *Statement) Copy() *Copy {
	n := s.Node.GetCopyStmt()
	if n == nil || n.Relation == nil || n.Filename != "" || n.IsProgram || !n.IsFrom || n.WhereClause != nil {
		return nil
	}
	c := &Copy{Table: Name{n.Relation.Schemaname, n.Relation.Relname}}
	for _, a := range n.Attlist {
		c.Columns = append(c.Columns, a.GetString_().GetSval())
	}
	for _, o := range n.Options {
		c.Options = append(c.Options, copyOption(o.GetDefElem()))
	}
	return c
}

func copyOption(d *pg.DefElem) CopyOption {
	o := CopyOption{Name: strings.ToLower(d.Defname), HasArg: d.Arg != nil}
	switch x := d.Arg.GetNode().(type) {
	case *pg.Node_List:
		for _, item := range x.List.Items {
			o.List = append(o.List, item.GetString_().GetSval())
		}
	case *pg.Node_AStar:
		o.Star = true
	default:
		o.Value = optionText(d.Arg)
	}
	return o
}

// CopyTable is the parts of a COPY table TO STDOUT, or nil for any other COPY.
func (s *Statement) CopyTable() *Copy {
	n := s.Node.GetCopyStmt()
	if n == nil || n.Relation == nil || n.Filename != "" || n.IsProgram || n.IsFrom {
		return nil
	}
	c := &Copy{Table: Name{n.Relation.Schemaname, n.Relation.Relname}, Options: s.CopyOptions()}
	for _, a := range n.Attlist {
		c.Columns = append(c.Columns, a.GetString_().GetSval())
	}
	return c
}

// CopyOptions is the options of a COPY.
func (s *Statement) CopyOptions() (out []CopyOption) {
	for _, o := range s.Node.GetCopyStmt().GetOptions() {
		out = append(out, copyOption(o.GetDefElem()))
	}
	return out
}

// CopyQuery is the SELECT of a COPY (query) TO STDOUT, as a statement of its own, or nil.
func (s *Statement) CopyQuery() *Statement {
	n := s.Node.GetCopyStmt()
	if n == nil || n.Query.GetSelectStmt() == nil || n.Filename != "" || n.IsProgram {
		return nil
	}
	return alone(n.Query)
}
