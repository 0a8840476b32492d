package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestBatches(t *testing.T) {
	b := newTestEnv(t)
	b.run(0, b.write("a", lines(1, 2500)))
	b.checkPublished(2500)
	if got := b.hub.batchNumbers(); !slices.Equal(got, []int{1, 2, 3}) {
		t.Errorf("batchNumbers() = %d", got)
	}
	for i, want := range []int{1000, 1000, 500} {
		if got := strings.Count(b.hub.requests[i].body, "\n"); got != want {
			t.Errorf("batch %d has %d changes, want %d", i+1, got, want)
		}
	}
	if want := "published 2500 changes to peps, cursor 2500-2500\n"; b.stdout != want {
		t.Errorf("stdout = %q, want %q", b.stdout, want)
	}
}

func TestBatchSizeIsBounded(t *testing.T) {
	b := newTestEnv(t)
	link := `{"rel":"describedby","href":"https://example.org/` + strings.Repeat("y", 1900) + `"}`
	var s strings.Builder
	for i := 1; i <= 60; i++ {
		fmt.Fprintf(&s, `{"loc":%q,"change":"updated","ln":[%s]}`+"\n", testLoc(i), strings.Repeat(link+",", 99)+link)
	}
	b.run(0, b.write("a", s.String()))
	b.checkPublished(60)
	for i, r := range b.hub.requests {
		if len(r.body) > batchBytes {
			t.Errorf("batch %d has %d bytes, want at most %d", i+1, len(r.body), batchBytes)
		}
	}
	if len(b.hub.requests) < 3 {
		t.Errorf("sent %d batches, want at least 3", len(b.hub.requests))
	}
}

func TestSeveralFilesInOrder(t *testing.T) {
	b := newTestEnv(t)
	b.stdin = strings.NewReader(lines(1501, 1600))
	b.run(0, b.write("z", lines(1, 1200)), b.write("a.xml", xmlDocument("changelist", 1201, 1500)), "-", b.write("b.json", jsonDocument(1601, 1700)))
	b.checkPublished(1700)
}

// TestRetries checks that a batch is retried with the same key after temporary errors. The tests
// of package client define which errors are temporary.
func TestRetries(t *testing.T) {
	b := newTestEnv(t)
	b.hub.before = func(n int, w http.ResponseWriter, r *http.Request) bool {
		switch n {
		case 2:
			writeProblem(w, 503, `"detail":"memory is unreachable"`)
		case 3:
			w.Header().Set("Retry-After", b.clock.now().Add(time.Minute).Format(http.TimeFormat))
			w.WriteHeader(429)
		}
		return n == 2 || n == 3
	}
	b.run(0, b.write("a", lines(1, 2500)))
	b.checkPublished(2500)
	b.checkStderr("503 Service Unavailable (memory is unreachable); retrying in ", "429")
	if waits := b.clock.waits; len(waits) != 2 || waits[0] < 250*time.Millisecond || waits[0] > time.Second || waits[1] < 59*time.Second || waits[1] > time.Minute {
		t.Errorf("delays = %v, want at most 1s and then about 1m", waits)
	}
	if got := b.hub.batchNumbers(); !slices.Equal(got, []int{1, 2, 2, 2, 3}) {
		t.Errorf("batchNumbers() = %d", got)
	}
}

func TestRetryLimit(t *testing.T) {
	b := newTestEnv(t)
	down := true
	b.hub.before = func(n int, w http.ResponseWriter, r *http.Request) bool {
		if down && n > 1 {
			writeProblem(w, 503, `"detail":"away"`)
		}
		return down && n > 1
	}
	file := b.write("a", lines(1, 2500))
	b.run(exitUnavailable, "-retry", "2m", file)
	var waited time.Duration
	for _, w := range b.clock.waits {
		waited += w
	}
	if waited != 2*time.Minute {
		t.Errorf("total delay = %v, want 2m", waited)
	}
	b.checkStderr("503", "gave up after", "(-retry 2m0s)", "published so far: 1,000 of 2,500 changes", "run the same command again to resume")
	if b.stdout != "" {
		t.Errorf("stdout = %q, want none", b.stdout)
	}

	b.clock.waits = nil
	b.run(exitUnavailable, "-retry", "0", file)
	if len(b.clock.waits) > 0 {
		t.Errorf("delays with -retry 0 = %v, want none", b.clock.waits)
	}

	down = false
	b.run(0, file)
	b.checkPublished(2500)
}

func TestHubUnreachable(t *testing.T) {
	b := newTestEnv(t)
	b.hub.Close()
	b.run(exitUnavailable, "-retry", "1m", b.write("a", lines(1, 1)))
	b.checkStderr("cannot reach "+b.hub.URL, "refused", "retrying in", "gave up after")
}

func TestRefusals(t *testing.T) {
	answer := func(status int, members string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { writeProblem(w, status, members) }
	}
	for _, test := range []struct {
		name   string
		answer func(w http.ResponseWriter)
		want   []string
	}{
		{"entry", answer(400, `"entry":3,"line":3,"loc":"https://x/","detail":"line 3: entry 3 (https://x/): loc is not mine"`),
			[]string{"a: line 1004: entry 1003 (https://x/): loc is not mine (the hub refused it with 400)", "fix the file"}},
		{"line only", answer(413, `"line":2,"detail":"line 2: too long"`), []string{"a: line 1003: entry 1002: too long (the hub refused it with 413)"}},
		{"entry out of range", answer(400, `"entry":5000,"detail":"hm"`), []string{"400 Bad Request: hm"}},
		{"no token", answer(401, `"detail":"who are you?"`), []string{"401 Unauthorized: who are you?; set RSPUBLISH_TOKEN or -token-file to a token", "run the same command again"}},
		{"no right", answer(403, `"detail":"not yours"`), []string{"403 Forbidden: not yours"}},
		{"no set", answer(404, `"detail":"set does not exist"`), []string{"404 Not Found: set does not exist"}},
		{"other content", answer(422, `"detail":"key used"`), []string{"422", "key used"}},
		{"redirect", func(w http.ResponseWriter) {
			w.Header().Set("Location", "https://other.example.org/")
			w.WriteHeader(308)
		}, []string{"308 Permanent Redirect", "https://other.example.org/", "-hub"}},
		{"not a hub", func(w http.ResponseWriter) { fmt.Fprint(w, "<html>welcome") }, []string{"response is not from a hub"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newTestEnv(t)
			b.hub.before = func(n int, w http.ResponseWriter, r *http.Request) bool {
				if n == 2 {
					test.answer(w)
				}
				return n == 2
			}
			file := b.write("a", lines(1, 500)+"\n"+lines(501, 2500)) // after the blank line, line = entry + 1
			b.run(exitRefused, file)
			b.checkStderr(append(test.want, "published so far: 1,000 of 2,500 changes")...)
			if len(b.hub.requests) != 2 {
				t.Errorf("sent %d requests, want 2", len(b.hub.requests))
			}
			b.run(0, file)
			b.checkPublished(2500)
		})
	}
}

func TestFirstBatchRefused(t *testing.T) {
	b := newTestEnv(t)
	b.hub.before = func(n int, w http.ResponseWriter, r *http.Request) bool {
		writeProblem(w, 403, `"detail":"no"`)
		return true
	}
	b.run(exitRefused, b.write("a", lines(1, 10)))
	b.checkStderr("nothing was sent")
}

func TestWrongSchemeIsNotRetried(t *testing.T) {
	b := newTestEnv(t)
	b.runArgs(exitUnavailable, "-hub", strings.Replace(b.hub.URL, "http:", "https:", 1), "-set", "peps", "-updated", "https://a/")
	b.checkStderr("HTTP response to HTTPS client")
	if len(b.clock.waits) > 0 {
		t.Errorf("delays = %v, want none", b.clock.waits)
	}
}

// interruptRequest returns a hook of the hub that cancels the run during request n, starting at 1.
func (b *testEnv) interruptRequest(n int) func(n int, w http.ResponseWriter, r *http.Request) bool {
	ctx, cancel := context.WithCancel(b.t.Context())
	b.ctx = ctx
	return func(request int, _ http.ResponseWriter, r *http.Request) bool {
		if request == n {
			cancel()
			<-r.Context().Done()
		}
		return request == n
	}
}

// TestInterruptedAndResumed checks that a repeated run resumes, whether or not the hub accepted the
// batch that was in flight at the interruption.
func TestInterruptedAndResumed(t *testing.T) {
	for _, accepted := range []bool{false, true} { // the batch in flight
		t.Run(fmt.Sprint(accepted), func(t *testing.T) {
			b := newTestEnv(t)
			already := 2000
			if accepted {
				b.hub.after, already = b.interruptRequest(3), 3000
			} else {
				b.hub.before = b.interruptRequest(3)
			}
			file := b.write("a", lines(1, 3500))
			b.run(exitInterrupted, file)
			b.checkStderr("interrupted", "published so far: 2,000 of 3,500 changes", "run the same command again to resume")

			b.ctx = t.Context()
			b.run(0, file)
			b.checkPublished(3500)
			if got := b.hub.batchNumbers(); !slices.Equal(got, []int{1, 2, 3, 1, 2, 3, 4}) {
				t.Errorf("batchNumbers() = %d", got)
			}
			if want := fmt.Sprintf("published 3500 changes to peps, cursor 3500-3500 (%d already published)\n", already); b.stdout != want {
				t.Errorf("stdout = %q, want %q", b.stdout, want)
			}
		})
	}
}

func TestInterruptedInSecondFile(t *testing.T) {
	b := newTestEnv(t)
	b.hub.before = b.interruptRequest(4)
	files := []string{b.write("a", lines(1, 1500)), b.write("b", lines(1501, 3000)), b.write("c", lines(3001, 3100))}
	b.run(exitInterrupted, files...)

	b.ctx = t.Context()
	b.run(0, files...)
	b.checkPublished(3100)
	if want := "published 3100 changes to peps, cursor 3100-3100 (2500 already published)\n"; b.stdout != want {
		t.Errorf("stdout = %q, want %q", b.stdout, want)
	}
}

func TestInterruptedStandardInput(t *testing.T) {
	b := newTestEnv(t)
	b.hub.before = b.interruptRequest(2)
	b.stdin = strings.NewReader(lines(1, 2500))
	b.run(exitInterrupted, "-")
	b.checkStderr("published so far: 1,000 changes")
	_, key, ok := strings.Cut(b.stderr, "-key ")
	if !ok {
		t.Fatalf("stderr = %s, want a key", b.stderr)
	}
	b.ctx = t.Context()
	b.stdin = strings.NewReader(lines(1, 2500))
	b.run(0, "-key", strings.TrimSpace(key), "-")
	b.checkPublished(2500)
}

func TestInterruptedWhileStandardInputIsSilent(t *testing.T) {
	b := newTestEnv(t)
	ctx, cancel := context.WithCancel(b.ctx)
	b.ctx = ctx
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	b.stdin = r
	b.hub.after = func(int, http.ResponseWriter, *http.Request) bool { cancel(); return false }
	if _, err := w.WriteString(lines(1, 1100)); err != nil {
		t.Fatal(err)
	}
	b.run(exitInterrupted, "-")
}

func TestFileChangedDuringPublish(t *testing.T) {
	b := newTestEnv(t)
	file := b.write("a", lines(1, 3000))
	b.hub.before = func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n == 1 {
			f, err := os.OpenFile(file, os.O_WRONLY, 0)
			if err != nil {
				t.Error(err)
				return false
			}
			defer f.Close()
			// Modify a later change in place, and append one.
			size := int64(len(lines(1, 3000)))
			_, _ = f.WriteAt([]byte("created"), size-int64(len("updated\"}\n")))
			_, _ = f.WriteAt([]byte(lines(3001, 3001)), size)
		}
		return false
	}
	b.run(exitInput, file)
	b.checkStderr("changed while it was published")
	b.checkPublished(3000) // the appended change is left to another run
}

func TestSetDeletedDuringPublish(t *testing.T) {
	b := newTestEnv(t)
	a, c := b.write("a", lines(1, 1500)), b.write("c", lines(1501, 1600))
	b.hub.before = func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n == 3 {
			b.hub.deleteSet()
		}
		return false
	}
	b.run(exitRefused, a, c)
	b.checkStderr("c: the hub no longer has the changes that it accepted")
	b.hub.deleteSet()
	b.run(0, a, c)
	b.checkPublished(1600)
}

// TestFilesAreRecognizedByContent checks that a file is recognized by its content, regardless of
// its name, including the whole batches at its start that it shares with an earlier file. Several
// files are recognized in their order.
func TestFilesAreRecognizedByContent(t *testing.T) {
	b := newTestEnv(t)
	file := b.write("a", lines(1, 2000))
	b.run(0, file)
	for _, args := range [][]string{{file}, {b.write("copy", lines(1, 2000))}} {
		b.run(0, args...)
		if !strings.Contains(b.stdout, "already published") {
			t.Errorf("stdout = %s, want that changes are already published", b.stdout)
		}
		b.checkPublished(2000)
	}
	b.run(0, b.write("a", lines(1, 2700))) // it has grown
	b.checkPublished(2700)
	b.write("a", lines(1, 1000)+strings.Replace(lines(1001, 2000), "updated", "created", 1))
	b.run(0, file)
	if n := len(b.hub.locs); n != 3700 { // the second batch differs
		t.Errorf("the hub has %d changes, want 3700", n)
	}
	b.run(0, "-again", file)
	if n := len(b.hub.locs); n != 5700 {
		t.Errorf("after -again, the hub has %d changes, want 5700", n)
	}
	other := b.write("b", lines(5001, 5100))
	for range 2 {
		b.run(0, file, other)
		if n := len(b.hub.locs); n != 5800 {
			t.Errorf("after another file, the hub has %d changes, want 5800", n)
		}
	}
	b.hub.deleteSet() // a new set has no keys
	b.run(0, b.write("a", lines(1, 1500)))
	b.checkPublished(1500)
}

// TestFlagsAndStreamsAreNotRecognized checks that changes in flags or streams are published each
// time, unless they have a key.
func TestFlagsAndStreamsAreNotRecognized(t *testing.T) {
	b := newTestEnv(t)
	for range 2 {
		b.run(0, "-updated", testLoc(1))
		b.stdin = strings.NewReader(lines(1, 1))
		b.run(0, "-")
		b.stdin = strings.NewReader(lines(1, 1))
		b.run(0, "-key", "night", "-")
	}
	if n := len(b.hub.locs); n != 5 {
		t.Errorf("the hub has %d changes, want 5", n)
	}
	b.run(exitRefused, "-key", "night", b.write("a", lines(1, 2)))
	b.checkStderr("key night was used for another input, or this input has changed")
}
