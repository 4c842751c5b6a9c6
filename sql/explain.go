package sql

import pg "github.com/pganalyze/pg_query_go/v5"

// Explained is the statement that an EXPLAIN in text format is about; nil for everything else.
func (s *Statement) Explained() *Statement {
	x := s.Node.GetExplainStmt()
	if x == nil || !textFormat(x) {
		return nil
	}
	return alone(x.Query)
}

// Analyzes reports whether an EXPLAIN runs its statement. EXECUTE and options that only Postgres understands count as if.
func (s *Statement) Analyzes() bool {
	for _, o := range s.Node.GetExplainStmt().GetOptions() {
		if d := o.GetDefElem(); d.GetDefname() == "analyze" && d.GetArg().GetString_().GetSval() != "false" && d.GetArg().GetString_().GetSval() != "off" {
			return true
		}
	}
	return false
}

// alone is a statement inside another one as a statement of its own, or nil if it cannot be printed.
func alone(n *pg.Node) *Statement {
	text, err := Deparse(n)
	if err != nil {
		return nil
	}
	stmts, err := Parse(text)
	if err != nil || len(stmts) != 1 {
		return nil
	}
	return stmts[0]
}

func textFormat(x *pg.ExplainStmt) bool {
	for _, o := range x.Options {
		if d := o.GetDefElem(); d.GetDefname() == "format" && d.GetArg().GetString_().GetSval() != "text" {
			return false
		}
	}
	return true
}
