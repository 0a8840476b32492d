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

// answered is how many requests for documents and changes a hub has answered well.
func answered(t *testing.T, h *hubtest.Hub) float64 {
	t.Helper()
	return hubtest.Metric(t, h, `rshub_http_responses_total{code="2xx",route="topic"}`)
}

// A reader reads a set again and again, without retries. A read may be asked of another
// hub, so it never fails.
type reader struct {
	mu    sync.Mutex
	reads int
	wrong []string
}

func (r *reader) read(ctx context.Context, c *http.Client, url string) {
	tick := time.NewTicker(2 * time.Millisecond) // leaves a processor to the others
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
			r.wrong = append(r.wrong, fmt.Sprint(time.Now().Format("05.000"), " ", err))
		}
		r.mu.Unlock()
	}
}

func (r *reader) goesOn(t *testing.T, more int) {
	t.Helper()
	count := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.reads
	}
	before := count()
	hubtest.Until(t, "reading goes on", func() error {
		if count() < before+more {
			return errors.New("not yet")
		}
		return nil
	})
}

// TestSeveralHubs stops one of two hubs while others read, follow and publish, starts it
// again, kills the other, and then takes Redis from both.
func TestSeveralHubs(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
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
			f := &hubtest.Follower{Transport: way, Set: set, Hub: s.seen(), Cursor: "start", HTTP: tr, TLS: tr.TLSClientConfig}
			f.Run(t)
			followers = append(followers, f)
		}
		both := func() {
			t.Helper()
			for _, h := range p.hubs {
				before := answered(t, h)
				hubtest.Until(t, h.Host+" has requests", func() error {
					if n := answered(t, h); n < before+5 {
						return fmt.Errorf("it had %v, and has %v", before, n)
					}
					return nil
				})
			}
		}
		both()
		published := 1
		publish := func(n int) {
			t.Helper()
			code, stdout, stderr := hubtest.Run(t, []string{"SSL_CERT_FILE=" + s.trustFile}, bytes.NewReader(hubtest.Changes(fmt.Sprint(published), n)), hubtest.Rspublish, "-hub", s.url, "-set", set, "-")
			if code != 0 {
				t.Fatalf("rspublish ended with %d: %s%s", code, stdout, stderr)
			}
			published += n
		}

		one.Signal(syscall.SIGTERM) // in an orderly way, which takes a while
		if k.name != "nginx" {      // does not look
			hubtest.Until(t, "a hub that is not ready has no requests any more", func() error {
				before := answered(t, one)
				r.goesOn(t, 20)
				if n := answered(t, one); n > before {
					return fmt.Errorf("it had %v more", n-before)
				}
				return nil
			})
		}
		for !one.Exited() {
			publish(10)
		}
		publish(10)
		r.goesOn(t, 50)
		one.Start(t)
		both()
		r.mu.Lock()
		if len(r.wrong) > 0 {
			t.Errorf("of %d reads, these failed: %q", r.reads, r.wrong[:min(len(r.wrong), 10)])
		}
		r.mu.Unlock()

		other.Kill() // what it was just answering fails, and all else goes on
		publish(10)
		r.goesOn(t, 50)
		r.mu.Lock()
		if n := len(r.wrong); n > 4 {
			t.Errorf("of %d reads, %d failed: %q", r.reads, n, r.wrong[:min(n, 10)])
		}
		r.mu.Unlock()
		for _, f := range followers {
			f.WaitEntries(t, published)
		}
		other.Start(t)
		both()

		cancel()
		readers.Wait()
		redis.Kill() // no hub is ready any more, and still it is the hub that says so
		c := s.client(t, "127.0.0.1", false)
		for _, h := range p.hubs {
			hubtest.Until(t, "the hub is not ready", func() error {
				a, err := hubtest.Request(http.MethodGet, h.Ops+"/readyz", nil)
				if err == nil && a.Status == http.StatusOK {
					err = errors.New("it is")
				}
				return err
			})
		}
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for range 6 { // until after the proxy's next look at /readyz
			<-tick.C
			for method, query := range map[string]string{http.MethodPost: "", http.MethodGet: "?since=start"} {
				var sent io.Reader
				if method == http.MethodPost {
					sent = bytes.NewReader(hubtest.Change("last"))
				}
				a := exchange(t, c, method, topic+query, sent, hubtest.AsNDJSON)
				if a.Status != http.StatusServiceUnavailable || a.Header.Get("Retry-After") == "" || !strings.Contains(string(a.Body), `"type":"https://`) {
					t.Errorf("without Redis a %s is answered %d, %v: %s", method, a.Status, a.Header, a.Body)
				}
			}
		}
	})
}

// TestWaits cuts a poll that waits for longer than the proxy does, as the configuration has
// it. There it waits longer than any poll.
func TestWaits(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		if k.name == "Caddy" {
			continue // has no limit
		}
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			p := k.prepare(t, 1)
			p.hubs[0].Start(t)
			s := p.start(t, swap{" 360s", " 6s"})
			for wait, want := range map[string]int{"1s": http.StatusOK, "20s": http.StatusGatewayTimeout} {
				a := exchange(t, s.client(t, "127.0.0.1", true), http.MethodGet, s.url+"/sets/late/changes?since=now&wait="+wait, nil, "Accept: application/json")
				if a.Status != want {
					t.Errorf("a wait of %s is answered %d: %s", wait, a.Status, a.Body)
				}
			}
		})
	}
}
