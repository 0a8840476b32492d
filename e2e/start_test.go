package e2e

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// unstarted starts a hub whose Redis need not be there, and does not wait for it.
func unstarted(t *testing.T, redisURL string, env ...string) *hub {
	t.Helper()
	h := newHub(t, append([]string{"RSHUB_REDIS_URL=" + redisURL, "RSHUB_BASE_URL=http://127.0.0.1:1"}, env...)...)
	ops := freePort(t)
	h.ops = "http://" + ops
	h.env = append(h.env, "RSHUB_OPS_LISTEN="+ops)
	h.process = start(t, h.env, nil, rshubBin)
	return h
}

// TestStartBeforeRedis starts a hub before its Redis, which needs a while to be
// there. Probes and users are told what is going on.
func TestStartBeforeRedis(t *testing.T) {
	t.Parallel()
	redis := &redisServer{addr: freePort(t), dir: t.TempDir()}
	h := unstarted(t, "redis://"+redis.addr, "RSHUB_START_TIMEOUT=1h")
	h.says("waiting for Redis")
	must(t, http.StatusOK, http.MethodGet, h.ops+"/healthz", nil)
	var v readiness
	until(t, "it says what it waits for", func() error {
		decode(t, must(t, http.StatusServiceUnavailable, http.MethodGet, h.ops+"/readyz", nil).body, &v)
		if c := v.Checks["hub"]; v.Ready || c.OK || !c.Required || !strings.HasPrefix(c.Reason, "starting: waiting for Redis: ") {
			return fmt.Errorf("readyz says %+v", v)
		}
		return nil
	})
	a := must(t, http.StatusServiceUnavailable, http.MethodPost, h.topic("early"), change("a"), "Content-Type: application/x-ndjson")
	if p, err := a.problem(); err != nil || !strings.HasSuffix(p.Type, "/starting") || a.header.Get("Retry-After") == "" {
		t.Errorf("a publish is answered %v, %s", err, a.body)
	}
	must(t, http.StatusServiceUnavailable, http.MethodGet, h.ops+"/backup", nil)

	redis.start(t)
	h.running()
	h.says("Redis is there: the start goes on")
	if n := strings.Count(h.stderr.String(), "waiting for Redis"); n != 1 {
		t.Errorf("it says %d times that it waits:\n%s", n, h.stderr)
	}
	if v := ready(t, h); !v.Ready || len(v.Checks) != 1 || !v.Checks["memory"].OK || !v.Checks["memory"].Required {
		t.Errorf("readyz says %+v", v)
	}
	publish(t, h, "early", change("a"))
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
	guarded := &redisServer{addr: freePort(t), dir: t.TempDir()}
	guarded.start(t)
	guarded.tell(t, "CONFIG", "SET", "requirepass", "right")
	evicting := startRedis(t)
	evicting.tell(t, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	for _, test := range []struct{ name, url, timeout, says string }{
		{"nobody listens", "redis://" + freePort(t), "200ms", "waited for 200ms (RSHUB_START_TIMEOUT): "},
		{"it does not answer", "redis://" + silent.Addr().String(), "200ms", "waited for 200ms (RSHUB_START_TIMEOUT): "},
		{"no such host", "redis://redis.invalid", "200ms", "waited for 200ms (RSHUB_START_TIMEOUT): "},
		// What waiting does not cure is said at once.
		{"a wrong password", "redis://:wr0ng@" + guarded.addr, "1h", "WRONGPASS"},
		{"no password", "redis://" + guarded.addr, "1h", "NOAUTH"},
		{"it evicts", "redis://" + evicting.addr, "1h", "noeviction"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h := unstarted(t, test.url, "RSHUB_START_TIMEOUT="+test.timeout)
			code := h.wait()
			text := h.stderr.String()
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
	h := unstarted(t, "redis://"+freePort(t), "RSHUB_START_TIMEOUT=1h")
	h.says("waiting for Redis")
	h.signal(syscall.SIGTERM)
	if code := h.wait(); code != 0 || !strings.Contains(h.stderr.String(), "stopped before the start was over") {
		t.Errorf("it ends with %d and says\n%s", code, h.stderr)
	}
}

// TestNATSIsLate starts a hub before its NATS: it runs at once, and says when
// NATS is there.
func TestNATSIsLate(t *testing.T) {
	t.Parallel()
	redis, nats := startRedis(t), &natsServer{addr: freePort(t)}
	h := joinCluster(t, "", redis.addr, nats.addr)
	if v := ready(t, h); !v.degraded() {
		t.Errorf("readyz says %+v", v)
	}
	publish(t, h, "late", change("a"))
	nats.start(t)
	t.Cleanup(nats.stop)
	h.says("NATS is there")
	until(t, "readyz says so", func() error {
		if v := ready(t, h); !v.Checks["nats"].OK || v.Checks["nats"].Required {
			return fmt.Errorf("%+v", v)
		}
		return nil
	})
}

// TestPasswordsInStartErrors starts hubs with URLs that cannot be read.
func TestPasswordsInStartErrors(t *testing.T) {
	t.Parallel()
	redis := startRedis(t)
	notokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(notokens, []byte("me rshub_S3CRET publish:*\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, env := range map[string][]string{
		"Redis":              {"RSHUB_REDIS_URL=redis://me:S3CRET%zz@" + redis.addr},
		"NATS":               {"RSHUB_NATS_URL=nats://me:S3CRET@127.0.0.1:port"},
		"NATS, a bad escape": {"RSHUB_NATS_URL=nats://me:S3CRET%zz@127.0.0.1:4222"},
		"base":               {"RSHUB_BASE_URL=http://me:S3CRET@127.0.0.1:1"},
		"tokens":             {"RSHUB_TOKENS_FILE=" + notokens},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := unstarted(t, "redis://"+redis.addr, env...)
			if code := h.wait(); code != 1 || strings.Contains(h.stderr.String(), "S3CRET") || !strings.Contains(h.stderr.String(), "rshub: ") {
				t.Errorf("it ends with %d and says\n%s", code, h.stderr)
			}
		})
	}
}
