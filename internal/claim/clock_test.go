package claim

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/internal/redisconn"
	"github.com/rshub/rshub/internal/testutil/conntest"
	"github.com/rshub/rshub/internal/testutil/redistest"
)

// storeOn returns a hub's Store on a server.
func storeOn(t testing.TB, s *redistest.Server) *Redis {
	return NewRedis(conntest.Open(t, s.Addr, redisconn.Options{}), "p", "work", RedisOptions{})
}

// An idler is a Worker that ignores its claims.
type idler struct{}

func (idler) Gained(*Hold) {}
func (idler) Lost(*Hold)   {}
func (idler) Yield(*Hold)  {}

// A hub with a skewed clock is not alive and has no claims, because it would end leases that have
// not expired.
func TestHubWithSkewedClockHasNoClaims(t *testing.T) {
	s := redistest.Start(t)
	one, other := storeOn(t, s), storeOn(t, s)
	ahead := time.Duration(0)
	one.now = func() time.Time { return time.Now().Add(ahead) }
	if live, err := one.Join(t.Context()); err != nil || len(live) != 1 {
		t.Fatalf("Join() = %v, %v", live, err)
	}
	k := NewKeeper(one, idler{}, shards, nil, slog.New(slog.DiscardHandler))
	k.step(t.Context())
	if len(k.held) != shards {
		t.Fatalf("got %d claims", len(k.held))
	}
	for _, ahead = range []time.Duration{11 * 24 * time.Hour, -2 * time.Minute} {
		if live, err := one.Join(t.Context()); !errors.Is(err, ErrClock) {
			t.Errorf("%v ahead: Join() = %v, %v", ahead, live, err)
		}
	}
	if live, err := other.Join(t.Context()); err != nil || len(live) != 1 || live[0] != other.Name() {
		t.Errorf("Join() = %v, %v", live, err)
	}
	k.step(t.Context())
	for _, h := range k.held {
		if !h.yielding {
			t.Fatal("claims were not yielded")
		}
	}
}

// A claim that was made while the clock of Redis was ahead does not prevent other hubs from
// acquiring its shard after its hub has died.
func TestClaimMadeByFastClockExpires(t *testing.T) {
	s := redistest.Start(t)
	r := storeOn(t, s)
	now, err := s.Client().Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	for shard, until := range map[int]time.Time{3: now.Add(time.Hour), 4: now.Add(claimFor - time.Second)} {
		if err := s.Client().HSet(t.Context(), r.claimKey(shard), "hub", "dead", "number", "17", "until", fmt.Sprint(until.UnixMicro())).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := r.Acquire(t.Context(), []int{3, 4}); err != nil || len(got) != 1 || got[0].Shard != 3 {
		t.Errorf("Acquire() = %v, %v", got, err)
	}
}

// While Redis is unavailable, a hub logs its failures once per minute, and not at each step.
func TestFailuresAreLoggedOncePerMinute(t *testing.T) {
	s := redistest.Start(t)
	var logged bytes.Buffer
	var clock time.Duration
	k := NewKeeper(storeOn(t, s), idler{}, shards, func() time.Duration { return clock }, slog.New(slog.NewTextHandler(&logged, nil)))
	s.Kill()
	for range 130 {
		k.step(t.Context())
		clock += time.Second
	}
	if n := strings.Count(logged.String(), "joining the hubs failed"); n != 3 {
		t.Errorf("logged %d times, want 3", n)
	}
}
