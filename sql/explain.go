package sql

import pg "github.com/pganalyze/pg_query_go/v5"

// Explained is the statement that an EXPLAIN in text format is about; nil for everything else.
func (s *Statement) Explained() *Statement {
	x := s.Node.GetExplainStmt()
	if x == nil || !textFormat(x) {
		return nil
	}
	text, err := Deparse(x.Query)
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
