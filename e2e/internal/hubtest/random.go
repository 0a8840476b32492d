package hubtest

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// Seed returns the seed of the random choices of a test, and logs how to repeat them. The seed
// is RSHUB_E2E_SEED, or usual if that is not set.
func Seed(t *testing.T, usual uint64) uint64 {
	t.Helper()
	seed := usual
	if text := os.Getenv("RSHUB_E2E_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("RSHUB_E2E_SEED: %v", err)
		}
	}
	t.Logf("RSHUB_E2E_SEED=%d", seed)
	return seed
}

// Random returns a source of random choices that differ in each run. See Seed.
func Random(t *testing.T) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(Seed(t, rand.Uint64()%1_000_000), 12))
}
