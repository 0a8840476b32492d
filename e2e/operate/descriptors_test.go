package operate

import (
	"bufio"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// startWithDescriptors starts a hub that may have no more file descriptors than that.
func startWithDescriptors(t testing.TB, limit int, env ...string) *hubtest.Hub {
	t.Helper()
	h := hubtest.NewHub(t, env...)
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("this needs a shell")
	}
	h.Process = hubtest.Start(t, h.Env, nil, shell, "-c", fmt.Sprintf(`ulimit -n %d && exec "$0"`, limit), hubtest.Rshub)
	h.Running()
	return h
}

// crowdIn connects to a hub n times, to follow a set, and reads nothing.
func crowdIn(t testing.TB, h *hubtest.Hub, n int) {
	t.Helper()
	for range n {
		conn, err := net.Dial("tcp", h.Host)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		fmt.Fprintf(conn, "GET /sets/quiet/changes HTTP/1.1\r\nHost: %s\r\nAccept: text/event-stream\r\n\r\n", h.Host)
	}
}

// TestDescriptorLimit connects to a hub far more often than it has file descriptors.
// Who is in goes on publishing, the store goes on writing, probes and operators get
// their answers, new connections are told to come later, and the log stays short.
func TestDescriptorLimit(t *testing.T) {
	t.Parallel()
	const set, limit = "crowded", 128
	h := startWithDescriptors(t, limit)
	early, err := net.Dial("tcp", h.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer early.Close()
	answers := bufio.NewReader(early)
	body := func(name string, n int) (lines string) {
		for range n {
			noise := make([]byte, 700) // nothing that could be compressed
			_, _ = rand.Read(noise)
			lines += fmt.Sprintf(`{"loc":"https://example.org/%s/%x","change":"created"}`+"\n", name, noise)
		}
		return lines
	}
	begin := func(length int, lines string) {
		_ = early.SetDeadline(time.Now().Add(hubtest.Patience))
		fmt.Fprintf(early, "POST /sets/%s/changes HTTP/1.1\r\nHost: %s\r\nContent-Type: application/x-ndjson\r\nContent-Length: %d\r\n\r\n%s", set, h.Host, length, lines)
	}
	published := func(name string) {
		t.Helper()
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		defer resp.Body.Close()
		if b, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d %s %v", name, resp.StatusCode, b, err)
		}
	}
	// A connection that waits for a request may be closed to make room for others, after a
	// second. So the publisher is in the middle of a request while the others come.
	first, second := body("first", 1), body("second", 1)
	begin(len(first)+len(second), first)
	crowdIn(t, h, 4*limit)
	hubtest.Until(t, "a new connection is told that there are too many", func() error {
		a, err := hubtest.Request(http.MethodGet, h.URL+"/sets", nil)
		if err == nil && (a.Status != http.StatusServiceUnavailable || a.Header.Get("Retry-After") == "") {
			err = fmt.Errorf("%d %s", a.Status, a.Body)
		}
		return err
	})
	fmt.Fprint(early, second)
	published("what began before")
	for i := range 100 { // some memtables
		name := fmt.Sprint("publish-", i)
		lines := body(name, 100)
		begin(len(lines), lines)
		published(name)
		if i%20 == 0 {
			hubtest.Must(t, http.StatusOK, http.MethodGet, h.Ops+"/readyz", nil)
			hubtest.Must(t, http.StatusOK, http.MethodGet, h.Ops+"/metrics", nil)
		}
	}
	if text := h.Stderr.String(); strings.Count(text, "\n") > 20 || strings.Contains(text, "too many open files") || !strings.Contains(text, "too many connections") {
		t.Errorf("the log is\n%.5000s", text)
	}
}
