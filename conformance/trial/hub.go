package trial

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"
)

// How a source tells a hub of changes, besides a URL to post notifications to.
const (
	ByHub   = "hub"   // a notification to the hub's URL, with Link headers (Change Notification 4.1)
	ByTopic = "topic" // a notification to the topic's URL
	ByPing  = "ping"  // hub.mode=publish to the hub's URL; the hub fetches the topic, which the trial serves
)

// A Hub is the hub that is tried, seen from outside.
type Hub struct {
	URL          string       // where subscriptions are asked for
	Topics       string       // the URL of the topic; {} in it is replaced by a name, so that each trial has topics of its own
	Publishing   string       // ByHub (the default), byTopic, ByPing or a URL
	Token        string       // that is sent with requests to the hub, if any
	PublishToken string       // that is sent in place of it with what is published
	Asker        *http.Client // of subscribers; nil: one that keeps no connections
	Patience     time.Duration

	// The hub is an rshub, which delivers to a new subscriber all that was
	// published since its request was accepted. Of another hub that is not
	// expected: a subscription counts as active when a first change has arrived.
	IsRshub bool

	Listen   string                          // where callbacks listen; default 127.0.0.1:0, for each server another port
	Callback string                          // the URL by which the hub reaches them all, then at one server
	Before   func(http.Handler) http.Handler // sees what the hub sends before the callbacks do, if it is not nil

	shared *Server
}

// Open starts the server that all trials share, if the callbacks have one URL or
// one port. It returns what ends it.
func (h *Hub) Open() (end func(), err error) {
	_, port, err := net.SplitHostPort(h.address())
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", h.Listen, err)
	}
	if h.Callback == "" && port == "0" {
		return func() {}, nil
	}
	h.shared, err = Listen(h.address(), h.Before)
	if err != nil {
		return nil, err
	}
	if h.Callback != "" {
		h.shared.URL = strings.TrimSuffix(h.Callback, "/")
	}
	return h.shared.close, nil
}

// Reach says why the hub cannot be reached at all.
func (h *Hub) Reach() error {
	a, err := send(Plain, h.Token, http.MethodGet, h.URL, nil)
	if err != nil {
		return err
	}
	switch a.Status {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return fmt.Errorf("%s is answered %d: %s", h.URL, a.Status, Tail(string(a.Body)))
	}
	return nil
}

func (h *Hub) address() string {
	if h.Listen == "" {
		return "127.0.0.1:0"
	}
	return h.Listen
}

// ManyTopics says whether each trial can have topics of its own.
func (h *Hub) ManyTopics() bool {
	return h.Publishing == ByPing || strings.Contains(h.Topics, "{}")
}

// Base is the URL below which a hub has everything, if it is an rshub.
func (h *Hub) Base() string { return strings.TrimSuffix(h.URL, "/hub") }

// Fetch makes a request to the hub's site that is answered with a status.
func (t *Trial) Fetch(status int, method, u string, body []byte, headers ...string) *Answer {
	t.Helper()
	a := t.Send(t.Hub.Token, method, u, body, headers...)
	if a.Status != status {
		t.Fatalf("%s %s is answered %d, not %d: %s", method, u, a.Status, status, Tail(string(a.Body)))
	}
	return a
}

// Post sends a form to the hub.
func (t *Trial) Post(body string, headers ...string) *Answer {
	t.Helper()
	return t.PostTo(t.Hub.URL, body, headers...)
}

// PostTo sends a form to a URL.
func (t *Trial) PostTo(u, body string, headers ...string) *Answer {
	t.Helper()
	a, err := t.Hub.Ask(u, body, headers...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Ask sends a subscriber's form to a URL of the hub.
func (h *Hub) Ask(u, body string, headers ...string) (*Answer, error) {
	client := h.Asker
	if client == nil {
		client = Plain
	}
	return send(client, h.Token, http.MethodPost, u, []byte(body), append([]string{AsForm}, headers...)...)
}

// Send makes a request that is not a subscriber's.
func (t *Trial) Send(token, method, u string, body []byte, headers ...string) *Answer {
	t.Helper()
	a, err := send(Plain, token, method, u, body, headers...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// send makes a request with headers "Name: value", of which the last of a name
// counts.
func send(client *http.Client, token, method, u string, body []byte, headers ...string) (*Answer, error) {
	req, err := http.NewRequest(method, u, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	a, err := ExchangeBy(client, req)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, u, err)
	}
	return a, nil
}
