package outbound

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
)

func TestOwnerKey(t *testing.T) {
	for host, want := range map[string]string{
		"a.b.example.org:80": "example.org", "example.org:443": "example.org", "localhost:80": "localhost", "127.0.0.1:8080": "127.0.0.1",
		"[2001:db8:1:2:3:4:5:6]:80": "2001:db8:1:2::/64", "[::1]:80": "::/64", "": "", ":80": "",
	} {
		if got := OwnerKey(host); got != want {
			t.Errorf("OwnerKey(%s) = %q, want %q", host, got, want)
		}
	}
}

// Requests to one address are bounded, whatever the name and the port, before a connection is made.
// They count until the body of the response is closed, and one subscriber leaves half of them to
// others.
func TestRequestsPerAddressAreBounded(t *testing.T) {
	var connected atomic.Int64
	open := func() *httptest.Server {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "x")
			_ = http.NewResponseController(w).Flush()
		}))
		s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				connected.Add(1)
			}
		}
		s.Start()
		t.Cleanup(s.Close)
		return s
	}
	first := open()
	c := New(Options{Allow: loopback, PerAddress: 4})
	defer c.Close()
	ask := func(by, url string) (*http.Response, error) {
		ctx, peer := WithPeer(t.Context(), by)
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.RoundTrip(r)
		if peer.AddressKey() != "127.0.0.1" {
			t.Errorf("AddressKey() for %s = %q", url, peer.AddressKey())
		}
		return resp, err
	}
	var bodies []io.Closer
	name := strings.Replace(first.URL, "127.0.0.1", "localhost", 1)
	if addrs, err := net.LookupHost("localhost"); err != nil || addrs[0] != "127.0.0.1" {
		name = first.URL
	}
	for i, test := range []struct {
		by, url string
		ok      bool
	}{
		{"a", first.URL, true}, {"a", name, true}, {"a", first.URL, false}, {"b", first.URL, true}, {"c", open().URL, true}, {"d", first.URL, false},
	} {
		before := connected.Load()
		resp, err := ask(test.by, test.url)
		if (err == nil) != test.ok || err != nil && (!errors.Is(err, ErrBusy) || connected.Load() != before || strings.Contains(Explain(err).Text, "127")) {
			t.Fatalf("request %d: err = %v with %d connections", i, err, connected.Load())
		}
		if err == nil {
			bodies = append(bodies, resp.Body)
		}
	}
	for _, b := range bodies {
		_ = b.Close()
	}
	c.Close()
	if resp, err := ask("d", first.URL); err != nil {
		t.Errorf("request after the others have finished: %v", err)
	} else {
		_ = resp.Body.Close()
	}
	if len(c.requests.counts) != 0 {
		t.Errorf("remaining counts: %v", c.requests.counts)
	}
}

// A failed request is no longer counted, and a finished one makes no connection.
func TestFinishedRequestIsNotCounted(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String()
	l.Close()
	c := New(Options{Allow: loopback})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.RoundTrip(r); err == nil || len(c.requests.counts) != 0 {
		t.Errorf("err = %v; remaining counts: %v", err, c.requests.counts)
	}
	ctx, p := WithPeer(t.Context(), "")
	p.counts = &c.requests
	p.finish()
	if err := c.control(ctx, "tcp4", "127.0.0.1:80", nil); !errors.Is(err, context.Canceled) || len(c.requests.counts) != 0 {
		t.Errorf("connect after finish: %v; remaining counts: %v", err, c.requests.counts)
	}
	if err := c.control(t.Context(), "tcp4", netip.MustParseAddr("10.0.0.1").String()+":80", nil); !errors.Is(err, ErrAddress) {
		t.Errorf("address that is not allowed: %v", err)
	}
}
