package conformance_test

import (
	"path/filepath"
	"strings"
	"testing"

	"sluice/conformance/harness"
)

// TestWire plays every file of testdata/wire to Postgres and to Sluice: the same messages come back.
func TestWire(t *testing.T) {
	paths, err := filepath.Glob("testdata/wire/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no wire files: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) { playBoth(t, path) })
	}
}

func playBoth(t *testing.T, path string) {
	wire, err := harness.ReadWire(path)
	if err != nil {
		t.Fatal(err)
	}
	pair := harness.NewPair(t)
	have, err := wire.Play(pair.Got.DSN)
	if err != nil {
		t.Errorf("sluice: %v", err)
	}
	want, err := wire.Play(pair.Ref.DSN)
	if err != nil {
		t.Errorf("postgres: %v\n%s", err, strings.Join(want, "\n"))
	}
	if *sqlShow {
		t.Log("\n" + strings.Join(want, "\n"))
	}
	if diff := harness.Diff(want, have); diff != "" {
		t.Errorf("different answers:\n%s", diff)
	}
}

// TestWireEncryptionRequests: a server without TLS and Kerberos answers N to either request, in either order,
// and goes on in the clear. Postgres cannot be the reference: built with Kerberos it answers G.
//
// claims: B1 B2 B3
func TestWireEncryptionRequests(t *testing.T) {
	pair := harness.NewPair(t)
	if !pair.Got.Sluice {
		t.Skip("only for Sluice")
	}
	const ssl, gss = "raw 00000008 04d2162f", "raw 00000008 04d21630"
	for _, requests := range [][]string{{gss}, {gss, ssl}, {ssl, gss}} {
		wire := &harness.Wire{Name: "encryption"}
		for _, r := range requests {
			wire.Lines = append(wire.Lines, r, "read 1")
		}
		wire.Lines = append(wire.Lines, "login", `send Query {"String": "select 1"}`, "until ReadyForQuery")
		said, err := wire.Play(pair.Got.DSN)
		if err != nil {
			t.Errorf("%q: %v\n%s", requests, err, strings.Join(said, "\n"))
		}
		if n := strings.Count(strings.Join(said, "\n"), `bytes "N"`); n != len(requests) {
			t.Errorf("%q: %d answers are N, want %d:\n%s", requests, n, len(requests), strings.Join(said, "\n"))
		}
	}
}
