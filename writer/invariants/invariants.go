// Package invariants says whether this is a checked build (go build -tags invariants), in which broken invariants panic.
package invariants

import "fmt"

// Check panics in checked builds if ok is false. The text names the invariant (I1 to I13 in ARCHITECTURE.md).
func Check(ok bool, format string, args ...any) {
	if Enabled && !ok {
		panic("invariant: " + fmt.Sprintf(format, args...))
	}
}
