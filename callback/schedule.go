package callback

import (
	"container/heap"
	"context"
	"time"
)

// A timer wakes what it is of at a time, once.
type timer struct {
	of  sleeper // set when the timer is made, never changed
	due time.Time
	at  int // where the timer is in the schedule, counted from 1; 0: it is not set
}

// A sleeper is what waits for a time: a sub, a queue of requests, a shard, or a
// subscription that has ended.
type sleeper interface{ wake(st *state) }

// A schedule holds the timers that are set, in one heap: a subscription needs no timer of
// Go's.
type schedule []*timer

// set says when a timer is due, and replaces the time that was set before.
func (s *schedule) set(t *timer, due time.Time) {
	t.due = due
	if t.at == 0 {
		heap.Push(s, t)
	} else {
		heap.Fix(s, t.at-1)
	}
}

// stop takes a timer out, if it is set.
func (s *schedule) stop(t *timer) {
	if t.at > 0 {
		heap.Remove(s, t.at-1)
	}
}

// take takes out one timer that is due by now, and returns it. It returns nil when none
// is due.
func (s *schedule) take(now time.Time) *timer {
	if len(*s) == 0 || (*s)[0].due.After(now) {
		return nil
	}
	return heap.Pop(s).(*timer)
}

// The methods that package heap needs.

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(i, j int) bool { return s[i].due.Before(s[j].due) }
func (s schedule) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].at, s[j].at = i+1, j+1
}

func (s *schedule) Push(x any) {
	t := x.(*timer)
	*s = append(*s, t)
	t.at = len(*s)
}

func (s *schedule) Pop() any {
	old := *s
	n := len(old) - 1
	t := old[n]
	old[n], *s = nil, old[:n]
	t.at = 0
	return t
}

// wakeAt sets a timer.
func (st *state) wakeAt(t *timer, due time.Time) {
	if t.at > 0 && t.due.Equal(due) {
		return
	}
	st.schedule.set(t, due)
	if t.at == 1 {
		st.engine.timers.Wake()
	}
}

// runTimers wakes what waits for a time, until ctx is done.
func (e *Engine) runTimers(ctx context.Context) {
	clock := time.NewTimer(0)
	defer clock.Stop()
	for {
		st := e.lock()
		now := time.Now()
		for t := st.schedule.take(now); t != nil; t = st.schedule.take(now) {
			t.of.wake(st)
		}
		st.fill()
		clock.Stop()
		if len(st.schedule) > 0 {
			clock.Reset(time.Until(st.schedule[0].due))
		}
		st.unlock()
		select {
		case <-clock.C:
		case <-e.timers:
		case <-ctx.Done():
			return
		}
	}
}
