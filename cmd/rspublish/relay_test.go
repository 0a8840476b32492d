package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/internal/source/reconcile"
	"github.com/rshub/rshub/internal/source/relay"
)

func TestParseRelay(t *testing.T) {
	t.Parallel()
	none := func(string) string { return "" }
	cfg, err := parseRelay([]string{"-set", "x", "-every", "5m", "-oai-set", "math", "-max-delete", "20%", "https://a.example/oai"}, none)
	if err != nil || !cfg.isOAI() || cfg.every != 5*time.Minute || cfg.full != relay.DefaultCompareEvery || cfg.source != "https://a.example/oai" {
		t.Errorf("parseRelay() = %+v, %v", cfg, err)
	}
	cfg, err = parseRelay([]string{"-set", "x", "-hub", "https://bücher.example", "https://me:SECRET@bücher.example/ä"}, none)
	if err != nil || cfg.source != "https://xn--bcher-kva.example/%C3%A4" || cfg.login.origin != "https://xn--bcher-kva.example:443" {
		t.Errorf("parseRelay() = %+v, %v, want hosts in ASCII", cfg, err)
	}
	for args, want := range map[string]string{
		"":                                       "missing source",
		"https://a.example/ -once":               "flag -once must be before the URL",
		"https://a.example/ https://b":           "got several sources",
		"sitemap.xml":                            "for files and directories, use rspublish sync",
		"-every 1ms https://a.example":           "-every must be 1s or longer",
		"-full 0s https://a.example":             "-full must be positive",
		"-retry -1s https://a.example":           "-retry must not be negative",
		"-loc https://x https://a.example":       "neither {identifier} nor {local}",
		"-max-delete some https://a.example":     "-max-delete",
		"-hub ftp://x https://a.example":         "-hub: a hub's URL must be like",
		"-set X https://a.example":               "invalid set name",
		"-token-file /no/such https://a.example": "read token",
		"-unknown https://a.example":             "has no flag -unknown",
	} {
		t.Run(args, func(t *testing.T) {
			if _, err := parseRelay(append([]string{"-set", "x"}, strings.Fields(args)...), none); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("parseRelay(%q) = %v, want %s", args, err, want)
			}
		})
	}
}

// TestRelayState checks that a state file is locked, and is used by one relay only.
func TestRelayState(t *testing.T) {
	t.Parallel()
	open := func(path, set string, oai bool) (*relayRun, func(), error) {
		r := &relayRun{program: &program{cacheDir: func() (string, error) { return t.TempDir(), nil }}, cfg: &relayConfig{source: "https://user:secret@a.example/", state: path, oai: oai}}
		r.cfg.hub, r.cfg.set = "https://hub.example", set
		release, err := r.openState()
		return r, release, err
	}
	path := filepath.Join(t.TempDir(), "new", "state.json")
	r, release, err := open(path, "x", false)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := open(path, "x", false); err == nil || !strings.Contains(err.Error(), "another rspublish is using the state") || strings.Contains(err.Error(), "secret") {
		t.Errorf("second openState() = %v, want errLocked without the password", err)
	}
	r.file.State = relay.State{Version: relay.StateVersion, Source: relay.Source{ChangeList: "https://a.example/c"}, Cursor: "7-8"}
	if err := storeJSON(r.file.path, &r.file); err != nil {
		t.Fatal(err)
	}
	release()
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("Stat(state) = %v, %v, want mode 0600", info, err)
	}
	if r, release, err := open(path, "x", false); err != nil || r.file.State.Cursor != "7-8" || r.file.State.Source.ChangeList == "" {
		t.Errorf("openState() = %+v, %v, want the stored state", r.file, err)
	} else {
		release()
	}
	for _, test := range []struct {
		set string
		oai bool
	}{{"y", false}, {"x", true}} {
		if _, _, err := open(path, test.set, test.oai); err == nil || !strings.Contains(err.Error(), "the state of another relay") {
			t.Errorf("openState() of set %s with oai %v = %v, want the error of another relay", test.set, test.oai, err)
		}
	}
	for _, text := range []string{"", "{}", `{"version":99}`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := open(path, "x", false); err == nil || !strings.Contains(err.Error(), "compare everything from scratch") {
			t.Errorf("openState() of %q = %v, want an error", text, err)
		}
	}
}

// TestRelayOutput checks help, errors and exit codes of relay, and that -json prints JSON.
func TestRelayOutput(t *testing.T) {
	t.Parallel()
	source := httptest.NewServer(http.NotFoundHandler())
	defer source.Close()
	run := func(args ...string) (int, string, string) {
		var stdout, stderr strings.Builder
		p := &program{env: func(string) string { return "" }, stdout: &stdout, stderr: &stderr, cacheDir: func() (string, error) { return t.TempDir(), nil }, now: time.Now}
		return p.run(t.Context(), append([]string{"relay"}, args...)), stdout.String(), stderr.String()
	}
	if code, stdout, _ := run("-h"); code != exitOK || !strings.HasPrefix(stdout, relayHelp) {
		t.Errorf("relay -h = %d, want 0 and the help: %s", code, stdout)
	}
	if code, _, stderr := run("-set", "x"); code != exitUsage || !strings.Contains(stderr, "rspublish relay -h") {
		t.Errorf("relay without a URL = %d, want %d: %s", code, exitUsage, stderr)
	}
	if code, _, stderr := run("-set", "x", "-once", source.URL+"/?key=SECRET"); code != exitInput || !strings.Contains(stderr, "find a source at the URL") || strings.Contains(stderr, "SECRET") {
		t.Errorf("relay without a source = %d, want %d: %s", code, exitInput, stderr)
	}
	if code, _, stderr := run("-set", "x", "-once", "-oai", source.URL+"/?key=SECRET"); code != exitInput || !strings.Contains(stderr, "the answer is 404") || strings.Contains(stderr, "SECRET") {
		t.Errorf("relay without a repository = %d, want %d: %s", code, exitInput, stderr)
	}
	var out strings.Builder
	r := &relayRun{program: &program{stdout: &out}, cfg: &relayConfig{config: config{set: "x", json: true}}}
	r.summarize(&relay.Result{Method: relay.Compared, Result: reconcile.Result{Created: 1, Listed: 2}})
	var line map[string]any
	if err := json.Unmarshal([]byte(out.String()), &line); err != nil || line["how"] != "compared" || line["created"] != 1.0 || line["listed"] != 2.0 {
		t.Errorf("summarize printed %s, want a JSON summary (%v)", out.String(), err)
	}
}

// TestRelayObeysRetryAfter checks that the next poll is not earlier than Retry-After, even if that
// is longer than -every.
func TestRelayObeysRetryAfter(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b.ctx = ctx
	var requests []time.Time
	source := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests = append(requests, b.clock.now()); len(requests) == 2 {
			cancel()
		}
		w.Header().Set("Retry-After", "14400")
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer source.Close()
	b.runArgs(exitInterrupted, "relay", "-hub", b.hub.URL, "-set", "peps", "-every", "1m", source.URL+"/list.xml")
	if len(requests) != 2 || requests[1].Sub(requests[0]) < 4*time.Hour {
		t.Errorf("times of requests = %v, want two at least 4h apart", requests)
	}
}
