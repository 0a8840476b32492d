package soak

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rshub/rshub/e2e/internal/hubtest"
)

// A soakReport is what a soak tells at its end, also when it fails.
type soakReport struct {
	acknowledged, replayed, retried, unavailable, unknown, unanswered atomic.Int64

	faults  map[string]int             // by kind
	lags    map[string][]time.Duration // from the end of a fault until all had caught up, by kind
	changes map[string]int             // delivered, by way
	calls   calls                      // of all callbacks
	gones   int                        // times that a follower was told so
	overran int                        // how many of them because retention had passed its cursor
	deleted int                        // sets
	usage   []usage                    // at checkpoints
}

// usage is what the third hub uses, which is never ended.
type usage struct{ rss, heap, goroutines, files int }

func (u usage) String() string {
	return fmt.Sprintf("RSS %d MiB, live heap %d KiB, %d goroutines, %d files", u.rss>>20, u.heap>>10, u.goroutines, u.files)
}

// happened notes that faults happened at once, and when the slowest follower had
// caught up after the last end.
func (r *soakReport) happened(kinds []string, slowest time.Duration) {
	if r.faults == nil {
		r.faults, r.lags = map[string]int{}, map[string][]time.Duration{}
	}
	for _, k := range kinds {
		r.faults[k]++
		r.lags[k] = append(r.lags[k], slowest)
	}
}

func (r *soakReport) delivered(f *reader) {
	if r.changes == nil {
		r.changes = map[string]int{}
	}
	r.changes[f.Way] += f.total
	r.gones += f.gones
	r.overran += f.overran
}

func (r *soakReport) called(c *called) {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	r.calls.failed += c.counts.failed
	r.calls.stalled += c.counts.stalled
	r.calls.refused += c.counts.refused
	r.calls.ended += c.counts.ended
	r.calls.repeated += c.counts.repeated
	r.calls.gaps += c.counts.gaps
}

// sample notes what the third hub uses. Its memory and files are known on Linux
// only; elsewhere they are 0.
func (r *soakReport) sample(s *soak) {
	h := s.c.Hubs[2]
	var u usage
	a := hubtest.Must(s, 200, "GET", h.Ops+"/debug/pprof/heap?gc=1&debug=1", nil)
	_, rest, _ := strings.Cut(string(a.Body), "# HeapAlloc = ")
	_, err := fmt.Sscan(rest, &u.heap)
	a = hubtest.Must(s, 200, "GET", h.Ops+"/debug/pprof/goroutine?debug=1", nil)
	if _, gerr := fmt.Sscanf(string(a.Body), "goroutine profile: total %d", &u.goroutines); err != nil || gerr != nil {
		s.Errorf("the profiles of hub 2 do not say what it uses: %v, %v", err, gerr)
	}
	proc := fmt.Sprintf("/proc/%d/", h.Cmd.Process.Pid)
	if b, err := os.ReadFile(proc + "statm"); err == nil {
		var size int
		_, _ = fmt.Sscan(string(b), &size, &u.rss)
		u.rss *= os.Getpagesize()
	}
	if files, err := os.ReadDir(proc + "fd"); err == nil {
		u.files = len(files)
	}
	r.usage = append(r.usage, u)
}

// grew says when a hub used more of anything after the first third of the
// samples than ever in it, by more than chance explains: any number of the
// clients may be at this hub, and what sets keep in memory grows for a while.
func grew(all []usage, clients int) error {
	var most usage
	first := (len(all) + 2) / 3
	for _, u := range all[:first] {
		most = usage{max(most.rss, u.rss), max(most.heap, u.heap), max(most.goroutines, u.goroutines), max(most.files, u.files)}
	}
	most = usage{most.rss*3/2 + 64<<20, most.heap*3/2 + 8<<20, most.goroutines + 4*clients, most.files + 2*clients}
	for i, u := range all[first:] {
		if u.rss > most.rss || u.heap > most.heap || u.goroutines > most.goroutines || u.files > most.files {
			return fmt.Errorf("checkpoint %d: %v; after the first %d there should not be more than %v", first+i+1, u, first, most)
		}
	}
	return nil
}

// TestGrew has samples of a hub that grows, and of one that does not.
func TestGrew(t *testing.T) {
	calm := usage{100 << 20, 5 << 20, 40, 30}
	for name, more := range map[string]usage{
		"nothing": {}, "memory": {rss: 40 << 20}, "heap": {heap: 4 << 20}, "goroutines": {goroutines: 50}, "files": {files: 20},
	} {
		var all []usage
		for i := range 12 {
			all = append(all, usage{calm.rss + i*more.rss, calm.heap + i*more.heap, calm.goroutines + i*more.goroutines, calm.files + i*more.files})
		}
		if err := grew(all, 40); (err != nil) != (name != "nothing") {
			t.Errorf("%s grows: %v", name, err)
		}
	}
}

func (r *soakReport) print(s *soak) {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, "\n  "+format, args...) }
	line("%-32s %v, seed %d", "soak of", time.Since(s.begun).Round(time.Second), s.seed)
	line("%-32s %d, in %d checkpoints", "sets deleted", r.deleted, len(r.usage))
	line("%-32s %d; %d tries more, %d answers 503 (%d of them unknown), %d without answer, %d replayed", "changes acknowledged",
		r.acknowledged.Load(), r.retried.Load(), r.unavailable.Load(), r.unknown.Load(), r.unanswered.Load(), r.replayed.Load())
	for _, way := range slices.Sorted(maps.Keys(r.changes)) {
		line("%-32s %d", "delivered by "+way, r.changes[way])
	}
	line("%-32s %v", "deliveries to callbacks", r.calls)
	line("%-32s %d times, %d of them because retention had passed its cursor", "a follower was told gone", r.gones, r.overran)
	for _, kind := range slices.Sorted(maps.Keys(r.lags)) {
		d := r.lags[kind]
		slices.Sort(d)
		line("%-32s %d times; all had caught up after %v (median), %v (most)", kind, len(d),
			d[len(d)/2].Round(time.Millisecond), d[len(d)-1].Round(time.Millisecond))
	}
	if n := len(r.usage); n > 0 {
		line("%-32s %v", "hub 2 at the first checkpoint", r.usage[0])
		line("%-32s %v", "a third later", r.usage[(n-1)/3])
		line("%-32s %v", "hub 2 at the last checkpoint", r.usage[n-1])
	}
	if s.Failed() {
		line("FAIL: see above; data and logs are kept in %s", s.dir)
	}
	s.Log(b.String())
}
