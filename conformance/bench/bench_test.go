package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/conformance/harness"
)

// TestAgainstPostgres plays some of each kind of workload on two Postgres servers: the benchmark itself works.
func TestAgainstPostgres(t *testing.T) {
	if _, err := harness.ServerBinaries(); err != nil {
		t.Skip(err)
	}
	out := t.TempDir()
	err := run(context.Background(), []string{"-quick", "-postgres-only", "-out", out, "-seconds", "1", "-copy-rows", "5000", "-keys", "5000",
		"-only", "^(pipeline-16|point-16|copy-csv|upsert-unnest)$"})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(out, "bench.json"))
	if err != nil {
		t.Fatal(err)
	}
	var rep report
	if err := json.Unmarshal(text, &rep); err != nil {
		t.Fatal(err)
	}
	if len(rep.Results) != 4 {
		t.Fatalf("%d results", len(rep.Results))
	}
	for _, r := range rep.Results {
		if r.Ratio <= 0 || r.Medians[0].Rate <= 0 || r.Medians[1].Peak <= 0 {
			t.Errorf("%s: %+v", r.Name, r)
		}
	}
	page, err := os.ReadFile(filepath.Join(out, "bench.md"))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(page, []byte(os.TempDir())) || bytes.Contains(text, []byte(os.TempDir())) {
		t.Error("the results name a folder of this machine")
	}
}

// TestVerifyFindsALostRow takes one row away and expects the check to see it.
func TestVerifyFindsALostRow(t *testing.T) {
	whole := firstRows(1000).String()
	for _, change := range []func(*row){
		func(r *row) { r.n++ }, func(r *row) { r.id = 5000 }, func(r *row) { r.h ^= 1 << 32 },
	} {
		c := &content{}
		for i := range int64(1000) {
			r := rowAt(i)
			if i == 500 {
				change(&r)
			}
			c.add(r)
		}
		if c.String() == whole {
			t.Errorf("a changed row does not show in %s", whole)
		}
	}
	if firstRows(999).String() == whole {
		t.Error("a lost row does not show")
	}
}

func TestFormatsSayTheSame(t *testing.T) {
	var text, csv bytes.Buffer
	for format, w := range map[string]*bytes.Buffer{"text": &text, "csv": &csv} {
		if err := encodeRows(w, format, 100); err != nil {
			t.Fatal(err)
		}
	}
	if strings.ReplaceAll(text.String(), "\t", ",") != csv.String() {
		t.Error("text and csv differ in more than the separator")
	}
	if got, want := string(rowAt(0).appendLine(nil, ',')), "0,"; !strings.HasPrefix(got, want) || strings.Count(got, ",") != 3 {
		t.Errorf("first line %q", got)
	}
	r := rowAt(7)
	if len(r.text()) != r.textLen() {
		t.Errorf("text of %d bytes, not %d", len(r.text()), r.textLen())
	}
	if got := len(r.appendBinary(nil)); got != 2+4*4+8+4+8+r.textLen() {
		t.Errorf("binary tuple of %d bytes", got)
	}
}

func TestUpsertsReachEveryKeyOnce(t *testing.T) {
	l := &batchLoad{keys: 5000}
	seen := map[int64]bool{}
	for i := range l.keys {
		seen[l.row(l.keys+i).id] = true
	}
	if int64(len(seen)) != l.keys {
		t.Errorf("%d of %d keys", len(seen), l.keys)
	}
}

func TestParseStat(t *testing.T) {
	p, ok := parseStat(7, []byte("7 (a) b (c) S 3 7 7 0 -1 4194560 100 200 0 0 11 22 33 44 20 0 1 0 99"))
	if !ok || p != (process{pid: 7, parent: 3, ticks: 110}) {
		t.Errorf("%+v %v", p, ok)
	}
	if _, ok := parseStat(7, []byte("7 (x) S 3")); ok {
		t.Error("a short line was taken")
	}
}

func TestTreeSeesOurselves(t *testing.T) {
	got := readTree(os.Getpid())
	if !slices.Contains(got.pids, os.Getpid()) || memory(got.pids) == 0 {
		t.Errorf("%+v, %d bytes", got, memory(got.pids))
	}
}

func TestQuantile(t *testing.T) {
	all := []time.Duration{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	if quantile(all, 0.5) != 6 || quantile(all, 0.99) != 10 || quantile(nil, 0.5) != 0 {
		t.Error(quantile(all, 0.5), quantile(all, 0.99))
	}
	if median([]float64{3, 1, 2}) != 2 || median([]float64{4, 1, 2, 3}) != 2.5 || median(nil) != 0 {
		t.Error("median")
	}
}

func TestWithoutStart(t *testing.T) {
	if got := withoutStart(110, 10, 1010, 10); got != 101 {
		t.Errorf("%d", got)
	}
	if got := withoutStart(110, 100, 20, 10); got != 110 {
		t.Errorf("a short run: %d", got)
	}
}

func TestReadPgbench(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "log.1"), []byte("0 1 100 0 1 2\n1 1 200 0 1 2\n1 2 300 0 1 2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := "number of transactions actually processed: 3\nnumber of failed transactions: 0 (0.000%)\ntps = 1.5 (without initial connection time)\n"
	r, err := readPgbench(out, dir, 2)
	if err != nil || r.transactions != 3 || r.wall != 2*time.Second || r.perClient[0] != 1 || r.perClient[1] != 2 {
		t.Errorf("%+v %v", r, err)
	}
	if _, err := readPgbench(strings.Replace(out, "processed: 3", "processed: 4", 1), dir, 2); err == nil {
		t.Error("a log that lacks a transaction was taken")
	}
	if _, err := readPgbench(strings.Replace(out, "failed transactions: 0", "failed transactions: 1", 1), dir, 2); err == nil {
		t.Error("a failed transaction was taken")
	}
}

func TestBars(t *testing.T) {
	if got := (bar{Now: 1.5, Goal: 2.5, CPU: 4}).judge(2, 5); got != "first 1.5× met, goal 2.5× missed, CPU 4× met" {
		t.Error(got)
	}
}
