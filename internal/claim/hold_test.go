package claim

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// A claim expires even while the machine is suspended and Go's own clock stops. A clock that is set
// back does not extend it.
func TestHoldExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := time.Duration(0)
		k := NewKeeper(nil, idler{}, shards, func() time.Duration { return clock }, slog.New(slog.DiscardHandler))
		hold := func() *Hold {
			h := &Hold{clock: k.clock}
			h.until.Store(k.deadlineIn(4 * time.Second))
			return h
		}
		pass := func(awake, suspended time.Duration) {
			time.Sleep(awake)
			clock += awake + suspended
		}
		for _, test := range []struct {
			awake, suspended time.Duration
			over             bool
		}{
			{3 * time.Second, 0, false}, {4 * time.Second, 0, true}, {0, 3 * time.Second, false}, {0, 4 * time.Second, true},
			{2 * time.Second, 2 * time.Second, true}, {3 * time.Second, -time.Hour, false}, {4 * time.Second, -time.Hour, true},
		} {
			h := hold()
			pass(test.awake, test.suspended)
			if h.Expired() != test.over {
				t.Errorf("after %v awake and %v suspended: Expired() = %v", test.awake, test.suspended, h.Expired())
			}
		}
	})
}

// The clock of the machine advances.
func TestSinceBoot(t *testing.T) {
	before := sinceBoot()
	if before <= 0 || sinceBoot() < before {
		t.Errorf("sinceBoot() = %v, then %v", before, sinceBoot())
	}
}
