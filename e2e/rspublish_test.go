package e2e

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// file writes a file into a directory of its own.
func file(t *testing.T, name string, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// published runs rspublish, which has to end with a code.
func rspublish(t *testing.T, code int, stdin io.Reader, args ...string) (stdout, stderr string) {
	t.Helper()
	got, stdout, stderr := run(t, nil, stdin, rspublishBin, args...)
	if got != code {
		t.Fatalf("rspublish %q ended with %d, not %d: %s%s", args, got, code, stdout, stderr)
	}
	return stdout, stderr
}

// TestRspublish publishes in every way.
func TestRspublish(t *testing.T) {
	t.Parallel()
	h := startHub(t)
	l := generatedLoad(t, 3210)
	plain := l.ndjson(0, len(l.lines))
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	document := append(append([]byte(`{"changes":[`), bytes.Join(l.lines, []byte(","))...), "]}"...)
	for _, test := range []struct {
		set   string
		stdin []byte
		args  []string
	}{
		{"ndjson", nil, []string{file(t, "changes.jsonl", plain)}},
		{"gz", nil, []string{file(t, "changes.jsonl.gz", packed.Bytes())}},
		{"json", nil, []string{file(t, "changes.json", document)}},
		{"stdin", plain, []string{"-"}},
		{"stdin-gz", packed.Bytes(), []string{"-"}},
		{"two-files", nil, []string{file(t, "1", l.ndjson(0, 1111)), file(t, "2", l.ndjson(1111, len(l.lines)))}},
	} {
		t.Run(test.set, func(t *testing.T) {
			t.Parallel()
			stdout, _ := rspublish(t, 0, bytes.NewReader(test.stdin), append([]string{"-hub", h.url, "-set", test.set}, test.args...)...)
			if !strings.HasPrefix(stdout, "published 3210 changes to "+test.set+", cursor "+head(t, h, test.set)) {
				t.Errorf("it says %s", stdout)
			}
			sameTexts(t, "the memory", memory(t, h, test.set), l.texts)
			for _, name := range test.args {
				if left, _ := filepath.Glob(filepath.Join(filepath.Dir(name), "*.rspublish*")); len(left) > 0 {
					t.Errorf("it left %q", left)
				}
			}
		})
	}
	t.Run("xml", func(t *testing.T) { // what the hub itself serves can be published again
		t.Parallel()
		publish(t, h, "original", l.ndjson(0, 500))
		a := must(t, 200, "GET", h.url+"/sets/original/changelist.xml", nil)
		rspublish(t, 0, nil, "-hub", h.url, "-set", "xml", file(t, "list.xml", a.body))
		original, again := memory(t, h, "original"), memory(t, h, "xml")
		if len(again) != len(original) {
			t.Fatalf("%d changes of %d", len(again), len(original))
		}
	})
	t.Run("flags", func(t *testing.T) {
		t.Parallel()
		stdout, _ := rspublish(t, 0, nil, "-hub", h.url, "-set", "flags", "-json", "-created", "https://example.org/1", "-updated", "https://example.org/2",
			"-deleted", "https://example.org/1", "-created", "https://example.org/3")
		var want []string
		for _, c := range []string{"1 created", "2 updated", "1 deleted", "3 created"} {
			name, kind, _ := strings.Cut(c, " ")
			want = append(want, fmt.Sprintf(`{"change":"%s","loc":"https://example.org/%s"}`, kind, name))
		}
		all := memory(t, h, "flags")
		sameTexts(t, "the memory", all, want)
		var said struct {
			Set, Cursor        string
			Published, Already int
		}
		decode(t, []byte(stdout), &said)
		if said.Set != "flags" || said.Published != 4 || said.Already != 0 || said.Cursor != head(t, h, "flags") {
			t.Errorf("it says %s", stdout)
		}
	})
	t.Run("key", func(t *testing.T) {
		t.Parallel()
		for i := range 2 {
			stdout, _ := rspublish(t, 0, bytes.NewReader(plain), "-hub", h.url, "-set", "key", "-key", "k", "-")
			if strings.Contains(stdout, "(3210 were there already)") != (i == 1) {
				t.Errorf("it says %s", stdout)
			}
		}
		sameTexts(t, "the memory", memory(t, h, "key"), l.texts)
	})
}

// TestRspublishRefuses calls rspublish wrongly, and with what is refused.
func TestRspublishRefuses(t *testing.T) {
	t.Parallel()
	h := startHub(t, "RSHUB_SETS=only")
	good := file(t, "good", changes("x", 5))
	bad := file(t, "bad", append(changes("x", 5), `{"loc":"nowhere","change":"created"}`...))
	other := freePort(t)
	for _, test := range []struct {
		name string
		code int
		args []string
		says string
	}{
		{"no set", 2, []string{good}, "-set"},
		{"a bad set", 2, []string{"-set", "A/B", good}, "cannot name a set"},
		{"nothing", 2, []string{"-set", "only"}, "nothing to publish"},
		{"an unknown flag", 2, []string{"-set", "only", "-fast", good}, "-fast"},
		{"a bad hub", 2, []string{"-set", "only", "-hub", "hub.example.org", good}, "-hub"},
		{"no such file", 3, []string{"-set", "only", "/nowhere"}, "/nowhere"},
		{"a directory", 3, []string{"-set", "only", "/tmp"}, "is a directory"},
		{"a bad file", 3, []string{"-set", "only", good, bad}, "line 6"},
		{"a bad loc", 3, []string{"-set", "only", "-created", "nowhere"}, "nowhere"},
		{"another set", 1, []string{"-set", "other", good}, "no such set"},
		{"no hub", 4, []string{"-set", "only", "-hub", "http://" + other, "-retry", "0", good}, "cannot reach"},
		{"no hub for long", 4, []string{"-set", "only", "-hub", "http://" + other, "-retry", "1s", good}, "gave up"},
	} {
		t.Run(test.name, func(t *testing.T) {
			stdout, stderr := rspublish(t, test.code, nil, append([]string{"-hub", h.url}, test.args...)...)
			if stdout != "" || !strings.Contains(stderr, test.says) || !strings.HasPrefix(stderr, "rspublish: ") && test.name != "no hub for long" {
				t.Errorf("it says %s%s", stdout, stderr)
			}
			t.Log(stderr)
		})
	}
	until(t, "the set is made", func() error {
		if at := head(t, h, "only"); !strings.HasPrefix(at, "0-") {
			return errors.New(at)
		}
		return nil
	})
	if stdout, _ := rspublish(t, 0, nil, "-check", good); stdout != "checked 5 changes\n" {
		t.Errorf("-check says %s", stdout)
	}
	for _, flag := range []string{"-h", "-version"} {
		if stdout, _ := rspublish(t, 0, nil, flag); !strings.HasPrefix(stdout, "rspublish ") {
			t.Errorf("%s says %s", flag, stdout)
		}
	}
}

// TestRspublishInterrupted stops rspublish in the middle, again and again, and
// each time runs the same command again.
func TestRspublishInterrupted(t *testing.T) {
	t.Parallel()
	l := someLoad(t)
	h := startHub(t)
	f := follow(t, h, byWebSocket, "torn", "start")
	f.begins(t)
	path := file(t, "changes.jsonl", l.ndjson(0, len(l.lines)))
	args := []string{"-hub", h.url, "-set", "torn", path}
	through := false
	for i := range 4 {
		before := len(memory(t, h, "torn"))
		p := start(t, nil, nil, rspublishBin, args...)
		if i > 0 { // it has read the file, which it does first
			p.says("going on after")
		}
		f.has(t, before+1)
		if before == 0 {
			f.has(t, len(l.lines)/6)
		}
		if i%2 == 0 {
			p.signal(syscall.SIGINT)
		} else {
			p.kill()
		}
		code := p.wait()
		if i > 0 && code == 0 {
			t.Logf("run %d was through before it could be stopped", i+1)
			through = true
			break
		}
		if i%2 == 0 && (code != 130 || !strings.Contains(p.stderr.String(), "run the same command again to go on")) {
			t.Errorf("run %d ended with %d: %s", i+1, code, p.stderr.String())
		}
		if _, err := os.Stat(path + ".rspublish"); err != nil {
			t.Errorf("nothing says how far it came: %v", err)
		}
	}
	if !through {
		rspublish(t, 0, nil, args...)
	}
	all := memory(t, h, "torn")
	sameTexts(t, "the memory", all, l.texts)
	same(t, "the follower", f.has(t, len(all)), all)
	if left, _ := filepath.Glob(path + ".*"); len(left) > 0 {
		t.Errorf("it left %q", left)
	}
}

// TestRspublishWaits publishes to a hub that comes up later, and goes down in
// between.
func TestRspublishWaits(t *testing.T) {
	t.Parallel()
	l := generatedLoad(t, 2500)
	h := newHub(t)
	in, feed := feed(t)
	p := start(t, nil, in, rspublishBin, "-hub", h.url, "-set", "patient", "-")
	go func() { _, _ = feed.Write(l.ndjson(0, 1500)) }()
	p.says("trying again in")
	h.start(t)
	f := follow(t, h, byWebSocket, "patient", "start")
	f.has(t, 1000)
	h.kill()
	go func() {
		_, _ = feed.Write(l.ndjson(1500, len(l.lines)))
		_ = feed.Close()
	}()
	until(t, "it tries again", func() error {
		if n := strings.Count(p.stderr.String(), "trying again in"); n < 2 {
			return fmt.Errorf("%d times", n)
		}
		return nil
	})
	h.start(t)
	if code := p.wait(); code != 0 {
		t.Fatalf("it ended with %d", code)
	}
	all := memory(t, h, "patient")
	sameTexts(t, "the memory", all, l.texts)
	same(t, "the follower", f.has(t, len(all)), all)
}
