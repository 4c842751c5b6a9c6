package recovery

import (
	"context"
	"errors"
	"fmt"

	"sluice/writer/catalog"
	"sluice/writer/objstore"
)

// Sweep deletes the objects of flips that did not commit and ends their listing. Asking settles a flip for ever, so a late
// commit cannot reach an object that is gone, but staged must hold none that is still under way in this process. Where the
// answer is not to be had, nothing is deleted. A crash in between leaves objects that are listed still, or a list of none.
func Sweep(ctx context.Context, cat catalog.Catalog, objects objstore.Store, staged []catalog.Staged) error {
	var errs []error
	var done []string
	for _, s := range staged {
		committed, err := cat.Resolve(ctx, s.Flip)
		if err == nil && !committed {
			err = remove(ctx, objects, s.Locations)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("sweep flip %s: %w", s.Flip, err))
			continue
		}
		done = append(done, s.Flip)
	}
	if err := cat.Forget(ctx, done); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func remove(ctx context.Context, objects objstore.Store, locations []string) error {
	for _, l := range locations {
		if err := objects.Delete(ctx, l); err != nil {
			return err
		}
	}
	return nil
}
