// Package inventory tests what a hub knows of the resources of a set: baselines, Resource
// Lists and audits, with programs that are killed.
package inventory

import (
	"os"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// The program of the tests is also that of their destinations.
func TestMain(m *testing.M) {
	if os.Getenv(asDestination) != "" {
		beDestination()
		return
	}
	hubtest.Main(m)
}

// full reports whether the tests run in their full size.
func full() bool { return os.Getenv("RSHUB_E2E_FULL") != "" }

// size returns what a test does much of: less by default than in full size.
func size(usual, whole int) int {
	if full() {
		return whole
	}
	return usual
}
