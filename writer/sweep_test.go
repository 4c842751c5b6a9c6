package writer_test

import (
	"context"
	"errors"
	"testing"

	"sluice/writer/catalog"
)

// TestStartSweeps: files of a flush that did not flip are deleted after the next start, without anybody asking.
func TestStartSweeps(t *testing.T) {
	x, f := faultyWorld(t)
	f.arm(3, false, false) // the file is listed and written, what comes next fails
	if _, err := x.w.Flush(t.Context()); !errors.Is(err, errFault) {
		t.Fatalf("flush: %v", err)
	}
	f.disarm()
	x.close()
	left, err := x.catalog.Staged(t.Context())
	must(t, err)
	if len(left) != 1 || len(left[0].Locations) != 1 {
		t.Fatalf("staged: %v", left)
	}
	if _, err := x.objects.Stat(t.Context(), left[0].Locations[0]); err != nil {
		t.Fatalf("the file was not written: %v", err)
	}
	forgot := make(chan struct{}, 10)
	x.opts.Catalog = forgetfulCatalog{x.opts.Catalog, forgot}
	x.open()
	<-forgot
	if _, err := x.objects.Stat(t.Context(), left[0].Locations[0]); err == nil {
		t.Errorf("%s is still there", left[0].Locations[0])
	}
	if left, err = x.catalog.Staged(t.Context()); err != nil || len(left) > 0 {
		t.Errorf("after the sweep %v is staged: %v", left, err)
	}
	check(t, x, 1, "1 one", "2 two", "3 three")
	_, err = x.w.Flush(t.Context())
	must(t, err)
	x.fsck()
}

// forgetfulCatalog tells when something was forgotten.
type forgetfulCatalog struct {
	catalog.Catalog
	forgot chan struct{}
}

func (c forgetfulCatalog) Forget(ctx context.Context, flips []string) error {
	err := c.Catalog.Forget(ctx, flips)
	c.forgot <- struct{}{}
	return err
}
