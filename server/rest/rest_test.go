package rest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"sluice/server/rest"
)

// TestMain fails the package if a test leaves a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tables is a catalog with the tables public.orders and "odd/schema"."t.1".
type tables map[string][]string

func (c tables) Namespaces(context.Context) ([]string, error) {
	return []string{"public", "odd/schema", "empty"}, nil
}

func (c tables) Tables(_ context.Context, namespace string) ([]string, error) {
	if namespace == "broken" {
		return nil, errors.New("password=secret: connection refused")
	}
	if list, ok := c[namespace]; ok {
		return list, nil
	}
	return nil, fmt.Errorf("list tables: %w", rest.ErrNoNamespace)
}

func (c tables) Load(ctx context.Context, namespace, name string) (string, []byte, error) {
	list, err := c.Tables(ctx, namespace)
	if err != nil {
		return "", nil, err
	}
	for _, t := range list {
		if t == name {
			return "s3://lake/" + name + "/metadata/v2.json", []byte(`{"format-version":2,"table-uuid":"u"}`), nil
		}
	}
	return "", nil, fmt.Errorf("load table: %w", rest.ErrNoTable)
}

func options() rest.Options {
	return rest.Options{Catalog: tables{"public": {"orders"}, "odd/schema": {"t.1"}, "empty": {}}, Warehouse: "lake",
		Config: map[string]string{"s3.endpoint": "http://store"}}
}

func ask(h http.Handler, method, target string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestRead(t *testing.T) {
	h := rest.New(options())
	const orders = `{"metadata-location":"s3://lake/orders/metadata/v2.json","metadata":{"format-version":2,"table-uuid":"u"},"config":{"s3.endpoint":"http://store"}}`
	for target, want := range map[string]string{
		"/v1/namespaces":                                     `{"namespaces":[["public"],["odd/schema"],["empty"]]}`,
		"/v1/namespaces?pageToken=&pageSize=1":               `{"namespaces":[["public"],["odd/schema"],["empty"]]}`,
		"/v1/lake/namespaces":                                `{"namespaces":[["public"],["odd/schema"],["empty"]]}`,
		"/v1/namespaces?parent=public":                       `{"namespaces":[]}`,
		"/v1/namespaces/public":                              `{"namespace":["public"],"properties":{}}`,
		"/v1/namespaces/odd%2Fschema":                        `{"namespace":["odd/schema"],"properties":{}}`,
		"/v1/namespaces/public/tables":                       `{"identifiers":[{"namespace":["public"],"name":"orders"}]}`,
		"/v1/namespaces/empty/tables":                        `{"identifiers":[]}`,
		"/v1/namespaces/odd%2Fschema/tables":                 `{"identifiers":[{"namespace":["odd/schema"],"name":"t.1"}]}`,
		"/v1/namespaces/public/tables/orders":                orders,
		"/v1/lake/namespaces/public/tables/orders":           orders,
		"/v1/namespaces/public/tables/orders?snapshots=refs": orders,
	} {
		w := ask(h, "GET", target)
		if got := w.Body.String(); w.Code != 200 || got != want || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %s, want %s", target, w.Code, got, want)
		}
	}
}

func TestConfig(t *testing.T) {
	h := rest.New(options())
	for _, target := range []string{"/v1/config", "/v1/config?warehouse=lake", "/v1/config?warehouse="} {
		var answer struct {
			Defaults, Overrides map[string]string
			Endpoints           []string
		}
		w := ask(h, "GET", target)
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != 200 || answer.Defaults == nil || answer.Overrides == nil {
			t.Fatalf("%s: %d %s", target, w.Code, w.Body)
		}
		for _, e := range answer.Endpoints {
			method, path, _ := strings.Cut(e, " ")
			path = strings.NewReplacer("{prefix}", "lake", "{namespace}", "public", "{table}", "orders").Replace(path)
			if code := ask(h, method, path).Code; code != 200 && code != 204 {
				t.Errorf("advertised %s answers %d", e, code)
			}
		}
	}
}

func TestHead(t *testing.T) {
	h := rest.New(options())
	for target, want := range map[string]int{
		"/v1/namespaces/public":                204,
		"/v1/namespaces/nowhere":               404,
		"/v1/namespaces/public/tables/orders":  204,
		"/v1/namespaces/public/tables/nothing": 404,
		"/v1/namespaces/nowhere/tables/orders": 404,
	} {
		if w := ask(h, "HEAD", target); w.Code != want || w.Body.Len() != 0 {
			t.Errorf("%s: %d %s", target, w.Code, w.Body)
		}
	}
}

func TestErrors(t *testing.T) {
	h := rest.New(options())
	for _, test := range []struct {
		method, target string
		code           int
		kind           string
	}{
		{"GET", "/v1/config?warehouse=other", 404, "NoSuchWarehouseException"},
		{"POST", "/v1/config", 405, "UnsupportedOperationException"},
		{"GET", "/v1/namespaces?parent=nowhere", 404, "NoSuchNamespaceException"},
		{"GET", "/v1/namespaces/nowhere", 404, "NoSuchNamespaceException"},
		{"GET", "/v1/namespaces/public%1Fdeeper", 404, "NoSuchNamespaceException"},
		{"GET", "/v1/namespaces/nowhere/tables", 404, "NoSuchNamespaceException"},
		{"GET", "/v1/namespaces/public/tables/nothing", 404, "NoSuchTableException"},
		{"GET", "/v1/namespaces/nowhere/tables/orders", 404, "NoSuchTableException"},
		{"GET", "/v1/other/namespaces", 404, "NoSuchEndpointException"},
		{"GET", "/v1/namespaces/public/views", 404, "NoSuchEndpointException"},
		{"GET", "/v1/oauth/tokens", 404, "NoSuchEndpointException"},
		{"GET", "/v1/", 404, "NoSuchEndpointException"},
		{"GET", "/", 404, "NoSuchEndpointException"},
		{"GET", "/v2/namespaces", 404, "NoSuchEndpointException"},
		{"GET", "/v1/namespaces/broken/tables", 500, "InternalServerError"},
		{"POST", "/v1/namespaces", 406, "UnsupportedOperationException"},
		{"POST", "/v1/lake/namespaces", 406, "UnsupportedOperationException"},
		{"DELETE", "/v1/namespaces/public", 406, "UnsupportedOperationException"},
		{"POST", "/v1/namespaces/public/tables", 406, "UnsupportedOperationException"},
		{"POST", "/v1/namespaces/public/tables/orders", 406, "UnsupportedOperationException"},
		{"DELETE", "/v1/namespaces/public/tables/orders", 406, "UnsupportedOperationException"},
		{"POST", "/v1/namespaces/public/register", 406, "UnsupportedOperationException"},
		{"POST", "/v1/tables/rename", 406, "UnsupportedOperationException"},
		{"POST", "/v1/lake/transactions/commit", 406, "UnsupportedOperationException"},
		{"POST", "/v1/oauth/tokens", 404, "NoSuchEndpointException"},
	} {
		w := ask(h, test.method, test.target)
		var answer struct {
			Error struct {
				Message, Type string
				Code          int
			}
		}
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != test.code || answer.Error.Type != test.kind ||
			answer.Error.Code != test.code || answer.Error.Message == "" || strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%s %s: %d %s", test.method, test.target, w.Code, w.Body)
		}
	}
}

func TestScanReportsAreTaken(t *testing.T) {
	if w := ask(rest.New(options()), "POST", "/v1/lake/namespaces/public/tables/orders/metrics"); w.Code != 204 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestETag(t *testing.T) {
	h := rest.New(options())
	tag := ask(h, "GET", "/v1/namespaces/public/tables/orders").Header().Get("ETag")
	if w := ask(h, "GET", "/v1/namespaces/public/tables/orders", "If-None-Match", tag); w.Code != 304 || w.Body.Len() != 0 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := ask(h, "GET", "/v1/namespaces/public/tables/orders", "If-None-Match", `"old"`); w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestHealthAndMetrics(t *testing.T) {
	o := options()
	var notReady error
	o.Ready = func(context.Context) error { return notReady }
	registry := prometheus.NewRegistry()
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "sluice_tail_bytes", Help: "Bytes not yet in files."})
	gauge.Set(42)
	registry.MustRegister(gauge)
	o.Metrics = registry
	h := rest.New(o)
	if w := ask(h, "GET", "/healthz"); w.Code != 200 || w.Body.String() != "ok\n" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	notReady = errors.New("replaying the log")
	if w := ask(h, "GET", "/healthz"); w.Code != 503 || w.Body.String() != "replaying the log\n" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := ask(h, "GET", "/v1/namespaces"); w.Code != 503 || !strings.Contains(w.Body.String(), "ServiceUnavailableException") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := ask(h, "GET", "/metrics"); w.Code != 200 || !strings.Contains(w.Body.String(), "sluice_tail_bytes 42") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestServeDrains: a request that has begun is answered although the server is being stopped.
func TestServeDrains(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopping := make(chan struct{})
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cancel()
		<-stopping
		io.WriteString(w, "done")
	})
	served := make(chan error, 1)
	go func() { served <- rest.Serve(ctx, l, h, slog.New(slog.DiscardHandler)) }()
	context.AfterFunc(ctx, func() { close(stopping) })
	defer http.DefaultClient.CloseIdleConnections()
	resp, err := http.Get("http://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err := <-served; err != nil || string(body) != "done" {
		t.Errorf("%s %v", body, err)
	}
}

func TestServeFails(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := rest.Serve(context.Background(), l, http.NotFoundHandler(), slog.New(slog.DiscardHandler)); err == nil {
		t.Error("served on a closed listener")
	}
}
