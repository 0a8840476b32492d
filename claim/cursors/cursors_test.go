package cursors

import (
	"errors"
	"testing"

	"github.com/rshub/rshub/claim"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/memorytest"
	"github.com/rshub/rshub/internal/redisconn"
	"github.com/rshub/rshub/internal/redisconn/conntest"
	"github.com/rshub/rshub/internal/redistest"
)

// TestCursors keeps cursors in both stores, under a claim only, and copies them from each to
// the other.
func TestCursors(t *testing.T) {
	type store struct {
		Cursors
		claims claim.Store
	}
	keep := memorytest.Open(t).Keep("xmpp")
	local, err := claim.OpenLocal(t.Context(), keep, 1)
	if err != nil {
		t.Fatal(err)
	}
	conn := conntest.Open(t, redistest.Start(t).Addr, redisconn.Options{})
	stores := map[string]store{
		"disk":  {OnDisk(keep, local), local},
		"Redis": {InRedis(conn, "p", "xmpp"), claim.NewRedis(conn, "p", "xmpp", claim.RedisOptions{Hubs: "xmpp-hubs"})},
	}
	a, b := feed.Cursor{Position: 1, Micros: 2}, feed.Cursor{Position: 3, Micros: 4}
	for name, s := range stores {
		is := func(set string, want feed.Cursor, there bool) {
			t.Helper()
			if at, ok, err := s.Get(t.Context(), set); err != nil || ok != there || at != want {
				t.Errorf("%s: of set %s it has %v, %v, %v; want %v", name, set, at, ok, err, want)
			}
		}
		acquire := func() claim.Claim {
			t.Helper()
			got, err := s.claims.Acquire(t.Context(), []int{0})
			if err != nil || len(got) != 1 {
				t.Fatal(name, got, err)
			}
			return got[0]
		}
		old := acquire()
		is("demo", feed.Cursor{}, false)
		for _, at := range []feed.Cursor{{}, a, b} {
			if err := s.Put(t.Context(), old, "demo", at); err != nil {
				t.Fatal(name, err)
			}
			is("demo", at, true)
		}
		now := acquire()
		if err := s.Put(t.Context(), old, "demo", a); !errors.Is(err, claim.ErrLost) {
			t.Errorf("%s: under a claim that is lost: %v", name, err)
		}
		is("demo", b, true)
		if err := s.Put(t.Context(), now, name, a); err != nil {
			t.Fatal(name, err)
		}
		if err := s.claims.Release(t.Context(), []claim.Claim{now}); err != nil {
			t.Fatal(name, err)
		}
	}
	for from, to := range map[string]string{"disk": "Redis", "Redis": "disk"} {
		if err := Copy(t.Context(), []string{"demo", from, "none"}, stores[from], stores[to], stores[to].claims); err != nil {
			t.Fatal(err)
		}
		if at, ok, err := stores[to].Get(t.Context(), from); err != nil || !ok || at != a {
			t.Errorf("from %s to %s: %v, %v, %v", from, to, at, ok, err)
		}
	}
}
