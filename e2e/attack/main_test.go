// Package attack tests what those who mean harm try, on a hub that others use at the same
// time. RSHUB_E2E_FULL makes each attack ten times as large, and longer.
package attack

import (
	"os"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

func TestMain(m *testing.M) { hubtest.Main(m) }

// full reports whether attacks have their full size.
func full() bool { return os.Getenv("RSHUB_E2E_FULL") != "" }

// many returns n, or ten times as much in full size.
func many(n int) int {
	if full() {
		return 10 * n
	}
	return n
}
