package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func parse(t *testing.T, env map[string]string, args ...string) (config, error) {
	t.Helper()
	c, _, err := parseConfig("serve", args, func(name string) string { return env[name] }, &bytes.Buffer{})
	return c, err
}

func TestDefaults(t *testing.T) {
	c, err := parse(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen != "127.0.0.1:5433" || c.HTTP != "127.0.0.1:8181" || !strings.HasSuffix(c.Warehouse, "/sluice-data/warehouse") ||
		c.FlushAge != 5*time.Second || c.Memory <= 0 || c.Memory > 2<<30 || c.FlushBytes != c.Memory/4 || !c.Trust() {
		t.Errorf("%+v", c)
	}
}

func TestFlagsWinOverEnvironment(t *testing.T) {
	env := map[string]string{"SLUICE_LISTEN": "127.0.0.1:1", "SLUICE_MEMORY": "64MB", "SLUICE_S3_PATH_STYLE": "true", "SLUICE_HTTP": "127.0.0.1:2"}
	c, err := parse(t, env, "--listen", "127.0.0.1:3", "--http=", "--flush-age", "-1s")
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen != "127.0.0.1:3" || c.Memory != 64<<20 || !c.S3PathStyle || c.HTTP != "" || c.FlushAge != -time.Second {
		t.Errorf("%+v", c)
	}
}

// TestMistakes: what is unknown or means nothing fails at the start. Rows of large transactions go to ordinary data files, always zstd, so
// there is no codec to choose (P22), and no directory to forget but the warehouse (TestWarehouse).
//
// claims: P22
func TestMistakes(t *testing.T) {
	for _, test := range []struct {
		env  map[string]string
		args string
	}{
		{nil, "--nothing"},
		{nil, "--spill-compression zstd"},
		{nil, "--listen 5433"},
		{nil, "--memory much"},
		{nil, "--memory 0"},
		{nil, "--memory 9999999999TB"},
		{nil, "--max-clients 0"},
		{nil, "--log-format xml"},
		{nil, "--tls-cert c.pem"},
		{nil, "--listen 0.0.0.0:5433"},
		{nil, "--listen :5433"},
		{nil, "--http 0.0.0.0:8181"},
		{map[string]string{"SLUICE_FLUSH_AGE": "soon"}, ""},
		{map[string]string{"SLUICE_INSECURE_LISTEN": "perhaps"}, "--listen 0.0.0.0:5433"},
	} {
		if _, err := parse(t, test.env, strings.Fields(test.args)...); !errors.Is(err, errUsage) {
			t.Errorf("%v %s: %v", test.env, test.args, err)
		}
	}
}

func TestBeyondLoopback(t *testing.T) {
	for args, trust := range map[string]bool{
		"--listen 0.0.0.0:5433 --tls-cert c --tls-key k":              false,
		"--listen [::1]:5433 --http localhost:8181":                   true,
		"--listen 0.0.0.0:5433 --http 0.0.0.0:8181 --insecure-listen": true,
	} {
		c, err := parse(t, nil, strings.Fields(args)...)
		if err != nil || c.Trust() != trust {
			t.Errorf("%s: %v trust %v", args, err, c.Trust())
		}
	}
}

// TestWarehouse: a warehouse where no file can be written fails at the start, not at the first large transaction.
//
// claims: P23
func TestWarehouse(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for warehouse, good := range map[string]bool{t.TempDir(): true, t.TempDir() + "/new/folder": true, file: false, file + "/below": false, "s3://": false} {
		if _, err := openStore(config{Warehouse: warehouse}); (err == nil) != good {
			t.Errorf("%s: %v", warehouse, err)
		}
	}
}

// TestHelp: everything that can be set is in the help, with its variable.
func TestHelp(t *testing.T) {
	var out bytes.Buffer
	if code := command(context.Background(), []string{"serve", "--help"}, &out, &out); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for _, s := range settings {
		if !strings.Contains(out.String(), "--"+s.name) || !strings.Contains(out.String(), "$"+s.env()) {
			t.Errorf("no --%s in the help", s.name)
		}
	}
	if !strings.Contains(out.String(), "(default 127.0.0.1:5433)") || !strings.Contains(out.String(), "$SLUICE_TLS_CERT") {
		t.Errorf("help is %s", out.String())
	}
}

func TestExitCodes(t *testing.T) {
	for args, want := range map[string]int{
		"": 2, "nothing": 2, "--help": 0, "serve --nothing": 2, "serve extra": 2, "version": 0, "fsck --help": 0, "fsck --listen x:1": 2, "dump": 2,
	} {
		var out, errOut bytes.Buffer
		if got := command(context.Background(), strings.Fields(args), &out, &errOut); got != want {
			t.Errorf("sluice %s: exit code %d, want %d: %s", args, got, want, errOut.String())
		}
	}
}

// TestCatalogDoesNotPrint: the connection string holds a password.
func TestCatalogDoesNotPrint(t *testing.T) {
	c, err := parse(t, map[string]string{"SLUICE_CATALOG": "postgres://u:secret@h/d"})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	c.logger(&log).Info("x", "config", c, "catalog", c.Catalog)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "config", c)
	j, _ := json.Marshal(c)
	startBlock(&log, c)
	if text := log.String() + string(j) + fmt.Sprintf("%v %+v %#v %s", c, c, c, c.Catalog); strings.Contains(text, "secret") {
		t.Errorf("printed %s", text)
	}
	if c.Catalog.Reveal() != "postgres://u:secret@h/d" {
		t.Errorf("catalog is %s", c.Catalog.Reveal())
	}
}

func TestStartBlock(t *testing.T) {
	c, err := parse(t, nil, "--listen", "0.0.0.0:5433", "--tls-cert", "c", "--tls-key", "k", "--data", "/d")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	startBlock(&out, c)
	want := `Sluice is ready.

  connect      psql 'postgresql://lake@127.0.0.1:5433/lake?sslmode=require'
  REST catalog http://127.0.0.1:8181 (Iceberg; also /healthz, /metrics)
  tables       /d/warehouse
  log, caches  /d
  catalog      private Postgres in /d

Stop with SIGTERM or Ctrl-C.
`
	if out.String() != want {
		t.Errorf("got %s", out.String())
	}
}
