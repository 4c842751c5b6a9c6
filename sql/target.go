package sql

import pg "github.com/pganalyze/pg_query_go/v5"

// Target is the table that an INSERT, MERGE or COPY FROM brings rows for, and how.
type Target struct {
	Table    Name
	Columns  []string // nil: none are named
	Values   int      // without names: how many columns come, from the first one on; -1: the parser cannot tell
	Copy     bool
	Merge    bool
	Decides  bool // the statement itself says what becomes of a key that exists: ON CONFLICT, MERGE
	Compound bool // queries in WITH write, too
}

// Target is nil for all other statements.
func (s *Statement) Target() *Target {
	switch n := s.Node.GetNode().(type) {
	case *pg.Node_InsertStmt:
		return insertTarget(n.InsertStmt)
	case *pg.Node_MergeStmt:
		rv := n.MergeStmt.Relation
		return &Target{Table: Name{rv.Schemaname, rv.Relname}, Decides: true, Merge: true}
	case *pg.Node_CopyStmt:
		if rv := n.CopyStmt.Relation; rv != nil && n.CopyStmt.IsFrom {
			t := &Target{Table: Name{rv.Schemaname, rv.Relname}, Copy: true, Values: allColumns}
			for _, a := range n.CopyStmt.Attlist {
				t.Columns = append(t.Columns, a.GetString_().GetSval())
			}
			return t
		}
	}
	return nil
}

// allColumns is more than a table has.
const allColumns = 1 << 16

func insertTarget(n *pg.InsertStmt) *Target {
	t := &Target{Table: Name{n.Relation.Schemaname, n.Relation.Relname}, Decides: n.OnConflictClause != nil, Values: valueCount(n.SelectStmt.GetSelectStmt())}
	for _, c := range n.Cols {
		t.Columns = append(t.Columns, c.GetResTarget().Name)
	}
	for _, c := range n.WithClause.GetCtes() {
		t.Compound = t.Compound || c.GetCommonTableExpr().GetCtequery().GetSelectStmt() == nil
	}
	return t
}

// valueCount is how many columns a query has; 0 for DEFAULT VALUES, -1 if a star is among them.
func valueCount(sel *pg.SelectStmt) int {
	switch {
	case sel == nil:
		return 0
	case sel.Larg != nil:
		return valueCount(sel.Larg)
	case len(sel.ValuesLists) > 0:
		return len(sel.ValuesLists[0].GetList().GetItems())
	}
	for _, t := range sel.TargetList {
		fields := t.GetResTarget().GetVal().GetColumnRef().GetFields()
		if t.GetResTarget().GetVal().GetAIndirection() != nil || len(fields) > 0 && fields[len(fields)-1].GetAStar() != nil {
			return -1
		}
	}
	return len(sel.TargetList)
}

// Executes is the name of the prepared statement that an EXECUTE runs, "" for all others.
func (s *Statement) Executes() string { return s.Node.GetExecuteStmt().GetName() }

// ExecuteOf is EXECUTE of a prepared statement whose text is not known.
func ExecuteOf(name string) *Statement {
	return &Statement{Kind: Execute, Node: &pg.Node{Node: &pg.Node_ExecuteStmt{ExecuteStmt: &pg.ExecuteStmt{Name: name}}}}
}

// Run is the statement that a PREPARE or EXPLAIN is about, in any format; s itself if it is neither, nil if it cannot be printed.
func (s *Statement) Run() *Statement {
	if p := s.Node.GetPrepareStmt(); p != nil {
		return alone(p.Query)
	}
	if x := s.Node.GetExplainStmt(); x != nil {
		return alone(x.Query)
	}
	return s
}

// InsertsWithin reports whether a query in WITH is an INSERT.
func (s *Statement) InsertsWithin() (found bool) {
	walk(s.Node.ProtoReflect(), func(m any) {
		if c, ok := m.(*pg.CommonTableExpr); ok {
			found = found || c.Ctequery.GetInsertStmt() != nil
		}
	})
	return found
}
