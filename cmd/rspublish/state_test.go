package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// interrupt publishes the first 2,000 of the changes in file, then the hub is
// away.
func (b *bench) interrupt(args ...string) {
	b.t.Helper()
	b.hub.before = func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n > 2 {
			w.WriteHeader(503)
		}
		return n > 2
	}
	b.run(exitUnavailable, append([]string{"-retry", "0"}, args...)...)
	b.hub.before = nil
}

func TestChangedSince(t *testing.T) {
	b := newBench(t)
	file := b.write("a", lines(1, 3000))
	b.interrupt(file)
	sent := len(b.hub.requests)

	b.write("a", lines(1, 3500))
	b.run(exitInput, file)
	b.says("changed since 2,000 of its changes", "-continue", "-restart")
	if len(b.hub.requests) != sent {
		t.Error("something was sent")
	}

	b.write("a", lines(1, 1500))
	b.run(exitInput, "-continue", file)
	b.says("1,500 changes now, fewer than the 3,000")

	b.write("a", lines(1, 3500))
	b.run(0, "-continue", file)
	b.published(3500)
	b.hub.keys(t)
}

func TestRestart(t *testing.T) {
	b := newBench(t)
	file := b.write("a", lines(1, 3000))
	b.interrupt(file)
	b.write("a", lines(1, 10))
	b.hub.delete()
	b.hub.requests = nil
	b.run(0, "-restart", file)
	b.published(10)

	// After -restart, going on means without it.
	b.write("a", lines(11, 3000))
	b.hub.requests = nil
	b.interrupt("-restart", file)
	b.says("but without -restart")
}

func TestOtherSetOrHub(t *testing.T) {
	b := newBench(t)
	file := b.write("a", lines(1, 3000))
	b.interrupt(file)
	b.runBare(exitInput, "-hub", b.hub.URL, "-set", "other", file)
	b.says("to peps at "+b.hub.URL, "-restart")
	b.runBare(exitInput, "-hub", "http://127.0.0.1:1", "-set", "peps", file)
	b.says("not finished")
}

func TestDoneFilesOfAnUnfinishedRun(t *testing.T) {
	b := newBench(t)
	a, c := b.write("a", lines(1, 2000)), b.write("c", lines(2001, 2100))
	b.interrupt(a, c)
	b.leftovers("a.rspublish", "c.rspublish")

	// Changed since it was done, it is a new file.
	b.write("a", lines(2101, 2200))
	b.run(0, a)
	if len(b.hub.locs) != 2100 {
		t.Errorf("%d changes", len(b.hub.locs))
	}
	b.run(0, c)
	if len(b.hub.locs) != 2200 {
		t.Errorf("%d changes", len(b.hub.locs))
	}
}

func TestStateInTheCacheDirectory(t *testing.T) {
	b := newBench(t)
	file := b.write("a", lines(1, 3000))
	// A directory in the way of the file: also root cannot write there.
	if err := os.MkdirAll(file+".rspublish.new/x", 0o700); err != nil {
		t.Fatal(err)
	}
	b.interrupt(file)
	states, _ := filepath.Glob(filepath.Join(b.cache, "rspublish", "*"))
	if len(states) != 1 {
		t.Fatalf("states %q", states)
	}
	b.run(0, file)
	b.published(3000)
	b.run(0, file)
	b.says("already published")
	b.published(3000)
}

func TestNoPlaceForAState(t *testing.T) {
	b := newBench(t)
	file := b.write("a", lines(1, 10))
	if err := os.MkdirAll(file+".rspublish.new/x", 0o700); err != nil {
		t.Fatal(err)
	}
	b.cache = b.write("cache", "not a directory")
	b.run(exitInput, file)
	b.says("no place for the state file")
	if len(b.hub.requests) > 0 {
		t.Error("something was sent")
	}
}

func TestStateThatIsNone(t *testing.T) {
	b := newBench(t)
	file := b.write("a", lines(1, 10))
	b.write("a.rspublish", `{"version":`)
	b.run(exitInput, file)
	b.says("a.rspublish is not a state", "-restart")
	b.run(0, "-restart", file)
	b.published(10)
}

func TestOldStateWarns(t *testing.T) {
	b := newBench(t)
	file := b.write("a", lines(1, 3000))
	b.interrupt(file)
	b.clock.t = b.clock.t.Add(72 * time.Hour)
	b.run(0, file)
	b.says("began 72h0m0s ago")
	b.published(3000)
}

func TestChangedWhileItIsPublished(t *testing.T) {
	b := newBench(t)
	file := b.write("a", lines(1, 3000))
	b.hub.before = func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n == 1 {
			f, err := os.OpenFile(file, os.O_WRONLY, 0)
			if err != nil {
				t.Error(err)
				return false
			}
			defer f.Close()
			// A later change, in place, and one appended.
			size := int64(len(lines(1, 3000)))
			_, _ = f.WriteAt([]byte("created"), size-int64(len("updated\"}\n")))
			_, _ = f.WriteAt([]byte(lines(3001, 3001)), size)
		}
		return false
	}
	b.run(exitInput, file)
	b.says("changed while it was being published")
	b.published(3000) // what was appended is for another run
}

// If the set was deleted in between, a part of the file would be in it, and the run
// would call that a success.
func TestSetDeletedInBetween(t *testing.T) {
	const lost = "accepted 1,000 changes of it up to cursor 1000-1000, but no longer has them"
	for _, test := range []struct {
		name   string
		closed bool // rspublish may not look
		others int  // changes of others that are in the new set
		found  bool
	}{
		{"it looks", false, 0, true},
		{"it looks, and others were quicker", false, 5000, true},
		{"it may not look", true, 0, true},
		{"it may not look, and others were quicker", true, 5000, false}, // the receipt cannot show it
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t)
			file := b.write("a", lines(1, 1500))
			b.killed(2, false, file)
			b.hub.delete()
			b.hub.closed = test.closed
			b.hub.locs = make([]string, test.others)
			if !test.found {
				b.run(0, file)
				return
			}
			for range 2 {
				b.run(exitRefused, file)
				b.says(lost, "-restart")
				if b.stdout != "" || strings.Contains(b.stderr, "run the same command again") {
					t.Errorf("it says %s%s", b.stdout, b.stderr)
				}
			}
			b.hub.delete()
			b.run(0, "-restart", file)
			b.published(1500)
		})
	}
}

func TestSetDeletedWhileItIsPublished(t *testing.T) {
	b := newBench(t)
	a, c := b.write("a", lines(1, 1500)), b.write("c", lines(1501, 1600))
	b.hub.before = func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n == 3 {
			b.hub.delete()
		}
		return false
	}
	b.run(exitRefused, a, c)
	b.says("c: the hub accepted", "no longer has them")
	b.run(exitRefused, a, c) // not only the first time
	b.says("a: the hub accepted 1,500 changes")
}

func TestMemoryLostItsTail(t *testing.T) {
	b := newBench(t)
	file := b.write("a", lines(1, 3000))
	b.interrupt(file)
	b.hub.locs = b.hub.locs[:1500]
	b.run(exitRefused, file)
	b.says("no longer has them", "lost its newest changes")
}

// Retention is no loss.
func TestRetentionInBetween(t *testing.T) {
	b := newBench(t)
	file := b.write("a", lines(1, 3000))
	b.interrupt(file)
	b.hub.floor = 2500
	b.hub.locs = append(b.hub.locs, make([]string, 1000)...)
	b.run(0, file)
	if len(b.hub.locs) != 4000 {
		t.Errorf("the hub has %d changes", len(b.hub.locs))
	}
}

// A wrong URL does not bind the file to it.
func TestWrongHubDoesNotWedge(t *testing.T) {
	b := newBench(t)
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>welcome") }))
	t.Cleanup(page.Close)
	file := b.write("a", lines(1, 1500))
	for _, test := range []struct {
		name, hub string
		code      int
		sent      bool
	}{
		{"nobody listens", "http://127.0.0.1:1", exitUnavailable, false},
		{"a bad certificate", newTLSHub(t), exitUnavailable, false},
		{"no https", strings.Replace(b.hub.URL, "http:", "https:", 1), exitUnavailable, false},
		{"another site", page.URL, exitRefused, true},
	} {
		b.runBare(test.code, "-hub", test.hub, "-set", "peps", "-retry", "1m", file)
		if test.sent {
			b.says("run the same command again")
			b.leftovers("a.rspublish")
			continue
		}
		b.says("nothing was sent")
		b.leftovers()
		b.write("a", lines(1, 1500)) // also a changed file is none of that run's business
	}
	b.run(0, file)
	b.says("which may have the first 1,000 changes")
	b.published(1500)

	// A URL that is wrong later leaves the state as it is.
	b.write("a", lines(1501, 4000))
	b.hub.requests = nil
	b.interrupt(file)
	b.runBare(exitInput, "-hub", "http://127.0.0.1:1", "-set", "peps", file)
	b.run(0, file)
	b.published(4000)
}

func TestFinishedFile(t *testing.T) {
	b := newBench(t)
	file := b.write("a", lines(1, 1500))
	b.run(0, file)
	sent := len(b.hub.requests)
	for _, args := range [][]string{nil, {"-continue"}, {"-key", "other"}} {
		b.clock.t = b.clock.t.Add(24 * time.Hour)
		b.run(0, append(args, file)...)
		b.says("a: already published on 2026-02-03 04:05:06, and not changed since; to publish it again, use -again")
		if want := "published 1500 changes to peps, cursor 1500-1500 (1500 were there already)\n"; b.stdout != want || len(b.hub.requests) != sent {
			t.Errorf("%d requests, and it says %s", len(b.hub.requests)-sent, b.stdout)
		}
	}

	// The pattern of a shell names the state too.
	b.run(0, file, file+".rspublish")
	b.says("a.rspublish: left out")
	b.run(exitUsage, file+".rspublish")

	// What has only grown goes on when -continue says so.
	b.write("a", lines(1, 2700))
	b.run(0, "-continue", file)
	b.published(2700)
	b.run(0, file)
	b.published(2700)

	// Else a changed file is a new one, also with -continue if its beginning has changed.
	b.hub.delete()
	b.write("a", lines(1, 2701))
	b.run(0, file)
	b.published(2701)
	b.hub.delete()
	b.write("a", "\n"+lines(1, 2701))
	b.run(0, "-continue", file)
	b.published(2701)

	// Again means again.
	b.hub.delete()
	b.run(exitRefused, file)
	b.says("no longer has them")
	b.run(0, "-again", file)
	b.published(2701)
	b.run(0, file)
	b.published(2701)
}

// A key makes a file's publishing known to the hub, also without the state.
func TestKeyOfAFile(t *testing.T) {
	b := newBench(t)
	file := b.write("a", lines(1, 1500))
	b.killed(2, true, "-key", "night", file)
	b.run(exitInput, "-key", "other", file)
	b.says("an earlier run with the key night is not finished")
	if err := os.Remove(file + ".rspublish"); err != nil {
		t.Fatal(err)
	}
	b.run(0, "-key", "night", file)
	b.published(1500)
	if want := "published 1500 changes to peps, cursor 1500-1500 (1500 were there already)\n"; b.stdout != want {
		t.Errorf("it says %s", b.stdout)
	}
	for _, r := range b.hub.requests {
		if r.key != "night/1" && r.key != "night/2" {
			t.Errorf("key %s", r.key)
		}
	}

	b.write("a", lines(1, 1700))
	b.run(exitRefused, "-key", "night", file)
	b.says("the key night was used for another input, or this input has changed since", "-key")
	b.published(1500)
}

// A batch that was surely not taken is cut anew from the changed file.
func TestRefusedAndMended(t *testing.T) {
	b := newBench(t)
	for i, answer := range []func(n int, w http.ResponseWriter){
		func(_ int, w http.ResponseWriter) { writeProblem(w, 400, `"entry":5,"detail":"entry 5: no"`) },
		func(_ int, w http.ResponseWriter) { writeProblem(w, 401, `"detail":"who are you?"`) },
		func(n int, w http.ResponseWriter) {
			if n == 2 {
				panic(http.ErrAbortHandler) // so the next answer leaves a doubt, but not about these bytes
			}
			writeProblem(w, 400, `"entry":5,"detail":"entry 5: no"`)
		},
	} {
		b.hub.delete()
		b.hub.requests = nil
		file := b.write(fmt.Sprint("a", i), strings.Replace(lines(1, 2500), "/1005\"", "/wrong\"", 1))
		b.hub.before = func(n int, w http.ResponseWriter, r *http.Request) bool {
			if n > 1 {
				answer(n, w)
			}
			return n > 1
		}
		b.run(exitRefused, file)
		b.hub.before = nil
		b.write(filepath.Base(file), lines(1, 2600))
		b.run(0, "-continue", file)
		b.published(2600)
	}
}

// The state of the version before this one does not say which batch was under way.
func TestStateOfVersion1(t *testing.T) {
	old := func(b *bench, file, content string, done bool) {
		b.write(filepath.Base(file)+".rspublish", fmt.Sprintf(`{"version":1,"file":%q,"hub":%q,"set":"peps","key":"ABCDEFGHIJKLMNOPQRSTUVWXYZ","sha256":%q,"changes":1000,"batches":1,"cursor":"1000-1000","done":%v,"updated":"2026-02-03T04:00:00Z"}`,
			file, b.hub.URL, sha(content), done))
	}
	accepted := func(b *bench, batches ...string) {
		for i, body := range batches {
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, b.hub.URL+"/sets/peps/changes", strings.NewReader(body))
			req.Header.Set("Idempotency-Key", fmt.Sprintf("ABCDEFGHIJKLMNOPQRSTUVWXYZ/%d", i+1))
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}
	}
	b := newBench(t)
	file := b.write("a", lines(1, 1500))
	old(b, file, lines(1, 1500), false)
	accepted(b, lines(1, 1000), lines(1001, 1500))
	b.run(0, file)
	b.published(1500)

	// Grown, with a batch that the state does not know.
	b = newBench(t)
	file = b.write("a", lines(1, 2200))
	old(b, file, lines(1, 1500), false)
	accepted(b, lines(1, 1000), lines(1001, 1500))
	b.run(exitRefused, "-continue", file)
	b.says("an earlier version of rspublish sent a batch after the first 1,000 changes", "restore the old file")
	b.write("a", lines(1, 1500))
	b.run(0, file)
	b.write("a", lines(1, 2200))
	b.run(0, "-continue", file)
	b.published(2200)

	// Grown, without such a batch.
	b = newBench(t)
	file = b.write("a", lines(1, 2200))
	old(b, file, lines(1, 1500), false)
	accepted(b, lines(1, 1000))
	b.run(0, "-continue", file)
	b.published(2200)

	// Done, of a run over several files.
	b = newBench(t)
	file = b.write("a", lines(1, 1000))
	old(b, file, lines(1, 1000), true)
	accepted(b, lines(1, 1000))
	b.run(0, file)
	b.says("already published")

	b.write("a.rspublish", `{"version":3,"key":"x"}`)
	b.run(exitInput, file)
	b.says("not a state file that this rspublish can read")
}
