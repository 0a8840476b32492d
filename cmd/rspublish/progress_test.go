package main

import (
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rshub/rshub/internal/progress"
)

// delayRequests advances the clock by d in every request.
func (b *testEnv) delayRequests(d time.Duration) {
	b.hub.before = func(int, http.ResponseWriter, *http.Request) bool {
		b.clock.mu.Lock()
		defer b.clock.mu.Unlock()
		b.clock.t = b.clock.t.Add(d)
		return false
	}
}

func TestProgressOnTerminal(t *testing.T) {
	b := newTestEnv(t)
	b.terminal = true
	b.delayRequests(500 * time.Millisecond)
	b.run(0, b.write("a-file-whose-name-is-much-too-long-for-any-line-of-a-terminal-and-goes-on.jsonl", lines(1, 4000)))
	b.checkStderr("checking", "[#####---------------] 1,000/4,000  25%  2,000/s  2s left", "[##########----------] 2,000/4,000  50%", "4,000/4,000  100%")
	for part := range strings.SplitSeq(b.stderr, "\r\x1b[K") {
		if !strings.Contains(part, "\n") && utf8.RuneCountInString(part) > progress.Columns {
			t.Errorf("line is wider than %d columns: %q", progress.Columns, part)
		}
	}
	if !strings.HasSuffix(b.stderr, ".jsonl: 4,000 changes published in 2s (2,000/s)\n") {
		t.Errorf("stderr ends with %q, want the summary of the file", b.stderr[max(0, len(b.stderr)-100):])
	}
}

func TestProgressOfStreamOnTerminal(t *testing.T) {
	b := newTestEnv(t)
	b.terminal = true
	b.delayRequests(500 * time.Millisecond)
	b.stdin = strings.NewReader(lines(1, 2000))
	b.run(0, "-")
	b.checkStderr("standard input  1,000 changes  2,000/s")
}

func TestProgressInLogFile(t *testing.T) {
	b := newTestEnv(t)
	b.delayRequests(4 * time.Second)
	b.run(0, b.write("a", lines(1, 8000)))
	dir := b.dir + "/"
	want := dir + "a: 3,000/8,000  37%  250/s  20s left\n" +
		dir + "a: 6,000/8,000  75%  250/s  8s left\n" +
		dir + "a: 8,000 changes published in 32s (250/s)\n"
	if b.stderr != want {
		t.Errorf("stderr =\n%swant\n%s", b.stderr, want)
	}
}

func TestQuietPrintsOnlyErrors(t *testing.T) {
	b := newTestEnv(t)
	b.terminal = true
	b.delayRequests(time.Minute)
	b.run(exitRefused, "-q", "-set", "nosuch", b.write("a", lines(1, 1)))
	if strings.Contains(b.stderr, "\r") || !strings.HasPrefix(b.stderr, "rspublish: ") {
		t.Errorf("stderr = %q, want an error without progress", b.stderr)
	}
}
