package conformance_test

import (
	"testing"

	"sluice/conformance/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
