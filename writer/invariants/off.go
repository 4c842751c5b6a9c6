//go:build !invariants

package invariants

// Enabled is true in checked builds.
const Enabled = false
