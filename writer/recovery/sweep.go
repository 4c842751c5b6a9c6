package recovery

import (
	"context"
	"errors"
	"fmt"

	"sluice/writer/catalog"
	"sluice/writer/objstore"
)

// Staged is what was registered before an upload (invariant I4): the data files of one flip.
type Staged struct {
	Flip      string
	Locations []string
}

// Sweep deletes the files of flips that did not commit. Asking settles a flip for ever, so a late commit cannot reach a file
// that is gone; where the answer is not to be had, nothing is deleted. It returns the flips that are done with.
//
// The register is a seam: catalog.Catalog has none yet. Options.Register of the writer is called with the same values before
// every upload.
func Sweep(ctx context.Context, cat catalog.Catalog, objects objstore.Store, staged []Staged) (done []string, err error) {
	var errs []error
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
	return done, errors.Join(errs...)
}

func remove(ctx context.Context, objects objstore.Store, locations []string) error {
	for _, l := range locations {
		if err := objects.Delete(ctx, l); err != nil {
			return err
		}
	}
	return nil
}
