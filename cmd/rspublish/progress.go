package main

import (
	"fmt"
	"time"

	"github.com/rshub/rshub/internal/progress"
)

// A report prints the progress of one input at a time.
type report struct {
	progress.Line

	name     string
	checking bool // the input is being validated, not published
	total    int  // number of changes; -1 if unknown
	done     int
	started  time.Time
}

// start starts the report of an input with total changes, -1 if unknown.
func (p *report) start(name string, checking bool, total int) {
	p.name, p.checking, p.done, p.total = name, checking, 0, total
	p.started = p.Now()
	p.Start()
	p.update(0)
}

// update sets the number of processed changes, and prints the progress if it is due.
func (p *report) update(done int) {
	p.done = done
	p.Update(p.bar, func(now time.Time) string { return p.name + ": " + p.figures(now) })
}

// finish prints that the input is published.
func (p *report) finish() {
	p.update(p.done)
	elapsed := p.Now().Sub(p.started)
	p.Note("%s: %s published in %s%s", p.name, formatChanges(p.done), elapsed.Round(time.Millisecond), p.rate(elapsed, " (", "/s)"))
}

// bar returns the line for a terminal.
func (p *report) bar(now time.Time) string {
	figures := p.figures(now)
	if p.total > 0 {
		figures = progress.Bar(p.done, p.total) + figures
	}
	return progress.Fit(p.name, figures)
}

// figures returns the known parts of "12,000/20,681  58%  8,400/s  1s left".
func (p *report) figures(now time.Time) string {
	elapsed := now.Sub(p.started)
	switch {
	case p.checking:
		return "checking, " + formatChanges(p.done)
	case p.total < 0:
		return formatChanges(p.done) + p.rate(elapsed, "  ", "/s")
	case p.total == 0:
		return formatChanges(0)
	}
	s := fmt.Sprintf("%s/%s  %d%%%s", progress.Group(p.done), progress.Group(p.total), 100*p.done/p.total, p.rate(elapsed, "  ", "/s"))
	if p.done > 0 && p.done < p.total {
		remaining := time.Duration(float64(elapsed) / float64(p.done) * float64(p.total-p.done))
		s += "  " + remaining.Round(time.Second).String() + " left"
	}
	return s
}

// rate returns the changes per second, between the texts before and after. It returns "" if no
// change is processed yet.
func (p *report) rate(elapsed time.Duration, before, after string) string {
	if elapsed <= 0 || p.done == 0 {
		return ""
	}
	return before + progress.Group(int(float64(p.done)/elapsed.Seconds())) + after
}

// formatChanges returns "1 change" or "12,000 changes".
func formatChanges(n int) string {
	if n == 1 {
		return "1 change"
	}
	return progress.Group(n) + " changes"
}
