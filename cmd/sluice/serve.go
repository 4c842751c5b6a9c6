package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
)

// serve is the subcommand.
func serve(ctx context.Context, args []string, out io.Writer) error {
	cfg, rest, err := parseConfig("serve", args, os.Getenv, out)
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return fmt.Errorf("%w: unexpected argument %q", errUsage, rest[0])
	}
	return run(ctx, cfg, cfg.logger(os.Stderr), out)
}

// run is the gateway. WIRING: it is the one place where the parts of the gateway are made and connected; everything around it is flags,
// signals and order. Open from the bottom up (catalog, writer, server, HTTP), print the start block when the gateway accepts
// queries, and hand what runs to runStages in that order: it stops them in the reverse one after SIGTERM.
//
//	accept → idle sessions → running statements (grace: cfg.DrainTimeout) → committer drains → background → catalog and store
func run(ctx context.Context, cfg config, log *slog.Logger, out io.Writer) error {
	return runStages(ctx, log, stage{"gateway", func(context.Context) error {
		return errors.New("not wired")
	}})
}

// startBlock tells how to connect and where things are. It is printed once, when the gateway accepts queries.
func startBlock(w io.Writer, cfg config) {
	host, port, _ := net.SplitHostPort(cfg.Listen)
	mode := ""
	if cfg.TLSCert != "" {
		mode = "?sslmode=require"
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	catalog := "private Postgres in " + cfg.Data
	if cfg.Catalog != "" {
		catalog = "the Postgres given by --catalog"
	}
	fmt.Fprintf(w, "Sluice is ready.\n\n  connect      psql 'postgresql://lake@%s/lake%s'\n", net.JoinHostPort(host, port), mode)
	if cfg.HTTP != "" {
		fmt.Fprintf(w, "  REST catalog http://%s (Iceberg; also /healthz, /metrics)\n", cfg.HTTP)
	}
	fmt.Fprintf(w, "  tables       %s\n  log, caches  %s\n  catalog      %s\n\nStop with SIGTERM or Ctrl-C.\n", cfg.Warehouse, cfg.Data, catalog)
}
