package writer_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"sluice/writer/catalog"
)

// TestStartSweeps: files and metadata of a flush that did not flip are deleted after the next start, without anybody asking.
//
// claims: S15 M60
func TestStartSweeps(t *testing.T) {
	x, f := faultyWorld(t)
	before := x.list()
	f.arm(4, false, false) // the file is listed and written, its metadata too; the flip fails
	if _, err := x.w.Flush(t.Context()); !errors.Is(err, errFault) {
		t.Fatalf("flush: %v", err)
	}
	f.disarm()
	x.close()
	left, err := x.catalog.Staged(t.Context())
	must(t, err)
	if len(left) != 1 || len(left[0].Locations) != 2 {
		t.Fatalf("staged: %v", left)
	}
	if n := len(x.list()) - len(before); n != 2 {
		t.Fatalf("%d objects were written, want a file and metadata", n)
	}
	forgot := make(chan struct{}, 10)
	x.opts.Catalog = forgetfulCatalog{x.opts.Catalog, forgot}
	x.open()
	<-forgot
	if after := x.list(); !slices.Equal(after, before) {
		t.Errorf("there is %q, was %q", after, before)
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
