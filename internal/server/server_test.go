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
		t.Errorf("the first line is %s", first)
	}
	if resp, body := servertest.Do(t, "GET", h.Ops+"/healthz", ""); resp.StatusCode != http.StatusOK || !strings.Contains(body, `"ok"`) {
		t.Errorf("healthz is %d %s", resp.StatusCode, body)
	}
	if ready, checks := readiness(t, h); !ready || len(checks) != 1 || checks["memory"] != (dependency{OK: true, Required: true}) {
		t.Errorf("ready is %v, %v", ready, checks)
	}
	// What is for operators is not at the hub's own address.
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/backup", "/debug/pprof/"} {
		h.wants(http.StatusNotFound, "GET", path, "")
	}
	h.Stop()
	if quiet := start(t, Config{OpsListen: none}); quiet.Ops != "" || !strings.Contains(quiet.log.String(), `"ops":"none"`) {
		t.Errorf("it listens on %q: %s", quiet.Ops, quiet.log)
	}
	if !strings.Contains(h.log.String(), `"msg":"stopped"`) || strings.Contains(h.log.String(), `"level":"ERROR"`) {
		t.Errorf("the log is\n%s", h.log)
	}
}

// A hub that is told to stop is not ready, takes no new connections, and lets a
// publish that is under way end well.
func TestStopWhilePublishing(t *testing.T) {
	h := start(t, Config{})
	body, send := io.Pipe()
	answers := make(chan string, 1)
	go func() {
		resp := ask(t, http.DefaultClient, "POST", h.topic("demo"), body, asNDJSON...)
		text, err := io.ReadAll(resp.Body)
		answers <- fmt.Sprint(resp.StatusCode, string(text), err)
	}()
	line := []byte(`{"loc":"https://example.org/a","change":"updated"}` + "\n")
	if _, err := send.Write(bytes.Repeat(line, 1000)); err != nil {
		t.Fatal(err)
	}
	testutil.Until(t, "the first batch is there, so the request is under way", func() bool {
		return strings.Contains(h.wants(200, "GET", "/sets", ""), `"changes":1000`)
	})
	h.Cancel()
	for {
		if ready, checks := readiness(t, h); !ready {
			if checks["hub"] != (dependency{Required: true, Reason: "stopping"}) || !checks["memory"].OK {
				t.Errorf("it is not ready because of %v", checks)
			}
			break
		}
	}
	if resp, _ := servertest.Do(t, "GET", h.Ops+"/healthz", ""); resp.StatusCode != http.StatusOK {
		t.Errorf("while stopping healthz is %d", resp.StatusCode)
	}
	for { // the listener is closed just after
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
		t.Errorf("the publish was answered %s", a)
	}
	h.Stop()
	again := start(t, Config{Data: h.data})
	if body := again.wants(200, "GET", "/sets/demo", ""); !strings.Contains(body, `"changes":1001`) {
		t.Errorf("afterwards the set is %s", body)
	}
}

// A hub whose listener fails while it goes on, not ready, stops at once and says
// so.
func TestFailureWhileStopping(t *testing.T) {
	h := start(t, Config{DrainDelay: time.Hour})
	h.Cancel()
	h.says("stopping: not ready, but still serving; a second signal exits immediately")
	if err := h.server.front.listener.Close(); err != nil {
		t.Fatal(err)
	}
	if err := h.Wait(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("it ended with %v", err)
	}
}
