package e2e

import (
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestDrainDelay has a hub that is told to stop go on for a while: it is not
// ready, and does what it is asked for until balancers know. A second signal ends
// it at once.
func TestDrainDelay(t *testing.T) {
	t.Parallel()
	const set = "lingers"
	h := startHub(t, "RSHUB_DRAIN_DELAY=1h")
	publish(t, h, set, change("before"))
	f := follow(t, h, byWebSocket, set, "start")
	f.has(t, 1)
	h.signal(syscall.SIGTERM)
	h.says("not ready, and going on for a while")
	var v readiness
	decode(t, must(t, http.StatusServiceUnavailable, http.MethodGet, h.ops+"/readyz", nil).body, &v)
	if c := v.Checks["hub"]; v.Ready || c.OK || c.Reason != "stopping" || !v.Checks["memory"].OK {
		t.Errorf("readyz says %+v", v)
	}
	must(t, http.StatusOK, http.MethodGet, h.ops+"/healthz", nil)
	publish(t, h, set, change("meanwhile")) // on a new connection
	f.has(t, 2)
	follow(t, h, byEvents, set, "start").has(t, 2)
	// Who keeps a connection is asked to make another, which leads elsewhere.
	resp, err := http.Get(h.topic(set))
	if err != nil {
		t.Fatal(err)
	}
	if resp.Body.Close(); !resp.Close {
		t.Error("the connection is kept")
	}
	if h.ended() {
		t.Fatal("it has ended")
	}
	endsAtSecondSignal(t, h)
}

// TestDrainOrder stops one of two hubs that has a follower, a publish and a
// delivery under way. It is not ready, takes no connections and says goodbye to
// the follower, while the others come to their end; then what it called is
// called by the other hub, once.
func TestDrainOrder(t *testing.T) {
	t.Parallel()
	const set = "drained"
	c := startCluster(t, 1, append(slices.Clone(callable), "RSHUB_GRACE=1h", "RSHUB_CALLBACK_TIMEOUT=1h")...)
	h := c.hubs[0] // alone, so that it has every shard
	tr := trialOf(t, h)
	cb, tp := tr.callback(""), tr.topic()
	tr.subscribed(cb, tp)
	answer := make(chan struct{})
	cb.on(delivery, hangUntil(answer, status(http.StatusOK)), status(http.StatusOK))
	under := tr.publish(tp)
	tr.arrives(cb, delivery, 1)

	f := follow(t, h, byWebSocket, set, "start")
	f.begins(t)
	p := longPublish(t, h, set)
	other := joinCluster(t, h.url, c.redis.addr, c.nats.addr, callable...)

	h.signal(syscall.SIGTERM)
	goodbye := f.ended(t, "close 1001")
	if cursor := f.at(); !strings.Contains(goodbye, " "+cursor+" ") {
		t.Errorf("the goodbye is %q, and the last cursor %s", goodbye, cursor)
	}
	var v readiness
	decode(t, must(t, http.StatusServiceUnavailable, http.MethodGet, h.ops+"/readyz", nil).body, &v)
	if v.Checks["hub"].Reason != "stopping" {
		t.Errorf("readyz says %+v", v)
	}
	until(t, "it takes no connections", func() error {
		conn, err := net.Dial("tcp", h.host)
		if err == nil {
			_ = conn.Close()
			return errors.New("it takes one")
		}
		return nil
	})
	if h.ended() {
		t.Fatal("it did not wait for what is under way")
	}

	if r := p.finish(t); r.Count != 1001 {
		t.Errorf("the publish is answered %+v", r)
	}
	close(answer)
	if code := h.wait(); code != 0 {
		t.Errorf("it ended with %d", code)
	}
	tr.rshub = other
	tr.hubURL = other.url + "/hub"
	after := changeOf(t, other, tp)
	tr.delivered(cb, after)
	if n := cb.times(under); n != 1 {
		t.Errorf("what was under way was delivered %d times", n)
	}
}

// A slowPublish is under way until its finish.
type slowPublish struct {
	body   *io.PipeWriter
	answer chan *answer
	err    error // why there is none
}

// longPublish begins a publish and sends the first 1,000 changes, which the
// memory has when it returns.
func longPublish(t *testing.T, h *hub, set string) *slowPublish {
	t.Helper()
	r, w := io.Pipe()
	p := &slowPublish{body: w, answer: make(chan *answer, 1)}
	t.Cleanup(func() { _ = w.Close() })
	go func() {
		var a *answer
		a, p.err = request(http.MethodPost, h.topic(set), r, "Content-Type: application/x-ndjson")
		_ = r.Close()
		p.answer <- a
	}()
	if _, err := w.Write(changes("long", 1000)); err != nil {
		t.Fatal(err)
	}
	until(t, "the memory has the beginning", func() error {
		if at := head(t, h, set); !strings.HasPrefix(at, "1000-") {
			return errors.New("it is at " + at)
		}
		return nil
	})
	return p
}

// finish sends one more change and the end, and returns what is answered.
func (p *slowPublish) finish(t *testing.T) (r receipt) {
	t.Helper()
	_, err := p.body.Write(change("long/end"))
	if err = errors.Join(err, p.body.Close()); err != nil {
		t.Fatal(err)
	}
	a := <-p.answer
	if p.err != nil || a.status != http.StatusOK {
		t.Fatalf("the publish is answered %+v, %v", a, p.err)
	}
	decode(t, a.body, &r)
	return r
}

// changeOf publishes a change to a topic at a hub, and returns its mark.
func changeOf(t *testing.T, h *hub, tp *topic) (mark string) {
	t.Helper()
	publish(t, h, tp.set, change(tp.set+"/after"))
	return "<loc>https://example.org/" + tp.set + "/after</loc>"
}
