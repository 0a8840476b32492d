package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// A pinged hub fetches a topic when it is told to, verifies who subscribes, and
// tries each delivery once. It is no rshub.
type pinged struct {
	url string

	mu        sync.Mutex
	callbacks map[string]map[string]bool // by topic
	under     sync.WaitGroup
}

func (h *pinged) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	topic, callback := r.PostFormValue("hub.topic"), r.PostFormValue("hub.callback")
	switch r.PostFormValue("hub.mode") {
	case "publish":
		h.under.Go(func() { h.deliver(topic) })
	case "subscribe":
		h.under.Go(func() { h.verify(topic, callback) })
	default:
		http.Error(w, "hub.mode is neither publish nor subscribe", http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusAccepted)
}

func (h *pinged) verify(topic, callback string) {
	q := url.Values{"hub.mode": {"subscribe"}, "hub.topic": {topic}, "hub.challenge": {"a challenge"}, "hub.lease_seconds": {"3600"}}
	resp, err := http.Get(callback + "?" + q.Encode())
	if err != nil {
		return
	}
	defer resp.Body.Close()
	if said, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK || string(said) != "a challenge" {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.callbacks[topic] == nil {
		h.callbacks[topic] = map[string]bool{}
	}
	h.callbacks[topic][callback] = true
}

func (h *pinged) deliver(topic string) {
	resp, err := http.Get(topic)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for callback := range h.callbacks[topic] {
		req, err := http.NewRequest(http.MethodPost, callback, bytes.NewReader(body))
		if err != nil {
			continue
		}
		req.Header.Set("Content-Type", resp.Header.Get("Content-Type"))
		req.Header.Set("Link", fmt.Sprintf(`<%s>; rel="hub", <%s>; rel="self"`, h.url, topic))
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_ = resp.Body.Close()
		}
	}
}

// TestPing tries a small hub that is no rshub, and is told of changes by pings:
// it does some of what it must.
func TestPing(t *testing.T) {
	t.Parallel()
	h := &pinged{callbacks: map[string]map[string]bool{}}
	server := httptest.NewServer(h)
	t.Cleanup(func() { server.Close(); h.under.Wait() })
	h.url = server.URL
	var stdout, stderr bytes.Buffer
	try := func(pattern string, flags ...string) int {
		stdout.Reset()
		return run(append(flags, "-hub", h.url, "-publish", "ping", "-timeout", "2s", "-run", pattern), &stdout, &stderr)
	}
	if code := try("media type|links to|are enough|one topic has many|5.3.1 404 refuses"); code != 0 || strings.Count(stdout.String(), "PASS") != 7 {
		t.Errorf("what it does: %d\n%s%s", code, &stdout, &stderr)
	}
	if code := try("to unsubscribe is accepted"); code != 1 || !strings.Contains(stdout.String(), "answered 400") {
		t.Errorf("what it does not: %d\n%s%s", code, &stdout, &stderr)
	}
	// All callbacks and topics at one address, which the hub knows by a name.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	_, port, _ := net.SplitHostPort(addr)
	code := try("media type|links to|a callback that hangs", "-listen", addr, "-callback", "http://localhost:"+port)
	if text := stdout.String(); code != 0 || strings.Count(text, "PASS") != 4 || strings.Count(text, "SKIP") != 1 {
		t.Errorf("at one address: %d\n%s%s", code, text, &stderr)
	}
}
