package operate

import (
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
	"github.com/rshub/rshub/e2e/internal/trial"
)

// TestDrainDelay has a hub that is told to stop go on for a while: it is not
// ready, and does what it is asked for until balancers know. A second signal ends
// it at once.
func TestDrainDelay(t *testing.T) {
	t.Parallel()
	const set = "lingers"
	h := hubtest.StartHub(t, "RSHUB_DRAIN_DELAY=1h")
	hubtest.Publish(t, h, set, hubtest.Change("before"))
	f := hubtest.Follow(t, h, hubtest.ByWebSocket, set, "start")
	f.Has(t, 1)
	h.Signal(syscall.SIGTERM)
	h.Says("not ready, and going on for a while")
	var v hubtest.Readiness
	hubtest.Decode(t, hubtest.Must(t, http.StatusServiceUnavailable, http.MethodGet, h.Ops+"/readyz", nil).Body, &v)
	if c := v.Checks["hub"]; v.Ready || c.OK || c.Reason != "stopping" || !v.Checks["memory"].OK {
		t.Errorf("readyz says %+v", v)
	}
	hubtest.Must(t, http.StatusOK, http.MethodGet, h.Ops+"/healthz", nil)
	hubtest.Publish(t, h, set, hubtest.Change("meanwhile")) // on a new connection
	f.Has(t, 2)
	hubtest.Follow(t, h, hubtest.ByEvents, set, "start").Has(t, 2)
	// Who keeps a connection is asked to make another, which leads elsewhere.
	resp, err := http.Get(h.Topic(set))
	if err != nil {
		t.Fatal(err)
	}
	if resp.Body.Close(); !resp.Close {
		t.Error("the connection is kept")
	}
	if h.Ended() {
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
	c := hubtest.StartCluster(t, 1, append(slices.Clone(hubtest.Callable), "RSHUB_GRACE=1h", "RSHUB_CALLBACK_TIMEOUT=1h")...)
	h := c.Hubs[0] // alone, so that it has every shard
	tr := hubtest.TrialOf(t, h)
	cb, tp := tr.Callback(""), tr.Topic()
	tr.Subscribed(cb, tp)
	answer := make(chan struct{})
	cb.On(trial.Delivery, trial.HangUntil(answer, trial.Status(http.StatusOK)), trial.Status(http.StatusOK))
	under := tr.Publish(tp)
	tr.Arrives(cb, trial.Delivery, 1)

	f := hubtest.Follow(t, h, hubtest.ByWebSocket, set, "start")
	f.Begins(t)
	p := longPublish(t, h, set)
	other := hubtest.JoinCluster(t, h.URL, c.Redis.Addr, c.NATS.Addr, hubtest.Callable...)

	h.Signal(syscall.SIGTERM)
	goodbye := f.Ended(t, "close 1001")
	if cursor := f.At(); !strings.Contains(goodbye, " "+cursor+" ") {
		t.Errorf("the goodbye is %q, and the last cursor %s", goodbye, cursor)
	}
	var v hubtest.Readiness
	hubtest.Decode(t, hubtest.Must(t, http.StatusServiceUnavailable, http.MethodGet, h.Ops+"/readyz", nil).Body, &v)
	if v.Checks["hub"].Reason != "stopping" {
		t.Errorf("readyz says %+v", v)
	}
	hubtest.Until(t, "it takes no connections", func() error {
		conn, err := net.Dial("tcp", h.Host)
		if err == nil {
			_ = conn.Close()
			return errors.New("it takes one")
		}
		return nil
	})
	if h.Ended() {
		t.Fatal("it did not wait for what is under way")
	}

	if r := p.finish(t); r.Count != 1001 {
		t.Errorf("the publish is answered %+v", r)
	}
	close(answer)
	if code := h.Wait(); code != 0 {
		t.Errorf("it ended with %d", code)
	}
	tr.Hub = hubtest.HubOf(other)
	after := changeOf(t, other, tp)
	tr.Delivered(cb, after)
	if n := cb.Times(under); n != 1 {
		t.Errorf("what was under way was delivered %d times", n)
	}
}

// A slowPublish is under way until its finish.
type slowPublish struct {
	body   *io.PipeWriter
	answer chan *trial.Answer
	err    error // why there is none
}

// longPublish begins a publish and sends the first 1,000 changes, which the
// memory has when it returns.
func longPublish(t *testing.T, h *hubtest.Hub, set string) *slowPublish {
	t.Helper()
	r, w := io.Pipe()
	p := &slowPublish{body: w, answer: make(chan *trial.Answer, 1)}
	t.Cleanup(func() { _ = w.Close() })
	go func() {
		var a *trial.Answer
		a, p.err = hubtest.Request(http.MethodPost, h.Topic(set), r, "Content-Type: application/x-ndjson")
		_ = r.Close()
		p.answer <- a
	}()
	if _, err := w.Write(hubtest.Changes("long", 1000)); err != nil {
		t.Fatal(err)
	}
	hubtest.Until(t, "the memory has the beginning", func() error {
		if at := hubtest.Head(t, h, set); !strings.HasPrefix(at, "1000-") {
			return errors.New("it is at " + at)
		}
		return nil
	})
	return p
}

// finish sends one more change and the end, and returns what is answered.
func (p *slowPublish) finish(t *testing.T) (r hubtest.Receipt) {
	t.Helper()
	_, err := p.body.Write(hubtest.Change("long/end"))
	if err = errors.Join(err, p.body.Close()); err != nil {
		t.Fatal(err)
	}
	a := <-p.answer
	if p.err != nil || a.Status != http.StatusOK {
		t.Fatalf("the publish is answered %+v, %v", a, p.err)
	}
	hubtest.Decode(t, a.Body, &r)
	return r
}

// changeOf publishes a change to a topic at a hub, and returns its mark.
func changeOf(t *testing.T, h *hubtest.Hub, tp *trial.Topic) (mark string) {
	t.Helper()
	hubtest.Publish(t, h, tp.Set, hubtest.Change(tp.Set+"/after"))
	return "<loc>https://example.org/" + tp.Set + "/after</loc>"
}
