package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestStartup(t *testing.T) {
	h := start(t)
	first, _, _ := strings.Cut(h.log.String(), "\n")
	var line map[string]string
	if err := json.Unmarshal([]byte(first), &line); err != nil {
		t.Fatal(err)
	}
	listen, ops := strings.TrimPrefix(h.url, "http://"), strings.TrimPrefix(h.ops, "http://")
	if line["msg"] != "rshub is running" || line["listen"] != listen || line["ops"] != ops || line["url"] != h.url || line["memory"] != h.data || line["version"] == "" {
		t.Errorf("the first line is %s", first)
	}
	if resp, body := do(t, "GET", h.ops+"/healthz", ""); resp.StatusCode != http.StatusOK || !strings.Contains(body, `"ok"`) {
		t.Errorf("healthz is %d %s", resp.StatusCode, body)
	}
	if ready, checks := readiness(t, h); !ready || len(checks) != 1 || checks["memory"] != (dependency{OK: true, Required: true}) {
		t.Errorf("ready is %v, %v", ready, checks)
	}
	if resp, _ := do(t, "GET", h.ops+"/debug/pprof/", ""); resp.StatusCode != http.StatusOK {
		t.Errorf("the profiles are %d", resp.StatusCode)
	}
	// What is for operators is not at the hub's own address.
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/backup", "/debug/pprof/"} {
		if resp, _ := do(t, "GET", h.url+path, ""); resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s is %d for everybody", path, resp.StatusCode)
		}
	}
	h.stop()
	if !strings.Contains(h.log.String(), `"msg":"stopped"`) || strings.Contains(h.log.String(), `"level":"ERROR"`) {
		t.Errorf("the log is\n%s", h.log)
	}
}

func TestNoOps(t *testing.T) {
	h := start(t, "RSHUB_OPS_LISTEN", "")
	if h.ops != "" || !strings.Contains(h.log.String(), `"ops":"none"`) {
		t.Errorf("it listens on %q: %s", h.ops, h.log)
	}
	h.publish("demo")
}

func TestServeRefuses(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "alice\n")
	for _, test := range []struct {
		name      string
		variables []string
		want      string
	}{
		{"configuration", []string{"RSHUB_GRACE", "soon"}, "RSHUB_GRACE is \"soon\""},
		{"no tokens file", []string{"RSHUB_TOKENS_FILE", file + "x"}, "no such file"},
		{"a bad tokens file", []string{"RSHUB_TOKENS_FILE", file}, "line 1"},
		{"the address is taken", []string{"RSHUB_LISTEN", taken.Addr().String()}, "RSHUB_LISTEN: "},
		{"the other address is taken", []string{"RSHUB_OPS_LISTEN", taken.Addr().String()}, "RSHUB_OPS_LISTEN: "},
		{"the data directory is a file", []string{"RSHUB_DATA", file}, "data directory"},
	} {
		t.Run(test.name, func(t *testing.T) {
			setenv(t, append([]string{"RSHUB_LISTEN", "127.0.0.1:0", "RSHUB_OPS_LISTEN", "127.0.0.1:0", "RSHUB_DATA", t.TempDir()}, test.variables...)...)
			code, _, stderr := command(t)
			if code != 1 || !strings.Contains(stderr, test.want) {
				t.Errorf("exit %d, %s", code, stderr)
			}
		})
	}
	t.Run("two hubs", func(t *testing.T) {
		h := start(t)
		code, _, stderr := command(t) // in the same environment
		if code != 1 || !strings.Contains(stderr, h.data) || !strings.Contains(stderr, "in use") {
			t.Errorf("exit %d, %s", code, stderr)
		}
	})
}

// readiness asks whether a hub is ready, and by which checks.
func readiness(t *testing.T, h *running) (ready bool, checks map[string]dependency) {
	t.Helper()
	resp, body := do(t, "GET", h.ops+"/readyz", "")
	var answer struct {
		Ready  bool
		Checks map[string]dependency
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		t.Fatal(err)
	}
	if answer.Ready != (resp.StatusCode == http.StatusOK) || !answer.Ready && resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("readyz is %d %s", resp.StatusCode, body)
	}
	return answer.Ready, answer.Checks
}

// Below the reserve it takes nothing and says so. It stays ready: what there is it
// goes on to hand out, and who is refused learns why.
func TestDiskReserve(t *testing.T) {
	h := start(t)
	h.publish("demo")
	h.stop()
	low := start(t, "RSHUB_DATA", h.data, "RSHUB_DISK_RESERVE", "1000000TiB", "RSHUB_SETS", "demo,new")
	ready, checks := readiness(t, low)
	if memory := checks["memory"]; !ready || memory.OK || memory.Required || !strings.Contains(memory.Reason, "full") {
		t.Errorf("ready is %v, %v", ready, checks)
	}
	if _, body := do(t, "GET", low.ops+"/metrics", ""); !strings.Contains(body, "\nrshub_ready 1\n") || !strings.Contains(body, "\nrshub_dependency_ok{dependency=\"memory\"} 0\n") {
		t.Errorf("the metrics are %s", body)
	}
	for _, set := range []string{"demo", "new"} {
		resp, body := do(t, "POST", low.url+"/sets/"+set+"/changes", oneChange, "Content-Type", "application/json")
		problem(t, resp, body, http.StatusInsufficientStorage, "full")
	}
	if resp, body := do(t, "GET", low.url+"/sets/demo/changes?since=start", ""); resp.StatusCode != http.StatusOK || !strings.Contains(body, "https://example.org/a") {
		t.Errorf("the changes are %d %s", resp.StatusCode, body)
	}
	if resp, body := do(t, "DELETE", low.url+"/sets/demo", ""); resp.StatusCode != http.StatusNoContent {
		t.Errorf("making room is answered %d %s", resp.StatusCode, body)
	}
}

// A hub that is told to stop is not ready, takes no new connections, and lets a
// publish that is under way end well.
func TestStopWhilePublishing(t *testing.T) {
	h := start(t)
	body, send := io.Pipe()
	r, err := http.NewRequestWithContext(t.Context(), "POST", h.url+"/sets/demo/changes", body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-ndjson")
	type answer struct {
		status int
		body   string
		err    error
	}
	answers := make(chan answer, 1)
	go func() {
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			answers <- answer{err: err}
			return
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		answers <- answer{resp.StatusCode, string(text), err}
	}()
	line := []byte(`{"loc":"https://example.org/a","change":"updated"}` + "\n")
	if _, err := send.Write(bytes.Repeat(line, 1000)); err != nil {
		t.Fatal(err)
	}
	for { // until the first batch is there: then the request is surely under way
		if _, body := do(t, "GET", h.url+"/sets", ""); strings.Contains(body, `"changes":1000`) {
			break
		}
	}
	h.cancel()
	for {
		if ready, checks := readiness(t, h); !ready {
			if checks["hub"] != (dependency{Required: true, Reason: "stopping"}) || !checks["memory"].OK {
				t.Errorf("it is not ready because of %v", checks)
			}
			break
		}
	}
	if resp, _ := do(t, "GET", h.ops+"/healthz", ""); resp.StatusCode != http.StatusOK {
		t.Errorf("while stopping healthz is %d", resp.StatusCode)
	}
	for { // the listener is closed just after
		conn, err := net.Dial("tcp", strings.TrimPrefix(h.url, "http://"))
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
	if a := <-answers; a.err != nil || a.status != http.StatusOK || !strings.Contains(a.body, `"count":1001`) {
		t.Errorf("the publish was answered %+v", a)
	}
	h.stop()
	again := start(t, "RSHUB_DATA", h.data)
	if _, body := do(t, "GET", again.url+"/sets/demo", ""); !strings.Contains(body, `"changes":1001`) {
		t.Errorf("afterwards the set is %s", body)
	}
}

// A hub whose listener fails while it goes on, not ready, stops at once and says
// so by its exit.
func TestFailureWhileStopping(t *testing.T) {
	setenv(t, "RSHUB_LISTEN", "127.0.0.1:0", "RSHUB_OPS_LISTEN", "127.0.0.1:0", "RSHUB_DATA", t.TempDir(), "RSHUB_DRAIN_DELAY", "1h")
	c, err := readConfig()
	if err != nil {
		t.Fatal(err)
	}
	log := &output{}
	s := &server{config: c, log: newLogger(log, slog.LevelInfo), metrics: newMetrics()}
	f, err := s.listen()
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	f.serve(s.startingRoutes(), s.startingOpsRoutes())
	if err := s.openMemory(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer s.memory.Close()
	if err := s.wire(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.run(ctx, f, nil) }()
	stop()
	for len(log.lines(t, "stopping: not ready, and going on for a while; a second signal ends at once")) == 0 {
		runtime.Gosched()
	}
	if err := f.listener.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("it ended with %v", err)
	}
}

// What a hub that was killed during a backup left is removed, and nothing else:
// least of all a backup that somebody keeps there.
func TestOldBackupsAreRemoved(t *testing.T) {
	data := t.TempDir()
	left := filepath.Join(data, backupPrefix+"123", "changes")
	kept := filepath.Join(data, "backup-2026-11-21", "changes")
	for _, dir := range []string{left, kept} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	start(t, "RSHUB_DATA", data)
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("a backup is gone: %v", err)
	}
	if _, err := os.Stat(filepath.Dir(left)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}

// Who takes nothing of a large answer is cut, whatever the answer.
func TestSlowReader(t *testing.T) {
	s := &server{config: &config{WriteTimeout: 20 * time.Millisecond}, log: slog.New(slog.DiscardHandler)}
	failed := make(chan error, 1)
	srv := httptest.NewUnstartedServer(nil)
	srv.Config = s.httpServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for piece := make([]byte, 1<<20); ; { // more than any buffer between here and there
			if _, err := w.Write(piece); err != nil {
				failed <- err
				return
			}
		}
	}))
	if srv.Config.ReadTimeout == 0 || srv.Config.ReadHeaderTimeout == 0 || srv.Config.IdleTimeout == 0 {
		t.Errorf("who sends nothing is not cut: %+v", srv.Config)
	}
	srv.Start()
	defer srv.Close()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the answer ended with %v", err)
	}
}

// A recorder counts the pieces of an answer, and the deadlines that were set
// before each.
type recorder struct {
	*httptest.ResponseRecorder
	deadlines int
	calls     [][2]int // size of a piece, and deadlines so far
}

func (r *recorder) SetWriteDeadline(time.Time) error { r.deadlines++; return nil }

func (r *recorder) Write(p []byte) (int, error) {
	r.calls = append(r.calls, [2]int{len(p), r.deadlines})
	return r.ResponseRecorder.Write(p)
}

// A large answer may take its time as a whole: each piece has a deadline.
func TestDeadlineOfEachPiece(t *testing.T) {
	body := strings.Repeat("0123456789", 20_000)
	r := &recorder{ResponseRecorder: httptest.NewRecorder()}
	withDeadlines(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		if n, err := io.WriteString(w, body); n != len(body) || err != nil {
			t.Errorf("Write() = %d, %v", n, err)
		}
		if n, err := w.Write(nil); n != 0 || err != nil {
			t.Errorf("Write(nil) = %d, %v", n, err)
		}
	}), time.Second).ServeHTTP(r, httptest.NewRequest("GET", "/", nil))
	if r.Body.String() != body || len(r.calls) != 5 {
		t.Errorf("%d bytes came in %d pieces", r.Body.Len(), len(r.calls))
	}
	for i, call := range r.calls {
		if call[0] > maxPiece || call[1] != i+2 { // one was for the header
			t.Errorf("piece %d has %d bytes after %d deadlines", i+1, call[0], call[1])
		}
	}
}
