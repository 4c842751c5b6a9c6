// Package rest is what the gateway says over HTTP: the Iceberg REST catalog, read-only, for engines that read the tables from
// outside, and /healthz and /metrics for whoever runs it.
//
// Start with New, which makes the handler, and Serve, which runs it. The package shows what a Catalog tells it and caches
// nothing; it never writes, asks for no password (the caller decides where it may listen) and never shows the text of an
// internal error.
package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// What a Catalog says when something is not there.
var (
	ErrNoNamespace = errors.New("no such namespace")
	ErrNoTable     = errors.New("no such table")
)

// Catalog is what there is to show. A namespace is a schema.
type Catalog interface {
	// Namespaces lists the schemas that may hold lake tables, in a stable order.
	Namespaces(ctx context.Context) ([]string, error)
	// Tables lists the lake tables of a namespace, in a stable order; ErrNoNamespace if there is no such namespace.
	Tables(ctx context.Context, namespace string) ([]string, error)
	// Load returns where the current metadata of a table is, and the metadata (JSON); ErrNoNamespace or ErrNoTable.
	Load(ctx context.Context, namespace, name string) (location string, metadata []byte, err error)
}

// Options are what the handler shows.
type Options struct {
	Catalog   Catalog
	Warehouse string                      // name of the warehouse, which is also the optional prefix: the database
	Config    map[string]string           // given to clients with every table, such as s3.endpoint; no secrets
	Ready     func(context.Context) error // why the gateway takes no queries now, for anyone to read; nil: it does
	Metrics   prometheus.Gatherer         // nil: no /metrics
	Log       *slog.Logger
}

// New makes the handler of everything on --http.
func New(o Options) http.Handler {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", o.health)
	if o.Metrics != nil {
		mux.Handle("GET /metrics", promhttp.HandlerFor(o.Metrics, promhttp.HandlerOpts{}))
	}
	c := &catalog{o}
	mux.HandleFunc("/v1/", c.serve)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { fail(w, r, errNoRoute) })
	return mux
}

// health answers 200 while the gateway takes queries, else 503 with the reason.
func (o *Options) health(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if o.Ready != nil {
		if err := o.Ready(r.Context()); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintln(w, err)
			return
		}
	}
	fmt.Fprintln(w, "ok")
}

const (
	headerTimeout = 10 * time.Second // a client that takes longer for its headers is up to no good
	idleTimeout   = 2 * time.Minute
	drainTimeout  = 5 * time.Second // requests are short; what is not done by then is cut
)

// Serve runs the handler on l until ctx ends, lets the requests under way finish, and returns nil.
func Serve(ctx context.Context, l net.Listener, h http.Handler, log *slog.Logger) error {
	s := &http.Server{Handler: h, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	drained := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
		defer cancel()
		drained <- s.Shutdown(grace)
	})
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		stop()
		return fmt.Errorf("serve http: %w", err)
	}
	if err := <-drained; err != nil {
		_ = s.Close() // the grace is over
	}
	return nil
}

// catalog answers below /v1. Paths are taken apart by hand: names may hold escaped slashes, and the prefix is optional.
type catalog struct{ Options }

func (c *catalog) serve(w http.ResponseWriter, r *http.Request) {
	body, err := c.route(w, r)
	switch {
	case err != nil:
		c.fail(w, r, err)
	case body == nil:
		w.WriteHeader(http.StatusNoContent)
	default:
		writeJSON(w, http.StatusOK, body)
	}
}

// route finds the answer: a body for 200, nil for 204.
func (c *catalog) route(w http.ResponseWriter, r *http.Request) (any, error) {
	path, err := segments(r.URL)
	if err != nil {
		return nil, err
	}
	if len(path) == 1 && path[0] == "config" {
		return c.config(r)
	}
	if len(path) > 1 && path[0] == c.Warehouse && path[0] != "namespaces" {
		path = path[1:]
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return nil, c.write(r, path)
	}
	if c.Ready != nil {
		if err := c.Ready(r.Context()); err != nil {
			return nil, &apiError{http.StatusServiceUnavailable, "ServiceUnavailableException", err.Error()}
		}
	}
	return c.read(w, r, path)
}

// segments splits the path below /v1.
func segments(u *url.URL) ([]string, error) {
	path := strings.Split(strings.TrimSuffix(strings.TrimPrefix(u.EscapedPath(), "/v1/"), "/"), "/")
	for i, s := range path {
		var err error
		if path[i], err = url.PathUnescape(s); err != nil {
			return nil, &apiError{http.StatusBadRequest, "BadRequestException", "malformed path"}
		}
	}
	return path, nil
}

func (c *catalog) read(w http.ResponseWriter, r *http.Request, path []string) (any, error) {
	ctx, exists := r.Context(), r.Method == http.MethodHead
	if path[0] != "namespaces" {
		return nil, errNoRoute
	}
	switch {
	case len(path) == 1 && !exists:
		return c.namespaces(ctx, r.URL.Query().Get("parent"))
	case len(path) == 2:
		return c.namespace(ctx, path[1], exists)
	case len(path) == 3 && path[2] == "tables" && !exists:
		return c.tables(ctx, path[1])
	case len(path) == 4 && path[2] == "tables":
		return c.table(w, r, path[1], path[3])
	}
	return nil, errNoRoute
}

// endpoints is what clients may use; they try nothing else.
var endpoints = []string{
	"GET /v1/{prefix}/namespaces",
	"GET /v1/{prefix}/namespaces/{namespace}",
	"HEAD /v1/{prefix}/namespaces/{namespace}",
	"GET /v1/{prefix}/namespaces/{namespace}/tables",
	"GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
	"HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
}

type configAnswer struct {
	Defaults  map[string]string `json:"defaults"`
	Overrides map[string]string `json:"overrides"`
	Endpoints []string          `json:"endpoints"`
}

func (c *catalog) config(r *http.Request) (any, error) {
	if r.Method != http.MethodGet {
		return nil, errMethod
	}
	if asked := r.URL.Query().Get("warehouse"); asked != "" && asked != c.Warehouse {
		return nil, &apiError{http.StatusNotFound, "NoSuchWarehouseException",
			fmt.Sprintf("Warehouse %s does not exist: the warehouse is the database, %s", asked, c.Warehouse)}
	}
	return configAnswer{map[string]string{}, map[string]string{}, endpoints}, nil
}

type namespacesAnswer struct {
	Namespaces [][]string `json:"namespaces"`
}

// namespaces lists all of them, or those below parent: there are none below a schema.
func (c *catalog) namespaces(ctx context.Context, parent string) (any, error) {
	if parent != "" {
		if _, err := c.Catalog.Tables(ctx, parent); err != nil {
			return nil, naming(err, parent, "")
		}
		return namespacesAnswer{[][]string{}}, nil
	}
	names, err := c.Catalog.Namespaces(ctx)
	if err != nil {
		return nil, err
	}
	list := make([][]string, len(names))
	for i, n := range names {
		list[i] = []string{n}
	}
	return namespacesAnswer{list}, nil
}

type namespaceAnswer struct {
	Namespace  []string          `json:"namespace"`
	Properties map[string]string `json:"properties"`
}

func (c *catalog) namespace(ctx context.Context, name string, exists bool) (any, error) {
	if _, err := c.Catalog.Tables(ctx, name); err != nil || exists {
		return nil, naming(err, name, "")
	}
	return namespaceAnswer{[]string{name}, map[string]string{}}, nil
}

type identifier struct {
	Namespace []string `json:"namespace"`
	Name      string   `json:"name"`
}

type tablesAnswer struct {
	Identifiers []identifier `json:"identifiers"`
}

func (c *catalog) tables(ctx context.Context, namespace string) (any, error) {
	names, err := c.Catalog.Tables(ctx, namespace)
	if err != nil {
		return nil, naming(err, namespace, "")
	}
	list := make([]identifier, len(names))
	for i, n := range names {
		list[i] = identifier{[]string{namespace}, n}
	}
	return tablesAnswer{list}, nil
}

type tableAnswer struct {
	MetadataLocation string            `json:"metadata-location"`
	Metadata         json.RawMessage   `json:"metadata"`
	Config           map[string]string `json:"config"`
}

func (c *catalog) table(w http.ResponseWriter, r *http.Request, namespace, name string) (any, error) {
	location, metadata, err := c.Catalog.Load(r.Context(), namespace, name)
	if err != nil || r.Method == http.MethodHead {
		return nil, naming(err, namespace, name)
	}
	// A metadata file never changes, so its location names the state of the table.
	w.Header().Set("ETag", etag(location))
	if r.Header.Get("If-None-Match") == etag(location) {
		return nil, errNotModified
	}
	config := c.Config
	if config == nil {
		config = map[string]string{}
	}
	return tableAnswer{location, metadata, config}, nil
}

func etag(location string) string { return `"` + url.PathEscape(location) + `"` }

// write refuses what changes something, after taking reports that clients send unasked.
func (c *catalog) write(r *http.Request, path []string) error {
	if r.Method == http.MethodPost && len(path) == 5 && path[0] == "namespaces" && path[2] == "tables" && path[4] == "metrics" {
		return nil // a scan report: nobody reads it here
	}
	switch path[0] {
	case "namespaces", "tables", "transactions", "views":
		return errReadOnly
	}
	return errNoRoute
}
