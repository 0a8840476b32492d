package e2e

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// A report is what a soak tells at its end, also when it fails.
type report struct {
	acknowledged, retried, unavailable, unknown, unanswered atomic.Int64

	faults  map[string]int             // by kind
	lags    map[string][]time.Duration // until a follower had caught up, by faults
	changes map[string]int             // delivered, by way
	gones   int                        // times that a follower was told so
	deleted int                        // sets
	usage   []usage
}

// usage is what the third hub uses, which is never ended.
type usage struct{ rss, heap, goroutines, files int }

func (u usage) String() string {
	return fmt.Sprintf("RSS %d MiB, live heap %d KiB, %d goroutines, %d files", u.rss>>20, u.heap>>10, u.goroutines, u.files)
}

func (r *report) happened(_ string, kinds []string) {
	if r.faults == nil {
		r.faults = map[string]int{}
	}
	for _, k := range kinds {
		r.faults[k]++
	}
}

func (r *report) caughtUp(kind string, d time.Duration) {
	if r.lags == nil {
		r.lags = map[string][]time.Duration{}
	}
	r.lags[kind] = append(r.lags[kind], d)
}

func (r *report) delivered(f *reader) {
	if r.changes == nil {
		r.changes = map[string]int{}
	}
	r.changes[f.way] += f.total
	r.gones += f.gones
}

// sample notes what the third hub uses. Where it cannot be known it is 0.
func (r *report) sample(s *soak) {
	h := s.c.hubs[2]
	var u usage
	a, err := request("GET", h.ops+"/debug/pprof/heap?gc=1&debug=1", nil)
	if err == nil {
		if _, rest, ok := strings.Cut(string(a.body), "# HeapAlloc = "); ok {
			_, _ = fmt.Sscan(rest, &u.heap)
		}
	}
	if a, err = request("GET", h.ops+"/debug/pprof/goroutine?debug=1", nil); err == nil {
		_, _ = fmt.Sscanf(string(a.body), "goroutine profile: total %d", &u.goroutines)
	}
	proc := fmt.Sprintf("/proc/%d/", h.cmd.Process.Pid)
	if b, err := os.ReadFile(proc + "statm"); err == nil {
		var size int
		_, _ = fmt.Sscan(string(b), &size, &u.rss)
		u.rss *= os.Getpagesize()
	}
	if files, err := os.ReadDir(proc + "fd"); err == nil {
		u.files = len(files)
	}
	r.usage = append(r.usage, u)
	// All followers may be at this hub, and each needs some of these.
	if most := 100 + 10*len(s.readers); u.goroutines > most || u.files > most {
		s.Errorf("FAIL: hub 2 has %v, and %d followers and %d publishers are all there is", u, len(s.readers), len(s.sources))
	}
}

func (r *report) print(s *soak) {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, "\n  "+format, args...) }
	line("%-32s %v, seed %d", "soak of", time.Since(s.begun).Round(time.Second), s.seed)
	for _, kind := range slices.Sorted(maps.Keys(r.faults)) {
		line("%-32s %d", kind, r.faults[kind])
	}
	line("%-32s %d, in %d checkpoints", "sets deleted", r.deleted, len(r.usage))
	line("%-32s %d; %d tries more, %d answers 503 (%d of them unknown), %d without answer", "changes acknowledged",
		r.acknowledged.Load(), r.retried.Load(), r.unavailable.Load(), r.unknown.Load(), r.unanswered.Load())
	for _, way := range slices.Sorted(maps.Keys(r.changes)) {
		line("%-32s %d", "delivered by "+way, r.changes[way])
	}
	line("%-32s %d times", "a follower was told gone", r.gones)
	for _, kind := range slices.Sorted(maps.Keys(r.lags)) {
		d := r.lags[kind]
		slices.Sort(d)
		at := func(part int) time.Duration { return d[(len(d)-1)*part/100].Round(time.Millisecond) }
		line("caught up after %-40s p50 %v, p95 %v, max %v", kind, at(50), at(95), at(100))
	}
	if n := len(r.usage); n > 0 {
		line("%-32s %v", "hub 2 at the first checkpoint", r.usage[0])
		line("%-32s %v", "hub 2 at the last checkpoint", r.usage[n-1])
	}
	if s.Failed() {
		line("FAIL: see above")
	}
	s.Log(b.String())
}
