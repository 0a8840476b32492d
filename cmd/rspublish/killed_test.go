package main

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// killed runs rspublish as a process of its own, and kills it while request n is under
// way: before the hub has accepted the batch, or after that and before rspublish can
// note it.
func (b *bench) killed(n int, accepted bool, args ...string) {
	b.t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"-hub", b.hub.URL, "-set", "peps"}, args...)...)
	cmd.Env = append(os.Environ(), "RSPUBLISH_TEST_MAIN=1", "XDG_CACHE_HOME="+b.cache)
	reached := make(chan struct{})
	hang := func(i int, w http.ResponseWriter, r *http.Request) bool {
		if i == n {
			close(reached)
			<-r.Context().Done()
		}
		return i == n
	}
	b.hub.mu.Lock() // the race detector does not see another process ask
	if accepted {
		b.hub.after = hang
	} else {
		b.hub.before = hang
	}
	b.hub.mu.Unlock()
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	<-reached
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	b.hub.mu.Lock()
	b.hub.before, b.hub.after = nil, nil
	b.hub.mu.Unlock()
}

// What a run sends is on disk before the hub sees it. So even kill -9 loses nothing and
// doubles nothing, also if the file changes before the next run.
func TestKilledAndResumed(t *testing.T) {
	for _, later := range []struct {
		name string
		file string // what the file is when the next run comes
		n    int    // how many changes there are in the end
		args []string
	}{
		{"unchanged", lines(1, 2500), 2500, nil},
		{"grown", lines(1, 3700), 3700, []string{"-continue"}},
		{"changed in its beginning", strings.Replace(lines(1, 2500), "updated", "created", 1), 2500, []string{"-continue"}},
		{"changed where it was", strings.ReplaceAll(lines(1, 2500), "/2400\"", "/other\""), 2500, []string{"-continue"}},
	} {
		for _, accepted := range []bool{false, true} {
			for at := 1; at <= 3; at++ {
				t.Run(fmt.Sprintf("%s,accepted=%v,at=%d", later.name, accepted, at), func(t *testing.T) {
					b := newBench(t)
					file := b.write("a", lines(1, 2500))
					b.killed(at, accepted, file)
					var st state
					readJSON(t, file+".rspublish", &st)
					if st.Changes != (at-1)*1000 || st.Done || strings.Count(st.Sending, "\n") != min(1000, 2500-st.Changes) {
						t.Errorf("state %+v", st)
					}
					b.write("a", later.file)
					if later.args != nil {
						b.run(exitInput, file)
						b.says("changed since", "-continue", "-restart")
					}
					b.run(0, append(later.args, file)...)
					if at < 3 && later.name == "changed where it was" {
						b.hub.locs[2399] = testLoc(2400) // it was not sent before it was changed
					}
					b.published(later.n)
					keys := b.hub.keys(t)
					if keys[at-1] != keys[at] || b.hub.requests[at-1].body != b.hub.requests[at].body {
						t.Errorf("batches %q", keys)
					}
					b.run(0, file)
					b.says("already published")
				})
			}
		}
	}
}

// Nor is there a dead end when rspublish is killed again and again while the file grows.
func TestKilledWhileItGrows(t *testing.T) {
	b := newBench(t)
	file := filepath.Join(b.dir, "a")
	for i := 1; i <= 5; i++ {
		b.write("a", lines(1, 300*i))
		if i < 5 {
			b.killed(len(b.hub.requests)+1+min(i-1, 1), i%2 == 0, "-continue", file)
		}
	}
	b.run(0, "-continue", file)
	b.published(1500)
}
