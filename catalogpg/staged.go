package catalogpg

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"sluice/writer/catalog"
)

// Stage implements catalog.Catalog.
func (c *Catalog) Stage(ctx context.Context, flip string, locations []string) error {
	_, err := c.pool.Exec(ctx, `insert into sluice.staged (flush_id, location) select $1, unnest($2::text[]) on conflict do nothing`, flip, locations)
	if err != nil {
		return fmt.Errorf("stage objects of flip %s: %w", flip, err)
	}
	return nil
}

// Staged implements catalog.Catalog.
func (c *Catalog) Staged(ctx context.Context) ([]catalog.Staged, error) {
	rows, _ := c.pool.Query(ctx, `select flush_id, array_agg(location order by location) from sluice.staged s
		where not exists (select from sluice.commit c where c.flush_id = s.flush_id and c.id is not null) group by flush_id order by flush_id`)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[catalog.Staged])
	if err != nil {
		return nil, fmt.Errorf("list staged objects: %w", err)
	}
	return list, nil
}

// Forget implements catalog.Catalog.
func (c *Catalog) Forget(ctx context.Context, flips []string) error {
	_, err := c.pool.Exec(ctx, `delete from sluice.staged s where flush_id = any($1::text[])
		or exists (select from sluice.commit c where c.flush_id = s.flush_id and c.id is not null)`, flips)
	if err != nil {
		return fmt.Errorf("forget staged objects: %w", err)
	}
	return nil
}
