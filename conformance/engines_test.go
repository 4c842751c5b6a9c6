package conformance_test

import (
	"bytes"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sluice/conformance/harness"
)

// enginesAgree reads all tables of the gateway by its REST catalog with the engines of SLUICE_ENGINES (pyiceberg and DuckDB if that is
// empty) and compares them, row by row, with the reference Postgres.
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
	cmd := osexec.Command(python, append([]string{"compare_postgres.py", uri, pair.Ref.DSN}, engines(t)...)...)
	cmd.Dir = filepath.Join(root(t), "conformance", "engines")
	cmd.Env = append(os.Environ(), "TZ=UTC", "POLARS_ICEBERG_PLANNER=pyiceberg")
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); err != nil {
		t.Errorf("engines differ: %v\n%s%s", err, out.String(), log.String())
		return
	}
	t.Logf("\n%s", out.String())
}

// engines are those that SLUICE_ENGINES names, without Spark if there is no Java for it.
func engines(t *testing.T) []string {
	names := strings.Fields(os.Getenv("SLUICE_ENGINES"))
	if i := slices.Index(names, "spark"); i >= 0 {
		if _, err := osexec.LookPath("java"); err != nil {
			t.Log("Spark not asked: it needs Java")
			names = slices.Delete(names, i, i+1)
		}
	}
	return names
}
