package main

import (
	"net/http"
	"os"
	"path/filepath"
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
	b.says("1,500 changes now, fewer than the 2,000")

	b.write("a", lines(1, 3500))
	b.run(0, "-continue", file)
	b.published(3500)
	b.hub.keys(t)
	b.leftovers()
}

func TestRestart(t *testing.T) {
	b := newBench(t)
	file := b.write("a", lines(1, 3000))
	b.interrupt(file)
	b.write("a", lines(1, 10))
	b.hub.locs, b.hub.requests = nil, nil
	b.run(0, "-restart", file)
	b.published(10)
	b.leftovers()

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
	b.hub.locs = nil
	b.run(0, a)
	if len(b.hub.locs) != 100 {
		t.Errorf("%d changes", len(b.hub.locs))
	}
	b.run(0, c)
	b.leftovers()
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
	if states, _ = filepath.Glob(filepath.Join(b.cache, "rspublish", "*")); len(states) != 0 {
		t.Errorf("states %q", states)
	}
}

func TestNoPlaceForAState(t *testing.T) {
	b := newBench(t)
	file := b.write("a", lines(1, 10))
	if err := os.MkdirAll(file+".rspublish.new/x", 0o700); err != nil {
		t.Fatal(err)
	}
	b.cache = b.write("cache", "not a directory")
	b.run(exitInput, file)
	b.says("no place to keep")
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
	b.leftovers()
}

func TestOldStateWarns(t *testing.T) {
	b := newBench(t)
	file := b.write("a", lines(1, 3000))
	b.interrupt(file)
	b.clock.t = b.clock.t.Add(72 * time.Hour)
	b.run(0, file)
	b.says("begun 72h0m0s ago")
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
