package catalogpg

import (
	"encoding/binary"
	"strconv"
	"strings"

	"sluice/sql"
)

// RoleCall runs a statement about roles with the rights of sluice_roles, in the user's own transaction. The fill functions of the roles in
// forget go before it. statement comes from RoleText; it may be empty. Errors carry the statement in their context: leave that out.
func (b *Backend) RoleCall(statement string, forget []string) Call {
	return Call{`select sluice.role_do($1, $2, $3)`, []uint32{oidBytea, oidText, oidTexts},
		[][]byte{b.Key, []byte(statement), array(oidText, len(forget), func(dst []byte, i int) []byte {
			return append(binary.BigEndian.AppendUint32(dst, uint32(len(forget[i]))), forget[i]...)
		})}}
}

// RoleText prints a statement about roles from its parts. Its names must be resolved (no CURRENT_USER), and Password a verifier. It prints
// neither attributes that are switched off and that our roles never have, nor DROP OWNED and REASSIGN OWNED, which need no more rights than
// the user has.
func RoleText(r *sql.RoleStatement) string {
	switch r.Verb {
	case sql.CreateRole:
		return "CREATE ROLE " + names(r.Roles) + attributes(r)
	case sql.AlterRole:
		return "ALTER ROLE " + names(r.Roles) + attributes(r)
	case sql.AlterGroup:
		return "ALTER GROUP " + names(r.Roles) + pick(r.Revoke, " DROP USER ", " ADD USER ") + names(r.Members)
	case sql.RenameRole:
		return "ALTER ROLE " + names(r.Roles) + " RENAME TO " + QuoteIdent(r.NewName)
	case sql.SetRole:
		return "ALTER ROLE " + names(r.Roles) + roleSetting(r)
	case sql.DropRole:
		return "DROP ROLE " + pick(r.IfExists, "IF EXISTS ", "") + names(r.Roles)
	case sql.CommentRole:
		return "COMMENT ON ROLE " + names(r.Roles) + " IS " + pick(r.Comment == "", "NULL", QuoteLiteral(r.Comment))
	case sql.GrantRole:
		return membership(r)
	}
	return ""
}

func names(list []sql.RoleName) string {
	quoted := make([]string, len(list))
	for i, n := range list {
		quoted[i] = QuoteIdent(n.Name)
	}
	return strings.Join(quoted, ", ")
}

func pick(yes bool, a, b string) string {
	if yes {
		return a
	}
	return b
}

// offable are the attributes that can be switched off: the others are never on.
var offable = map[string]bool{"LOGIN": true, "INHERIT": true}

func attributes(r *sql.RoleStatement) string {
	var b strings.Builder
	for _, f := range r.Flags {
		if f.On || offable[f.Word] {
			b.WriteString(" " + pick(f.On, "", "NO") + f.Word)
		}
	}
	switch {
	case r.Password != nil:
		b.WriteString(" PASSWORD " + QuoteLiteral(*r.Password))
	case r.ClearPassword:
		b.WriteString(" PASSWORD NULL")
	}
	if r.ValidUntil != nil {
		b.WriteString(" VALID UNTIL " + QuoteLiteral(*r.ValidUntil))
	}
	if r.Limit != nil {
		b.WriteString(" CONNECTION LIMIT " + strconv.Itoa(int(*r.Limit)))
	}
	for _, list := range []struct {
		word  string
		roles []sql.RoleName
	}{{" IN ROLE ", r.In}, {" ROLE ", r.Members}, {" ADMIN ", r.Admins}} {
		if len(list.roles) > 0 {
			b.WriteString(list.word + names(list.roles))
		}
	}
	return b.String()
}

func roleSetting(r *sql.RoleStatement) string {
	text := ""
	if r.Database != "" {
		text = " IN DATABASE " + QuoteIdent(r.Database)
	}
	if r.Reset {
		return text + " RESET " + pick(r.Setting == "", "ALL", parameter(r.Setting))
	}
	values := make([]string, len(r.Values))
	for i, v := range r.Values {
		values[i] = QuoteLiteral(v)
	}
	return text + " SET " + parameter(r.Setting) + " TO " + strings.Join(values, ", ")
}

// parameter quotes a setting's name, whose dots are not part of a word.
func parameter(name string) string {
	parts := strings.Split(name, ".")
	for i, p := range parts {
		parts[i] = QuoteIdent(p)
	}
	return strings.Join(parts, ".")
}

func membership(r *sql.RoleStatement) string {
	if r.Revoke {
		return "REVOKE " + pick(r.AdminOption, "ADMIN OPTION FOR ", "") + names(r.Roles) + " FROM " + names(r.Members) + pick(r.Cascade, " CASCADE", "")
	}
	return "GRANT " + names(r.Roles) + " TO " + names(r.Members) + pick(r.AdminOption, " WITH ADMIN OPTION", "")
}
