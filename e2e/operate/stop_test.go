package operate

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// halfPublish sends the start of a publish, and leaves it unfinished.
func halfPublish(t *testing.T, h *hubtest.Hub, set string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", h.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "POST /sets/%s/changes HTTP/1.1\r\nHost: %s\r\nContent-Type: application/x-ndjson\r\nContent-Length: 1000000\r\nExpect: 100-continue\r\n\r\n", set, h.Host)
	response := make([]byte, 25)
	_ = conn.SetReadDeadline(time.Now().Add(hubtest.Timeout))
	if n, err := conn.Read(response); err != nil || !strings.Contains(string(response[:n]), "100 Continue") {
		t.Fatalf("got %q, %v, want 100 Continue", response[:n], err)
	}
	if _, err := conn.Write(hubtest.Changes("half", 10)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestGrace stops a hub during a request that does not finish.
func TestGrace(t *testing.T) {
	t.Parallel()
	h := hubtest.StartHub(t, "RSHUB_GRACE=1s")
	halfPublish(t, h, "slow")
	start := time.Now()
	h.Stop(t)
	if took := time.Since(start); took < 900*time.Millisecond {
		t.Errorf("stopping took %v, want at least 900ms", took)
	}
	h.WaitLog("requests were still in progress after the grace period")
	h.Start(t)
	if at := hubtest.Head(t, h, "slow"); at != "" {
		t.Errorf("head of the set = %s, want none", at)
	}
}

// wantExitBySignal sends signals to a stopping hub until one kills it.
func wantExitBySignal(t *testing.T, h *hubtest.Hub) {
	t.Helper()
	hubtest.Until(t, "the second signal kills the hub", func() error {
		if h.Exited() {
			return nil
		}
		h.Signal(syscall.SIGTERM) // the handler of the first one is removed shortly after the log line
		return errors.New("still running")
	})
	if s := h.Cmd.ProcessState.Sys().(syscall.WaitStatus); !s.Signaled() || s.Signal() != syscall.SIGTERM {
		t.Errorf("wait status = %v, want SIGTERM", s)
	}
}

// TestSecondSignal kills a stopping hub with a second signal.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	h := hubtest.StartHub(t, "RSHUB_GRACE=1h")
	hubtest.Publish(t, h, "twice", hubtest.Changes("before", 10))
	halfPublish(t, h, "twice")
	h.Signal(syscall.SIGTERM)
	h.WaitLog("a second signal exits immediately")
	if a, err := hubtest.Request(http.MethodGet, h.Ops+"/readyz", nil); err == nil && a.Status != http.StatusServiceUnavailable {
		t.Errorf("readyz of a stopping hub = %d, want 503: %s", a.Status, a.Body)
	}
	if h.Exited() {
		t.Fatal("the hub exited, want it to wait for the request")
	}
	wantExitBySignal(t, h)
	h.Start(t)
	if n := len(hubtest.ReadMemory(t, h, "twice")); n != 10 {
		t.Errorf("got %d changes, want 10", n)
	}
}

// TestDrainDelay stops a hub with a drain delay: it is not ready but still serves requests, until
// load balancers have noticed. A second signal kills it immediately.
func TestDrainDelay(t *testing.T) {
	t.Parallel()
	const set = "lingers"
	h := hubtest.StartHub(t, "RSHUB_DRAIN_DELAY=1h")
	hubtest.Publish(t, h, set, hubtest.Change("before"))
	f := hubtest.Follow(t, h, hubtest.ByWebSocket, set, "start")
	f.WaitEntries(t, 1)
	h.Signal(syscall.SIGTERM)
	h.WaitLog("not ready, but still serving")
	var v hubtest.Readiness
	hubtest.Decode(t, hubtest.Must(t, http.StatusServiceUnavailable, http.MethodGet, h.Ops+"/readyz", nil).Body, &v)
	if c := v.Checks["hub"]; v.Ready || c.OK || c.Reason != "stopping" || !v.Checks["memory"].OK {
		t.Errorf("readiness = %+v", v)
	}
	hubtest.Must(t, http.StatusOK, http.MethodGet, h.Ops+"/healthz", nil)
	hubtest.Publish(t, h, set, hubtest.Change("during")) // on a new connection
	f.WaitEntries(t, 2)
	hubtest.Follow(t, h, hubtest.ByEvents, set, "start").WaitEntries(t, 2)
	// The hub closes kept connections, so that clients reconnect elsewhere.
	resp, err := http.Get(h.Topic(set))
	if err != nil {
		t.Fatal(err)
	}
	if resp.Body.Close(); !resp.Close {
		t.Error("the response has no Connection: close")
	}
	if h.Exited() {
		t.Fatal("the hub has exited")
	}
	wantExitBySignal(t, h)
}
