package hubtest

import (
	"errors"
	"testing"
)

// A Cluster is several hubs with one Redis and one NATS. The URL of the first hub is the base
// URL of all.
type Cluster struct {
	Hubs  []*Hub
	Redis *RedisServer
	NATS  *NATSServer
}

// StartCluster starts n hubs with additional variables and a new Redis and NATS.
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

// A Readiness is the response of /readyz.
type Readiness struct {
	Ready  bool
	Checks map[string]struct {
		OK, Required bool
		Reason       string
	}
}

// GetReadiness returns the readiness of a hub that is ready.
func GetReadiness(t *testing.T, h *Hub) Readiness {
	t.Helper()
	return Get[Readiness](t, h.Ops+"/readyz")
}

// Degraded reports whether the hub is ready without NATS and reports that.
func (r Readiness) Degraded() bool {
	c := r.Checks["nats"]
	return r.Ready && !c.OK && !c.Required && c.Reason != ""
}

// WaitPublishing waits until each publisher has more acknowledged batches than now.
func WaitPublishing(t *testing.T, more int, publishers ...*Publisher) {
	t.Helper()
	for _, p := range publishers {
		n := p.Acknowledged()
		Until(t, "publishing continues", func() error {
			if p.Acknowledged() < n+more {
				return errors.New("not yet")
			}
			return nil
		})
	}
}

// JoinCluster starts a hub with a Redis and a NATS. base is the base URL of the cluster, or ""
// for the URL of the hub.
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
