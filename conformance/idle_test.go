package conformance_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"sluice/conformance/harness"
)

// TestIdleLogins: a thousand clients that are logged in and say nothing have no Postgres backend and cost at most 20 KB of resident
// memory each; when they are gone, so are their goroutines.
func TestIdleLogins(t *testing.T) {
	const n, limit = 1000, 20 << 10
	g := harness.StartGateway(t, harness.Options{Args: []string{"--max-clients", strconv.Itoa(n + 1)}})
	s := dial(t, g.DSN())
	defer s.Close()
	exec(t, s, "select 1")
	before, threads := resident(t, g.Pid()), metric(t, g, "go_goroutines")
	clients := make([]*pgconn.PgConn, n)
	for i := range clients {
		c, err := pgconn.Connect(t.Context(), g.DSN())
		if err != nil {
			t.Fatalf("login %d: %v", i+1, err)
		}
		defer c.Close(context.Background())
		clients[i] = c
	}
	each := (resident(t, g.Pid()) - before) / n
	t.Logf("%d bytes of resident memory for each idle login, before them %d; %.0f goroutines each", each, before, (metric(t, g, "go_goroutines")-threads)/n)
	if each > limit {
		t.Errorf("%d bytes of resident memory for each idle login, want at most %d", each, limit)
	}
	row := exec(t, s, "select count(*), count(backend_pid) from sluice.sessions").Rows()[0]
	if *row[0] != strconv.Itoa(n+1) || *row[1] != "1" {
		t.Errorf("%s sessions with %s backends, want %d with 1", *row[0], *row[1], n+1)
	}
	for _, c := range clients {
		c.Close(t.Context())
	}
	if !harness.Poll(harness.Patience, func() bool { return metric(t, g, "go_goroutines") <= threads && metric(t, g, "sluice_sessions") == 1 }) {
		t.Errorf("%v goroutines and %v sessions are left, want %v and 1", metric(t, g, "go_goroutines"), metric(t, g, "sluice_sessions"), threads)
	}
}

// resident is the resident memory of a process in bytes.
func resident(t *testing.T, pid int) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skip(err) // not Linux
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	var kB int64
	if _, err := fmt.Sscan(rest, &kB); err != nil {
		t.Fatal(err)
	}
	return kB << 10
}

// metric is the value of a metric without labels.
func metric(t *testing.T, g *harness.Gateway, name string) float64 {
	t.Helper()
	resp, err := http.Get(g.HTTP() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			v, err := strconv.ParseFloat(text, 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
