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

// halfPublish begins a publish and leaves it at that.
func halfPublish(t *testing.T, h *hubtest.Hub, set string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", h.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "POST /sets/%s/changes HTTP/1.1\r\nHost: %s\r\nContent-Type: application/x-ndjson\r\nContent-Length: 1000000\r\nExpect: 100-continue\r\n\r\n", set, h.Host)
	answer := make([]byte, 25)
	_ = conn.SetReadDeadline(time.Now().Add(hubtest.Timeout))
	if n, err := conn.Read(answer); err != nil || !strings.Contains(string(answer[:n]), "100 Continue") {
		t.Fatalf("the hub does not read: %q, %v", answer[:n], err)
	}
	if _, err := conn.Write(hubtest.Changes("half", 10)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestGrace stops a hub that has a request which does not end.
func TestGrace(t *testing.T) {
	t.Parallel()
	h := hubtest.StartHub(t, "RSHUB_GRACE=1s")
	halfPublish(t, h, "slow")
	begun := time.Now()
	h.Stop(t)
	if took := time.Since(begun); took < 900*time.Millisecond {
		t.Errorf("the hub took %v to stop", took)
	}
	h.WaitLog("requests were still in progress after the grace period")
	h.Start(t)
	if at := hubtest.Head(t, h, "slow"); at != "" {
		t.Errorf("the set is at %s", at)
	}
}

// endsAtSecondSignal sends signals to a hub that is stopping until it ends by one.
func endsAtSecondSignal(t *testing.T, h *hubtest.Hub) {
	t.Helper()
	hubtest.Until(t, "the second signal ends it", func() error {
		if h.Exited() {
			return nil
		}
		h.Signal(syscall.SIGTERM) // the first one's handler goes away a moment after the log line
		return errors.New("it still runs")
	})
	if s := h.Cmd.ProcessState.Sys().(syscall.WaitStatus); !s.Signaled() || s.Signal() != syscall.SIGTERM {
		t.Errorf("it ended with %v", s)
	}
}

// TestSecondSignal ends a hub that is stopping, at once.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	h := hubtest.StartHub(t, "RSHUB_GRACE=1h")
	hubtest.Publish(t, h, "twice", hubtest.Changes("before", 10))
	halfPublish(t, h, "twice")
	h.Signal(syscall.SIGTERM)
	h.WaitLog("a second signal exits immediately")
	if a, err := hubtest.Request(http.MethodGet, h.Ops+"/readyz", nil); err == nil && a.Status != http.StatusServiceUnavailable {
		t.Errorf("a hub that is stopping is ready: %d %s", a.Status, a.Body)
	}
	if h.Exited() {
		t.Fatal("the hub did not wait for the request")
	}
	endsAtSecondSignal(t, h)
	h.Start(t)
	if n := len(hubtest.ReadMemory(t, h, "twice")); n != 10 {
		t.Errorf("the memory has %d changes", n)
	}
}

// TestDrainDelay has a hub that is told to stop go on for a while: it is not
// ready, and does what it is asked for until balancers know. A second signal ends
// it at once.
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
		t.Errorf("readyz says %+v", v)
	}
	hubtest.Must(t, http.StatusOK, http.MethodGet, h.Ops+"/healthz", nil)
	hubtest.Publish(t, h, set, hubtest.Change("meanwhile")) // on a new connection
	f.WaitEntries(t, 2)
	hubtest.Follow(t, h, hubtest.ByEvents, set, "start").WaitEntries(t, 2)
	// Who keeps a connection is asked to make another, which leads elsewhere.
	resp, err := http.Get(h.Topic(set))
	if err != nil {
		t.Fatal(err)
	}
	if resp.Body.Close(); !resp.Close {
		t.Error("the connection is kept")
	}
	if h.Exited() {
		t.Fatal("it has ended")
	}
	endsAtSecondSignal(t, h)
}
