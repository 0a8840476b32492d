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

// publishLines publishes changes, one on each line.
func (h *testHub) publishLines(set, lines string) {
	h.t.Helper()
	resp, text := servertest.Do(h.t, "POST", h.URL+"/sets/"+set+"/changes", lines, "Content-Type", "application/x-ndjson")
	if resp.StatusCode != http.StatusOK {
		h.t.Fatalf("publish: %d %s", resp.StatusCode, text)
	}
}

// An audit names what is missing, stale, extra and unknown, and nothing else.
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
			t.Errorf("a difference is %s", line)
		}
		if d.Loc == "urn:b" && (d.Own.Hash != "md5:0cc175b9c0f1b6a831c399e269772661" || d.Hub.Hash != "md5:92eb5ffee6ae2fec3ad71c777531578f" || d.Hub.Position != 2 || d.Hub.Datetime == "") {
			t.Errorf("the stale one is %s", line)
		}
	}
	want := map[string]string{"urn:a": "missing", "urn:b": "stale", "urn:d": "unknown", "urn:e": "extra"}
	if code != 1 || len(found) != len(want) {
		t.Errorf("exit %d, it finds %v: %s", code, found, stderr)
	}
	for loc, kind := range want {
		if found[loc] != kind {
			t.Errorf("%s is %q, want %q", loc, found[loc], kind)
		}
	}
	if !strings.Contains(stderr, "1 missing, 1 stale, 1 extra, 1 unknown; the hub knows 5 resources at 7-") || !strings.Contains(stderr, "nobody has said") {
		t.Errorf("it says %s", stderr)
	}

	for prefix, code := range map[string]int{"urn:d": 0, "urn:c": 0, "urn:a": 1, "urn:x": 0} {
		if got, stdout, stderr := runCommand(t, "audit", "-hub", h.URL, "-set", "demo", "-settle", "0s", "-skip-unknown", "-prefix", prefix, list); got != code {
			t.Errorf("of %s, exit %d: %s%s", prefix, got, stdout, stderr)
		}
	}
	if got, stdout, stderr := runCommand(t, "audit", "-hub", h.URL, "-set", "demo", "-settle", "0s", "-since", "start", list); got != 0 || stdout != "" {
		t.Errorf("since the start, exit %d: %s%s", got, stdout, stderr)
	}

	// From standard input, with the token from a file.
	path := filepath.Join(t.TempDir(), "token")
	writeFile(t, path, "secret\n")
	var out, errs bytes.Buffer
	err := runAudit(t.Context(), []string{"-hub", h.URL, "-set", "demo", "-settle", "0s", "-token-file", path, "-prefix", "urn:f", "-"}, strings.NewReader(`{"loc":"urn:f"}`), &out, &errs)
	if err != nil || out.Len() > 0 {
		t.Errorf("from standard input: %v %s %s", err, &out, &errs)
	}

	// The hub was told of what was equal: the prefix of one resource, and that of none.
	_, text := servertest.Do(t, "GET", h.URL+"/sets/demo/proofs", "")
	if strings.Contains(text, `"prefix":"urn:a"`) || !strings.Contains(text, `"name":"rshub audit"`) || !strings.Contains(text, `"prefix":"urn:f","compared":"content"`) {
		t.Errorf("the hub keeps the proofs %s", text)
	}
}

// An audit that cannot be made is told from one that finds differences.
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
		{"no such list", []string{"-set", "demo", good + "x"}, "no such file"},
		{"no such token", []string{"-set", "demo", "-token-file", good + "x", good}, "-token-file"},
		{"no hub", []string{"-set", "demo", "-hub", "hub.example.org", good}, "-hub is a URL"},
		{"another set", []string{"-set", "other", good}, "403"},
		{"a bad time", []string{"-set", "demo", "-since", "yesterday", good}, "400"},
		{"no JSON", []string{"-set", "demo", list("text", "{\"loc\":\"urn:a\"}\nurn:b\n")}, "text: line 2: "},
		{"a relative loc", []string{"-set", "demo", list("relative", `{"loc":"/a"}`)}, "relative: line 1: "},
		{"a deletion", []string{"-set", "demo", list("deleted", `{"loc":"urn:a","change":"deleted"}`)}, "deleted: line 1: "},
		{"a loc twice", []string{"-set", "demo", list("twice", "{\"loc\":\"urn:a\"}\n{\"loc\":\"urn:b\"}\n{\"loc\":\"urn:a\"}")}, "twice: line 3: urn:a: it is there twice: line 1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			code, stdout, stderr := runCommand(t, append([]string{"audit", "-hub", h.URL, "-settle", "0s"}, test.args...)...)
			if code != 2 || stdout != "" || !strings.Contains(stderr, test.want) || strings.Contains(stderr, texts[1]) {
				t.Errorf("exit %d, %q, %q", code, stdout, stderr)
			}
		})
	}
	if code, stdout, _ := runCommand(t, "audit", "-h"); code != 0 || !strings.Contains(stdout, "-skip-unknown") {
		t.Errorf("help: exit %d, %s", code, stdout)
	}
	left, err := os.ReadDir(temporary)
	if err != nil || len(left) > 0 {
		t.Errorf("it leaves %v, %v", left, err)
	}
}
