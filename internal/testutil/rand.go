package testutil

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// Seed returns the value of RSHUB_SEED. If it is not set, Seed returns 1 with -short, or else a new
// seed. It logs the seed.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := uint64(1)
	if text := os.Getenv("RSHUB_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("RSHUB_SEED: %v", err)
		}
	} else if !testing.Short() {
		seed = rand.Uint64() // the test logs its seed
	}
	t.Logf("set RSHUB_SEED=%d to reproduce this run", seed)
	return seed
}

// Rand returns a source of random numbers seeded with Seed. It is not safe for concurrent use.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(Seed(t), 0))
}
