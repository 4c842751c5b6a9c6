package recovery

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"sluice/writer/catalog"
	"sluice/writer/format"
	"sluice/writer/objstore"
)

// Sweep deletes the objects of flips that did not commit and ends their listing. A location that ends in / stands for all objects
// below it that are called by format.Stem of the flip: metadata has no names before it is written. Asking settles a flip for ever, so a late
// commit cannot reach an object that is gone, but staged must hold none that is still under way in this process. Where the
// answer is not to be had, nothing is deleted. A crash in between leaves objects that are listed still, or a list of none.
func Sweep(ctx context.Context, cat catalog.Catalog, objects objstore.Store, staged []catalog.Staged) error {
	var errs []error
	var done []string
	for _, s := range staged {
		committed, err := cat.Resolve(ctx, s.Flip)
		if err == nil && !committed {
			err = remove(ctx, objects, s)
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

func remove(ctx context.Context, objects objstore.Store, s catalog.Staged) error {
	for _, l := range s.Locations {
		err := error(nil)
		if strings.HasSuffix(l, "/") {
			err = removeBelow(ctx, objects, l, format.Stem(s.Flip))
		} else {
			err = objects.Delete(ctx, l)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func removeBelow(ctx context.Context, objects objstore.Store, prefix, stem string) error {
	for o, err := range objects.List(ctx, prefix) {
		if err == nil && strings.Contains(o.Location, stem) {
			err = objects.Delete(ctx, o.Location)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
