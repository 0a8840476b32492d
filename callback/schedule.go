package callback

import (
	"container/heap"
	"time"
)

// A schedule is a heap of the subs that wait for a time, the earliest first. It implements
// heap.Interface.
type schedule []*sub

// set makes a sub due at a time, which replaces the time that was set before.
func (s *schedule) set(x *sub, due time.Time) {
	x.due = due
	if x.scheduled == 0 {
		heap.Push(s, x)
	} else {
		heap.Fix(s, x.scheduled-1)
	}
}

// remove removes a sub, if it is in the schedule.
func (s *schedule) remove(x *sub) {
	if x.scheduled > 0 {
		heap.Remove(s, x.scheduled-1)
	}
}

// popDue removes a sub that is due and returns it, or nil if there is none.
func (s *schedule) popDue(now time.Time) *sub {
	if len(*s) == 0 || (*s)[0].due.After(now) {
		return nil
	}
	return heap.Pop(s).(*sub)
}

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(i, j int) bool { return s[i].due.Before(s[j].due) }
func (s schedule) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].scheduled, s[j].scheduled = i+1, j+1
}

func (s *schedule) Push(x any) {
	*s = append(*s, x.(*sub))
	x.(*sub).scheduled = len(*s)
}

func (s *schedule) Pop() any {
	n := len(*s) - 1
	x := (*s)[n]
	(*s)[n], *s = nil, (*s)[:n]
	x.scheduled = 0
	return x
}
