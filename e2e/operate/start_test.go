package operate

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// unstarted starts a hub whose Redis need not be there, and does not wait for it.
func unstarted(t *testing.T, redisURL string, env ...string) *hubtest.Hub {
	t.Helper()
	h := hubtest.NewHub(t, append([]string{"RSHUB_REDIS_URL=" + redisURL, "RSHUB_BASE_URL=http://127.0.0.1:1"}, env...)...)
	ops := hubtest.FreePort(t)
	h.Ops = "http://" + ops
	h.Env = append(h.Env, "RSHUB_OPS_LISTEN="+ops)
	h.Process = hubtest.Start(t, h.Env, nil, hubtest.Rshub)
	return h
}

// TestStartBeforeRedis starts a hub before its Redis, which needs a while to be
// there. Probes and users are told what is going on.
func TestStartBeforeRedis(t *testing.T) {
	t.Parallel()
	redis := &hubtest.RedisServer{Addr: hubtest.FreePort(t), Dir: t.TempDir()}
	h := unstarted(t, "redis://"+redis.Addr, "RSHUB_START_TIMEOUT=1h", "RSHUB_INSECURE=anyone-may-publish")
	h.Says("waiting for Redis")
	hubtest.Must(t, http.StatusOK, http.MethodGet, h.Ops+"/healthz", nil)
	var v hubtest.Readiness
	hubtest.Until(t, "it says what it waits for", func() error {
		hubtest.Decode(t, hubtest.Must(t, http.StatusServiceUnavailable, http.MethodGet, h.Ops+"/readyz", nil).Body, &v)
		if c := v.Checks["hub"]; v.Ready || c.OK || !c.Required || !strings.HasPrefix(c.Reason, "starting: waiting for Redis: ") {
			return fmt.Errorf("readyz says %+v", v)
		}
		return nil
	})
	a := hubtest.Must(t, http.StatusServiceUnavailable, http.MethodPost, h.Topic("early"), hubtest.Change("a"), "Content-Type: application/x-ndjson")
	if p, err := hubtest.ProblemOf(a); err != nil || !strings.HasSuffix(p.Type, "/starting") || a.Header.Get("Retry-After") == "" {
		t.Errorf("a publish is answered %v, %s", err, a.Body)
	}
	hubtest.Must(t, http.StatusServiceUnavailable, http.MethodGet, h.Ops+"/backup", nil)

	redis.Start(t)
	h.Running()
	h.Says("Redis can be reached: the start goes on")
	if n := strings.Count(h.Stderr.String(), "waiting for Redis"); n != 1 {
		t.Errorf("it says %d times that it waits:\n%s", n, h.Stderr)
	}
	if v := hubtest.Ready(t, h); !v.Ready || len(v.Checks) != 1 || !v.Checks["memory"].OK || !v.Checks["memory"].Required {
		t.Errorf("readyz says %+v", v)
	}
	hubtest.Publish(t, h, "early", hubtest.Change("a"))
}

// TestStartGivesUp starts hubs whose Redis cannot be had, by now or at all: each
// ends with one line that says why.
func TestStartGivesUp(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the system takes connections for it
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	guarded := &hubtest.RedisServer{Addr: hubtest.FreePort(t), Dir: t.TempDir()}
	guarded.Start(t)
	guarded.Tell(t, "CONFIG", "SET", "requirepass", "right")
	for _, test := range []struct{ name, url, timeout, says string }{
		{"it does not answer", "redis://" + silent.Addr().String(), "200ms", "waited for 200ms (RSHUB_START_TIMEOUT): "},
		// What waiting does not cure is said at once.
		{"a wrong password", "redis://:wr0ng@" + guarded.Addr, "1h", "WRONGPASS"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h := unstarted(t, test.url, "RSHUB_START_TIMEOUT="+test.timeout)
			code := h.Wait()
			text := h.Stderr.String()
			lines := strings.Split(strings.TrimSpace(text), "\n")
			last := lines[len(lines)-1]
			if code != 1 || !strings.HasPrefix(last, "rshub: RSHUB_REDIS_URL: ") || !strings.Contains(last, test.says) || len(lines) > 2 || strings.Contains(text, "wr0ng") {
				t.Errorf("it ends with %d and says\n%s", code, text)
			}
		})
	}
}

// TestStopWhileStarting stops a hub that still waits.
func TestStopWhileStarting(t *testing.T) {
	t.Parallel()
	h := unstarted(t, "redis://"+hubtest.FreePort(t), "RSHUB_START_TIMEOUT=1h")
	h.Says("waiting for Redis")
	h.Signal(syscall.SIGTERM)
	if code := h.Wait(); code != 0 || !strings.Contains(h.Stderr.String(), "stopped before the start was over") {
		t.Errorf("it ends with %d and says\n%s", code, h.Stderr)
	}
}

// TestPasswordsInStartErrors starts hubs with URLs of NATS that cannot be read.
func TestPasswordsInStartErrors(t *testing.T) {
	t.Parallel()
	redis := hubtest.StartRedis(t)
	for _, url := range []string{"nats://me:S3CRET@127.0.0.1:port", "nats://me:S3CRET%zz@127.0.0.1:4222"} {
		h := unstarted(t, "redis://"+redis.Addr, "RSHUB_NATS_URL="+url)
		if code := h.Wait(); code != 1 || strings.Contains(h.Stderr.String(), "S3CRET") || !strings.Contains(h.Stderr.String(), "rshub: ") {
			t.Errorf("with %s it ends with %d and says\n%s", url, code, h.Stderr)
		}
	}
}
