package callback_test

import (
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/registrytest"
	"github.com/rshub/rshub/changelog/disklog"
	"github.com/rshub/rshub/internal/redistest"
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
			if log, err = disklog.Open(dir, disklog.Options{}); err != nil {
				t.Fatal(err)
			}
		}
		start()
		t.Cleanup(stop)
		return registrytest.Store{Restart: start, Open: func() callback.Registry {
			d, err := callback.OpenDisk(t.Context(), log.Keep("callback"))
			if err != nil {
				t.Fatal(err)
			}
			return d
		}}
	}})
}

// short makes that tests need not wait long.
var short = callback.RedisOptions{ClaimFor: 300 * time.Millisecond, LiveFor: 200 * time.Millisecond}

func newRedis(t testing.TB, client redis.UniversalClient, prefix string, o callback.RedisOptions) *callback.Redis {
	t.Helper()
	r, err := callback.NewRedis(client, prefix, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// onRedis is a server whose stores differ by their prefix.
func onRedis(restart func(), client func() redis.UniversalClient) registrytest.Backend {
	stores := 0
	return registrytest.Backend{Shared: true, New: func(t *testing.T) registrytest.Store {
		stores++
		prefix := "p" + strconv.Itoa(stores)
		return registrytest.Store{
			Restart: restart,
			Open:    func() callback.Registry { return newRedis(t, client(), prefix, short) },
		}
	}}
}

func TestRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	registrytest.Run(t, onRedis(func() { s.Kill(); s.Restart() }, func() redis.UniversalClient { return s.Client() }))
}

// On a cluster a script that touches keys of two slots fails.
func TestRedisCluster(t *testing.T) {
	t.Parallel()
	s := redistest.StartCluster(t)
	registrytest.Run(t, onRedis(nil, func() redis.UniversalClient { return s.ClusterClient() }))
}
