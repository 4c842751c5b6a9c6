package catalogpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// oldest is the oldest major version that has all we build on (GRANT SET ON PARAMETER, MERGE, nulls not distinct).
const oldest = 15

type binaries struct {
	dir   string
	major int
}

func (b binaries) path(name string) string { return filepath.Join(b.dir, name) }

// findBinaries looks where SLUICE_PG_BIN says, else for the newest of what the system has, else asks the embedded-postgres module.
func findBinaries(ctx context.Context, dir string) (binaries, error) {
	want := clusterMajor(filepath.Join(dir, "pg"))
	if env := os.Getenv("SLUICE_PG_BIN"); env != "" {
		b, err := probe(ctx, env)
		if err == nil && want != 0 && b.major != want {
			err = fmt.Errorf("version %d, the cluster is of version %d", b.major, want)
		}
		if err != nil {
			return binaries{}, fmt.Errorf("use SLUICE_PG_BIN: %w", err)
		}
		return b, nil
	}
	if b, ok := newest(ctx, candidates(ctx), want); ok {
		return b, nil
	}
	if want != 0 && want != fallbackMajor {
		return binaries{}, fmt.Errorf("the cluster in %s is of Postgres %d, which is not installed", dir, want)
	}
	return fetchBinaries(ctx, dir)
}

func candidates(ctx context.Context) []string {
	var dirs []string
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	for _, glob := range []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql@*/bin", "/usr/local/opt/postgresql@*/bin"} {
		found, _ := filepath.Glob(glob)
		dirs = append(dirs, found...)
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// newest picks among dirs; a cluster that exists needs its own major version.
func newest(ctx context.Context, dirs []string, want int) (best binaries, ok bool) {
	for _, d := range dirs {
		b, err := probe(ctx, d)
		if err == nil && b.major >= oldest && b.major > best.major && (want == 0 || b.major == want) {
			best, ok = b, true
		}
	}
	return best, ok
}

// probe asks the postgres in dir for its version: "postgres (PostgreSQL) 15.18 (Debian …)".
func probe(ctx context.Context, dir string) (binaries, error) {
	if _, err := os.Stat(filepath.Join(dir, "initdb")); err != nil {
		return binaries{}, fmt.Errorf("probe postgres: %w", err)
	}
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return binaries{}, fmt.Errorf("probe postgres: %w", err)
	}
	fields := strings.Fields(string(out))
	if len(fields) < 3 {
		return binaries{}, fmt.Errorf("probe postgres: version %q", out)
	}
	digits := strings.TrimRightFunc(strings.SplitN(fields[2], ".", 2)[0], func(r rune) bool { return r < '0' || r > '9' })
	major, err := strconv.Atoi(digits)
	if err != nil {
		return binaries{}, errors.New("probe postgres: version " + fields[2])
	}
	return binaries{dir: dir, major: major}, nil
}

// clusterMajor is the version of the cluster in dir, 0 if there is none.
func clusterMajor(cluster string) int {
	b, err := os.ReadFile(filepath.Join(cluster, "PG_VERSION"))
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	return n
}
