// Package engines shows tables that the gateway's own code wrote to engines that are not ours, and compares what they read
// with the model of formattest, value by value. It owns read_iceberg.py and the list of Python packages it needs
// (requirements.txt), and compare_postgres.py, which the tests above it run, with its engines for the long tests
// (requirements-conformance.txt, spark_session.py). Start with TestIceberg; it writes nothing but the tables in a temporary directory.
package engines_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/writer/format"
	"sluice/writer/format/formattest"
	"sluice/writer/format/iceberg"
	"sluice/writer/objstore"
)

// python is the interpreter of the environment that requirements.txt is installed in: .venv at the top of the repository.
func python(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", ".venv", "bin", "python"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skip("no .venv with conformance/engines/requirements.txt installed")
	}
	return path
}

func config(version int) formattest.Config {
	return formattest.Config{
		Open: func(_ testing.TB, store objstore.Store) format.Format {
			return iceberg.Open(store, iceberg.Options{Now: time.Now, MergeManifests: 4})
		},
		Store: func(t testing.TB) objstore.Store {
			d, err := objstore.OpenDir(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			return d
		},
		Options:   format.Options{Version: version},
		Partition: iceberg.PartitionValues,
	}
}

// TestIceberg reads every state of the tables that formattest plays with pyiceberg and DuckDB.
func TestIceberg(t *testing.T) {
	py := python(t)
	var states []formattest.State
	for version, name := range map[int]string{2: "v2 ", 3: "v3 "} {
		for _, s := range append(formattest.Play(t, config(version)), formattest.PlayPartitioned(t, config(version))...) {
			s.Name = name + s.Name
			states = append(states, s)
		}
	}
	for _, engine := range []string{"pyiceberg", "duckdb"} {
		t.Run(engine, func(t *testing.T) {
			got := readAll(t, py, engine, states)
			for _, s := range states {
				t.Run(s.Name, func(t *testing.T) { compare(t, got[s.Pointer.Location], s) })
			}
		})
	}
}

// TestFilters: what conditions find must not depend on the statistics that we wrote.
func TestFilters(t *testing.T) {
	py := python(t)
	states := []formattest.State{formattest.Play(t, config(2))[4], formattest.Play(t, config(3))[8], formattest.PlayPartitioned(t, config(3))[4]}
	for name, lines := range readAll(t, py, "filters", states) {
		if len(lines) == 0 || lines[len(lines)-1] < "100" {
			t.Errorf("%s: %v conditions tried", name, lines)
		}
		for _, line := range lines {
			if strings.HasPrefix(line, "!") {
				t.Error(line)
			}
		}
	}
}

// readAll is the lines that the engine printed for each table.
func readAll(t *testing.T, py, engine string, states []formattest.State) map[string][]string {
	t.Helper()
	args := []string{"read_iceberg.py", engine}
	for _, s := range states {
		args = append(args, s.Pointer.Location)
	}
	cmd := exec.CommandContext(t.Context(), py, args...)
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", engine, err, log.String())
	}
	lines := map[string][]string{}
	at := ""
	for line := range strings.SplitSeq(strings.TrimSuffix(out.String(), "\n"), "\n") {
		if name, ok := strings.CutPrefix(line, "# "); ok {
			at = name
			continue
		}
		lines[at] = append(lines[at], line)
	}
	return lines
}

func compare(t *testing.T, got []string, s formattest.State) {
	t.Helper()
	rows := []string{}
	for _, line := range got {
		if strings.HasPrefix(line, "!") {
			t.Fatalf("%s\n%s", line, s.Pointer.Location)
		}
		row, err := formattest.Reline(line, len(s.Schema.Columns)) // companions come after
		if err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		rows = append(rows, row)
	}
	slices.Sort(rows)
	formattest.Same(t, s.Name, rows, s.Rows)
}
