package claim

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// A slowStore responds late: its claims last from the time of the request.
type slowStore struct {
	late time.Duration
	ends time.Time // of the claim
}

func (*slowStore) Name() string                           { return "hub" }
func (*slowStore) ClaimFor() time.Duration                { return 5 * time.Second }
func (*slowStore) Join(context.Context) ([]string, error) { return []string{"hub"}, nil }
func (*slowStore) Leave(context.Context) error            { return nil }
func (*slowStore) Release(context.Context, []Claim) error { return nil }
func (s *slowStore) Acquire(_ context.Context, shards []int) ([]Claim, error) {
	s.ends = time.Now().Add(s.ClaimFor())
	time.Sleep(s.late) // in fake time
	return []Claim{{shards[0], 1, "hub"}}, nil
}

func (s *slowStore) Renew(_ context.Context, claims []Claim) ([]Claim, error) {
	s.ends = time.Now().Add(s.ClaimFor())
	time.Sleep(s.late) // in fake time
	return claims, nil
}

// A holder is a Worker that records its hold.
type holder struct{ hold *Hold }

func (w *holder) Gained(h *Hold) { w.hold = h }
func (w *holder) Lost(*Hold)     { w.hold = nil }
func (w *holder) Yield(*Hold)    {}

// A claim is counted from before its request. If it were counted from the response, a hub with a
// slow store would use it while another hub has it.
func TestClaimCountsFromRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := &slowStore{late: 900 * time.Millisecond}, &holder{}
		k := NewKeeper(s, w, 1, nil, slog.New(slog.DiscardHandler))
		for _, what := range []string{"acquired", "renewed", "renewed again"} {
			k.step(t.Context())
			if w.hold == nil {
				t.Fatalf("timeout waiting until the claim is %s", what)
			}
			if left := s.ends.Sub(w.hold.Until()); left < s.ClaimFor()/5 {
				t.Errorf("%s: Until is %v before the end in the store, want %v", what, left, s.ClaimFor()/5)
			}
		}
	})
}
