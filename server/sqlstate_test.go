package server

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"

	"sluice/writer/keyindex"
)

// TestDiskErrors: a disk that is full or broken fails the statement, not the session.
func TestDiskErrors(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{&fs.PathError{Op: "write", Path: "keys", Err: syscall.ENOSPC}, "53100"},
		{&fs.PathError{Op: "open", Path: "keys", Err: syscall.EMFILE}, "58030"},
		{keyindex.ErrCorrupt, "58030"},
	} {
		e, ok := sqlError(fmt.Errorf("insert: %w", c.err))
		if !ok || e.Code != c.want {
			t.Errorf("%v: %v, want %s", c.err, e, c.want)
		}
	}
	if e, ok := sqlError(errors.New("something else")); ok {
		t.Errorf("an unknown error does not end the session: %v", e)
	}
}
