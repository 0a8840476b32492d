package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/rshub/rshub/internal/mirror"
	"github.com/rshub/rshub/internal/progress"
)

// A report prints the progress of a mirror. It is safe for concurrent use.
type report struct {
	progress.Line
	started time.Time

	mu       sync.Mutex
	expected int // number of all resources; zero if unknown
	actions  actionCounts
}

// actionCounts has the numbers of resources that were fetched, kept, failed or removed in a run.
type actionCounts struct {
	fetched, kept, failed, removed int
	bytes                          int64
}

func (d actionCounts) total() int { return d.fetched + d.kept + d.failed }

func (r *report) start() {
	r.started = r.Now()
	r.Start()
}

// setExpected sets the number of all resources.
func (r *report) setExpected(n uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expected = int(n)
}

// record counts an action on a resource, and prints it if it failed.
func (r *report) record(d mirror.Action) {
	r.mu.Lock()
	switch d.Kind {
	case mirror.Fetched:
		r.actions.fetched++
		r.actions.bytes += d.Bytes
	case mirror.Unchanged:
		r.actions.kept++
	case mirror.Failed:
		r.actions.failed++
	case mirror.Removed:
		r.actions.removed++
	}
	r.mu.Unlock()
	if d.Kind == mirror.Failed {
		r.Note("rsmirror: %s: %v; will retry later", d.Loc, d.Err)
	}
	r.Update(r.bar, r.text)
}

func (r *report) counts() actionCounts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.actions
}

// bar returns the line for a terminal.
func (r *report) bar(now time.Time) string {
	r.mu.Lock()
	total := r.expected
	r.mu.Unlock()
	line := r.text(now)
	if done := r.counts().total(); total > 0 && done <= total {
		line = fmt.Sprintf("%s%d%%  %s", progress.Bar(done, total), 100*done/total, line)
	}
	return line
}

// text returns the counts, such as "12,000 fetched  340 MB  3 failed  900/s".
func (r *report) text(now time.Time) string {
	d := r.counts()
	s := progress.Group(d.fetched) + " fetched  " + formatBytes(d.bytes)
	for _, n := range []struct {
		n     int
		label string
	}{{d.kept, "kept"}, {d.removed, "removed"}, {d.failed, "failed"}} {
		if n.n > 0 {
			s += fmt.Sprintf("  %s %s", progress.Group(n.n), n.label)
		}
	}
	if elapsed := now.Sub(r.started); elapsed > time.Second {
		s += fmt.Sprintf("  %s/s", progress.Group(int(float64(d.total())/elapsed.Seconds())))
	}
	return s
}

// formatBytes formats a number of bytes with a decimal unit.
func formatBytes(n int64) string {
	units := []string{"B", "kB", "MB", "GB", "TB"}
	f := float64(n)
	for f >= 1000 && len(units) > 1 {
		f, units = f/1000, units[1:]
	}
	if f < 10 && units[0] != "B" {
		return fmt.Sprintf("%.1f %s", f, units[0])
	}
	return fmt.Sprintf("%.0f %s", f, units[0])
}
