package catalogpg

import (
	"context"
	"fmt"
	"strconv"
)

// EnsureOwner makes the functions through which shadows of this role are filled. Call it when a role first owns a lake table; a fill that
// lacks them fails with an error that MissingOwner recognises.
func (c *Catalog) EnsureOwner(ctx context.Context, role uint32) error {
	if _, err := c.pool.Exec(ctx, `select sluice.make_owner($1)`, role); err != nil {
		return fmt.Errorf("ensure owner %d: %w", role, err)
	}
	return nil
}

// ForgetOwner removes them again, before the role is dropped or made a superuser.
func (c *Catalog) ForgetOwner(ctx context.Context, role uint32) error {
	if _, err := c.pool.Exec(ctx, `select sluice.forget_owner($1)`, role); err != nil {
		return fmt.Errorf("forget owner %d: %w", role, err)
	}
	return nil
}

// MissingOwner is the role that an error with this SQLSTATE and detail asks to call EnsureOwner for.
func MissingOwner(code, detail string) (role uint32, ok bool) {
	if code != "SL001" {
		return 0, false
	}
	n, err := strconv.ParseUint(detail, 10, 32)
	return uint32(n), err == nil
}

// ownersSQL renews the functions of all owners at start: a new version may have changed them.
var ownersSQL = `select sluice.make_owner(r.oid) from pg_roles r where not r.rolsuper and (r.rolname = ` + QuoteLiteral(User) + ` or r.oid in (
	select c.relowner from pg_class c join sluice.watch w on w.rel = c.oid
	union select p.proowner from pg_proc p where p.pronamespace = 'sluice_fill_fn'::regnamespace))`
