package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rshub/rshub/internal/testutil/servertest"
)

// publishLines publishes NDJSON.
func (h *testHub) publishLines(set, lines string) {
	h.t.Helper()
	resp, text := servertest.Do(h.t, "POST", h.URL+"/sets/"+set+"/changes", lines, "Content-Type", "application/x-ndjson")
	if resp.StatusCode != http.StatusOK {
		h.t.Fatalf("POST changes = %d %s, want 200", resp.StatusCode, text)
	}
}

// TestAudit checks that an audit reports exactly the resources that are missing, stale, extra or
// unknown.
func TestAudit(t *testing.T) {
	h := startHub(t)
	h.publishLines("demo", `{"loc":"urn:a","change":"created","hash":"md5:0cc175b9c0f1b6a831c399e269772661","type":"text/plain"}
{"loc":"urn:b","change":"created","hash":"md5:92eb5ffee6ae2fec3ad71c777531578f"}
{"loc":"urn:c","change":"updated","lastmod":"2026-01-02T03:04:05Z","length":7}
{"loc":"urn:d","change":"created"}
{"loc":"urn:e","change":"created"}
{"loc":"urn:e","change":"deleted"}
{"loc":"urn:f","change":"created"}
`)
	list := filepath.Join(t.TempDir(), "list.ndjson")
	writeFile(t, list, `{"loc":"urn:f"}
{"loc":"urn:e"}
{"loc":"urn:d","length":3}

{"loc":"urn:c","lastmod":"2026-01-02T03:04:05Z"}
{"loc":"urn:b","hash":"md5:0cc175b9c0f1b6a831c399e269772661","length":1}
`)
	code, stdout, stderr := runCommand(t, "audit", "-hub", h.URL, "-set", "demo", "-settle", "0s", list)
	found := map[string]string{}
	for line := range strings.Lines(stdout) {
		var d struct {
			Difference, Loc string
			Own             *struct{ Loc, Hash, Change string }
			Hub             *struct {
				Loc, Hash, Datetime string
				Position            uint64
			}
		}
		if err := json.Unmarshal([]byte(line), &d); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		found[d.Loc] = d.Difference
		if (d.Own == nil) != (d.Difference == "missing") || (d.Hub == nil) != (d.Difference == "extra") {
			t.Errorf("difference has wrong members: %s", line)
		}
		if d.Loc == "urn:b" && (d.Own.Hash != "md5:0cc175b9c0f1b6a831c399e269772661" || d.Hub.Hash != "md5:92eb5ffee6ae2fec3ad71c777531578f" || d.Hub.Position != 2 || d.Hub.Datetime == "") {
			t.Errorf("stale difference of urn:b = %s", line)
		}
	}
	want := map[string]string{"urn:a": "missing", "urn:b": "stale", "urn:d": "unknown", "urn:e": "extra"}
	if code != 1 || len(found) != len(want) {
		t.Errorf("rshub audit = %d with %v, want 1 with %v: %s", code, found, want, stderr)
	}
	for loc, kind := range want {
		if found[loc] != kind {
			t.Errorf("difference of %s = %q, want %q", loc, found[loc], kind)
		}
	}
	if !strings.Contains(stderr, "1 missing, 1 stale, 1 extra, 1 unknown; the hub has 5 resources at 7-") || !strings.Contains(stderr, "not declared complete") {
		t.Errorf("stderr = %s, want the summary of an incomplete set", stderr)
	}

	for prefix, code := range map[string]int{"urn:d": 0, "urn:c": 0, "urn:a": 1, "urn:x": 0} {
		if got, stdout, stderr := runCommand(t, "audit", "-hub", h.URL, "-set", "demo", "-settle", "0s", "-skip-unknown", "-prefix", prefix, list); got != code {
			t.Errorf("rshub audit -prefix %s = %d, want %d: %s%s", prefix, got, code, stdout, stderr)
		}
	}
	if got, stdout, stderr := runCommand(t, "audit", "-hub", h.URL, "-set", "demo", "-settle", "0s", "-since", "start", list); got != 0 || stdout != "" {
		t.Errorf("rshub audit -since start = %d with output %q, want 0 without output: %s", got, stdout, stderr)
	}

	// The list comes from standard input, and the token from a file.
	path := filepath.Join(t.TempDir(), "token")
	writeFile(t, path, "secret\n")
	var out, errs bytes.Buffer
	err := runAudit(t.Context(), []string{"-hub", h.URL, "-set", "demo", "-settle", "0s", "-token-file", path, "-prefix", "urn:f", "-"}, strings.NewReader(`{"loc":"urn:f"}`), &out, &errs)
	if err != nil || out.Len() > 0 {
		t.Errorf("audit of standard input = %v with output %q, want no error or output: %s", err, &out, &errs)
	}

	// Proofs are reported for prefixes without differences: one with a resource, one without.
	_, text := servertest.Do(t, "GET", h.URL+"/sets/demo/proofs", "")
	if strings.Contains(text, `"prefix":"urn:a"`) || !strings.Contains(text, `"name":"rshub audit"`) || !strings.Contains(text, `"prefix":"urn:f","compared":"content"`) {
		t.Errorf("GET proofs = %s, want proofs for urn:f but not urn:a", text)
	}
}

// TestAuditErrors checks that a failed audit has another exit code than one with differences.
func TestAuditErrors(t *testing.T) {
	path, texts := writeTokens(t, "publish:*", "follow:demo")
	h := startHub(t, "RSHUB_TOKENS_FILE", path)
	h.Publish("demo", "Authorization", "Bearer "+texts[0])
	setenv(t, "RSHUB_TOKEN", texts[1])
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	dir := t.TempDir()
	list := func(name, lines string) string {
		writeFile(t, filepath.Join(dir, name), lines)
		return filepath.Join(dir, name)
	}
	good := list("good", `{"loc":"urn:a"}`)
	for _, test := range []struct {
		name string
		args []string
		want string
	}{
		{"no set", []string{good}, "rshub audit -set SET FILE"},
		{"no list", []string{"-set", "demo"}, "rshub audit -h"},
		{"two lists", []string{"-set", "demo", good, good}, "rshub audit -h"},
		{"nonexistent list", []string{"-set", "demo", good + "x"}, "no such file"},
		{"nonexistent token file", []string{"-set", "demo", "-token-file", good + "x", good}, "-token-file"},
		{"invalid hub URL", []string{"-set", "demo", "-hub", "hub.example.org", good}, "-hub, -token-file: want a URL"},
		{"another set", []string{"-set", "other", good}, "403"},
		{"invalid since", []string{"-set", "demo", "-since", "yesterday", good}, "400"},
		{"invalid JSON", []string{"-set", "demo", list("text", "{\"loc\":\"urn:a\"}\nurn:b\n")}, "text: line 2: "},
		{"relative loc", []string{"-set", "demo", list("relative", `{"loc":"/a"}`)}, "relative: line 1: "},
		{"deletion", []string{"-set", "demo", list("deleted", `{"loc":"urn:a","change":"deleted"}`)}, "deleted: line 1: "},
		{"duplicate loc", []string{"-set", "demo", list("twice", "{\"loc\":\"urn:a\"}\n{\"loc\":\"urn:b\"}\n{\"loc\":\"urn:a\"}")}, "twice: line 3: urn:a: duplicate loc; line 1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			code, stdout, stderr := runCommand(t, append([]string{"audit", "-hub", h.URL, "-settle", "0s"}, test.args...)...)
			if code != 2 || stdout != "" || !strings.Contains(stderr, test.want) || strings.Contains(stderr, texts[1]) {
				t.Errorf("rshub audit = %d, stdout %q, stderr %q, want 2, no stdout and %q", code, stdout, stderr, test.want)
			}
		})
	}
	if code, stdout, _ := runCommand(t, "audit", "-h"); code != 0 || !strings.Contains(stdout, "-skip-unknown") {
		t.Errorf("rshub audit -h = %d, %s, want 0 and the flags", code, stdout)
	}
	left, err := os.ReadDir(temporary)
	if err != nil || len(left) > 0 {
		t.Errorf("temporary directory has %v, %v, want no files", left, err)
	}
}
