package activity

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rshub/rshub/feed"
)

// The newest proof of each destination is retained. A caller with many names displaces only its own
// proofs, and their number is bounded.
func TestProofs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(nil, Options{})
		says := func(set string) (all []string) {
			for _, p := range r.Proofs(set) {
				all = append(all, fmt.Sprintf("%s by %s at %d", p.Name, p.By, p.Cursor.Position))
			}
			return all
		}
		prove := func(set, name, by string, position uint64) {
			time.Sleep(time.Second)
			r.AddProof(Proof{Set: set, Name: name, By: by, Cursor: feed.Cursor{Position: position}})
		}
		prove("a", "m", "x", 1)
		prove("a", "m", "y", 2)
		prove("b", "m", "x", 3)
		prove("a", "m", "x", 4)
		if got := fmt.Sprint(says("a"), says("b"), says("c")); got != "[m by x at 4 m by y at 2] [m by x at 3] []" {
			t.Errorf("Proofs() = %s", got)
		}
		if p := r.Proofs("a")[0]; !p.At.Equal(time.Now()) {
			t.Errorf("got At = %v", p.At)
		}
		for i := range 2 * maxCallerProofs {
			prove("a", fmt.Sprint(i), "x", 5)
		}
		if got := says("a"); len(got) != maxCallerProofs+1 || got[maxCallerProofs] != "m by y at 2" || len(says("b")) > 0 {
			t.Errorf("Proofs() = %s and %s", got, says("b"))
		}
		for i := range 2 * maxProofs {
			prove("c", "m", fmt.Sprint("z", i), 6)
		}
		if len(r.Proofs("c")) != maxProofs || len(r.Proofs("a")) > 0 {
			t.Errorf("got %d and %d proofs", len(r.Proofs("c")), len(r.Proofs("a")))
		}
	})
}
