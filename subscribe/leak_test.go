//go:build unix

package subscribe_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/subscribe"
)

// TestShutdownStopsGoroutines checks that Shutdown stops all goroutines, whatever state the
// connections are in.
func TestShutdownStopsGoroutines(t *testing.T) {
	s := newSite(t, settings{Options: subscribe.Options{WriteTimeout: 3 * time.Second}, sendBuffer: smallSend})
	s.publish(1)
	for i := range 30 {
		query := []string{"", "?since=start", "?change=created", fmt.Sprint("?prefix=https://example.org/", i)}[i%4]
		c := s.dial(query, smallBuffers(smallRead))
		switch i % 3 {
		case 0: // stalls
		case 1:
			c.next()
			c.ws.NetConn().Close()
		case 2:
			go readAll(c)
		}
	}
	s.followEvents("")
	for i := range 6 {
		events, nc := s.streamOver([]string{"HTTP/1.0", "HTTP/1.1"}[i%2], "", smallBuffers(smallRead))
		switch i / 2 {
		case 0: // stalls
		case 1:
			nc.Close()
		case 2:
			go readAll(events)
		}
	}
	go s.get("?wait=1m&change=deleted", "Accept", "application/json")
	for range 20 {
		s.publishLarge(100_000)
	}
	testutil.Until(t, "the long poll waits", func() bool { return strings.Contains(stacks(), "subscribe.(*Server).collect") || s.Failed() })
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // does not wait for clients that do not read
	defer cancel()
	if err := s.server.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Error("Shutdown:", err)
	}
	for _, left := range []string{"subscribe.(*conn)", "subscribe.(*Server).run(", "subscribe.(*Server).register"} {
		if all := stacks(); strings.Contains(all, left) {
			t.Errorf("got a goroutine in %s, want none:\n%s", left, all)
		}
	}
}

// TestClosedConnectionsAreReleased checks that closed connections leave no goroutine.
func TestClosedConnectionsAreReleased(t *testing.T) {
	s := newSite(t, settings{})
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			query := fmt.Sprint("?prefix=https://example.org/", i)
			if i%3 == 0 {
				query += "&since=5-5" // gone
			}
			c, _, err := s.tryDial(query, dialer{})
			if err != nil {
				t.Error(err)
				return
			}
			if i%2 == 0 {
				_, _ = c.read()
			}
			c.ws.Close()
		})
	}
	wg.Wait()
	testutil.Until(t, "all goroutines stop", func() bool {
		all := stacks()
		return !strings.Contains(all, "subscribe.(*conn)") && !strings.Contains(all, "subscribe.(*Server).run(")
	})
}
