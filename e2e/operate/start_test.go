package operate

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// startWithoutRedis starts a hub whose Redis may be unavailable, and does not wait for it.
func startWithoutRedis(t *testing.T, redisURL string, env ...string) *hubtest.Hub {
	t.Helper()
	h := hubtest.NewHub(t, append([]string{"RSHUB_REDIS_URL=" + redisURL, "RSHUB_BASE_URL=http://127.0.0.1:1"}, env...)...)
	ops := hubtest.FreePort(t)
	h.Ops = "http://" + ops
	h.Env = append(h.Env, "RSHUB_OPS_LISTEN="+ops)
	h.Process = hubtest.Start(t, h.Env, nil, hubtest.Rshub)
	return h
}

// TestStartBeforeRedis starts a hub before its Redis. Probes and clients get the reason.
func TestStartBeforeRedis(t *testing.T) {
	t.Parallel()
	redis := &hubtest.RedisServer{Addr: hubtest.FreePort(t), Dir: t.TempDir()}
	h := startWithoutRedis(t, "redis://"+redis.Addr, "RSHUB_START_TIMEOUT=1h", "RSHUB_INSECURE=anyone-may-publish")
	h.WaitLog("waiting for Redis")
	hubtest.Must(t, http.StatusOK, http.MethodGet, h.Ops+"/healthz", nil)
	var v hubtest.Readiness
	hubtest.Until(t, "readyz reports the reason", func() error {
		hubtest.Decode(t, hubtest.Must(t, http.StatusServiceUnavailable, http.MethodGet, h.Ops+"/readyz", nil).Body, &v)
		if c := v.Checks["hub"]; v.Ready || c.OK || !c.Required || !strings.HasPrefix(c.Reason, "starting: waiting for Redis: ") {
			return fmt.Errorf("got readiness %+v", v)
		}
		return nil
	})
	a := hubtest.Must(t, http.StatusServiceUnavailable, http.MethodPost, h.Topic("early"), hubtest.Change("a"), "Content-Type: application/x-ndjson")
	if p, err := hubtest.ProblemOf(a); err != nil || !strings.HasSuffix(p.Type, "/starting") || a.Header.Get("Retry-After") == "" {
		t.Errorf("publish during the start: got %v, %s, want the problem starting with Retry-After", err, a.Body)
	}
	hubtest.Must(t, http.StatusServiceUnavailable, http.MethodGet, h.Ops+"/backup", nil)

	redis.Start(t)
	h.WaitRunning()
	h.WaitLog("connected to Redis")
	if n := strings.Count(h.Stderr.String(), "waiting for Redis"); n != 1 {
		t.Errorf("got %d log lines about waiting, want 1:\n%s", n, h.Stderr)
	}
	if v := hubtest.GetReadiness(t, h); !v.Ready || len(v.Checks) != 1 || !v.Checks["memory"].OK || !v.Checks["memory"].Required {
		t.Errorf("readiness = %+v", v)
	}
	hubtest.Publish(t, h, "early", hubtest.Change("a"))
}

// TestStopWhileStarting stops a hub that waits for Redis.
func TestStopWhileStarting(t *testing.T) {
	t.Parallel()
	h := startWithoutRedis(t, "redis://"+hubtest.FreePort(t), "RSHUB_START_TIMEOUT=1h")
	h.WaitLog("waiting for Redis")
	h.Signal(syscall.SIGTERM)
	if code := h.Wait(); code != 0 || !strings.Contains(h.Stderr.String(), "stopped during the start") {
		t.Errorf("exit status = %d, want 0, and a log line about the stop:\n%s", code, h.Stderr)
	}
}
