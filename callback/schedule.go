package callback

import (
	"container/heap"
	"time"
)

// A schedule holds what is due at some time, in one heap: there is no timer per
// subscription.
type schedule []*task

// set says when a task is due, in place of what was said before.
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

// take removes a task that is due at a time, and returns it, or nil.
func (s *schedule) take(now time.Time) *task {
	if len(*s) == 0 || (*s)[0].due.After(now) {
		return nil
	}
	return heap.Pop(s).(*task)
}

// What heap needs.

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
