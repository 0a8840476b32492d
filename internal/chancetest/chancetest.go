// Package chancetest is what tests choose at random with. What the gate runs chooses the same
// each time; the long tests choose anew, and say how to repeat it.
package chancetest

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// Seed returns 1 with -short. Otherwise it is another in each run, and in the test's log;
// RSHUB_SEED sets it.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := uint64(1)
	if text := os.Getenv("RSHUB_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("RSHUB_SEED: %v", err)
		}
	} else if !testing.Short() {
		seed = rand.Uint64()
	}
	t.Logf("RSHUB_SEED=%d repeats these choices", seed)
	return seed
}

// New returns a source with such a seed. It is for one goroutine.
func New(t testing.TB) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(Seed(t), 0))
}
