// Package chancetest gives tests their random numbers. With -short they are the same in
// each run. Otherwise they differ, and the test logs how to repeat them.
package chancetest

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

// New returns a source with this seed. One goroutine may use it.
func New(t testing.TB) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(Seed(t), 0))
}
