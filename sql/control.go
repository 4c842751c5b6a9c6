package sql

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v5"
)

// SavepointName is the name in SAVEPOINT, RELEASE and ROLLBACK TO.
func (s *Statement) SavepointName() string { return s.Node.GetTransactionStmt().GetSavepointName() }

// BeginReadWrite takes READ ONLY out of a BEGIN: the block must stay writable for fills, and the caller keeps the promise itself.
func (s *Statement) BeginReadWrite(text string) (stripped string, readOnly bool) {
	tx := s.Node.GetTransactionStmt()
	if tx == nil {
		return text, false
	}
	kept := tx.Options[:0:0]
	for _, o := range tx.Options {
		d := o.GetDefElem()
		if d.GetDefname() != "transaction_read_only" {
			kept = append(kept, o)
			continue
		}
		readOnly = constInt(d.Arg) != 0
	}
	if len(kept) == len(tx.Options) {
		return text, false
	}
	tree := &pg.TransactionStmt{Kind: tx.Kind, Options: kept}
	out, err := Deparse(&pg.Node{Node: &pg.Node_TransactionStmt{TransactionStmt: tree}})
	if err != nil {
		return text, false
	}
	return out, readOnly
}

// Mode is what a statement says about reading and writing.
type Mode uint8

// The modes.
const (
	NoMode Mode = iota
	ReadOnly
	ReadWrite
)

// TwoPhase is what PREPARE TRANSACTION, COMMIT PREPARED or ROLLBACK PREPARED is about: the verb's first word, and the transaction's name.
func (s *Statement) TwoPhase() (verb, gid string) {
	x := s.Node.GetTransactionStmt()
	switch x.GetKind() {
	case pg.TransactionStmtKind_TRANS_STMT_PREPARE:
		verb = "PREPARE"
	case pg.TransactionStmtKind_TRANS_STMT_COMMIT_PREPARED:
		verb = "COMMIT"
	case pg.TransactionStmtKind_TRANS_STMT_ROLLBACK_PREPARED:
		verb = "ROLLBACK"
	}
	return verb, x.GetGid()
}

// BeginMode is the mode that a BEGIN asks for.
func (s *Statement) BeginMode() Mode { return lastMode(s.Node.GetTransactionStmt().GetOptions()) }

func lastMode(options []*pg.Node) (m Mode) {
	for _, o := range options {
		if d := o.GetDefElem(); d.GetDefname() == "transaction_read_only" {
			if m = ReadWrite; constInt(d.Arg) != 0 {
				m = ReadOnly
			}
		}
	}
	return m
}

// SetMode is the mode that SET TRANSACTION, or SET transaction_read_only, gives the open transaction, and what else the statement does as
// text, "" if that is nothing.
func (s *Statement) SetMode() (m Mode, rest string) {
	n := s.Node.GetVariableSetStmt()
	switch {
	case n.GetKind() == pg.VariableSetKind_VAR_SET_VALUE && n.Name == "transaction_read_only" && len(n.Args) == 1:
		return boolMode(n.Args[0].GetAConst()), ""
	case n.GetKind() != pg.VariableSetKind_VAR_SET_MULTI || n.Name != "TRANSACTION":
		return NoMode, ""
	}
	m = lastMode(n.Args)
	other := slices.DeleteFunc(slices.Clone(n.Args), func(a *pg.Node) bool { return a.GetDefElem().GetDefname() == "transaction_read_only" })
	if m == NoMode || len(other) == 0 {
		return m, ""
	}
	set := &pg.VariableSetStmt{Kind: n.Kind, Name: n.Name, Args: other, IsLocal: n.IsLocal}
	rest, err := Deparse(&pg.Node{Node: &pg.Node_VariableSetStmt{VariableSetStmt: set}})
	if err != nil {
		return NoMode, ""
	}
	return m, rest
}

// boolMode reads a Boolean setting as Postgres does (parse_bool): words may be cut short. What is no Boolean is for Postgres to refuse.
func boolMode(c *pg.A_Const) Mode {
	text := strings.ToLower(c.GetSval().GetSval())
	if i, ok := c.GetVal().(*pg.A_Const_Ival); ok {
		text = strconv.Itoa(int(i.Ival.Ival))
	}
	switch {
	case text == "":
		return NoMode
	case text == "1", text == "on", strings.HasPrefix("true", text), strings.HasPrefix("yes", text):
		return ReadOnly
	case text == "0", text == "of", text == "off", strings.HasPrefix("false", text), strings.HasPrefix("no", text):
		return ReadWrite
	}
	return NoMode
}

// Bare reports whether a BEGIN, COMMIT or ROLLBACK has no options: no modes, no AND CHAIN.
func (s *Statement) Bare() bool {
	tx := s.Node.GetTransactionStmt()
	return tx != nil && len(tx.Options) == 0 && !tx.Chain
}

// BeginTag is the command tag of a BEGIN.
func (s *Statement) BeginTag() string {
	if s.Node.GetTransactionStmt().GetKind() == pg.TransactionStmtKind_TRANS_STMT_START {
		return "START TRANSACTION"
	}
	return "BEGIN"
}

func constInt(n *pg.Node) int32 {
	if c := n.GetAConst(); c != nil {
		return c.GetIval().GetIval()
	}
	return n.GetInteger().GetIval()
}

// Option is one WITH option of a CREATE TABLE.
type Option struct{ Name, Value string }

// LakeOptions takes the options that known names out of a CREATE TABLE (AS); Postgres would refuse them. The text is unchanged if there are
// none.
func (s *Statement) LakeOptions(text string, known map[string]bool) (stripped string, taken []Option, err error) {
	var opts *[]*pg.Node
	switch n := s.Node.GetNode().(type) {
	case *pg.Node_CreateStmt:
		opts = &n.CreateStmt.Options
	case *pg.Node_CreateTableAsStmt:
		opts = &n.CreateTableAsStmt.Into.Options
	default:
		return text, nil, nil
	}
	all := *opts
	kept := all[:0:0]
	for _, o := range all {
		d := o.GetDefElem()
		if d.GetDefnamespace() == "" && known[d.GetDefname()] {
			taken = append(taken, Option{d.GetDefname(), optionText(d.Arg)})
			continue
		}
		kept = append(kept, o)
	}
	if len(taken) == 0 {
		return text, nil, nil
	}
	*opts = kept
	defer func() { *opts = all }()
	stripped, err = Deparse(s.Node)
	return stripped, taken, err
}

func optionText(n *pg.Node) string {
	switch x := n.GetNode().(type) {
	case *pg.Node_String_:
		return x.String_.Sval
	case *pg.Node_Integer:
		return intText(x.Integer.Ival)
	case *pg.Node_Float:
		return x.Float.Fval
	case *pg.Node_TypeName:
		parts := make([]string, len(x.TypeName.Names))
		for i, p := range x.TypeName.Names {
			parts[i] = p.GetString_().GetSval()
		}
		return strings.Join(parts, ".")
	case *pg.Node_Boolean:
		if x.Boolean.Boolval {
			return "true"
		}
		return "false"
	}
	return ""
}

// CopiesStdin reports whether a COPY talks to the client; a file or program on the server is none of a client's business.
func (s *Statement) CopiesStdin() bool {
	c := s.Node.GetCopyStmt()
	return c != nil && c.Filename == "" && !c.IsProgram
}

func intText(i int32) string { return strconv.FormatInt(int64(i), 10) }

// CursorName is the name in DECLARE, FETCH, MOVE and CLOSE.
func (s *Statement) CursorName() string {
	switch n := s.Node.GetNode().(type) {
	case *pg.Node_DeclareCursorStmt:
		return n.DeclareCursorStmt.Portalname
	case *pg.Node_FetchStmt:
		return n.FetchStmt.Portalname
	case *pg.Node_ClosePortalStmt:
		return n.ClosePortalStmt.Portalname
	}
	return ""
}

// Held reports whether DECLARE says WITH HOLD.
func (s *Statement) Held() bool {
	const cursorOptHold = 0x20
	return s.Node.GetDeclareCursorStmt().GetOptions()&cursorOptHold != 0
}

// RestartsIdentity reports whether TRUNCATE says RESTART IDENTITY, and cascades whether it says CASCADE.
func (s *Statement) RestartsIdentity() bool { return s.Node.GetTruncateStmt().GetRestartSeqs() }

// Cascades reports whether TRUNCATE says CASCADE.
func (s *Statement) Cascades() bool {
	return s.Node.GetTruncateStmt().GetBehavior() == pg.DropBehavior_DROP_CASCADE
}

// OnConflict reports whether an INSERT has an ON CONFLICT clause.
func (s *Statement) OnConflict() bool { return s.Node.GetInsertStmt().GetOnConflictClause() != nil }

// DoNothing reports whether the statement is an INSERT with ON CONFLICT DO NOTHING.
func (s *Statement) DoNothing() bool {
	return s.Node.GetInsertStmt().GetOnConflictClause().GetAction() == pg.OnConflictAction_ONCONFLICT_NOTHING
}

// LockMode is the mode of LOCK TABLE, 1 (ACCESS SHARE) to 8 (ACCESS EXCLUSIVE), and whether it says NOWAIT.
func (s *Statement) LockMode() (mode int, nowait bool) {
	l := s.Node.GetLockStmt()
	return int(l.GetMode()), l.GetNowait()
}

// Excludes reports whether a DDL statement takes the strongest lock of the relations it names.
func (s *Statement) Excludes() bool {
	switch s.Node.GetNode().(type) {
	case *pg.Node_AlterTableStmt, *pg.Node_RenameStmt, *pg.Node_DropStmt, *pg.Node_AlterObjectSchemaStmt, *pg.Node_TruncateStmt:
		return true
	case *pg.Node_RefreshMatViewStmt:
		return !s.Node.GetRefreshMatViewStmt().Concurrent
	}
	return false
}

// RefreshesConcurrently reports whether the statement is REFRESH MATERIALIZED VIEW CONCURRENTLY, which lets others read meanwhile.
func (s *Statement) RefreshesConcurrently() bool {
	return s.Node.GetRefreshMatViewStmt().GetConcurrent()
}

// SetsConstraints reports whether the statement is SET CONSTRAINTS.
func (s *Statement) SetsConstraints() bool { return s.Node.GetConstraintsSetStmt() != nil }

// SetsImmediate reports whether the statement is SET CONSTRAINTS … IMMEDIATE, and names the constraints; none: ALL.
func (s *Statement) SetsImmediate() (names []Name, ok bool) {
	c := s.Node.GetConstraintsSetStmt()
	for _, n := range c.GetConstraints() {
		r := n.GetRangeVar()
		names = append(names, Name{r.GetSchemaname(), r.GetRelname()})
	}
	return names, c != nil && !c.Deferred
}

// RenamesEnumValue reports whether the statement is ALTER TYPE … RENAME VALUE.
func (s *Statement) RenamesEnumValue() bool { return s.Node.GetAlterEnumStmt().GetOldVal() != "" }

var blindWords = regexp.MustCompile(`(?i)\b(tablesample|ctid)\b`)

// Blind reports whether the text names what the guard's counters cannot see: TABLESAMPLE and ctid, also inside the bodies of functions and
// the definitions of views.
func (s *Statement) Blind() bool { return blindWords.MatchString(s.Text) }

// ChangesTypes reports whether the statement is ALTER TABLE that changes types of columns, without USING, and nothing else.
func (s *Statement) ChangesTypes() bool {
	cmds := s.Node.GetAlterTableStmt().GetCmds()
	return len(cmds) > 0 && !slices.ContainsFunc(cmds, func(n *pg.Node) bool {
		c := n.GetAlterTableCmd()
		return c.GetSubtype() != pg.AlterTableType_AT_AlterColumnType || c.GetDef().GetColumnDef().GetRawDefault() != nil
	})
}

// ChangesComposite reports whether the statement is ALTER TYPE … of a composite type's attributes.
func (s *Statement) ChangesComposite() bool {
	return s.Node.GetAlterTableStmt().GetObjtype() == pg.ObjectType_OBJECT_TYPE
}

// PlainIndex reports whether the statement is CREATE INDEX without UNIQUE: a hint, whatever the rows are.
func (s *Statement) PlainIndex() bool {
	x := s.Node.GetIndexStmt()
	return x != nil && !x.Unique
}

// Setting is the name of the setting that a SET or RESET is about, in lower case, "all" for RESET ALL; "" for other statements.
func (s *Statement) Setting() string {
	n := s.Node.GetVariableSetStmt()
	if n.GetKind() == pg.VariableSetKind_VAR_RESET_ALL {
		return "all"
	}
	return strings.ToLower(n.GetName())
}

// Sets reports whether the statement calls set_config.
func (s *Statement) Sets() bool {
	return slices.ContainsFunc(s.Functions, func(n Name) bool { return n.Name == "set_config" })
}

// Notifies reports whether the statement is NOTIFY.
func (s *Statement) Notifies() bool { return s.Node.GetNotifyStmt() != nil }

// MakesTemporary reports whether the statement makes a temporary table, sequence or view.
func (s *Statement) MakesTemporary() bool {
	for _, r := range []*pg.RangeVar{s.Node.GetCreateStmt().GetRelation(), s.Node.GetCreateTableAsStmt().GetInto().GetRel(),
		s.Node.GetSelectStmt().GetIntoClause().GetRel(), s.Node.GetCreateSeqStmt().GetSequence(), s.Node.GetViewStmt().GetView()} {
		if r.GetRelpersistence() == "t" || r.GetSchemaname() == "pg_temp" {
			return true
		}
	}
	return false
}
