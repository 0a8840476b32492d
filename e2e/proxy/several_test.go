package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// successCount returns the number of successful requests for documents and changes at a hub.
func successCount(t *testing.T, h *hubtest.Hub) float64 {
	t.Helper()
	return hubtest.Metric(t, h, `rshub_http_responses_total{code="2xx",route="topic"}`)
}

// A reader reads a set repeatedly, without retries. The proxy can retry a read at another hub, so
// reads must not fail.
type reader struct {
	mu       sync.Mutex
	reads    int
	failures []string
}

func (r *reader) read(ctx context.Context, c *http.Client, url string) {
	tick := time.NewTicker(2 * time.Millisecond) // limits the load
	defer tick.Stop()
	for range tick.C {
		a, err := trial.Exchange(c, http.MethodGet, url, nil)
		if ctx.Err() != nil {
			return
		}
		if err == nil && a.Status != http.StatusOK {
			err = fmt.Errorf("%d: %s", a.Status, a.Body)
		}
		r.mu.Lock()
		r.reads++
		if err != nil {
			r.failures = append(r.failures, fmt.Sprint(time.Now().Format("05.000"), " ", err))
		}
		r.mu.Unlock()
	}
}

func (r *reader) waitReads(t *testing.T, more int) {
	t.Helper()
	count := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.reads
	}
	before := count()
	hubtest.Until(t, "reading continues", func() error {
		if count() < before+more {
			return errors.New("not yet")
		}
		return nil
	})
}

// TestSeveralHubs stops one of two hubs under reads, follows and publishes, restarts it, kills the
// other one, and then kills Redis.
func TestSeveralHubs(t *testing.T) {
	forEachProxy(t, func(t *testing.T, k kind) {
		const set = "shared"
		redis := hubtest.StartRedis(t)
		nats := &hubtest.NATSServer{Addr: hubtest.FreePort(t)}
		nats.Start(t)
		t.Cleanup(nats.Stop)
		p := k.prepare(t, 2, "RSHUB_REDIS_URL=redis://"+redis.Addr, "RSHUB_NATS_URL=nats://"+nats.Addr, "RSHUB_DRAIN_DELAY=5s", "RSHUB_REDIS_TIMEOUT=1s")
		one, other := p.hubs[0], p.hubs[1]
		one.Start(t)
		other.Start(t)
		s := p.start(t)
		topic := s.url + "/sets/" + set + "/changes"
		hubtest.Publish(t, one, set, hubtest.Change("first"))

		ctx, cancel := context.WithCancel(context.Background())
		var readers sync.WaitGroup
		r := &reader{}
		for i := range 4 {
			c := s.client(t, "127.0.0.1", i%2 == 0)
			readers.Go(func() { r.read(ctx, c, topic+"?since=start&limit=1") })
		}
		t.Cleanup(func() {
			cancel()
			readers.Wait()
		})
		var followers []*hubtest.Follower
		for _, way := range hubtest.AllTransports {
			tr := s.client(t, "127.0.0.1", true).Transport.(*http.Transport)
			f := &hubtest.Follower{Transport: way, Set: set, Hub: s.proxiedHub(), Cursor: "start", HTTP: tr, TLS: tr.TLSClientConfig}
			f.Run(t)
			followers = append(followers, f)
		}
		waitBothUsed := func() {
			t.Helper()
			for _, h := range p.hubs {
				before := successCount(t, h)
				hubtest.Until(t, h.Host+" has requests", func() error {
					if n := successCount(t, h); n < before+5 {
						return fmt.Errorf("got %v requests, want at least 5 more than %v", n, before)
					}
					return nil
				})
			}
		}
		waitBothUsed()
		published := 1
		publish := func(n int) {
			t.Helper()
			code, stdout, stderr := hubtest.Run(t, []string{"SSL_CERT_FILE=" + s.trustFile}, bytes.NewReader(hubtest.Changes(fmt.Sprint(published), n)), hubtest.Rspublish, "-hub", s.url, "-set", set, "-")
			if code != 0 {
				t.Fatalf("rspublish exited with %d: %s%s", code, stdout, stderr)
			}
			published += n
		}

		one.Signal(syscall.SIGTERM) // a graceful stop takes a while
		if k.name != "nginx" {      // has no health checks
			hubtest.Until(t, "a hub that is not ready gets no requests", func() error {
				before := successCount(t, one)
				r.waitReads(t, 20)
				if n := successCount(t, one); n > before {
					return fmt.Errorf("got %v requests", n-before)
				}
				return nil
			})
		}
		for !one.Exited() {
			publish(10)
		}
		publish(10)
		r.waitReads(t, 50)
		one.Start(t)
		waitBothUsed()
		r.mu.Lock()
		if len(r.failures) > 0 {
			t.Errorf("got failures in %d reads: %q", r.reads, r.failures[:min(len(r.failures), 10)])
		}
		r.mu.Unlock()

		other.Kill() // requests in progress fail, all others succeed
		publish(10)
		r.waitReads(t, 50)
		r.mu.Lock()
		if n := len(r.failures); n > 4 {
			t.Errorf("got %[2]d failures in %[1]d reads, want at most 4: %[3]q", r.reads, n, r.failures[:min(n, 10)])
		}
		r.mu.Unlock()
		for _, f := range followers {
			f.WaitEntries(t, published)
		}
		other.Start(t)
		waitBothUsed()

		cancel()
		readers.Wait()
		redis.Kill() // no hub is ready; the response still comes from a hub
		c := s.client(t, "127.0.0.1", false)
		for _, h := range p.hubs {
			hubtest.Until(t, "the hub is not ready", func() error {
				a, err := hubtest.Request(http.MethodGet, h.Ops+"/readyz", nil)
				if err == nil && a.Status == http.StatusOK {
					err = errors.New("it is ready")
				}
				return err
			})
		}
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for range 6 { // until after the next health check of the proxy
			<-tick.C
			for method, query := range map[string]string{http.MethodPost: "", http.MethodGet: "?since=start"} {
				var sent io.Reader
				if method == http.MethodPost {
					sent = bytes.NewReader(hubtest.Change("last"))
				}
				a := exchange(t, c, method, topic+query, sent, hubtest.AsNDJSON)
				if a.Status != http.StatusServiceUnavailable || a.Header.Get("Retry-After") == "" || !strings.Contains(string(a.Body), `"type":"https://`) {
					t.Errorf("%s without Redis = %d, %v, want 503 with Retry-After and a problem: %s", method, a.Status, a.Header, a.Body)
				}
			}
		}
	})
}

// TestProxyTimeout shortens the timeout of the configuration, which is longer than any poll, and
// checks that it ends a longer poll.
func TestProxyTimeout(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		if k.name == "Caddy" {
			continue // has no timeout
		}
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			p := k.prepare(t, 1)
			p.hubs[0].Start(t)
			s := p.start(t, replacement{" 360s", " 6s"})
			for wait, want := range map[string]int{"1s": http.StatusOK, "20s": http.StatusGatewayTimeout} {
				a := exchange(t, s.client(t, "127.0.0.1", true), http.MethodGet, s.url+"/sets/late/changes?since=now&wait="+wait, nil, "Accept: application/json")
				if a.Status != want {
					t.Errorf("poll with wait %s = %d, want %d: %s", wait, a.Status, want, a.Body)
				}
			}
		})
	}
}
