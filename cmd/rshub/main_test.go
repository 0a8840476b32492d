package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/rshub/rshub/access"
	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/resourcesync"
)

// output gathers what a hub writes while it runs.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// setenv makes name, value, name, value the only variables of rshub's.
func setenv(t *testing.T, variables ...string) {
	t.Helper()
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "RSHUB_") {
			t.Setenv(name, "") // puts it back in the end
			if err := os.Unsetenv(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := 0; i < len(variables); i += 2 {
		t.Setenv(variables[i], variables[i+1])
	}
}

// A running is a hub in this process.
type running struct {
	t        *testing.T
	url, ops string // of the two listeners, the latter empty where there is none
	data     string
	log      *output
	cancel   context.CancelFunc
	done     chan error
}

// start starts a hub on ports of its own, with more variables.
func start(t *testing.T, variables ...string) *running {
	t.Helper()
	h := &running{t: t, data: t.TempDir(), log: &output{}, done: make(chan error, 1)}
	setenv(t, append([]string{"RSHUB_LISTEN", "127.0.0.1:0", "RSHUB_OPS_LISTEN", "127.0.0.1:0", "RSHUB_DATA", h.data}, variables...)...)
	ctx, cancel := context.WithCancel(context.Background())
	h.cancel = cancel
	ready := make(chan struct{})
	go func() {
		h.done <- serve(ctx, h.log, func(listen, ops net.Addr) {
			h.url = "http://" + listen.String()
			if ops != nil {
				h.ops = "http://" + ops.String()
			}
			close(ready)
		})
	}()
	select {
	case <-ready:
	case err := <-h.done:
		t.Fatalf("the hub ended: %v\n%s", err, h.log)
	}
	t.Cleanup(h.stop)
	return h
}

// stop stops the hub and waits; that it failed is an error.
func (h *running) stop() {
	h.t.Helper()
	h.cancel()
	if err := <-h.done; err != nil {
		h.t.Errorf("the hub ended: %v", err)
	}
	h.done <- nil // for another stop
}

// do makes a request; headers are name, value, name, value. "Host" is the host.
func do(t *testing.T, method, url, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	r.Host = r.Header.Get("Host") // empty: the URL's
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text)
}

const oneChange = `{"changes":[{"loc":"https://example.org/a","change":"updated"}]}`

// publish publishes one change to a set.
func (h *running) publish(set string, headers ...string) {
	h.t.Helper()
	resp, body := do(h.t, "POST", h.url+"/sets/"+set+"/changes", oneChange, append(headers, "Content-Type", "application/json")...)
	if resp.StatusCode != http.StatusOK {
		h.t.Fatalf("publish: %d %s", resp.StatusCode, body)
	}
}

// problem checks that an answer is a problem of a kind, and returns its detail.
func problem(t *testing.T, resp *http.Response, body string, status int, kind string) string {
	t.Helper()
	var p changelog.Problem
	if err := json.Unmarshal([]byte(body), &p); err != nil || resp.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("the answer is no problem: %d %s", resp.StatusCode, body)
		return ""
	}
	if resp.StatusCode != status || p.Status != status || p.Type != resourcesync.Terms+"problems/"+kind || p.Detail == "" {
		t.Errorf("the problem is %d %s, want %d %s", resp.StatusCode, body, status, kind)
	}
	return p.Detail
}

// tokens writes a tokens file and returns its path, and a token with each of the
// rights.
func tokens(t *testing.T, rights ...string) (path string, texts []string) {
	t.Helper()
	var file strings.Builder
	for i, r := range rights {
		if name, what, ok := strings.Cut(r, " - "); ok {
			file.WriteString(name + " - " + what + "\n")
			texts = append(texts, "")
			continue
		}
		text, digest := access.NewToken()
		texts = append(texts, text)
		file.WriteString("caller" + string(rune('a'+i)) + " " + digest + " " + r + "\n")
	}
	path = filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, []byte(file.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, texts
}

func command(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestHelp(t *testing.T) {
	setenv(t)
	code, text, stderr := command(t, "-h")
	if code != 0 || stderr != "" {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	lines := strings.Split(text, "\n")
	for _, f := range reflect.VisibleFields(reflect.TypeFor[config]()) {
		name, meaning := f.Tag.Get("envconfig"), f.Tag.Get("desc")
		if !strings.HasPrefix(name, "RSHUB_") || meaning == "" {
			t.Errorf("the field %s has the variable %q and the meaning %q", f.Name, name, meaning)
		}
		row := strings.Join(strings.Fields(name+" "+f.Tag.Get("default")+" "+meaning), " ")
		found := false
		for _, l := range lines {
			found = found || strings.Join(strings.Fields(l), " ") == row
		}
		if !found {
			t.Errorf("there is no line %q in:\n%s", row, text)
		}
	}
	// Names that are settled, of what there is so far.
	for _, name := range []string{"LISTEN", "OPS_LISTEN", "BASE_URL", "DATA", "TOKENS_FILE", "INSECURE", "CLOCK_SKEW", "DISK_RESERVE",
		"CHANGELIST_SIZE", "RETENTION_AGE", "RETENTION_COUNT"} {
		if !strings.Contains(text, "  RSHUB_"+name+" ") {
			t.Errorf("RSHUB_%s is not explained", name)
		}
	}
	for _, what := range []string{"rshub backup", "rshub token new", "rshub version", "RSHUB_TOKEN "} {
		if !strings.Contains(text, what) {
			t.Errorf("%s is not explained", what)
		}
	}
}

func TestRun(t *testing.T) {
	for _, test := range []struct {
		args           []string
		code           int
		stdout, stderr string // parts
	}{
		{[]string{"version"}, 0, "rshub ", ""},
		{[]string{"--version"}, 0, "rshub ", ""},
		{[]string{"help"}, 0, "RSHUB_LISTEN", ""},
		{[]string{"start"}, 2, "", "there is no command start"},
		{[]string{"serve", "now"}, 2, "", "takes no arguments"},
		{[]string{"backup"}, 2, "", "rshub backup DIR"},
		{[]string{"backup", "-f"}, 2, "", "rshub backup DIR"},
		{[]string{"token"}, 2, "", "rshub token new"},
		{[]string{"token", "list"}, 2, "", "rshub token new"},
		{[]string{"serve"}, 1, "", "RSHUB_LISTEN is \"here\""},
		{nil, 1, "", "RSHUB_LISTEN is \"here\""},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			setenv(t, "RSHUB_LISTEN", "here")
			code, stdout, stderr := command(t, test.args...)
			if code != test.code || !strings.Contains(stdout, test.stdout) || !strings.Contains(stderr, test.stderr) {
				t.Errorf("exit %d, %q, %q", code, stdout, stderr)
			}
			if (code == 2) != strings.Contains(stderr, "rshub -h explains") {
				t.Errorf("exit %d and %q", code, stderr)
			}
		})
	}
}
