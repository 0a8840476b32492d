// Package trial tests a hub from outside: with a source that publishes, and with callbacks that
// reply correctly or not and record the requests that they receive.
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

// AsForm is the Content-Type header of a subscriber's request.
const AsForm = "Content-Type: application/x-www-form-urlencoded"

// A Hub is the hub under test, as seen from outside.
type Hub struct {
	URL     string       // without a trailing slash
	Client  *http.Client // for all requests to it
	Timeout time.Duration
	Before  func(http.Handler) http.Handler // wraps the handler of the callbacks; nil if unused
}

// A Trial is a source and any number of subscribers that test a hub together. It lasts as long
// as its test.
type Trial struct {
	testing.TB
	Hub       *Hub
	Server    *Server // own server, because callbacks of one host may delay each other
	callbacks []*Callback
}

// New starts a trial. Everything that it starts stops with the test.
func New(t testing.TB, h *Hub) *Trial {
	tr := &Trial{TB: t, Hub: h}
	tr.Server = tr.NewServer()
	return tr
}

// Describe lists the requests that the callbacks received, to explain a failure.
func (t *Trial) Describe() string {
	var b strings.Builder
	for _, c := range t.callbacks {
		fmt.Fprintf(&b, "%s:\n%s", c.URL, c.describe())
	}
	return b.String()
}

// ErrNotYet reports that a condition is not true yet.
var ErrNotYet = errors.New("not yet")

// Wait waits until cond returns nil, and fails the test with its last error after the timeout.
func (t *Trial) Wait(what string, cond func() error) {
	t.Helper()
	if err := Poll(t.Hub.Timeout, cond); err != nil {
		t.Fatalf("timeout after %v until %s: %v", t.Hub.Timeout, what, err)
	}
}

// Poll calls cond until it returns nil, and returns its last error after a timeout.
func Poll(timeout time.Duration, cond func() error) error {
	deadline := time.NewTimer(timeout)
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

// Callback creates a callback. rest is appended to its path.
func (t *Trial) Callback(rest string) *Callback { return t.CallbackAt(t.Server, rest) }

// CallbackAt creates a callback at another server.
func (t *Trial) CallbackAt(s *Server, rest string) *Callback {
	c := s.Add(rest)
	t.callbacks = append(t.callbacks, c)
	return c
}

// Send makes a request with headers of the form "Name: value".
func (t *Trial) Send(method, u string, body []byte, headers ...string) *Response {
	t.Helper()
	a, err := Exchange(t.Hub.Client, method, u, bytes.NewReader(body), headers...)
	if err != nil {
		t.Fatalf("%s %s: %v", method, u, err)
	}
	return a
}

// Fetch makes a request, and fails the test unless the response has the status.
func (t *Trial) Fetch(status int, method, u string, body []byte, headers ...string) *Response {
	t.Helper()
	a := t.Send(method, u, body, headers...)
	if a.Status != status {
		t.Fatalf("%s %s = %d, want %d: %s", method, u, a.Status, status, Tail(string(a.Body)))
	}
	return a
}

// Post sends a form to the hub.
func (t *Trial) Post(form string) *Response {
	t.Helper()
	return t.Send(http.MethodPost, t.Hub.URL+"/hub", []byte(form), AsForm)
}

// Form returns the parameters of a request of a subscriber. params are pairs; they replace the
// defaults, and the value - removes a parameter.
func Form(mode, callback, topic string, params ...string) url.Values {
	f := url.Values{"hub.mode": {mode}, "hub.callback": {callback}, "hub.topic": {topic}}
	for i := 0; i < len(params); i += 2 {
		if f.Set(params[i], params[i+1]); params[i+1] == "-" {
			f.Del(params[i])
		}
	}
	return f
}

// Request requests a subscription, or its end.
func (t *Trial) Request(mode string, c *Callback, tp *Topic, params ...string) *Response {
	t.Helper()
	return t.Post(Form(mode, c.URL, tp.URL, params...).Encode())
}

// MustAccept makes a request, and fails the test unless it is accepted.
func (t *Trial) MustAccept(mode string, c *Callback, tp *Topic, params ...string) {
	t.Helper()
	if a := t.Request(mode, c, tp, params...); a.Status != http.StatusAccepted {
		t.Fatalf("%s %q = %d, want 202: %s", mode, params, a.Status, Tail(string(a.Body)))
	}
}

// MustVerify makes a request that must be accepted and verified, and returns the verification.
func (t *Trial) MustVerify(mode string, c *Callback, tp *Topic, params ...string) CallbackRequest {
	t.Helper()
	n := len(c.Requests(Verification))
	t.MustAccept(mode, c, tp, params...)
	return t.WaitRequests(c, Verification, n+1)[n]
}

// Subscribe creates a subscription, which receives all later changes.
func (t *Trial) Subscribe(c *Callback, tp *Topic, params ...string) CallbackRequest {
	t.Helper()
	return t.MustVerify("subscribe", c, tp, params...)
}

// WaitRequests waits until n requests of a kind have arrived.
func (t *Trial) WaitRequests(c *Callback, kind string, n int) (all []CallbackRequest) {
	t.Helper()
	t.Wait(fmt.Sprintf("%d requests of kind %s arrive", n, kind), func() error {
		if all = c.Requests(kind); len(all) < n {
			return fmt.Errorf("got %d", len(all))
		}
		return nil
	})
	return all
}

// CheckAnswered returns an error unless n requests of a kind have a response.
func CheckAnswered(c *Callback, kind string, n int) error {
	for _, a := range c.Requests(kind) {
		if a.Status != 0 {
			n--
		}
	}
	if n > 0 {
		return fmt.Errorf("%d requests have no response", n)
	}
	return nil
}

// WaitDelivery waits until a change was delivered, and returns the delivery with a response of
// status 2xx.
func (t *Trial) WaitDelivery(c *Callback, mark string) (d CallbackRequest) {
	t.Helper()
	t.Wait("the change is delivered", func() error {
		for _, d = range c.Requests(Delivery) {
			if d.Contains(mark) && d.Status/100 == 2 {
				return nil
			}
		}
		return fmt.Errorf("none of %d deliveries has %s and succeeded", len(c.Requests(Delivery)), mark)
	})
	return d
}

// CountDeliveries returns the number of deliveries that have a mark.
func (c *Callback) CountDeliveries(mark string) (n int) {
	for _, d := range c.Requests(Delivery) {
		if d.Contains(mark) {
			n++
		}
	}
	return n
}

// PublishRounds publishes n changes, and waits until the witness has each. Another subscriber of
// the topic had time to receive them too.
func (t *Trial) PublishRounds(tp *Topic, witness *Callback, n int) (marks []string) {
	t.Helper()
	for range n {
		mark := t.Publish(tp)
		t.WaitDelivery(witness, mark)
		marks = append(marks, mark)
	}
	return marks
}

// Notification parses a delivery.
func (t *Trial) Notification(d CallbackRequest) *List {
	t.Helper()
	l, err := ReadList(d.Body)
	if err != nil {
		t.Fatalf("%v: %s", err, Tail(string(d.Body)))
	}
	return l
}
