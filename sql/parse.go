// Package sql reads statements: text → parse trees (pg_query, Postgres' own grammar) → facts about a statement that the
// planner decides by. Start with Parse. It never talks to a server and never changes text except through Deparse.
package sql

import (
	"strconv"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v5"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Kind says what a statement is, as far as sessions and lanes care.
type Kind uint8

// The kinds of statements.
const (
	Other      Kind = iota // any other utility: relayed under the guard
	Select                 // SELECT, VALUES, TABLE
	Insert                 // INSERT
	Update                 // UPDATE
	Delete                 // DELETE
	Merge                  // MERGE
	CopyFrom               // COPY … FROM
	CopyTo                 // COPY … TO
	Begin                  // BEGIN, START TRANSACTION
	Commit                 // COMMIT, END
	Rollback               // ROLLBACK, ABORT
	Savepoint              // SAVEPOINT
	Release                // RELEASE SAVEPOINT
	RollbackTo             // ROLLBACK TO SAVEPOINT
	TwoPhase               // PREPARE TRANSACTION, COMMIT PREPARED, ROLLBACK PREPARED
	Set                    // SET, RESET
	Show                   // SHOW
	Explain                // EXPLAIN
	Truncate               // TRUNCATE
	Declare                // DECLARE CURSOR
	Cursor                 // FETCH, MOVE, CLOSE
	Prepare                // PREPARE
	Execute                // EXECUTE
	Deallocate             // DEALLOCATE
	Call                   // CALL, DO, SET CONSTRAINTS: user code may run
	DDL                    // CREATE, ALTER, DROP, COMMENT, GRANT …
	Session                // LISTEN, UNLISTEN, NOTIFY, DISCARD …
	LockTable              // LOCK TABLE
	Alone                  // what Postgres refuses inside a transaction block: VACUUM, CREATE DATABASE …
)

// Name is a possibly qualified name; Schema is empty for a bare one.
type Name struct{ Schema, Name string }

// Statement is one statement of a text.
type Statement struct {
	Text string // its own text, without the semicolon
	At   int    // where it begins in the string it came in, in bytes
	Kind Kind
	Node *pg.Node

	Catalogs  []string      // what stands before the schema in names of three parts
	Relations []Name        // every relation it names; names of its own CTEs too, since a superset is always right
	Reads     []Name        // the same without mere targets of INSERT and COPY FROM: those are not read
	Functions []Name        // every function it calls by name
	Calls     []GatewayCall // the same with their arguments, of the schema sluice
	Types     []Name        // every type it names
	Operators []Name        // every operator it uses
	Targets   []Name        // what it writes to
	Write     bool          // names a relation to write to (INSERT, UPDATE, DELETE, MERGE), also inside a CTE
	Locking   bool          // FOR UPDATE and its like
	Strength  int           // of its strongest locking clause: 1 KEY SHARE, 2 SHARE, 3 NO KEY UPDATE, 4 UPDATE
	NoWait    bool          // … NOWAIT
	Skip      bool          // … SKIP LOCKED
	Params    int           // the highest number of a parameter
	Sampling  bool          // TABLESAMPLE: a blind spot of the guard
	System    bool          // names ctid, xmin, xmax …: they would be the shadow's
	CurrentOf bool          // WHERE CURRENT OF a cursor

	names  int           // how many times it names a relation
	insert *InsertValues // what Insert found, once it has looked
	looked bool
}

// Parse splits text into statements. The error is for the caller to ignore in favour of the one Postgres gives for the same text.
func Parse(text string) ([]*Statement, error) {
	tree, err := pg.Parse(text)
	if err != nil {
		return nil, err
	}
	out := make([]*Statement, 0, len(tree.Stmts))
	for _, raw := range tree.Stmts {
		end := len(text)
		if raw.StmtLen > 0 {
			end = int(raw.StmtLocation + raw.StmtLen)
		}
		s := &Statement{Text: text[raw.StmtLocation:end], At: int(raw.StmtLocation), Node: raw.Stmt, Kind: kindOf(raw.Stmt)}
		s.collect()
		out = append(out, s)
	}
	return out, nil
}

// Deparse prints a tree as SQL text.
func Deparse(n *pg.Node) (string, error) {
	return pg.Deparse(&pg.ParseResult{Stmts: []*pg.RawStmt{{Stmt: n}}})
}

func kindOf(n *pg.Node) Kind {
	switch x := n.Node.(type) {
	case *pg.Node_SelectStmt:
		if x.SelectStmt.IntoClause != nil {
			return DDL
		}
		return Select
	case *pg.Node_InsertStmt:
		return Insert
	case *pg.Node_UpdateStmt:
		return Update
	case *pg.Node_DeleteStmt:
		return Delete
	case *pg.Node_MergeStmt:
		return Merge
	case *pg.Node_CopyStmt:
		if x.CopyStmt.IsFrom {
			return CopyFrom
		}
		return CopyTo
	case *pg.Node_TransactionStmt:
		return transactionKind(x.TransactionStmt.Kind)
	case *pg.Node_VariableSetStmt:
		return Set
	case *pg.Node_VariableShowStmt:
		return Show
	case *pg.Node_ExplainStmt:
		return Explain
	case *pg.Node_TruncateStmt:
		return Truncate
	case *pg.Node_DeclareCursorStmt:
		return Declare
	case *pg.Node_FetchStmt, *pg.Node_ClosePortalStmt:
		return Cursor
	case *pg.Node_PrepareStmt:
		return Prepare
	case *pg.Node_ExecuteStmt:
		return Execute
	case *pg.Node_DeallocateStmt:
		return Deallocate
	case *pg.Node_CallStmt, *pg.Node_DoStmt, *pg.Node_ConstraintsSetStmt:
		return Call
	case *pg.Node_ListenStmt, *pg.Node_UnlistenStmt, *pg.Node_NotifyStmt, *pg.Node_DiscardStmt,
		*pg.Node_CheckPointStmt, *pg.Node_LoadStmt:
		return Session
	case *pg.Node_LockStmt:
		return LockTable
	case *pg.Node_VacuumStmt:
		if !x.VacuumStmt.IsVacuumcmd {
			return DDL
		}
		return Alone
	case *pg.Node_CreatedbStmt, *pg.Node_DropdbStmt, *pg.Node_AlterSystemStmt, *pg.Node_CreateTableSpaceStmt,
		*pg.Node_DropTableSpaceStmt, *pg.Node_ClusterStmt, *pg.Node_ReindexStmt:
		return Alone
	case *pg.Node_IndexStmt:
		if x.IndexStmt.Concurrent {
			return Alone
		}
		return DDL
	}
	return DDL
}

func transactionKind(k pg.TransactionStmtKind) Kind {
	switch k {
	case pg.TransactionStmtKind_TRANS_STMT_BEGIN, pg.TransactionStmtKind_TRANS_STMT_START:
		return Begin
	case pg.TransactionStmtKind_TRANS_STMT_COMMIT:
		return Commit
	case pg.TransactionStmtKind_TRANS_STMT_ROLLBACK:
		return Rollback
	case pg.TransactionStmtKind_TRANS_STMT_SAVEPOINT:
		return Savepoint
	case pg.TransactionStmtKind_TRANS_STMT_RELEASE:
		return Release
	case pg.TransactionStmtKind_TRANS_STMT_ROLLBACK_TO:
		return RollbackTo
	}
	return TwoPhase
}

// collect walks the whole tree once and fills the facts.
func (s *Statement) collect() {
	if s.Kind >= Begin && s.Kind <= Show {
		return
	}
	seen, read := map[Name]bool{}, map[Name]bool{}
	targets := map[*pg.RangeVar]bool{}
	walk(s.Node.ProtoReflect(), func(m any) {
		switch x := m.(type) {
		case *pg.RangeVar:
			n := Name{x.Schemaname, x.Relname}
			s.names++
			if x.Catalogname != "" {
				s.Catalogs = append(s.Catalogs, x.Catalogname)
			}
			if !seen[n] {
				seen[n] = true
				s.Relations = append(s.Relations, n)
			}
			if !read[n] && !targets[x] {
				read[n] = true
				s.Reads = append(s.Reads, n)
			}
		case *pg.DropStmt:
			s.dropped(x)
		case *pg.CopyStmt:
			if targets[x.Relation] = x.IsFrom; x.IsFrom {
				s.writesTo(x.Relation)
			}
		case *pg.TypeName:
			s.Types = append(s.Types, funcName(x.Names))
		case *pg.A_Expr:
			s.Operators = append(s.Operators, funcName(x.Name))
		case *pg.FuncCall:
			n := funcName(x.Funcname)
			if s.Functions = append(s.Functions, n); n.Schema == "sluice" {
				s.Calls = append(s.Calls, callOf(n.Name, x.Args))
			}
		case *pg.InsertStmt:
			s.Write, targets[x.Relation] = true, x.OnConflictClause == nil
			s.writesTo(x.Relation)
		case *pg.UpdateStmt:
			s.Write = true
			s.writesTo(x.Relation)
		case *pg.DeleteStmt:
			s.Write = true
			s.writesTo(x.Relation)
		case *pg.MergeStmt:
			s.Write = true
			s.writesTo(x.Relation)
		case *pg.LockingClause:
			s.Locking = true
			s.Strength = max(s.Strength, int(x.Strength)-1)
			s.NoWait = s.NoWait || x.WaitPolicy == pg.LockWaitPolicy_LockWaitError
			s.Skip = s.Skip || x.WaitPolicy == pg.LockWaitPolicy_LockWaitSkip
		case *pg.ParamRef:
			s.Params = max(s.Params, int(x.Number))
		case *pg.CurrentOfExpr:
			s.CurrentOf = true
		case *pg.RangeTableSample:
			s.Sampling = true
		case *pg.ColumnRef:
			s.System = s.System || isSystemColumn(x)
		}
	})
}

func (s *Statement) writesTo(r *pg.RangeVar) {
	s.Targets = append(s.Targets, Name{r.GetSchemaname(), r.GetRelname()})
}

// GatewayCall is a call of a function whose arguments the gateway has to know before the statement runs.
type GatewayCall struct {
	Name string
	Args []string // texts of the constants, casts left out; nil if one is not constant
	// Param is the number of the parameter that is the only argument; 0: it is none.
	Param int
}

func callOf(name string, args []*pg.Node) GatewayCall {
	c := GatewayCall{Name: name}
	if len(args) == 1 {
		c.Param = parameter(args[0])
	}
	for _, a := range args {
		text, ok := constantText(a)
		if !ok {
			return GatewayCall{Name: name, Param: c.Param}
		}
		c.Args = append(c.Args, text)
	}
	return c
}

// parameter is the number of a parameter under casts, or 0.
func parameter(n *pg.Node) int {
	if n.GetTypeCast() != nil {
		return parameter(n.GetTypeCast().Arg)
	}
	return int(n.GetParamRef().GetNumber())
}

// constantText is the text of a constant under casts.
func constantText(n *pg.Node) (string, bool) {
	switch {
	case n.GetTypeCast() != nil:
		return constantText(n.GetTypeCast().Arg)
	case n.GetAConst() == nil || n.GetAConst().Isnull:
		return "", false
	}
	switch v := n.GetAConst().Val.(type) {
	case *pg.A_Const_Sval:
		return v.Sval.Sval, true
	case *pg.A_Const_Ival:
		return strconv.FormatInt(int64(v.Ival.Ival), 10), true
	case *pg.A_Const_Boolval:
		return strconv.FormatBool(v.Boolval.Boolval), true
	}
	return "", false
}

// dropped notes the relations that a DROP names.
func (s *Statement) dropped(d *pg.DropStmt) {
	switch d.RemoveType {
	case pg.ObjectType_OBJECT_TABLE, pg.ObjectType_OBJECT_VIEW, pg.ObjectType_OBJECT_MATVIEW, pg.ObjectType_OBJECT_TRIGGER, pg.ObjectType_OBJECT_POLICY:
	default:
		return
	}
	for _, o := range d.Objects {
		parts := o.GetList().GetItems()
		if d.RemoveType == pg.ObjectType_OBJECT_TRIGGER || d.RemoveType == pg.ObjectType_OBJECT_POLICY {
			parts = parts[:max(len(parts)-1, 0)]
		}
		if len(parts) > 0 {
			s.Relations = append(s.Relations, funcName(parts))
		}
	}
}

func funcName(parts []*pg.Node) Name {
	var n Name
	for i, p := range parts {
		str := p.GetString_().GetSval()
		if i == len(parts)-1 {
			n.Name = str
		} else {
			n.Schema = str
		}
	}
	return n
}

func isSystemColumn(c *pg.ColumnRef) bool {
	if len(c.Fields) == 0 {
		return false
	}
	switch c.Fields[len(c.Fields)-1].GetString_().GetSval() {
	case "ctid", "xmin", "xmax", "cmin", "cmax":
		return true
	}
	return false
}

// walk calls f with every message of the tree, parents first.
func walk(m protoreflect.Message, f func(any)) {
	f(m.Interface())
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if fd.Kind() != protoreflect.MessageKind {
			return true
		}
		if fd.IsList() {
			for i := range v.List().Len() {
				walk(v.List().Get(i).Message(), f)
			}
			return true
		}
		walk(v.Message(), f)
		return true
	})
}

// QuoteIdent quotes an identifier for SQL text: the one place that does it for names we print.
func QuoteIdent(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }

// String prints the name quoted.
func (n Name) String() string {
	if n.Schema == "" {
		return QuoteIdent(n.Name)
	}
	return QuoteIdent(n.Schema) + "." + QuoteIdent(n.Name)
}
