package catalogpg

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Inside describes the tables of the schema sluice that the gateway fills with what it knows of itself when a statement scans them. They are
// watched and filled like shadows, with FillCall and ClearCall; nobody can write them.
func (c *Catalog) Inside(ctx context.Context) ([]*Rel, error) {
	rows, _ := c.pool.Query(ctx, `select sluice.rel_state(w.rel) from sluice.watch w join pg_class c on c.oid = w.rel
		where c.relnamespace = 'sluice'::regnamespace order by w.rel`)
	rels, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*Rel, error) {
		var state []byte
		if err := row.Scan(&state); err != nil {
			return nil, err
		}
		return decodeRel(state, nil)
	})
	if err != nil {
		return nil, fmt.Errorf("describe views of the inside: %w", err)
	}
	return rels, nil
}

// Blocked tells which of the given backends wait for locks of Postgres, and for which other backends.
func (c *Catalog) Blocked(ctx context.Context, pids []int32) (map[uint32][]uint32, error) {
	rows, _ := c.pool.Query(ctx, `select pid, pg_blocking_pids(pid) from (select distinct pid from pg_locks where not granted and pid = any($1)) w`, pids)
	out := map[uint32][]uint32{}
	var pid int32
	var blockers []int32
	_, err := pgx.ForEachRow(rows, []any{&pid, &blockers}, func() error {
		for _, b := range blockers {
			out[uint32(pid)] = append(out[uint32(pid)], uint32(b))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("ask who waits in Postgres: %w", err)
	}
	return out, nil
}

// Place is where a lake table stands in the catalog.
type Place struct {
	Location string // of its metadata
	Snapshot int64  // 0: none yet
}

// Places is where all lake tables stand that have metadata, as of one moment.
func (c *Catalog) Places(ctx context.Context) (map[uint32]Place, error) {
	rows, _ := c.pool.Query(ctx, `select p.oid, i.metadata_location, p.snapshot from sluice.pointer p join sluice_iceberg.iceberg_tables i
		on i.catalog_name = current_database() and i.table_namespace = p.namespace and i.table_name = p.name`)
	places := map[uint32]Place{}
	var oid uint32
	var p Place
	if _, err := pgx.ForEachRow(rows, []any{&oid, &p.Location, &p.Snapshot}, func() error { places[oid] = p; return nil }); err != nil {
		return nil, fmt.Errorf("look up pointers: %w", err)
	}
	return places, nil
}
