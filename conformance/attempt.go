package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/rshub/rshub/conformance/trial"
)

// How a check comes out.
const (
	passed  = "pass"
	failed  = "fail"
	skipped = "skip"
)

// A result is how a check came out, and why.
type result struct {
	check
	outcome string
	why     []string // it failed, or was skipped
	arrived string   // at the callbacks, when it failed
	took    time.Duration
}

// try runs a check of a hub to its end.
func try(h *trial.Hub, c check) result {
	begun := time.Now()
	a := &attempt{}
	r := result{check: c, outcome: passed}
	done := make(chan struct{})
	go func() { // who gives up ends this goroutine
		defer close(done)
		t := trial.New(a, h)
		defer func() {
			if p := recover(); p != nil { // the hub said what the check did not think of
				a.Errorf("the check itself failed: %v", p)
			}
			if a.Failed() {
				r.arrived = t.Describe()
			}
		}()
		c.run(t)
	}()
	<-done
	a.end()
	r.took = time.Since(begun)
	switch {
	case a.Failed():
		r.outcome, r.why = failed, a.failures
	case a.skipped != "":
		r.outcome, r.why = skipped, []string{a.skipped}
	}
	return r
}

// tryAll runs checks, so many at a time, and tells how each came out as soon as
// it has. When ctx ends it begins no more.
func tryAll(ctx context.Context, h *trial.Hub, checks []check, parallel int, tell func(result)) {
	var wg sync.WaitGroup
	defer wg.Wait()
	room := make(chan struct{}, parallel)
	for _, c := range checks {
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return
		}
		wg.Go(func() {
			defer func() { <-room }()
			tell(try(h, c))
		})
	}
}

// An attempt notes what a trial tells.
type attempt struct {
	mu       sync.Mutex
	failures []string
	skipped  string
	ends     []func()
}

// end ends what the trial started, the last first.
func (a *attempt) end() {
	for i := len(a.ends) - 1; i >= 0; i-- {
		a.ends[i]()
	}
}

func (a *attempt) note(text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failures = append(a.failures, text)
}

func (a *attempt) Cleanup(end func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ends = append(a.ends, end)
}

func (a *attempt) Failed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.failures) > 0
}

func (a *attempt) Helper()                           {}
func (a *attempt) Error(args ...any)                 { a.note(fmt.Sprint(args...)) }
func (a *attempt) Errorf(format string, args ...any) { a.note(fmt.Sprintf(format, args...)) }
func (a *attempt) Fatal(args ...any)                 { a.Error(args...); runtime.Goexit() }
func (a *attempt) Fatalf(format string, args ...any) { a.Errorf(format, args...); runtime.Goexit() }
func (a *attempt) Skip(args ...any)                  { a.skipped = fmt.Sprint(args...); runtime.Goexit() }
