package publish

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// TestRspublishInterrupted interrupts rspublish repeatedly, and each time runs the same command
// again.
func TestRspublishInterrupted(t *testing.T) {
	t.Parallel()
	l := hubtest.GeneratedLoad(t, 20_000)
	h := hubtest.StartHub(t)
	f := hubtest.Follow(t, h, hubtest.ByWebSocket, "torn", "start")
	f.WaitStart(t)
	path := filepath.Join(t.TempDir(), "changes.jsonl")
	if err := os.WriteFile(path, l.NDJSON(0, len(l.Lines)), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"-hub", h.URL, "-set", "torn", path}
	finished := false
	for i := range 4 {
		before := len(hubtest.ReadMemory(t, h, "torn"))
		p := hubtest.Start(t, nil, nil, hubtest.Rspublish, args...)
		f.WaitEntries(t, before+1)
		if before == 0 {
			f.WaitEntries(t, len(l.Lines)/6)
		}
		if i%2 == 0 {
			p.Signal(syscall.SIGINT)
		} else {
			p.Kill()
		}
		code := p.Wait()
		if i > 0 && code == 0 {
			t.Logf("run %d finished before it could be interrupted", i+1)
			finished = true
			break
		}
		if i%2 == 0 && (code != 130 || !strings.Contains(p.Stderr.String(), "run the same command again to resume")) {
			t.Errorf("run %d exited with %d, want 130 and advice: %s", i+1, code, p.Stderr.String())
		}
	}
	if !finished {
		if code, _, stderr := hubtest.Run(t, nil, nil, hubtest.Rspublish, args...); code != 0 {
			t.Fatalf("the last run exited with %d: %s", code, stderr)
		}
	}
	all := hubtest.ReadMemory(t, h, "torn")
	hubtest.WantTexts(t, "the memory", all, l.Texts)
	hubtest.WantEntries(t, "the follower", f.WaitEntries(t, len(all)), all)
}

// TestRspublishWaits publishes to a hub that starts later, and is killed in between.
func TestRspublishWaits(t *testing.T) {
	t.Parallel()
	l := hubtest.GeneratedLoad(t, 2500)
	h := hubtest.NewHub(t)
	in, feed := hubtest.Feed(t)
	p := hubtest.Start(t, nil, in, hubtest.Rspublish, "-hub", h.URL, "-set", "patient", "-")
	go func() { _, _ = feed.Write(l.NDJSON(0, 1500)) }()
	p.WaitLog("retrying in")
	h.Start(t)
	f := hubtest.Follow(t, h, hubtest.ByWebSocket, "patient", "start")
	f.WaitEntries(t, 1000)
	h.Kill()
	go func() {
		_, _ = feed.Write(l.NDJSON(1500, len(l.Lines)))
		_ = feed.Close()
	}()
	hubtest.Until(t, "rspublish retries", func() error {
		if n := strings.Count(p.Stderr.String(), "retrying in"); n < 2 {
			return fmt.Errorf("got %d retries", n)
		}
		return nil
	})
	h.Start(t)
	if code := p.Wait(); code != 0 {
		t.Fatalf("rspublish exited with %d", code)
	}
	all := hubtest.ReadMemory(t, h, "patient")
	hubtest.WantTexts(t, "the memory", all, l.Texts)
	hubtest.WantEntries(t, "the follower", f.WaitEntries(t, len(all)), all)
}
