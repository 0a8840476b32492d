// Package servertest runs a hub in the process of a test, and sends requests to it.
//
// The caller passes the server, so that the tests of package internal/server can use it, too.
// Package localhub creates one with defaults.
package servertest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// A Server is run by Start. *server.Server implements it.
type Server interface {
	Run(ctx context.Context) error
	Ready() <-chan struct{}
	Addrs() (listen, ops net.Addr)
}

// A Hub is a running hub.
type Hub struct {
	URL string // base URL of the hub
	Ops string // URL of its operations address; empty if it has none

	t      testing.TB
	cancel context.CancelFunc
	done   chan error
}

// Start runs s until the test ends, and returns when it is ready. If it does not become ready, the
// test fails with the log.
func Start(t testing.TB, s Server, log fmt.Stringer) *Hub {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	h := &Hub{t: t, cancel: cancel, done: make(chan error, 1)}
	go func() { h.done <- s.Run(ctx) }()
	select {
	case <-s.Ready():
	case err := <-h.done:
		cancel()
		t.Fatalf("hub stopped: %v\n%s", err, log)
	}
	listen, ops := s.Addrs()
	h.URL = "http://" + listen.String()
	if ops != nil {
		h.Ops = "http://" + ops.String()
	}
	t.Cleanup(h.Stop)
	return h
}

// Testing returns the test for which the hub runs.
func (h *Hub) Testing() testing.TB { return h.t }

// Cancel tells the hub to stop, and does not wait.
func (h *Hub) Cancel() { h.cancel() }

// Wait waits until the hub has stopped, and returns its error.
func (h *Hub) Wait() error {
	err := <-h.done
	h.done <- nil // for the next call of Wait
	return err
}

// Stop stops the hub and waits for it. The test fails if the hub returns an error. Stop may be
// called repeatedly.
func (h *Hub) Stop() {
	h.t.Helper()
	h.cancel()
	if err := h.Wait(); err != nil {
		h.t.Errorf("hub stopped: %v", err)
	}
}

// OneChange is a publish of one change as JSON.
const OneChange = `{"changes":[{"loc":"https://example.org/a","change":"updated"}]}`

// Publish publishes OneChange to a set. headers are alternating names and values.
func (h *Hub) Publish(set string, headers ...string) {
	h.t.Helper()
	resp, body := Do(h.t, "POST", h.URL+"/sets/"+set+"/changes", OneChange, append(headers, "Content-Type", "application/json")...)
	if resp.StatusCode != http.StatusOK {
		h.t.Fatalf("publish: %d %s", resp.StatusCode, body)
	}
}

// Do makes a request and returns the response with its whole body. It does not follow redirects.
// headers are alternating names and values; "Host" sets the host of the request.
func Do(t testing.TB, method, url, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	r.Host = r.Header.Get("Host") // if empty, the host of the URL is used
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text)
}
