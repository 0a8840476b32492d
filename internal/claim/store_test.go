package claim_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/rshub/rshub/internal/claim"
	"github.com/rshub/rshub/internal/claim/claimtest"
	"github.com/rshub/rshub/internal/redisconn"
	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/internal/testutil/conntest"
	"github.com/rshub/rshub/internal/testutil/redistest"
)

func TestLocal(t *testing.T) {
	t.Parallel()
	claimtest.Run(t, claimtest.Backend{New: func(t *testing.T) claimtest.Place {
		k := &testutil.Map{}
		return claimtest.Place{Open: func() claim.Store {
			l, err := claim.OpenLocal(t.Context(), k, claimtest.Shards)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}}
	}})
}

// claimsOn returns the Backend of a Redis server. Its places have different prefixes.
func claimsOn(restart func(), conn func(testing.TB) *redisconn.Conn) claimtest.Backend {
	places := 0
	return claimtest.Backend{Shared: true, New: func(t *testing.T) claimtest.Place {
		places++
		prefix := "p" + strconv.Itoa(places)
		return claimtest.Place{Restart: restart, Open: func() claim.Store {
			return claim.NewRedis(conn(t), prefix, "work", claim.RedisOptions{ClaimFor: 300 * time.Millisecond, LiveFor: 200 * time.Millisecond})
		}}
	}}
}

func TestRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	claimtest.Run(t, claimsOn(func() { s.Kill(); s.Restart() }, func(t testing.TB) *redisconn.Conn { return conntest.Open(t, s.Addr, redisconn.Options{}) }))
}

func TestRedisCluster(t *testing.T) {
	t.Parallel()
	s := redistest.StartCluster(t)
	claimtest.Run(t, claimsOn(nil, func(t testing.TB) *redisconn.Conn { return conntest.OpenCluster(t, s.Addr, redisconn.Options{}) }))
}
