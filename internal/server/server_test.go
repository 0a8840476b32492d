package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/internal/testutil"
	"github.com/rshub/rshub/internal/testutil/servertest"
)

func TestStartup(t *testing.T) {
	h := start(t, Config{})
	first, _, _ := strings.Cut(h.log.String(), "\n")
	var line map[string]string
	if err := json.Unmarshal([]byte(first), &line); err != nil {
		t.Fatal(err)
	}
	listen, ops := strings.TrimPrefix(h.URL, "http://"), strings.TrimPrefix(h.Ops, "http://")
	if line["msg"] != "rshub is running" || line["listen"] != listen || line["ops"] != ops || line["url"] != h.URL || line["memory"] != h.data || line["version"] != "v1.2.3" {
		t.Errorf("first log line = %s, want the addresses, the URL, the memory and the version", first)
	}
	if resp, body := servertest.Do(t, "GET", h.Ops+"/healthz", ""); resp.StatusCode != http.StatusOK || !strings.Contains(body, `"ok"`) {
		t.Errorf("healthz: got %d %s, want 200 ok", resp.StatusCode, body)
	}
	if ready, checks := readiness(t, h); !ready || len(checks) != 1 || checks["memory"] != (dependency{OK: true, Required: true}) {
		t.Errorf("readyz: got %v, %v, want ready with the memory as only check", ready, checks)
	}
	// The public address does not serve the paths of the operations address.
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/backup", "/debug/pprof/"} {
		h.wantStatus(http.StatusNotFound, "GET", path, "")
	}
	h.Stop()
	if quiet := start(t, Config{OpsListen: none}); quiet.Ops != "" || !strings.Contains(quiet.log.String(), `"ops":"none"`) {
		t.Errorf("without an operations address: got %q, log %s, want none", quiet.Ops, quiet.log)
	}
	if !strings.Contains(h.log.String(), `"msg":"stopped"`) || strings.Contains(h.log.String(), `"level":"ERROR"`) {
		t.Errorf("got the log\n%s\nwant stopped and no errors", h.log)
	}
}

// A hub that stops is not ready, accepts no new connections, and completes a publish that is in
// progress.
func TestStopWhilePublishing(t *testing.T) {
	h := start(t, Config{})
	body, send := io.Pipe()
	answers := make(chan string, 1)
	go func() {
		resp := sendRequest(t, http.DefaultClient, "POST", h.topic("demo"), body, asNDJSON...)
		text, err := io.ReadAll(resp.Body)
		answers <- fmt.Sprint(resp.StatusCode, string(text), err)
	}()
	line := []byte(`{"loc":"https://example.org/a","change":"updated"}` + "\n")
	if _, err := send.Write(bytes.Repeat(line, 1000)); err != nil {
		t.Fatal(err)
	}
	testutil.Until(t, "the first batch is stored, so the request is in progress", func() bool {
		return strings.Contains(h.wantStatus(200, "GET", "/sets", ""), `"changes":1000`)
	})
	h.Cancel()
	for {
		if ready, checks := readiness(t, h); !ready {
			if checks["hub"] != (dependency{Required: true, Reason: "stopping"}) || !checks["memory"].OK {
				t.Errorf("checks of readyz = %v, want stopping and a working memory", checks)
			}
			break
		}
	}
	if resp, _ := servertest.Do(t, "GET", h.Ops+"/healthz", ""); resp.StatusCode != http.StatusOK {
		t.Errorf("healthz while stopping: got %d, want 200", resp.StatusCode)
	}
	for { // the listener is closed shortly after
		conn, err := net.Dial("tcp", strings.TrimPrefix(h.URL, "http://"))
		if err != nil {
			break
		}
		conn.Close()
	}
	if _, err := send.Write(line); err != nil {
		t.Fatal(err)
	}
	if err := send.Close(); err != nil {
		t.Fatal(err)
	}
	if a := <-answers; !strings.HasPrefix(a, "200") || !strings.Contains(a, `"count":1001`) {
		t.Errorf("publish: got %s, want 200 and 1001 changes", a)
	}
	h.Stop()
	again := start(t, Config{Data: h.data})
	if body := again.wantStatus(200, "GET", "/sets/demo", ""); !strings.Contains(body, `"changes":1001`) {
		t.Errorf("set after the restart = %s, want 1001 changes", body)
	}
}

// If the listener fails during the drain delay, the hub stops immediately with the error.
func TestFailureWhileStopping(t *testing.T) {
	h := start(t, Config{DrainDelay: time.Hour})
	h.Cancel()
	h.waitForLog("stopping: not ready, but still serving; a second signal exits immediately")
	if err := h.server.front.listener.Close(); err != nil {
		t.Fatal(err)
	}
	if err := h.Wait(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Run() = %v, want %v", err, net.ErrClosed)
	}
}
