package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sluice/catalogpg"
	"sluice/server"
	"sluice/server/reader"
	"sluice/server/rest"
	"sluice/server/wire"
	"sluice/writer"
	"sluice/writer/catalog"
	"sluice/writer/format/iceberg"
	"sluice/writer/objstore"
	"sluice/writer/table"
)

// parts is what serve and fsck stand on: the catalog Postgres, the object store, the table format, and the tables.
type parts struct {
	cluster *catalogpg.Embedded // nil with --catalog
	catalog *catalogpg.Catalog
	objects objstore.Store
	format  *iceberg.Format
	tables  server.Tables
	readers *reader.Pool // nil unless the tables' files are on this machine
}

func openParts(ctx context.Context, cfg config, log *slog.Logger) (p *parts, err error) {
	p = &parts{}
	defer func() {
		if err != nil {
			p.close(log)
		}
	}()
	if err := os.MkdirAll(cfg.Data, 0o755); err != nil {
		return p, fmt.Errorf("make data folder: %w", err)
	}
	c := catalogpg.Config{ConnString: string(cfg.Catalog), Database: cfg.Database, Log: log}
	if cfg.Catalog == "" {
		if p.cluster, err = catalogpg.StartEmbedded(ctx, filepath.Join(cfg.Data, "catalog"), log); err != nil {
			return p, err
		}
		c.Embedded = p.cluster
	}
	if p.catalog, err = catalogpg.Open(ctx, c); err != nil {
		return p, err
	}
	if p.objects, err = openStore(cfg); err != nil {
		return p, err
	}
	p.format = iceberg.Open(p.objects, iceberg.Options{Now: time.Now})
	return p, nil
}

// openStore opens the warehouse: a directory or s3://bucket/prefix.
func openStore(cfg config) (objstore.Store, error) {
	rest, ok := strings.CutPrefix(cfg.Warehouse, "s3://")
	if !ok {
		return objstore.OpenDir(cfg.Warehouse)
	}
	bucket, prefix, _ := strings.Cut(rest, "/")
	if bucket == "" {
		return nil, fmt.Errorf("%w: --warehouse %s names no bucket", errUsage, cfg.Warehouse)
	}
	o := objstore.S3Options{Endpoint: "s3.amazonaws.com", Region: cfg.S3Region, Bucket: bucket, Prefix: prefix, PathStyle: cfg.S3PathStyle,
		AccessKey: os.Getenv("AWS_ACCESS_KEY_ID"), SecretKey: os.Getenv("AWS_SECRET_ACCESS_KEY"), SessionToken: os.Getenv("AWS_SESSION_TOKEN")}
	if cfg.S3Endpoint != "" {
		u, err := url.Parse(cfg.S3Endpoint)
		if err != nil || u.Host == "" {
			return nil, fmt.Errorf("%w: --s3-endpoint is not a URL", errUsage)
		}
		o.Endpoint, o.Insecure = u.Host, u.Scheme == "http"
	}
	return objstore.OpenS3(o)
}

// run watches the private Postgres and listens for what other gateways say.
func (p *parts) run(ctx context.Context) error {
	if p.cluster == nil {
		return p.catalog.Run(ctx)
	}
	return runBoth(ctx, p.cluster.Run, p.catalog.Run)
}

func (p *parts) close(log *slog.Logger) {
	if p.readers != nil {
		p.readers.Close()
	}
	if p.catalog != nil {
		p.catalog.Close()
	}
	if p.cluster != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := p.cluster.Stop(ctx); err != nil {
			log.Error("stop catalog", "error", err)
		}
	}
}

func (p *parts) openWriter(ctx context.Context, cfg config, log *slog.Logger) (*writer.Writer, error) {
	return writer.Open(ctx, writer.Options{Dir: filepath.Join(cfg.Data, "wal"), Keys: filepath.Join(cfg.Data, "keys"), Catalog: p.catalog, Objects: p.objects, Format: p.format,
		Partition: iceberg.PartitionValues,
		Memory:    int64(cfg.Memory), FlushAge: cfg.FlushAge, FlushBytes: int64(cfg.FlushBytes), CompactAge: cfg.CompactAge, ExpireAge: cfg.ExpireAge, Log: log,
		Tables: func(ctx context.Context, state catalog.State) ([]writer.TableDef, error) {
			return p.tables.Defs(ctx, p.catalog, state)
		}})
}

func (p *parts) newServer(ctx context.Context, cfg config, w *writer.Writer, log *slog.Logger) (*server.Server, error) {
	o := server.Options{Catalog: p.catalog, Writer: w, History: p.format.History, CheckPartition: iceberg.CheckPartition, Log: log, Trust: cfg.Trust(), ExactLimit: cfg.ExactLimit, ScanRows: cfg.ScanRows, MaxClients: cfg.MaxClients,
		Wire: wire.Options{StartupTimeout: cfg.StartupTimeout, MaxMessage: int(cfg.MaxMessage)}}
	if cfg.TLSCert != "" {
		cert, err := tls.LoadX509KeyPair(cfg.TLSCert, cfg.TLSKey)
		if err != nil {
			return nil, fmt.Errorf("load certificate: %w", err)
		}
		o.Wire.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
		o.Wire.RequireTLS = !cfg.InsecureListen && !loopback(cfg.Listen)
	}
	if dir, local := strings.CutPrefix(p.objects.Root(), "file://"); local {
		p.readers = reader.NewPool(reader.Options{Roots: []string{dir}, Log: log})
		o.Reader = p.readers
	}
	return server.New(ctx, o, &p.tables)
}

// catalogTimeout is how long a catalog that is in order may take for its shortest answer.
const catalogTimeout = 2 * time.Second

// ready is why clients cannot be served now. What happened exactly is in the log: the reason is shown to anyone who asks.
func (p *parts) ready(w *writer.Writer, log *slog.Logger) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := w.Failed(); err != nil {
			return errors.New("the log takes no more commits")
		}
		ctx, cancel := context.WithTimeout(ctx, catalogTimeout)
		defer cancel()
		if err := p.catalog.Ping(ctx); err != nil {
			log.Warn("not ready", "error", err)
			return errors.New("the catalog does not answer")
		}
		return nil
	}
}

// lake shows the tables to the REST catalog.
type lake struct{ p *parts }

// Namespaces implements rest.Catalog.
func (l lake) Namespaces(ctx context.Context) ([]string, error) {
	state, err := l.p.catalog.Load(ctx)
	if err != nil {
		return nil, err
	}
	names := []string{"public"}
	for _, t := range state.Tables {
		if names[len(names)-1] != t.Namespace && !contains(names, t.Namespace) {
			names = append(names, t.Namespace)
		}
	}
	return names, nil
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// Tables implements rest.Catalog.
func (l lake) Tables(ctx context.Context, namespace string) ([]string, error) {
	namespaces, err := l.Namespaces(ctx)
	if err != nil {
		return nil, err
	}
	if !contains(namespaces, namespace) {
		return nil, rest.ErrNoNamespace
	}
	state, err := l.p.catalog.Load(ctx)
	if err != nil {
		return nil, err
	}
	names := []string{}
	for _, t := range state.Tables {
		if t.Namespace == namespace && t.Pointer.Location != "" {
			names = append(names, t.Name)
		}
	}
	return names, nil
}

// Load implements rest.Catalog.
func (l lake) Load(ctx context.Context, namespace, name string) (string, []byte, error) {
	state, err := l.p.catalog.Load(ctx)
	if err != nil {
		return "", nil, err
	}
	known := namespace == "public"
	for _, t := range state.Tables {
		known = known || t.Namespace == namespace
		if t.Namespace == namespace && t.Name == name && t.Pointer.Location != "" {
			text, err := l.p.format.Metadata(ctx, table.Pointer{Location: t.Pointer.Location})
			return t.Pointer.Location, text, err
		}
	}
	if !known {
		return "", nil, rest.ErrNoNamespace
	}
	return "", nil, rest.ErrNoTable
}

// runBoth runs two parts until ctx ends or one fails.
func runBoth(ctx context.Context, a, b func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	first := make(chan error, 2)
	for _, run := range []func(context.Context) error{a, b} {
		go func() { first <- run(ctx) }()
	}
	err := <-first
	cancel()
	return errors.Join(err, <-first)
}
