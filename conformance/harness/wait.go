package harness

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Poll asks done until it is true or the limit has passed. It is the only way the harness waits for a state
// that no one signals.
func Poll(limit time.Duration, done func() bool) bool {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return done()
		case <-tick.C:
		}
	}
	return true
}

// Root is the folder of the repository, found by its go.mod.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", fmt.Errorf("no go.mod above the working directory")
		}
		dir = up
	}
}

// shared holds what one test process starts once and ends at its end.
var shared struct {
	sync.Mutex
	cluster *Cluster // the reference
	second  *Cluster // stands in for Sluice when SLUICE_DSN=postgres
	gateway *Gateway // the lake of all pairs
}

// Main runs the tests of a package and ends every process the harness started, also when the tests are
// interrupted.
func Main(m *testing.M) {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-stop
		endShared()
		os.Exit(1)
	}()
	code := m.Run()
	endShared()
	os.Exit(code)
}

// endShared ends what all tests of the process share.
func endShared() {
	shared.Lock()
	defer shared.Unlock()
	if shared.gateway != nil {
		shared.gateway.End()
	}
	for _, c := range []*Cluster{shared.cluster, shared.second} {
		if c != nil {
			c.Stop()
		}
	}
	shared.gateway, shared.cluster, shared.second = nil, nil, nil
}
