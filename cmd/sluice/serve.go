package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"runtime/debug"

	"sluice/server/rest"
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

// run is the gateway. Parts are opened from the bottom up, run as stages, and stopped in the reverse order:
// accept → idle sessions → running statements (grace: cfg.DrainTimeout) → committer drains → background → catalog and store.
// Only HTTP is there before them, to say that they are not.
func run(ctx context.Context, cfg config, log *slog.Logger, out io.Writer) error {
	collect(cfg)
	var http *web
	if cfg.HTTP != "" {
		var err error
		if http, err = openWeb(cfg.HTTP, log); err != nil {
			return err
		}
		defer http.close()
		cfg.HTTP = http.addr
	}
	p, err := openParts(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer p.close(log)
	w, err := p.openWriter(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer w.Close()
	srv, err := p.newServer(ctx, cfg, w, log)
	if err != nil {
		return err
	}
	pg, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen for clients: %w", err)
	}
	cfg.Listen = pg.Addr().String()
	stages := []stage{{"catalog", p.run}, {"writer", w.Run}, {"server", func(ctx context.Context) error { return srv.Serve(ctx, pg) }}}
	if http != nil {
		http.show(rest.New(rest.Options{Catalog: lake{p}, Warehouse: p.catalog.Database(), Ready: p.ready(w, log), Metrics: srv.Metrics(), Log: log}))
		stages = append(stages, stage{"http", http.run})
	}
	startBlock(out, cfg)
	return runStages(ctx, log, stages...)
}

// collect tunes the garbage collector unless GOGC does. What lives is mostly the tail, which is bounded by --memory; a fifth more is left to
// garbage, and below that it is collected less often than by default, since single-row writes make much of it and little that lives.
func collect(cfg config) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
		debug.SetMemoryLimit(int64(cfg.Memory) + int64(cfg.Memory)/5 + 128<<20)
	}
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
	fmt.Fprintf(w, "Sluice is ready.\n\n  connect      psql 'postgresql://lake@%s/%s%s'\n", net.JoinHostPort(host, port), url.PathEscape(cfg.Database), mode)
	if cfg.HTTP != "" {
		fmt.Fprintf(w, "  REST catalog http://%s (Iceberg; also /healthz, /metrics)\n", cfg.HTTP)
	}
	fmt.Fprintf(w, "  tables       %s\n  log, caches  %s\n  catalog      %s\n\nStop with SIGTERM or Ctrl-C.\n", cfg.Warehouse, cfg.Data, catalog)
}
