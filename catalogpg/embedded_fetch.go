package catalogpg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

// fallbackMajor is the version of fallbackVersion.
const (
	fallbackMajor   = 15
	fallbackVersion = embeddedpostgres.V15
)

// errNoPostgres is one line, for it is what a new user sees.
var errNoPostgres = errors.New("no postgres found: install postgresql (apt-get install postgresql)")

// fetchBinaries has the embedded-postgres module download and unpack a server into dir. The module can only do that as part of a start, and
// its start is not ours (TCP port, no root): a locale that does not exist makes it stop after unpacking.
func fetchBinaries(ctx context.Context, dir string) (binaries, error) {
	root := filepath.Join(dir, "postgres")
	if b, err := probe(ctx, filepath.Join(root, "bin")); err == nil {
		return b, nil
	}
	err := embeddedpostgres.NewDatabase(embeddedpostgres.DefaultConfig().Version(fallbackVersion).BinariesPath(root).
		CachePath(filepath.Join(dir, "download")).RuntimePath(filepath.Join(dir, "unpack")).Port(0).
		Locale("unpack-only").Logger(io.Discard)).Start()
	b, perr := probe(ctx, filepath.Join(root, "bin"))
	if perr != nil {
		return binaries{}, fmt.Errorf("%w: %w", errNoPostgres, err)
	}
	return b, nil
}
