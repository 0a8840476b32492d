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
	h.WaitRunning()
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
	publish := func(name string, n int) {
		t.Helper()
		body := ""
		for range n {
			noise := make([]byte, 700) // nothing that could be compressed
			_, _ = rand.Read(noise)
			body += fmt.Sprintf(`{"loc":"https://example.org/%s/%x","change":"created"}`+"\n", name, noise)
		}
		_ = early.SetDeadline(time.Now().Add(hubtest.Timeout))
		fmt.Fprintf(early, "POST /sets/%s/changes HTTP/1.1\r\nHost: %s\r\nContent-Type: application/x-ndjson\r\nContent-Length: %d\r\n\r\n%s", set, h.Host, len(body), body)
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		defer resp.Body.Close()
		if b, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d %s %v", name, resp.StatusCode, b, err)
		}
	}
	publish("before", 1)
	crowdIn(t, h, 4*limit)
	hubtest.Until(t, "a new connection is told that there are too many", func() error {
		a, err := hubtest.Request(http.MethodGet, h.URL+"/sets", nil)
		if err == nil && (a.Status != http.StatusServiceUnavailable || a.Header.Get("Retry-After") == "") {
			err = fmt.Errorf("%d %s", a.Status, a.Body)
		}
		return err
	})
	for i := range 100 { // some memtables
		publish(fmt.Sprint("publish-", i), 100)
		if i%20 == 0 {
			hubtest.Must(t, http.StatusOK, http.MethodGet, h.Ops+"/readyz", nil)
			hubtest.Must(t, http.StatusOK, http.MethodGet, h.Ops+"/metrics", nil)
		}
	}
	if text := h.Stderr.String(); strings.Count(text, "\n") > 20 || strings.Contains(text, "too many open files") || !strings.Contains(text, "too many connections") {
		t.Errorf("the log is\n%.5000s", text)
	}
}
