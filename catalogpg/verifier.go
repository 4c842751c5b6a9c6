package catalogpg

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Verifier is the SCRAM verifier of a role; "" if it has no password. exists is false also for roles that clients may not use: superusers
// and our own. validUntil is zero if the password does not expire.
func (c *Catalog) Verifier(ctx context.Context, role string) (verifier string, exists, canLogin bool, validUntil time.Time, err error) {
	var until pgtype.Timestamptz
	err = c.pool.QueryRow(ctx, `select coalesce(rolpassword, ''), rolcanlogin, rolvaliduntil from pg_authid
		where rolname = $1 and not rolsuper and rolname !~ '^(sluice|pg_)'`, role).Scan(&verifier, &canLogin, &until)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", false, false, time.Time{}, nil
	}
	if err != nil {
		return "", false, false, time.Time{}, fmt.Errorf("look up role: %w", err)
	}
	if until.InfinityModifier == pgtype.NegativeInfinity {
		return verifier, true, canLogin, time.Unix(1, 0), nil
	}
	if until.InfinityModifier == pgtype.Infinity {
		until.Time = time.Time{}
	}
	return verifier, true, canLogin, until.Time, nil
}
