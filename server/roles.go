package server

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"sluice/catalogpg"
	"sluice/server/auth"
	"sluice/server/wire"
	"sluice/sql"
)

// Statements about roles (DESIGN section 10, docs/design). Users' roles have no CREATEROLE. When the role at work owns the database, its
// CREATE ROLE and the like are taken apart, checked, printed anew and run in the same transaction by a function whose owner has CREATEROLE
// and nothing else; so they roll back, take part in savepoints, and fail in Postgres' own words. Everybody else's go to his own backend,
// where Postgres refuses them. No byte of the user's text, and no password, reaches the function.

// roleRun is the runner of a statement about roles, and of EXPLAIN; run is that of all others.
func (s *session) roleRun(ctx context.Context, st *sql.Statement, run runner) runner {
	if st.Kind == sql.Explain {
		return s.explainRun(ctx, st, run)
	}
	r := st.Role()
	if r == nil {
		return run
	}
	return func(text string) (*spool, error) {
		w, err := s.atWork(ctx)
		if err != nil {
			return nil, err
		}
		if r.Verb == sql.DropOwned || r.Verb == sql.ReassignOwned {
			return s.ownedRun(r, w, text, run)
		}
		if w.current != w.owner && !ownPassword(r, w) {
			if r.Password != nil { // not even to his own backend
				return nil, denied(r)
			}
			return run(text)
		}
		out := &spool{}
		return out.done(s.changeRole(st.Role(), w, out)) // taken apart anew: names are resolved in it
	}
}

// atWork is the roles that decide what a statement may do.
type atWork struct{ current, session, owner string }

func (s *session) atWork(ctx context.Context) (w atWork, err error) {
	rows, err := s.be.exec(ctx, `SELECT current_user, session_user, pg_catalog.pg_get_userbyid(datdba) FROM pg_catalog.pg_database
		WHERE datname OPERATOR(pg_catalog.=) pg_catalog.current_database()`)
	if err != nil {
		return w, err
	}
	return atWork{string(rows[0][0]), string(rows[0][1]), string(rows[0][2])}, nil
}

func (w atWork) name(n sql.RoleName) string {
	switch {
	case n.Current:
		return w.current
	case n.Session:
		return w.session
	}
	return n.Name
}

func (w atWork) resolve(list []sql.RoleName) {
	for i := range list {
		list[i] = sql.RoleName{Name: w.name(list[i])}
	}
}

// ownPassword reports whether the statement only changes the password of the role at work, which everybody may.
func ownPassword(r *sql.RoleStatement, w atWork) bool {
	return r.Verb == sql.AlterRole && w.name(r.Roles[0]) == w.current && (r.Password != nil || r.ClearPassword) && len(r.Flags) == 0 &&
		r.ValidUntil == nil && r.Limit == nil && r.Unknown == ""
}

func denied(r *sql.RoleStatement) error {
	if r.Verb == sql.CreateRole {
		return wire.Errorf(wire.CodeInsufficientPrivilege, "permission denied to create role")
	}
	return wire.Errorf(wire.CodeInsufficientPrivilege, "permission denied")
}

// changeRole checks, prints and runs the statement.
func (s *session) changeRole(r *sql.RoleStatement, w atWork, out *spool) error {
	for _, list := range [][]sql.RoleName{r.Roles, r.In, r.Members, r.Admins} {
		w.resolve(list)
	}
	if err := checkRole(r, w); err != nil {
		return err
	}
	if r.Password != nil && *r.Password != "" {
		verifier, err := auth.NewVerifier(*r.Password)
		if err != nil {
			return unsupported("this password cannot be stored").WithHint("Use another password: SCRAM has no form of this one.")
		}
		r.Password = &verifier
	}
	var forget []string
	if r.Verb == sql.DropRole {
		forget = roleNames(r.Roles)
	}
	if err := s.be.callTo(s.pg.Load().RoleCall(catalogpg.RoleText(r), forget), out); err != nil {
		return err
	}
	out.frames = append(out.frames, wire.AppendCommandComplete(nil, roleTag(r)))
	return nil
}

func roleNames(list []sql.RoleName) []string {
	out := make([]string, len(list))
	for i, n := range list {
		out[i] = n.Name
	}
	return out
}

func roleTag(r *sql.RoleStatement) string {
	switch r.Verb {
	case sql.CreateRole:
		return "CREATE ROLE"
	case sql.DropRole:
		return "DROP ROLE"
	case sql.CommentRole:
		return "COMMENT"
	case sql.GrantRole:
		if r.Revoke {
			return "REVOKE ROLE"
		}
		return "GRANT ROLE"
	}
	return "ALTER ROLE"
}

// checkRole refuses what sluice_roles could do and the owner of a database must not.
func checkRole(r *sql.RoleStatement, w atWork) error {
	switch {
	case r.Unknown != "":
		return unsupported("%s is not supported in statements about roles", r.Unknown).WithHint("Leave it out.")
	case r.Grantor != nil && w.name(*r.Grantor) != w.current:
		return wire.Errorf(wire.CodeInsufficientPrivilege, "must be superuser to set grantor")
	case r.Verb == sql.SetRole && r.Roles == nil:
		return wire.Errorf(wire.CodeInsufficientPrivilege, "must be superuser to alter settings globally")
	}
	if err := checkReserved(r); err != nil {
		return err
	}
	for _, f := range r.Flags {
		if f.On && (f.Word == "CREATEROLE" || f.Word == "CREATEDB") {
			return denied(r).(*wire.Error).WithDetail("Roles of the lake cannot have the attribute %s.", f.Word)
		}
		if !f.On && f.Word == "LOGIN" && r.Verb == sql.AlterRole && r.Roles[0].Name == w.owner {
			return unsupported("the owner of the database cannot lose LOGIN").WithHint("Make another role for what must not log in.")
		}
	}
	if r.Limit != nil && r.Verb == sql.AlterRole && r.Roles[0].Name == w.owner {
		return unsupported("CONNECTION LIMIT is not supported for the owner of the database").WithHint("Limit other roles, or all clients with --max-clients.")
	}
	return nil
}

// reserved reports whether a role is Postgres' or ours.
func reserved(name string) bool {
	return strings.HasPrefix(name, "pg_") || strings.HasPrefix(name, "sluice")
}

func checkReserved(r *sql.RoleStatement) error {
	given := r.In
	if r.Verb == sql.GrantRole {
		given = r.Roles
	}
	for _, n := range given {
		if reserved(n.Name) {
			return wire.Errorf(wire.CodeInsufficientPrivilege, "must have admin option on role \"%s\"", n.Name)
		}
	}
	made := []string{r.NewName}
	for _, list := range [][]sql.RoleName{r.Roles, r.Members, r.Admins} {
		made = append(made, roleNames(list)...)
	}
	for _, n := range made {
		if reserved(n) {
			return wire.Errorf(wire.CodeReservedName, "role name \"%s\" is reserved", n).
				WithDetail("Role names starting with \"pg_\" or \"sluice\" are reserved.")
		}
	}
	return nil
}

// ownedRun runs DROP OWNED and REASSIGN OWNED with the user's own rights. The fill functions of the roles are theirs too, but not the
// user's to give away: they go before, and come back when a table needs them.
func (s *session) ownedRun(r *sql.RoleStatement, w atWork, text string, run runner) (*spool, error) {
	w.resolve(r.Roles)
	if _, err := s.be.call(s.pg.Load().RoleCall("", roleNames(r.Roles))); err != nil {
		return nil, err
	}
	return run(text)
}

// ownerMade makes the functions through which the tables of a role are filled, if err says that they are missing: the role has come to own
// lake tables by ALTER … OWNER TO, REASSIGN OWNED or a DROP OWNED that was rolled back.
func (s *session) ownerMade(ctx context.Context, err error) bool {
	var e *wire.Error
	if !errors.As(err, &e) {
		return false
	}
	role, ok := catalogpg.MissingOwner(e.Code, e.Detail)
	if !ok {
		return false
	}
	merr := s.srv.Catalog.EnsureOwner(ctx, role)
	if merr != nil {
		s.srv.Log.Warn("make fill functions", "owner", e.Detail, "error", merr)
	}
	return merr == nil
}

// callTo runs a privileged statement; its notices go to out. Neither they nor errors keep their context, which holds the statement.
func (l *link) callTo(c catalogpg.Call, out *spool) error {
	const name = "_sluice_role"
	notices := pass(func(typ byte, frame []byte) {
		if typ != 'N' {
			return
		}
		if e, err := wire.DecodeError(frame[5:]); err == nil {
			out.frames = append(out.frames, wire.AppendNoticeResponse(nil, bare(e)))
		}
	})
	if err := l.ready(); err != nil {
		return err
	}
	l.be.CloseNamed(nil, 'P', name)
	l.be.CloseNamed(nil, 'S', name)
	parse := l.be.Parse(notices, name, c.SQL, c.Types)
	bind := l.be.Bind(notices, name, name, []int16{1}, c.Params, nil)
	exec := l.be.Execute(notices, name, 0)
	l.be.CloseNamed(nil, 'P', name)
	l.be.CloseNamed(nil, 'S', name)
	l.unsynced = false
	if err := l.finish(l.be.Sync(notices), nil); err != nil {
		return err
	}
	for _, call := range []*wire.Error{parse.Err, bind.Err, exec.Err} {
		if call != nil {
			return bare(call)
		}
	}
	return nil
}

func bare(e *wire.Error) *wire.Error {
	out := *e
	out.Where, out.InternalQuery, out.InternalPosition, out.Position = "", "", 0, 0
	return &out
}

var passwordWord = []byte("password")

// withoutPassword is a Parse body for the backend: a statement that sets a password is replaced by one that sets none. It is only ever
// parsed there; what runs comes from roleRun.
func withoutPassword(m *wire.Parse, body []byte) []byte {
	if !bytes.Contains(bytes.ToLower(m.Query), passwordWord) {
		return body
	}
	stmts, err := sql.Parse(string(m.Query))
	if err != nil || len(stmts) != 1 || stmts[0].Role() == nil || stmts[0].Role().Password == nil {
		return body
	}
	return wire.AppendParse(nil, string(m.Name), "ALTER ROLE CURRENT_USER PASSWORD NULL", nil)[5:]
}

// extensions is those that are trusted by Postgres and known to behave: no way to read a table behind the guard's back, and no function for
// casts from text, which filling could not go round.
var extensions = map[string]bool{"plpgsql": true, "pgcrypto": true, "uuid-ossp": true, "pg_trgm": true, "btree_gin": true, "hstore": true,
	"ltree": true, "citext": true, "isn": true}

var extensionNames = "{" + strings.Join(slices.Sorted(maps.Keys(extensions)), ",") + "}"

// refused says no to statements about databases, and to extensions that are not on the list.
func (s *session) refused(st *sql.Statement) (handled bool, err error) {
	if s.be.status == 'E' {
		return false, nil
	}
	if st.Databases() {
		return true, unsupported("CREATE DATABASE and DROP DATABASE are not supported").WithHint("Use schemas.")
	}
	if name := st.Extension(); name != "" && !extensions[name] {
		return true, unsupported("extension \"%s\" is not available", name).
			WithHint("Extensions that can be created: btree_gin, citext, hstore, isn, ltree, pg_trgm, pgcrypto, plpgsql, uuid-ossp.")
	}
	return false, nil
}
