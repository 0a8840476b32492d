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

// startWithDescriptors starts a hub with a limit on file descriptors.
func startWithDescriptors(t testing.TB, limit int, env ...string) *hubtest.Hub {
	t.Helper()
	h := hubtest.NewHub(t, env...)
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("needs a shell")
	}
	h.Process = hubtest.Start(t, h.Env, nil, shell, "-c", fmt.Sprintf(`ulimit -n %d && exec "$0"`, limit), hubtest.Rshub)
	h.WaitRunning()
	return h
}

// connectIdle connects n followers to a hub that read nothing.
func connectIdle(t testing.TB, h *hubtest.Hub, n int) {
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

// TestDescriptorLimit opens many more connections to a hub than it has file descriptors. An
// existing connection can still publish, the store can write, probes and operators get responses,
// new connections get status 503 with Retry-After, and the log stays short.
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
			noise := make([]byte, 700) // incompressible
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
	connectIdle(t, h, 4*limit)
	hubtest.Until(t, "a new connection gets status 503", func() error {
		a, err := hubtest.Request(http.MethodGet, h.URL+"/sets", nil)
		if err == nil && (a.Status != http.StatusServiceUnavailable || a.Header.Get("Retry-After") == "") {
			err = fmt.Errorf("%d %s", a.Status, a.Body)
		}
		return err
	})
	for i := range 100 { // enough for several memtables
		publish(fmt.Sprint("publish-", i), 100)
		if i%20 == 0 {
			hubtest.Must(t, http.StatusOK, http.MethodGet, h.Ops+"/readyz", nil)
			hubtest.Must(t, http.StatusOK, http.MethodGet, h.Ops+"/metrics", nil)
		}
	}
	if text := h.Stderr.String(); strings.Count(text, "\n") > 20 || strings.Contains(text, "too many open files") || !strings.Contains(text, "too many connections") {
		t.Errorf("got log\n%.5000swant few lines about too many connections", text)
	}
}
