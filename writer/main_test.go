package writer_test

import (
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"testing"
)

// TestMain fails if a goroutine is left over.
func TestMain(m *testing.M) {
	before := runtime.NumGoroutine()
	code := m.Run()
	for range 1000 {
		if runtime.NumGoroutine() <= before {
			os.Exit(code)
		}
		runtime.Gosched()
		runtime.GC()
	}
	fmt.Fprintln(os.Stderr, "goroutines left over:")
	_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
	os.Exit(1)
}
