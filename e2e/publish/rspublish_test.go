package publish

import (
	"bytes"
	"fmt"
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

// rspublish runs rspublish, which has to end with a code.
func rspublish(t *testing.T, code int, args ...string) (stdout, stderr string) {
	t.Helper()
	got, stdout, stderr := hubtest.Run(t, nil, nil, hubtest.Rspublish, args...)
	if got != code {
		t.Fatalf("rspublish %q ended with %d, not %d: %s%s", args, got, code, stdout, stderr)
	}
	return stdout, stderr
}

// TestRspublish publishes changes that have every member in all its forms, and publishes
// again what a hub itself serves.
func TestRspublish(t *testing.T) {
	t.Parallel()
	h := hubtest.StartHub(t)
	l := hubtest.GeneratedLoad(t, 3210)
	document := append(append([]byte(`{"changes":[`), bytes.Join(l.Lines, []byte(","))...), "]}"...)
	for set, content := range map[string][]byte{"ndjson": l.NDJSON(0, len(l.Lines)), "json": document} {
		stdout, _ := rspublish(t, 0, "-hub", h.URL, "-set", set, file(t, "changes", content))
		if !strings.HasPrefix(stdout, "published 3210 changes to "+set+", cursor "+hubtest.Head(t, h, set)) {
			t.Errorf("it says %s", stdout)
		}
		hubtest.SameTexts(t, "the memory", hubtest.Memory(t, h, set), l.Texts)
	}
	list := hubtest.Must(t, 200, "GET", h.URL+"/sets/ndjson/changelist.xml", nil)
	rspublish(t, 0, "-hub", h.URL, "-set", "xml", file(t, "list.xml", list.Body))
	if n := len(hubtest.Memory(t, h, "xml")); n != len(l.Lines) {
		t.Errorf("of %d changes in a Change List, %d are published", len(l.Lines), n)
	}
}

// TestRspublishInterrupted stops rspublish in the middle, again and again, and
// each time runs the same command again.
func TestRspublishInterrupted(t *testing.T) {
	t.Parallel()
	l := hubtest.GeneratedLoad(t, 20_000)
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
		rspublish(t, 0, args...)
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
