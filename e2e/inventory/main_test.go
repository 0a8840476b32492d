// Package inventory tests baselines, Resource Lists and audits, with programs that are killed.
package inventory

import (
	"fmt"
	"os"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestMain also runs destinations: the test binary starts itself as one.
func TestMain(m *testing.M) {
	if os.Getenv(inDirectory) == "" {
		hubtest.Main(m)
	}
	if err := runDestination(); err != nil {
		fmt.Fprintln(os.Stderr, "destination:", err)
		os.Exit(1)
	}
}
