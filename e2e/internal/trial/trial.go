// Package trial is what it takes to try a hub: a source that publishes, callbacks
// that answer well or badly and remember what arrived, and what a hub has to make
// of both.
package trial

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// AsForm is the header of a subscriber's request.
const AsForm = "Content-Type: application/x-www-form-urlencoded"

// A Hub is the hub that is tried, seen from outside.
type Hub struct {
	URL      string       // without a slash at the end
	Client   *http.Client // for all requests to it
	Timeout time.Duration
	Before   func(http.Handler) http.Handler // sees what the hub sends before the callbacks do, if it is not nil
}

// A Trial is a source and any number of subscribers, who try a hub together. It
// lasts as long as its test.
type Trial struct {
	testing.TB
	Hub       *Hub
	Server    *Server // of its own: what callbacks of one host do may hold up others there
	callbacks []*Callback
}

// New starts a trial. Everything that it starts ends with the test.
func New(t testing.TB, h *Hub) *Trial {
	tr := &Trial{TB: t, Hub: h}
	tr.Server = tr.NewServer()
	return tr
}

// Describe shows what arrived at the callbacks, for who wonders why it failed.
func (t *Trial) Describe() string {
	var b strings.Builder
	for _, c := range t.callbacks {
		fmt.Fprintf(&b, "%s:\n%s", c.URL, c.describe())
	}
	return b.String()
}

// ErrNotYet is what who waits for a condition says of one that is not true yet.
var ErrNotYet = errors.New("not yet")

// Wait waits until cond returns nil, and gives up with its last error.
func (t *Trial) Wait(what string, cond func() error) {
	t.Helper()
	if err := Poll(t.Hub.Timeout, cond); err != nil {
		t.Fatalf("waited %v in vain until %s: %v", t.Hub.Timeout, what, err)
	}
}

// Poll waits until cond returns nil, at most so long, and returns its last error.
func Poll(patience time.Duration, cond func() error) error {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		err := cond()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return err
		}
	}
}

// NewServer starts another server for callbacks.
func (t *Trial) NewServer() *Server {
	t.Helper()
	return Serve(t, "127.0.0.1:0", t.Hub.Before)
}

// Callback makes a callback, with more behind its path.
func (t *Trial) Callback(rest string) *Callback { return t.CallbackAt(t.Server, rest) }

// CallbackAt makes a callback at another server.
func (t *Trial) CallbackAt(s *Server, rest string) *Callback {
	c := s.Add(rest)
	t.callbacks = append(t.callbacks, c)
	return c
}

// Send makes a request with headers "Name: value".
func (t *Trial) Send(method, u string, body []byte, headers ...string) *Response {
	t.Helper()
	a, err := Exchange(t.Hub.Client, method, u, bytes.NewReader(body), headers...)
	if err != nil {
		t.Fatalf("%s %s: %v", method, u, err)
	}
	return a
}

// Fetch makes a request that is answered with a status.
func (t *Trial) Fetch(status int, method, u string, body []byte, headers ...string) *Response {
	t.Helper()
	a := t.Send(method, u, body, headers...)
	if a.Status != status {
		t.Fatalf("%s %s is answered %d, not %d: %s", method, u, a.Status, status, Tail(string(a.Body)))
	}
	return a
}

// Post sends a form to the hub.
func (t *Trial) Post(form string) *Response {
	t.Helper()
	return t.Send(http.MethodPost, t.Hub.URL+"/hub", []byte(form), AsForm)
}

// Form is a request of a subscriber. Parameters come in pairs; one that is there
// already is replaced, and with the value - left out.
func Form(mode, callback, topic string, params ...string) url.Values {
	f := url.Values{"hub.mode": {mode}, "hub.callback": {callback}, "hub.topic": {topic}}
	for i := 0; i < len(params); i += 2 {
		if f.Set(params[i], params[i+1]); params[i+1] == "-" {
			f.Del(params[i])
		}
	}
	return f
}

// Request asks for a subscription, or for its end.
func (t *Trial) Request(mode string, c *Callback, tp *Topic, params ...string) *Response {
	t.Helper()
	return t.Post(Form(mode, c.URL, tp.URL, params...).Encode())
}

// MustAccept makes a request that has to be accepted.
func (t *Trial) MustAccept(mode string, c *Callback, tp *Topic, params ...string) {
	t.Helper()
	if a := t.Request(mode, c, tp, params...); a.Status != http.StatusAccepted {
		t.Fatalf("%s %q is answered %d, not 202: %s", mode, params, a.Status, Tail(string(a.Body)))
	}
}

// MustVerify makes a request that has to be accepted and verified, and returns the
// verification.
func (t *Trial) MustVerify(mode string, c *Callback, tp *Topic, params ...string) CallbackRequest {
	t.Helper()
	n := len(c.Requests(Verification))
	t.MustAccept(mode, c, tp, params...)
	return t.WaitRequests(c, Verification, n+1)[n]
}

// Subscribe makes a subscription, which gets all that is published from now on.
func (t *Trial) Subscribe(c *Callback, tp *Topic, params ...string) CallbackRequest {
	t.Helper()
	return t.MustVerify("subscribe", c, tp, params...)
}

// WaitRequests waits until so many requests of a kind have arrived.
func (t *Trial) WaitRequests(c *Callback, kind string, n int) (all []CallbackRequest) {
	t.Helper()
	t.Wait(fmt.Sprintf("%d of kind %s arrive", n, kind), func() error {
		if all = c.Requests(kind); len(all) < n {
			return fmt.Errorf("there are %d", len(all))
		}
		return nil
	})
	return all
}

// CheckAnswered says whether so many arrivals of a kind were answered.
func CheckAnswered(c *Callback, kind string, n int) error {
	for _, a := range c.Requests(kind) {
		if a.Status != 0 {
			n--
		}
	}
	if n > 0 {
		return fmt.Errorf("%d are not answered", n)
	}
	return nil
}

// WaitDelivery waits until a change was delivered, and returns the delivery that
// was answered with 2xx.
func (t *Trial) WaitDelivery(c *Callback, mark string) (d CallbackRequest) {
	t.Helper()
	t.Wait("the change is delivered", func() error {
		for _, d = range c.Requests(Delivery) {
			if d.Contains(mark) && d.Status/100 == 2 {
				return nil
			}
		}
		return fmt.Errorf("%d deliveries do not have %s, or failed", len(c.Requests(Delivery)), mark)
	})
	return d
}

// CountDeliveries counts the deliveries that have a mark.
func (c *Callback) CountDeliveries(mark string) (n int) {
	for _, d := range c.Requests(Delivery) {
		if d.Contains(mark) {
			n++
		}
	}
	return n
}

// PublishRounds publishes changes, and waits until another subscriber has each. A
// subscriber of the same topic had time to get them too.
func (t *Trial) PublishRounds(tp *Topic, witness *Callback, n int) (marks []string) {
	t.Helper()
	for range n {
		mark := t.Publish(tp)
		t.WaitDelivery(witness, mark)
		marks = append(marks, mark)
	}
	return marks
}

// Notification reads a delivery.
func (t *Trial) Notification(d CallbackRequest) *List {
	t.Helper()
	l, err := ReadList(d.Body)
	if err != nil {
		t.Fatalf("%v: %s", err, Tail(string(d.Body)))
	}
	return l
}
