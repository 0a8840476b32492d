package testutil

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// Seed returns 1 with -short. Otherwise it returns the value of RSHUB_SEED, or a new seed
// in each run, and logs it.
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
	t.Logf("RSHUB_SEED=%d repeats these choices", seed)
	return seed
}

// Rand returns a source of random numbers with the seed of Seed. One goroutine may use it.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(Seed(t), 0))
}
