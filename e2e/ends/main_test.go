// Package ends tests both ends of the wire at once: directories, static sites and
// repositories at one end, mirrors and commands at the other, with every program between
// them killed again and again.
package ends

import (
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

func TestMain(m *testing.M) {
	hubtest.Patience = 3 * time.Minute // a content that failed three times is tried again after 10 s, and then 20 s
	if full() {
		hubtest.Patience = 15 * time.Minute
	}
	hubtest.Main(m)
}

// full reports whether the tests run in their full size.
func full() bool { return os.Getenv("RSHUB_E2E_FULL") != "" }

// size returns what a test does much of: less by default than in full size.
func size[T any](usual, whole T) T {
	if full() {
		return whole
	}
	return usual
}

// Choices are what a test chooses at random: each part of it has a source of its own,
// because the parts go on at the same time.
type choices uint64

// choose returns the choices of a test.
func choose(t *testing.T) choices {
	t.Helper()
	return choices(hubtest.Seed(t, rand.Uint64()%1_000_000))
}

// of returns the choices of one part.
func (c choices) of(part uint64) *rand.Rand { return rand.New(rand.NewPCG(uint64(c), part)) }
