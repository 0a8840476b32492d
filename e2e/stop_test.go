package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestStop stops the hub in the orderly way while it is followed and published
// to.
func TestStop(t *testing.T) {
	t.Parallel()
	h := startHub(t)
	const set = "stopped"
	publish(t, h, set, changes("before", 1500))
	var followers []*follower
	for _, way := range allWays {
		followers = append(followers, follow(t, h, way, set, "start"))
	}
	p := publishing(t, h, set, "keyed", true)
	for _, f := range followers {
		f.has(t, 1600)
	}
	begun := time.Now()
	h.stop(t)
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("the hub took %v to stop", took)
	}
	goodbye := followers[0].ended(t, "close 1001")
	if cursor := followers[0].at(); !strings.Contains(goodbye, " "+cursor+" ") {
		t.Errorf("the goodbye is %q, and the last cursor %s", goodbye, cursor)
	}
	followers[1].ended(t, "the stream ended")
	h.start(t)
	n := followers[0].count()
	followers[0].has(t, n+100)
	p.finish()
	all := memory(t, h, set)
	p.check(t, all)
	for _, f := range followers {
		same(t, "the "+f.way, f.has(t, len(all)), all)
		if f.diverged > 0 {
			t.Errorf("the %s was told that the memory diverged", f.way)
		}
	}
}

// halfPublish begins a publish and leaves it at that.
func halfPublish(t *testing.T, h *hub, set string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", h.host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "POST /sets/%s/changes HTTP/1.1\r\nHost: %s\r\nContent-Type: application/x-ndjson\r\nContent-Length: 1000000\r\nExpect: 100-continue\r\n\r\n", set, h.host)
	answer := make([]byte, 25)
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	if n, err := conn.Read(answer); err != nil || !strings.Contains(string(answer[:n]), "100 Continue") {
		t.Fatalf("the hub does not read: %q, %v", answer[:n], err)
	}
	if _, err := conn.Write(changes("half", 10)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestGrace stops a hub that has a request which does not end.
func TestGrace(t *testing.T) {
	t.Parallel()
	h := startHub(t, "RSHUB_GRACE=1s")
	halfPublish(t, h, "slow")
	begun := time.Now()
	h.stop(t)
	if took := time.Since(begun); took < 900*time.Millisecond || took > 1500*time.Millisecond+patience/10 {
		t.Errorf("the hub took %v to stop", took)
	}
	h.says("requests were still under way after the grace period")
	h.start(t)
	if at := head(t, h, "slow"); at != "" {
		t.Errorf("the set is at %s", at)
	}
}

// endsAtSecondSignal sends signals to a hub that is stopping until it ends by one.
func endsAtSecondSignal(t *testing.T, h *hub) {
	t.Helper()
	until(t, "the second signal ends it", func() error {
		if h.ended() {
			return nil
		}
		h.signal(syscall.SIGTERM) // the first one's handler goes away a moment after the log line
		return errors.New("it still runs")
	})
	if s := h.cmd.ProcessState.Sys().(syscall.WaitStatus); !s.Signaled() || s.Signal() != syscall.SIGTERM {
		t.Errorf("it ended with %v", s)
	}
}

// TestSecondSignal ends a hub that is stopping, at once.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	h := startHub(t, "RSHUB_GRACE=1h")
	publish(t, h, "twice", changes("before", 10))
	halfPublish(t, h, "twice")
	h.signal(syscall.SIGTERM)
	h.says("a second signal ends at once")
	if a, err := request(http.MethodGet, h.ops+"/readyz", nil); err == nil && a.status != http.StatusServiceUnavailable {
		t.Errorf("a hub that is stopping is ready: %d %s", a.status, a.body)
	}
	if h.ended() {
		t.Fatal("the hub did not wait for the request")
	}
	endsAtSecondSignal(t, h)
	h.start(t)
	if n := len(memory(t, h, "twice")); n != 10 {
		t.Errorf("the memory has %d changes", n)
	}
}
