package hubtest

import (
	"errors"
	"testing"
)

// A Cluster is several hubs on one Redis and one NATS. The first hub's URL is
// that of all.
type Cluster struct {
	Hubs  []*Hub
	Redis *RedisServer
	NATS  *NATSServer
}

// StartCluster starts n hubs with further variables on a Redis and a NATS of
// their own.
func StartCluster(t *testing.T, n int, env ...string) *Cluster {
	t.Helper()
	c := &Cluster{Redis: StartRedis(t), NATS: StartNATS(t)}
	base := ""
	for range n {
		c.Hubs = append(c.Hubs, JoinCluster(t, base, c.Redis.Addr, c.NATS.Addr, env...))
		base = c.Hubs[0].URL
	}
	return c
}

// A Readiness is what /readyz of a hub says.
type Readiness struct {
	Ready  bool
	Checks map[string]struct {
		OK, Required bool
		Reason       string
	}
}

// GetReadiness returns what /readyz of a hub says that is ready.
func GetReadiness(t *testing.T, h *Hub) Readiness {
	t.Helper()
	return Get[Readiness](t, h.Ops+"/readyz")
}

// Degraded reports whether it goes on without NATS, and says so.
func (r Readiness) Degraded() bool {
	c := r.Checks["nats"]
	return r.Ready && !c.OK && !c.Required && c.Reason != ""
}

// WaitPublishing waits until each of the publishers has more acknowledged.
func WaitPublishing(t *testing.T, more int, publishers ...*Publisher) {
	t.Helper()
	for _, p := range publishers {
		n := p.Acknowledged()
		Until(t, "publishing goes on", func() error {
			if p.Acknowledged() < n+more {
				return errors.New("not yet")
			}
			return nil
		})
	}
}

// JoinCluster starts a hub on a Redis and a NATS. base is the URL of all; empty:
// its own.
func JoinCluster(t testing.TB, base, redis, nats string, env ...string) *Hub {
	t.Helper()
	h := NewHub(t, env...)
	if base == "" {
		base = h.URL
	}
	h.Env = append(h.Env, "RSHUB_BASE_URL="+base, "RSHUB_REDIS_URL=redis://"+redis, "RSHUB_NATS_URL=nats://"+nats)
	h.Start(t)
	return h
}
