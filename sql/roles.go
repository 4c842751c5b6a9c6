package sql

import (
	"strings"

	pg "github.com/pganalyze/pg_query_go/v5"
)

// RoleVerb says what a statement does to roles.
type RoleVerb uint8

// The verbs.
const (
	CreateRole RoleVerb = iota + 1
	AlterRole           // attributes
	AlterGroup          // ADD USER, DROP USER: Revoke
	RenameRole          // to NewName
	SetRole             // ALTER ROLE … SET, RESET
	DropRole
	CommentRole
	GrantRole // Revoke: REVOKE
	DropOwned
	ReassignOwned
)

// RoleName is a role as a statement names it: by name, or as who is at work.
type RoleName struct {
	Name    string
	Current bool // CURRENT_USER, CURRENT_ROLE
	Session bool // SESSION_USER
}

// RoleFlag is an attribute that is on or off, in Postgres' word for on.
type RoleFlag struct {
	Word string // SUPERUSER, CREATEROLE, CREATEDB, REPLICATION, BYPASSRLS, INHERIT, LOGIN
	On   bool
}

// RoleStatement is what a statement about roles says, taken apart: it can be printed anew without a byte of the text it came in.
type RoleStatement struct {
	Verb  RoleVerb
	Roles []RoleName // that it is about; nil: ALTER ROLE ALL

	Flags         []RoleFlag
	Password      *string
	ClearPassword bool // PASSWORD NULL
	ValidUntil    *string
	Limit         *int32     // CONNECTION LIMIT
	In            []RoleName // IN ROLE
	Members       []RoleName // ROLE, ADD USER, DROP USER; of GRANT and REVOKE: to whom
	Admins        []RoleName // ADMIN

	Revoke      bool
	AdminOption bool // WITH ADMIN OPTION, ADMIN OPTION FOR
	Grantor     *RoleName
	Cascade     bool
	IfExists    bool
	NewName     string
	Comment     string // "" takes it away

	Database string   // IN DATABASE
	Setting  string   // of SET and RESET; "": RESET ALL
	Values   []string // of SET
	Reset    bool     // RESET, SET … TO DEFAULT

	// Unknown is the part that cannot be printed, or "".
	Unknown string
}

// Role takes a statement about roles apart; nil for every other statement.
func (s *Statement) Role() *RoleStatement {
	switch n := s.Node.GetNode().(type) {
	case *pg.Node_CreateRoleStmt:
		return createRole(n.CreateRoleStmt)
	case *pg.Node_AlterRoleStmt:
		return alterRole(n.AlterRoleStmt)
	case *pg.Node_AlterRoleSetStmt:
		return setRole(n.AlterRoleSetStmt)
	case *pg.Node_DropRoleStmt:
		return &RoleStatement{Verb: DropRole, Roles: roleNames(n.DropRoleStmt.Roles), IfExists: n.DropRoleStmt.MissingOk}
	case *pg.Node_GrantRoleStmt:
		return grantRole(n.GrantRoleStmt)
	case *pg.Node_RenameStmt:
		if n.RenameStmt.RenameType == pg.ObjectType_OBJECT_ROLE {
			return &RoleStatement{Verb: RenameRole, Roles: []RoleName{{Name: n.RenameStmt.Subname}}, NewName: n.RenameStmt.Newname}
		}
	case *pg.Node_CommentStmt:
		if n.CommentStmt.Objtype == pg.ObjectType_OBJECT_ROLE {
			return &RoleStatement{Verb: CommentRole, Roles: []RoleName{{Name: n.CommentStmt.Object.GetString_().GetSval()}}, Comment: n.CommentStmt.Comment}
		}
	case *pg.Node_DropOwnedStmt:
		return &RoleStatement{Verb: DropOwned, Roles: roleNames(n.DropOwnedStmt.Roles)}
	case *pg.Node_ReassignOwnedStmt:
		return &RoleStatement{Verb: ReassignOwned, Roles: roleNames(n.ReassignOwnedStmt.Roles)}
	}
	return nil
}

func roleName(r *pg.RoleSpec) RoleName {
	switch r.GetRoletype() {
	case pg.RoleSpecType_ROLESPEC_CURRENT_ROLE, pg.RoleSpecType_ROLESPEC_CURRENT_USER:
		return RoleName{Current: true}
	case pg.RoleSpecType_ROLESPEC_SESSION_USER:
		return RoleName{Session: true}
	case pg.RoleSpecType_ROLESPEC_PUBLIC:
		return RoleName{Name: "public"} // no role has this name
	}
	return RoleName{Name: r.GetRolename()}
}

func roleNames(list []*pg.Node) []RoleName {
	var out []RoleName
	for _, n := range list {
		out = append(out, roleName(n.GetRoleSpec()))
	}
	return out
}

func createRole(n *pg.CreateRoleStmt) *RoleStatement {
	r := &RoleStatement{Verb: CreateRole, Roles: []RoleName{{Name: n.Role}}}
	if n.StmtType == pg.RoleStmtType_ROLESTMT_USER {
		r.Flags = []RoleFlag{{"LOGIN", true}}
	}
	r.options(n.Options)
	return r
}

// alterRole reads ALTER ROLE, and ALTER GROUP … ADD and DROP USER, which has the same node.
func alterRole(n *pg.AlterRoleStmt) *RoleStatement {
	r := &RoleStatement{Verb: AlterRole, Roles: []RoleName{roleName(n.Role)}, Revoke: n.Action < 0}
	r.options(n.Options)
	if len(r.Members) > 0 {
		r.Verb = AlterGroup
	}
	return r
}

var roleFlags = map[string]string{"superuser": "SUPERUSER", "createrole": "CREATEROLE", "createdb": "CREATEDB", "isreplication": "REPLICATION",
	"bypassrls": "BYPASSRLS", "inherit": "INHERIT", "canlogin": "LOGIN"}

func (r *RoleStatement) options(list []*pg.Node) {
	for _, n := range list {
		d := n.GetDefElem()
		switch word := d.GetDefname(); word {
		case "password":
			if d.Arg == nil {
				r.Password, r.ClearPassword = nil, true
				continue
			}
			text := d.Arg.GetString_().GetSval()
			r.Password, r.ClearPassword = &text, false
		case "validUntil":
			text := d.Arg.GetString_().GetSval()
			r.ValidUntil = &text
		case "connectionlimit":
			limit := constInt(d.Arg)
			r.Limit = &limit
		case "addroleto":
			r.In = append(r.In, roleNames(d.Arg.GetList().GetItems())...)
		case "rolemembers":
			r.Members = append(r.Members, roleNames(d.Arg.GetList().GetItems())...)
		case "adminmembers":
			r.Admins = append(r.Admins, roleNames(d.Arg.GetList().GetItems())...)
		case "sysid": // long without meaning
		default:
			r.flag(word, d.Arg)
		}
	}
}

// flag notes an attribute; the later of two wins, which Postgres would refuse, but for the LOGIN of CREATE USER.
func (r *RoleStatement) flag(word string, arg *pg.Node) {
	w, ok := roleFlags[word]
	if !ok {
		r.Unknown = strings.ToUpper(word)
		return
	}
	f := RoleFlag{w, arg.GetBoolean().GetBoolval()}
	for i := range r.Flags {
		if r.Flags[i].Word == w {
			r.Flags[i] = f
			return
		}
	}
	r.Flags = append(r.Flags, f)
}

func grantRole(n *pg.GrantRoleStmt) *RoleStatement {
	r := &RoleStatement{Verb: GrantRole, Members: roleNames(n.GranteeRoles), Revoke: !n.IsGrant, Cascade: n.Behavior == pg.DropBehavior_DROP_CASCADE}
	for _, g := range n.GrantedRoles {
		p := g.GetAccessPriv()
		if len(p.GetCols()) > 0 {
			r.Unknown = "column names"
		}
		r.Roles = append(r.Roles, RoleName{Name: p.GetPrivName()})
	}
	for _, o := range n.Opt {
		d := o.GetDefElem()
		if d.GetDefname() != "admin" {
			r.Unknown = strings.ToUpper(d.GetDefname()) + " OPTION"
		}
		r.AdminOption = r.Revoke || d.GetArg() == nil || d.GetArg().GetBoolean().GetBoolval() // REVOKE … OPTION FOR says false
	}
	if n.Grantor != nil {
		g := roleName(n.Grantor)
		r.Grantor = &g
	}
	return r
}

func setRole(n *pg.AlterRoleSetStmt) *RoleStatement {
	r := &RoleStatement{Verb: SetRole, Database: n.Database, Setting: n.Setstmt.GetName()}
	if n.Role != nil {
		r.Roles = []RoleName{roleName(n.Role)}
	}
	switch n.Setstmt.GetKind() {
	case pg.VariableSetKind_VAR_SET_VALUE:
		for _, a := range n.Setstmt.Args {
			v, ok := settingValue(a)
			if !ok {
				r.Unknown = "this value of SET"
			}
			r.Values = append(r.Values, v)
		}
	case pg.VariableSetKind_VAR_SET_DEFAULT, pg.VariableSetKind_VAR_RESET, pg.VariableSetKind_VAR_RESET_ALL:
		r.Reset = true
	default:
		r.Unknown = "this form of SET"
	}
	return r
}

// settingValue is a value of SET as text; Postgres reads numbers from strings too.
func settingValue(n *pg.Node) (string, bool) {
	ops := operands(n)
	if len(ops) != 1 || ops[0].Null || ops[0].Param != 0 {
		return "", false
	}
	return ops[0].Text, true
}

// Extension is the extension that CREATE EXTENSION names, or "".
func (s *Statement) Extension() string { return s.Node.GetCreateExtensionStmt().GetExtname() }

// Databases reports whether the statement creates or drops a database.
func (s *Statement) Databases() bool {
	return s.Node.GetCreatedbStmt() != nil || s.Node.GetDropdbStmt() != nil
}
