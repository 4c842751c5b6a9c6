package catalogpg

import (
	"context"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

type migration struct {
	number       int
	name, digest string
	text         string
}

// migrations reads the embedded files NNNN_name.sql; their numbers are 1, 2, 3 ….
func migrations() ([]migration, error) {
	entries, err := fs.ReadDir(migrationFiles, "migrations")
	if err != nil {
		return nil, err
	}
	var all []migration
	for _, e := range entries {
		text, err := fs.ReadFile(migrationFiles, "migrations/"+e.Name())
		if err != nil {
			return nil, err
		}
		digits, name, _ := strings.Cut(strings.TrimSuffix(e.Name(), ".sql"), "_")
		n, err := strconv.Atoi(digits)
		if err != nil {
			return nil, fmt.Errorf("read migration %s: %w", e.Name(), err)
		}
		all = append(all, migration{n, name, fmt.Sprintf("%x", sha256.Sum256(text)), string(text)})
	}
	slices.SortFunc(all, func(a, b migration) int { return a.number - b.number })
	return all, nil
}

// setupLock is the advisory lock under which one gateway at a time sets the database up.
const setupLock = 0x736c7569 // "slui"

// setUp brings the database up to the newest migration and renews what depends on roles. It is safe to run at every start, and by two
// gateways at once.
func (c *Catalog) setUp(ctx context.Context) error {
	conn, err := c.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if _, err := conn.Exec(ctx, `select pg_advisory_lock($1)`, setupLock); err != nil {
		return err
	}
	defer conn.Exec(context.WithoutCancel(ctx), `select pg_advisory_unlock($1)`, setupLock)
	if err := migrate(ctx, conn.Conn()); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	for _, s := range []string{"alter schema public owner to " + QuoteIdent(User), ownersSQL, forgetKeysSQL} {
		if _, err := conn.Exec(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

func migrate(ctx context.Context, conn *pgx.Conn) error {
	all, err := migrations()
	if err != nil {
		return err
	}
	done, err := migrated(ctx, conn)
	if err != nil {
		return err
	}
	if n := len(done); n > len(all) {
		return fmt.Errorf("the catalog is at migration %d, made by a newer version; this one knows %d", n, len(all))
	}
	for i, m := range all {
		if i >= len(done) {
			err = applyMigration(ctx, conn, m)
		} else if done[i] != m.digest {
			err = errors.New("it is not the one that was applied")
		}
		if err != nil {
			return fmt.Errorf("migration %d (%s): %w", m.number, m.name, err)
		}
	}
	return nil
}

// migrated lists the digests of the applied migrations in order.
func migrated(ctx context.Context, conn *pgx.Conn) ([]string, error) {
	rows, _ := conn.Query(ctx, `select digest from sluice.migration order by number`)
	done, err := pgx.CollectRows(rows, pgx.RowTo[string])
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && (pgErr.Code == "42P01" || pgErr.Code == "3F000") {
		return nil, nil
	}
	return done, err
}

// applyMigration runs one file and notes it, in one transaction.
func applyMigration(ctx context.Context, conn *pgx.Conn, m migration) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Conn().PgConn().Exec(ctx, m.text).ReadAll(); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `insert into sluice.migration (number, name, digest) values ($1, $2, $3)`, m.number, m.name, m.digest)
		return err
	})
}
