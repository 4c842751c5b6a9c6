package conformance_test

import (
	"os"
	osexec "os/exec"
	"path/filepath"
	"testing"

	"sluice/conformance/harness"
)

// enginesAgree reads all tables of the gateway by its REST catalog with pyiceberg and DuckDB and compares them, row by row, with the
// reference Postgres.
func enginesAgree(t *testing.T, pair *harness.Pair) {
	t.Helper()
	python := filepath.Join(root(t), ".venv", "bin", "python")
	if _, err := os.Stat(python); err != nil {
		t.Log("engines not asked: there is no .venv; make test installs it")
		return
	}
	uri := pair.Got.HTTP()
	if uri == "" {
		t.Log("engines not asked: the gateway is not ours")
		return
	}
	if err := pair.Got.Flush(); err != nil {
		t.Fatal(err)
	}
	cmd := osexec.Command(python, "compare_postgres.py", uri, pair.Ref.DSN)
	cmd.Dir = filepath.Join(root(t), "conformance", "engines")
	cmd.Env = append(os.Environ(), "TZ=UTC")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("engines differ: %v\n%s", err, out)
		return
	}
	t.Logf("\n%s", out)
}
