package callback

import (
	"os"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// full reports whether the test runs in full size, as for a soak: alone, and with longer timeouts.
func full(t *testing.T) bool {
	if os.Getenv("RSHUB_E2E_FULL") == "" {
		t.Parallel()
		return false
	}
	hubtest.Timeout *= 10
	t.Cleanup(func() { hubtest.Timeout /= 10 })
	return true
}
