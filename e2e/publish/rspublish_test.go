package publish

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

	"github.com/rshub/rshub/e2e/internal/hubtest"
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
	got, stdout, stderr := hubtest.Run(t, nil, stdin, hubtest.Rspublish, args...)
	if got != code {
		t.Fatalf("rspublish %q ended with %d, not %d: %s%s", args, got, code, stdout, stderr)
	}
	return stdout, stderr
}

// TestRspublish publishes in every way.
func TestRspublish(t *testing.T) {
	t.Parallel()
	h := hubtest.StartHub(t)
	l := hubtest.GeneratedLoad(t, 3210)
	plain := l.NDJSON(0, len(l.Lines))
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	document := append(append([]byte(`{"changes":[`), bytes.Join(l.Lines, []byte(","))...), "]}"...)
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
		{"two-files", nil, []string{file(t, "1", l.NDJSON(0, 1111)), file(t, "2", l.NDJSON(1111, len(l.Lines)))}},
	} {
		t.Run(test.set, func(t *testing.T) {
			t.Parallel()
			stdout, _ := rspublish(t, 0, bytes.NewReader(test.stdin), append([]string{"-hub", h.URL, "-set", test.set}, test.args...)...)
			if !strings.HasPrefix(stdout, "published 3210 changes to "+test.set+", cursor "+hubtest.Head(t, h, test.set)) {
				t.Errorf("it says %s", stdout)
			}
			hubtest.SameTexts(t, "the memory", hubtest.Memory(t, h, test.set), l.Texts)
			if test.stdin != nil {
				return
			}
			stdout, _ = rspublish(t, 0, nil, append([]string{"-hub", h.URL, "-set", test.set}, test.args...)...)
			if !strings.Contains(stdout, "(3210 were there already)") {
				t.Errorf("the second time it says %s", stdout)
			}
			hubtest.SameTexts(t, "the memory", hubtest.Memory(t, h, test.set), l.Texts)
		})
	}
	t.Run("xml", func(t *testing.T) { // what the hub itself serves can be published again
		t.Parallel()
		hubtest.Publish(t, h, "original", l.NDJSON(0, 500))
		a := hubtest.Must(t, 200, "GET", h.URL+"/sets/original/changelist.xml", nil)
		rspublish(t, 0, nil, "-hub", h.URL, "-set", "xml", file(t, "list.xml", a.Body))
		original, again := hubtest.Memory(t, h, "original"), hubtest.Memory(t, h, "xml")
		if len(again) != len(original) {
			t.Fatalf("%d changes of %d", len(again), len(original))
		}
	})
	t.Run("flags", func(t *testing.T) {
		t.Parallel()
		stdout, _ := rspublish(t, 0, nil, "-hub", h.URL, "-set", "flags", "-json", "-created", "https://example.org/1", "-updated", "https://example.org/2",
			"-deleted", "https://example.org/1", "-created", "https://example.org/3")
		var want []string
		for _, c := range []string{"1 created", "2 updated", "1 deleted", "3 created"} {
			name, kind, _ := strings.Cut(c, " ")
			want = append(want, fmt.Sprintf(`{"change":"%s","loc":"https://example.org/%s"}`, kind, name))
		}
		all := hubtest.Memory(t, h, "flags")
		hubtest.SameTexts(t, "the memory", all, want)
		var said struct {
			Set, Cursor        string
			Published, Already int
		}
		hubtest.Decode(t, []byte(stdout), &said)
		if said.Set != "flags" || said.Published != 4 || said.Already != 0 || said.Cursor != hubtest.Head(t, h, "flags") {
			t.Errorf("it says %s", stdout)
		}
	})
	t.Run("key", func(t *testing.T) {
		t.Parallel()
		for i := range 2 {
			stdout, _ := rspublish(t, 0, bytes.NewReader(plain), "-hub", h.URL, "-set", "key", "-key", "k", "-")
			if strings.Contains(stdout, "(3210 were there already)") != (i == 1) {
				t.Errorf("it says %s", stdout)
			}
		}
		hubtest.SameTexts(t, "the memory", hubtest.Memory(t, h, "key"), l.Texts)
	})
}

// TestRspublishRefuses calls rspublish wrongly, and with what is refused.
func TestRspublishRefuses(t *testing.T) {
	t.Parallel()
	h := hubtest.StartHub(t, "RSHUB_SETS=only")
	good := file(t, "good", hubtest.Changes("x", 5))
	bad := file(t, "bad", append(hubtest.Changes("x", 5), `{"loc":"nowhere","change":"created"}`...))
	other := hubtest.FreePort(t)
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
			stdout, stderr := rspublish(t, test.code, nil, append([]string{"-hub", h.URL}, test.args...)...)
			if stdout != "" || !strings.Contains(stderr, test.says) || !strings.HasPrefix(stderr, "rspublish: ") && test.name != "no hub for long" {
				t.Errorf("it says %s%s", stdout, stderr)
			}
			t.Log(stderr)
		})
	}
	hubtest.Until(t, "the set is made", func() error {
		if at := hubtest.Head(t, h, "only"); !strings.HasPrefix(at, "0-") {
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
	l := hubtest.SomeLoad(t)
	h := hubtest.StartHub(t)
	f := hubtest.Follow(t, h, hubtest.ByWebSocket, "torn", "start")
	f.Begins(t)
	path := file(t, "changes.jsonl", l.NDJSON(0, len(l.Lines)))
	args := []string{"-hub", h.URL, "-set", "torn", path}
	through := false
	for i := range 4 {
		before := len(hubtest.Memory(t, h, "torn"))
		p := hubtest.Start(t, nil, nil, hubtest.Rspublish, args...)
		f.Has(t, before+1)
		if before == 0 {
			f.Has(t, len(l.Lines)/6)
		}
		if i%2 == 0 {
			p.Signal(syscall.SIGINT)
		} else {
			p.Kill()
		}
		code := p.Wait()
		if i > 0 && code == 0 {
			t.Logf("run %d was through before it could be stopped", i+1)
			through = true
			break
		}
		if i%2 == 0 && (code != 130 || !strings.Contains(p.Stderr.String(), "run the same command again to go on")) {
			t.Errorf("run %d ended with %d: %s", i+1, code, p.Stderr.String())
		}
	}
	if !through {
		rspublish(t, 0, nil, args...)
	}
	all := hubtest.Memory(t, h, "torn")
	hubtest.SameTexts(t, "the memory", all, l.Texts)
	hubtest.Same(t, "the follower", f.Has(t, len(all)), all)
}

// TestRspublishWaits publishes to a hub that comes up later, and goes down in
// between.
func TestRspublishWaits(t *testing.T) {
	t.Parallel()
	l := hubtest.GeneratedLoad(t, 2500)
	h := hubtest.NewHub(t)
	in, feed := hubtest.Feed(t)
	p := hubtest.Start(t, nil, in, hubtest.Rspublish, "-hub", h.URL, "-set", "patient", "-")
	go func() { _, _ = feed.Write(l.NDJSON(0, 1500)) }()
	p.Says("trying again in")
	h.Start(t)
	f := hubtest.Follow(t, h, hubtest.ByWebSocket, "patient", "start")
	f.Has(t, 1000)
	h.Kill()
	go func() {
		_, _ = feed.Write(l.NDJSON(1500, len(l.Lines)))
		_ = feed.Close()
	}()
	hubtest.Until(t, "it tries again", func() error {
		if n := strings.Count(p.Stderr.String(), "trying again in"); n < 2 {
			return fmt.Errorf("%d times", n)
		}
		return nil
	})
	h.Start(t)
	if code := p.Wait(); code != 0 {
		t.Fatalf("it ended with %d", code)
	}
	all := hubtest.Memory(t, h, "patient")
	hubtest.SameTexts(t, "the memory", all, l.Texts)
	hubtest.Same(t, "the follower", f.Has(t, len(all)), all)
}
