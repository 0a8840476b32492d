package client

import (
	"fmt"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/resourcesync"
)

// TestOwnListFirstState checks that the first state of a comparison remains readable after any
// number of later ones, and that the next comparison replaces it.
func TestOwnListFirstState(t *testing.T) {
	const n = 2_000
	l := &ownList{pages: inventory.NewMemory(), set: "demo", resources: func(yield func(*feed.Entry, error) bool) {
		for i := range n {
			if !yield(&feed.Entry{Change: resourcesync.Change{Loc: fmt.Sprintf("urn:%06d", i), Hash: "md5:00"}}, nil) {
				return
			}
		}
	}}
	for comparison := range 2 {
		l.resetStates()
		first, err := l.collectState(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range 4 {
			if _, err := l.collectState(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		got := 0
		for _, err := range first.Walk(t.Context(), inventory.Range{}) {
			if err != nil {
				t.Fatalf("comparison %d: Walk after %d resources: %v", comparison, got, err)
			}
			got++
		}
		if got != n {
			t.Errorf("comparison %d: Walk yields %d resources, want %d", comparison, got, n)
		}
	}
}
