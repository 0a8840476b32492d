package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/rshub/rshub/internal/mirror"
	"github.com/rshub/rshub/internal/progress"
)

// A report shows the progress of the mirroring to a person.
type report struct {
	progress.Line
	began time.Time

	mu       sync.Mutex
	expected int // number of all resources; 0: unknown
	done     deeds
}

// deeds count what was done in this run.
type deeds struct {
	fetched, kept, failed, removed int
	bytes                          int64
}

func (d deeds) total() int { return d.fetched + d.kept + d.failed }

func (r *report) start() {
	r.began = r.Now()
	r.Begin()
}

// expect notes how many resources there are.
func (r *report) expect(n uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expected = int(n)
}

// did counts what was done for a resource.
func (r *report) did(d mirror.Deed) {
	r.mu.Lock()
	switch d.Kind {
	case mirror.Fetched:
		r.done.fetched++
		r.done.bytes += d.Bytes
	case mirror.Kept:
		r.done.kept++
	case mirror.Failed:
		r.done.failed++
	case mirror.Removed:
		r.done.removed++
	}
	r.mu.Unlock()
	if d.Kind == mirror.Failed {
		r.Note("rsmirror: %s: %v; trying again later", d.Loc, d.Err)
	}
	r.Update(r.bar, r.text)
}

func (r *report) deeds() deeds {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.done
}

// bar returns the line for a terminal.
func (r *report) bar(now time.Time) string {
	r.mu.Lock()
	total := r.expected
	r.mu.Unlock()
	figures := r.text(now)
	if done := r.deeds().total(); total > 0 && done <= total {
		figures = fmt.Sprintf("%s%d%%  %s", progress.Bar(done, total), 100*done/total, figures)
	}
	return figures
}

// text returns the figures: "12,000 fetched  340 MB  3 failed  900/s".
func (r *report) text(now time.Time) string {
	d := r.deeds()
	s := progress.Group(d.fetched) + " fetched  " + size(d.bytes)
	for _, n := range []struct {
		n    int
		what string
	}{{d.kept, "kept"}, {d.removed, "removed"}, {d.failed, "failed"}} {
		if n.n > 0 {
			s += fmt.Sprintf("  %s %s", progress.Group(n.n), n.what)
		}
	}
	if took := now.Sub(r.began); took > time.Second {
		s += fmt.Sprintf("  %s/s", progress.Group(int(float64(d.total())/took.Seconds())))
	}
	return s
}

// size returns a number of bytes for people.
func size(n int64) string {
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
