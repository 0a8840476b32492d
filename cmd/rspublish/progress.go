package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	redraw   = 100 * time.Millisecond // least time between two reports on a terminal
	report   = 10 * time.Second       // least time between two reports elsewhere
	columns  = 79                     // of a terminal
	barWidth = 20
)

// progress tells a person how far the publishing is: on a terminal in one line that is
// overwritten, elsewhere in a new line every 10 seconds.
type progress struct {
	w        io.Writer
	terminal bool
	quiet    bool
	now      func() time.Time

	name    string
	checked bool // the input is being checked, not published
	total   int  // -1 while unknown
	from    int  // how many changes were done before this run
	done    int
	began   time.Time
	told    time.Time // when it last reported
	drawn   bool      // a bar is on the terminal
}

// start begins the reports about an input.
func (p *progress) start(name string, checked bool, from, total int) {
	p.name, p.checked, p.from, p.done, p.total = name, checked, from, from, total
	p.began = p.now()
	p.told = p.began
	if p.terminal {
		p.told = time.Time{}
	}
	p.update(from)
}

// update notes that done changes of the input are done, and reports it if it is time to.
func (p *progress) update(done int) {
	p.done = done
	if p.quiet {
		return
	}
	now := p.now()
	switch since := now.Sub(p.told); {
	case p.terminal && since >= redraw:
		p.told, p.drawn = now, true
		fmt.Fprintf(p.w, "\r\x1b[K%s", p.bar(now))
	case !p.terminal && since >= report:
		p.told = now
		fmt.Fprintf(p.w, "%s: %s\n", p.name, p.figures(now))
	}
}

// finish reports in one line that the input is published.
func (p *progress) finish() {
	p.update(p.done)
	took := p.now().Sub(p.began)
	p.note("%s: %s published in %s%s", p.name, changes(p.done-p.from), took.Round(time.Millisecond), p.rate(took, " (", "/s)"))
}

// note prints a line, and removes the bar before it.
func (p *progress) note(format string, args ...any) {
	if p.quiet {
		return
	}
	p.clear()
	fmt.Fprintf(p.w, format+"\n", args...)
}

// clear removes the bar from the terminal.
func (p *progress) clear() {
	if p.drawn {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.drawn = false
		p.told = time.Time{}
	}
}

func (p *progress) bar(now time.Time) string {
	figures := p.figures(now)
	if p.total > 0 {
		full := barWidth * p.done / p.total
		figures = "[" + strings.Repeat("#", full) + strings.Repeat("-", barWidth-full) + "] " + figures
	}
	name := []rune(p.name)
	if room := columns - utf8.RuneCountInString(figures) - 2; len(name) > room {
		name = append([]rune{'…'}, name[len(name)-max(room-1, 0):]...)
	}
	return string(name) + "  " + figures
}

// figures are "12,000/20,681  58%  8,400/s  1s left", as far as they are known.
func (p *progress) figures(now time.Time) string {
	took := now.Sub(p.began)
	switch {
	case p.checked:
		return "checking, " + changes(p.done)
	case p.total < 0:
		return changes(p.done) + p.rate(took, "  ", "/s")
	case p.total == 0:
		return changes(0)
	}
	s := fmt.Sprintf("%s/%s  %d%%%s", group(p.done), group(p.total), 100*p.done/p.total, p.rate(took, "  ", "/s"))
	if done := p.done - p.from; done > 0 && p.done < p.total {
		left := time.Duration(float64(took) / float64(done) * float64(p.total-p.done))
		s += "  " + left.Round(time.Second).String() + " left"
	}
	return s
}

// rate returns the changes per second, between the texts before and after. It is empty
// while nothing is done yet.
func (p *progress) rate(took time.Duration, before, after string) string {
	if took <= 0 || p.done == p.from {
		return ""
	}
	return before + group(int(float64(p.done-p.from)/took.Seconds())) + after
}

func changes(n int) string {
	if n == 1 {
		return "1 change"
	}
	return group(n) + " changes"
}

// group writes n with commas between its thousands.
func group(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
