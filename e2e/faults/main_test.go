// Package faults tests the built programs while faults happen to them at random, and then
// checks what they have. One harness starts a cluster (stage), chooses what happens (fault),
// notes what was acknowledged (ledger), and checks that everybody has it (check). On it stand
// three scenarios:
//
//	TestSoak          a cluster under load, with every way of following
//	TestLinearizable  what concurrent callers see of two hubs, held against one memory
//	TestEnds          from a directory, a site or a repository to a mirror
package faults

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

func TestMain(m *testing.M) {
	hubtest.Patience = size(time.Minute, 15*time.Minute) // a content that failed three times is tried again after 10 s, and then 20 s
	hubtest.Main(m)
}

// size returns what a test does much of: less by default than with RSHUB_E2E_FULL.
func size[T any](usual, whole T) T {
	if os.Getenv("RSHUB_E2E_FULL") != "" {
		return whole
	}
	return usual
}

// A seed is what all choices of a test follow from.
type seed uint64

// of returns the choices of one part of a test. Each part has its own, because the parts go
// on at the same time.
func (s seed) of(part int) *rand.Rand { return rand.New(rand.NewPCG(uint64(s), uint64(part))) }

// upTo returns a random time below most.
func upTo(r *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(most)))
}

// A tally counts what happened, for the log.
type tally struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *tally) add(what string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[what] += n
}

func (c *tally) count(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[what]
}

func (c *tally) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	for _, what := range slices.Sorted(maps.Keys(c.n)) {
		fmt.Fprintf(&b, "\n%9d %s", c.n[what], what)
	}
	return b.String()
}
