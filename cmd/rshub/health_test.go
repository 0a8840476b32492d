package main

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestHealth(t *testing.T) {
	answers := func(status int, body string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/readyz" {
				status = http.StatusNotFound
			}
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}))
		t.Cleanup(s.Close)
		return strings.TrimPrefix(s.URL, "http://")
	}
	ready := answers(200, `{"ready":true,"checks":{"memory":{"ok":true,"required":true}}}`)
	_, port, _ := net.SplitHostPort(ready)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections, but never responds
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	unusedAddr := closed.Addr().String()
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, listen string
		code         int
		want         string // substring of the output
	}{
		{"ready", ready, 0, "ready"},
		{"all addresses", ":" + port, 0, "ready"},
		{"all addresses of IPv4", "0.0.0.0:" + port, 0, "ready"},
		{"not ready", answers(503, `{"ready":false,"checks":{"hub":{"ok":false,"required":true,"reason":"stopping"},"nats":{"ok":false,"reason":"no servers"}}}`), 1, "hub is not ready: hub: stopping; nats: no servers"},
		{"ready with another status", answers(500, `{"ready":true}`), 1, "not ready"},
		{"another server", answers(200, "<html>"), 1, "is not a hub: /readyz returned status 200"},
		{"no server", unusedAddr, 1, "query hub at " + unusedAddr},
		{"silent", silent.Addr().String(), 1, "query hub at " + silent.Addr().String()},
		{"off", "", 2, "RSHUB_OPS_LISTEN is empty"},
		{"no port", "127.0.0.1", 1, "RSHUB_OPS_LISTEN"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("RSHUB_OPS_LISTEN", tt.listen)
			t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
			ctx := t.Context()
			if tt.name == "silent" { // do not wait for the timeout
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 100*time.Millisecond)
				defer cancel()
			}
			var out, errs strings.Builder
			code := run(ctx, []string{"health"}, &out, &errs)
			if code != tt.code || !strings.Contains(out.String()+errs.String(), tt.want) {
				t.Errorf("rshub health = %d: %s%s, want %d: %s", code, out.String(), errs.String(), tt.code, tt.want)
			}
		})
	}
	if healthTimeout >= 5*time.Second {
		t.Errorf("healthTimeout = %v, want less than the documented five seconds", healthTimeout)
	}
}
