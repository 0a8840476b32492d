package callback

import (
	"container/heap"
	"context"
	"time"
)

// A schedule holds the tasks that are due at some time, in one heap: there is no
// timer per subscription. Engine.mu guards all of it, also what its methods change
// in the tasks.
type schedule []*task

// set says when a task is due, and replaces the time that was set before.
func (s *schedule) set(t *task, at time.Time) {
	t.due = at
	if t.index < 0 {
		heap.Push(s, t)
	} else {
		heap.Fix(s, t.index)
	}
}

// remove takes a task out, if it is there.
func (s *schedule) remove(t *task) {
	if t.index >= 0 {
		heap.Remove(s, t.index)
	}
}

// next returns when the first task is due.
func (s schedule) next() (at time.Time, ok bool) {
	if len(s) == 0 {
		return at, false
	}
	return s[0].due, true
}

// take removes one task that is due by now, and returns it. It returns nil when no
// task is due.
func (s *schedule) take(now time.Time) *task {
	if len(*s) == 0 || (*s)[0].due.After(now) {
		return nil
	}
	return heap.Pop(s).(*task)
}

// remindLocked lets a task be rung at a time.
func (e *Engine) remindLocked(t *task, at time.Time) {
	if t.index >= 0 && t.due.Equal(at) {
		return
	}
	e.schedule.set(t, at)
	if t.index == 0 {
		e.ringer.want()
	}
}

// ringLoop rings the tasks that are due, until ctx is done.
func (e *Engine) ringLoop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		e.mu.Lock()
		now := time.Now()
		for t := e.schedule.take(now); t != nil; t = e.schedule.take(now) {
			t.work.ringLocked()
		}
		e.fillLocked()
		at, some := e.schedule.next()
		e.mu.Unlock()
		if some {
			timer.Reset(time.Until(at))
		} else {
			timer.Stop()
		}
		select {
		case <-timer.C:
		case <-e.ringer:
		case <-ctx.Done():
			return
		}
	}
}

// The methods that package heap needs.

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(i, j int) bool { return s[i].due.Before(s[j].due) }
func (s schedule) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = i, j
}

func (s *schedule) Push(x any) {
	t := x.(*task)
	t.index = len(*s)
	*s = append(*s, t)
}

func (s *schedule) Pop() any {
	old := *s
	n := len(old) - 1
	t := old[n]
	old[n], *s = nil, old[:n]
	t.index = -1
	return t
}
