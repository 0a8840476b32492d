package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
)

// A printer writes how checks came out, in plain text or in lines of JSON.
type printer struct {
	w       io.Writer
	json    bool
	verbose bool

	mu     sync.Mutex
	counts map[string]map[string]int // by level and outcome
}

// A line is a check in JSON.
type line struct {
	Name     string   `json:"name"`
	Standard string   `json:"standard"`
	Section  string   `json:"section,omitempty"`
	Level    string   `json:"level"`
	Outcome  string   `json:"outcome,omitempty"`
	Why      []string `json:"why,omitempty"`
	Seconds  float64  `json:"seconds,omitempty"`
	Arrived  string   `json:"arrived,omitempty"` // at the callbacks, with -v
}

// listed writes a check that is not run.
func (p *printer) listed(c check) {
	standard, section, text := c.source()
	if p.json {
		p.encode(line{Name: c.name, Standard: standard, Section: section, Level: c.level})
		return
	}
	fmt.Fprintf(p.w, "%-7s %-6s  %s\n", short(standard, section), c.level, text)
}

// tried writes how a check came out.
func (p *printer) tried(r result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.counts == nil {
		p.counts = map[string]map[string]int{}
	}
	if p.counts[r.level] == nil {
		p.counts[r.level] = map[string]int{}
	}
	p.counts[r.level][r.outcome]++
	standard, section, text := r.source()
	if p.json {
		l := line{Name: r.name, Standard: standard, Section: section, Level: r.level, Outcome: r.outcome, Why: r.why, Seconds: r.took.Seconds()}
		if p.verbose {
			l.Arrived = r.arrived
		}
		p.encode(l)
		return
	}
	fmt.Fprintf(p.w, "%s  %-7s %-6s  %s\n", strings.ToUpper(r.outcome), short(standard, section), r.level, text)
	for _, why := range r.why {
		fmt.Fprintf(p.w, "      %s\n", strings.ReplaceAll(strings.TrimSpace(why), "\n", "\n      "))
	}
	if p.verbose && r.arrived != "" {
		fmt.Fprintf(p.w, "      %s\n", strings.ReplaceAll(strings.TrimSpace(r.arrived), "\n", "\n      "))
	}
}

// summary writes the last line.
func (p *printer) summary() {
	if p.json {
		p.encode(struct {
			Summary  map[string]map[string]int `json:"summary"`
			Conforms bool                      `json:"conforms"`
		}{p.counts, p.conforms()})
		return
	}
	var parts []string
	for _, level := range []string{mustLevel, shouldLevel, extraLevel} {
		if n := p.counts[level]; n != nil {
			parts = append(parts, fmt.Sprintf("%s: %d passed, %d failed, %d skipped", level, n[passed], n[failed], n[skipped]))
		}
	}
	verdict := "The hub conforms."
	if !p.conforms() {
		verdict = "The hub does not conform."
	}
	fmt.Fprintf(p.w, "\n%s\n%s\n", strings.Join(parts, "; "), verdict)
}

// conforms says whether nothing failed but what a hub only should do.
func (p *printer) conforms() bool {
	return p.counts[mustLevel][failed]+p.counts[extraLevel][failed] == 0
}

func (p *printer) encode(v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // it holds nothing that JSON cannot say
	}
	fmt.Fprintf(p.w, "%s\n", b)
}

// short is a standard and its section in a few letters.
func short(standard, section string) string {
	switch standard {
	case changeNotification:
		return "CN " + section
	case rshub:
		return "rshub"
	}
	return "WS " + section
}
