// Package inventory tests what a hub knows of the resources of a set: baselines, Resource
// Lists and audits, with programs that are killed.
package inventory

import (
	"math/rand/v2"
	"os"
	"strconv"
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

// random returns the choices of a test, and says how to repeat them: RSHUB_E2E_SEED is
// the seed.
func random(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64() % 1_000_000
	if text := os.Getenv("RSHUB_E2E_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("RSHUB_E2E_SEED: %v", err)
		}
	}
	t.Logf("RSHUB_E2E_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 12))
}
