package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// slow is how many seconds a package may take in the gate. It is said, and not red: time depends
// on what else the machine does.
const slow = 20

// A reading is what the events of go test say.
type reading struct {
	tests  int            // that ran, each once, without subtests
	flaky  []string       // tests that failed, and passed when they were run once more
	failed []string       // tests that failed, and did not pass later
	hard   []string       // why no second run makes up for the first
	slow   []string       // packages that took long
	state  map[string]int // for each test how it ended last
}

const (
	passed = iota
	failed
	passedLater
)

// An event is a line of go test -json.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

// readEvents reads what go test -json printed, of the first run and of those that followed.
func readEvents(r io.Reader) (*reading, error) {
	read := &reading{state: map[string]int{}}
	named := map[string]bool{} // packages of which a test has failed since they ended last
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("an event: %w", err)
		}
		read.take(e, named)
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	for name, state := range read.state {
		read.tests++
		switch state {
		case failed:
			read.failed = append(read.failed, name)
		case passedLater:
			read.flaky = append(read.flaky, name)
		}
	}
	slices.Sort(read.hard)
	slices.Sort(read.failed)
	slices.Sort(read.flaky)
	return read, nil
}

func (r *reading) take(e event, named map[string]bool) {
	pkg := strings.TrimPrefix(strings.TrimPrefix(e.Package, module), "/")
	switch name := pkg + "." + e.Test; {
	case e.Action == "output":
		for _, sign := range []string{"WARNING: DATA RACE", "panic: ", "fatal error: "} {
			if strings.HasPrefix(e.Output, sign) {
				r.hard = append(r.hard, pkg+": "+strings.TrimSpace(e.Output))
			}
		}
	case e.Test == "" && e.Action == "fail":
		if !named[pkg] {
			r.hard = append(r.hard, pkg+": failed, and names no test")
		}
		delete(named, pkg)
	case e.Test == "" && e.Action == "pass":
		if named[pkg] { // such as a test whose process ended early with status 0
			r.hard = append(r.hard, pkg+": a test failed, and the package passed")
		}
		delete(named, pkg)
		if e.Elapsed > slow {
			r.slow = append(r.slow, fmt.Sprintf("%s %.0f s", pkg, e.Elapsed))
		}
	case e.Action == "fail":
		named[pkg] = true
		if !strings.Contains(e.Test, "/") {
			r.state[name] = failed
		}
	case e.Action == "pass" && !strings.Contains(e.Test, "/"):
		if r.state[name] == failed {
			r.state[name] = passedLater
		} else {
			r.state[name] = passed
		}
	}
}

// verdict is an error if something failed for which no second run makes up.
func (r *reading) verdict() error {
	switch {
	case len(r.hard) > 0:
		return fmt.Errorf("no second run makes up for this: %s", strings.Join(slices.Compact(r.hard), "; "))
	case len(r.failed) > 0:
		return fmt.Errorf("failed: %s", strings.Join(r.failed, ", "))
	case r.tests == 0:
		return fmt.Errorf("no test ran")
	}
	return nil
}
