package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"testing"
)

// TestWebBeforeReady: what is on --http says that the gateway is starting, then what it is given.
func TestWebBeforeReady(t *testing.T) {
	w, err := openWeb("127.0.0.1:0", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string) string {
		t.Helper()
		resp, err := http.Get("http://" + w.addr + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return fmt.Sprint(resp.StatusCode, " ", string(body))
	}
	if got, want := get("/healthz"), "503 "+errStarting.Error()+"\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := get("/v1/namespaces"); got[:3] != "503" {
		t.Errorf("got %q", got)
	}
	w.show(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { io.WriteString(rw, "shown") }))
	if got := get("/healthz"); got != "200 shown" {
		t.Errorf("got %q", got)
	}
	if _, err := openWeb(w.addr, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("two listen on one port")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := errors.Join(w.run(ctx), w.close()); err != nil {
		t.Error(err)
	}
	http.DefaultClient.CloseIdleConnections()
}
