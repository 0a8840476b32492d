package subscription_test

import (
	"encoding/base64"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/callback/subscription/registrytest"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/internal/claim"
	"github.com/rshub/rshub/internal/redisconn"
	"github.com/rshub/rshub/internal/testutil/conntest"
	"github.com/rshub/rshub/internal/testutil/redistest"
)

func TestDisk(t *testing.T) {
	t.Parallel()
	registrytest.Run(t, registrytest.Backend{New: func(t *testing.T) registrytest.Store {
		dir := filepath.Join(t.TempDir(), "data")
		var log *disklog.Log
		stop := func() {
			if log != nil {
				if err := log.Close(); err != nil {
					t.Error(err)
				}
			}
		}
		start := func() {
			stop()
			var err error
			if log, err = disklog.Open(t.Context(), dir, disklog.Options{}); err != nil {
				t.Fatal(err)
			}
		}
		start()
		t.Cleanup(stop)
		return registrytest.Store{Restart: start, Open: func() registrytest.Hub {
			claims, err := claim.OpenLocal(t.Context(), log.Bucket("callback"), subscription.Shards)
			if err != nil {
				t.Fatal(err)
			}
			d, err := subscription.OpenDisk(t.Context(), log.Bucket("callback"), claims, testKeys(t))
			if err != nil {
				t.Fatal(err)
			}
			return registrytest.Disk{Disk: d, Local: claims}
		}}
	}})
}

// newRedis returns the registry of a hub, with claims that expire soon.
func newRedis(t testing.TB, conn *redisconn.Conn, prefix string) registrytest.Hub {
	t.Helper()
	r, err := subscription.NewRedis(conn, prefix, subscription.RedisOptions{Keys: testKeys(t)})
	if err != nil {
		t.Fatal(err)
	}
	type redisClaims = claim.Redis
	return struct {
		*subscription.Redis
		*redisClaims
	}{r, claim.NewRedis(conn, prefix, subscription.ClaimKind, claim.RedisOptions{ClaimFor: 300 * time.Millisecond, LiveFor: 200 * time.Millisecond})}
}

// redisBackend returns the backend of a Redis server. Each of its stores has another prefix.
func redisBackend(restart func(), conn func(testing.TB) *redisconn.Conn) registrytest.Backend {
	stores := 0
	return registrytest.Backend{Shared: true, New: func(t *testing.T) registrytest.Store {
		stores++
		prefix := "p" + strconv.Itoa(stores)
		return registrytest.Store{
			Restart: restart,
			Open:    func() registrytest.Hub { return newRedis(t, conn(t), prefix) },
		}
	}}
}

func TestRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	registrytest.Run(t, redisBackend(func() { s.Kill(); s.Restart() }, func(t testing.TB) *redisconn.Conn { return conntest.Open(t, s.Addr, redisconn.Options{}) }))
}

// In a cluster, a script with keys of two slots fails.
func TestRedisCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make prove PART=stores")
	}
	t.Parallel()
	s := redistest.StartCluster(t)
	registrytest.Run(t, redisBackend(nil, func(t testing.TB) *redisconn.Conn { return conntest.OpenCluster(t, s.Addr, redisconn.Options{}) }))
}

// testKeys returns keys for the registries of the suite.
func testKeys(t testing.TB) *subscription.Keys {
	t.Helper()
	keys, err := subscription.ParseKeys("test:" + base64.StdEncoding.EncodeToString(make([]byte, 32)))
	if err != nil {
		t.Fatal(err)
	}
	return keys
}
