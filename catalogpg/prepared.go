package catalogpg

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"sluice/writer/catalog"
)

// Prepare implements catalog.Catalog.
func (c *Catalog) Prepare(ctx context.Context, p catalog.Prepared) error {
	if _, err := c.pool.Exec(ctx, `insert into sluice.prepared (txid, gid, state) values ($1, $2, $3)`, p.ID, p.Name, p.State); err != nil {
		return fmt.Errorf("keep prepared transaction %q: %w", p.Name, err)
	}
	return nil
}

// PreparedTransactions implements catalog.Catalog. Of transactions that had one name after the other only the last can still be pending.
func (c *Catalog) PreparedTransactions(ctx context.Context) ([]catalog.Prepared, error) {
	rows, _ := c.pool.Query(ctx, `select p.txid, p.gid, p.state,
			not exists (select from sluice.decision d where d.txid = p.txid)
			and exists (select from pg_prepared_xacts x where x.gid = p.gid and x.database = current_database())
			and not exists (select from sluice.prepared q where q.gid = p.gid and q.number > p.number)
		from sluice.prepared p order by p.number`)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[catalog.Prepared])
	if err != nil {
		return nil, fmt.Errorf("load prepared transactions: %w", err)
	}
	return list, nil
}

// ForgetPrepared implements catalog.Catalog.
func (c *Catalog) ForgetPrepared(ctx context.Context, txid [16]byte) error {
	if _, err := c.pool.Exec(ctx, `delete from sluice.prepared where txid = $1`, txid); err != nil {
		return fmt.Errorf("forget prepared transaction: %w", err)
	}
	return nil
}

// Decided is Decision of a transaction that PREPARE TRANSACTION may have prepared under this name: ErrPending at once if it is.
func (c *Catalog) Decided(ctx context.Context, txid [16]byte, gid string) (committed bool, err error) {
	var pending bool
	err = c.pool.QueryRow(ctx, `select exists (select from pg_prepared_xacts where gid = $1 and database = current_database())`, gid).Scan(&pending)
	switch {
	case err != nil:
		return false, fmt.Errorf("look for prepared transaction %q: %w", gid, err)
	case pending:
		return false, fmt.Errorf("transaction %q: %w", gid, catalog.ErrPending)
	}
	return c.Decision(ctx, txid)
}
