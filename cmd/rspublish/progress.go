package main

import (
	"fmt"
	"time"

	"github.com/rshub/rshub/internal/progress"
)

// A report shows the progress of the publishing to a person.
type report struct {
	progress.Line

	name     string
	checking bool // the input is being checked, not published
	total    int  // -1 while unknown
	done     int
	started  time.Time
}

func (p *report) start(name string, checking bool, total int) {
	p.name, p.checking, p.done, p.total = name, checking, 0, total
	p.started = p.Now()
	p.Begin()
	p.update(0)
}

// update notes that done changes of the input are done, and reports that if it is time.
func (p *report) update(done int) {
	p.done = done
	p.Update(p.bar, func(now time.Time) string { return p.name + ": " + p.figures(now) })
}

// finish reports in one line that the input is published.
func (p *report) finish() {
	p.update(p.done)
	elapsed := p.Now().Sub(p.started)
	p.Note("%s: %s published in %s%s", p.name, formatChanges(p.done), elapsed.Round(time.Millisecond), p.rate(elapsed, " (", "/s)"))
}

func (p *report) bar(now time.Time) string {
	figures := p.figures(now)
	if p.total > 0 {
		figures = progress.Bar(p.done, p.total) + figures
	}
	return progress.Fit(p.name, figures)
}

// figures are "12,000/20,681  58%  8,400/s  1s left", as far as they are known.
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

// rate returns the changes per second, between the texts before and after. It is empty
// while nothing is done yet.
func (p *report) rate(elapsed time.Duration, before, after string) string {
	if elapsed <= 0 || p.done == 0 {
		return ""
	}
	return before + progress.Group(int(float64(p.done)/elapsed.Seconds())) + after
}

func formatChanges(n int) string {
	if n == 1 {
		return "1 change"
	}
	return progress.Group(n) + " changes"
}
