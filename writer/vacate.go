package writer

import (
	"context"
	"fmt"

	"sluice/writer/lock"
	"sluice/writer/table"
)

// Vacate deletes the live rows of the partitions that rows of b are for; of a table without partitions all. The rows of b are not inserted yet.
// Nobody else can write to the table until the transaction ends. At REPEATABLE READ it deletes what the snapshot sees, and the error is
// a *RowMoved if that is not the newest state.
func (t *Txn) Vacate(ctx context.Context, id table.ID, b *table.Batch) error {
	if err := t.LockTable(ctx, id, lock.Exclusive, t.wait); err != nil {
		return fmt.Errorf("vacate: %w", err)
	}
	targets := map[string]bool{}
	for row := range b.Rows {
		key, err := t.w.opts.Partition.Key(b.Schema, b, row)
		if err != nil {
			return fmt.Errorf("vacate: partition of row %d: %w", row, err)
		}
		targets[key] = true
	}
	var refs []table.Ref
	err := t.Statement().Scan(ctx, id, func(r Rows) error {
		return r.each(func(i int) error {
			key, err := t.w.opts.Partition.Key(b.Schema, r.Batch, i)
			if targets[key] {
				refs = append(refs, r.Ref(i))
			}
			return err
		})
	})
	if err != nil {
		return fmt.Errorf("vacate: %w", err)
	}
	return t.Delete(ctx, id, refs, lock.ForUpdate)
}
