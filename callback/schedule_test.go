package callback

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestSchedule(t *testing.T) {
	var s schedule
	random := rand.New(rand.NewPCG(1, 2))
	start := time.Now()
	subs := make([]*sub, 1000)
	for i := range subs {
		subs[i] = &sub{}
		s.set(subs[i], start.Add(time.Duration(random.IntN(1000))))
	}
	for _, x := range subs[:500] {
		s.set(x, start.Add(time.Duration(random.IntN(1000))))
	}
	for _, x := range subs[900:] {
		s.remove(x)
		s.remove(x)
	}
	if got := s.popDue(start.Add(-1)); got != nil {
		t.Errorf("popDue() before the first is due = %v, want nil", got)
	}
	var due []time.Time
	for len(s) > 0 {
		first := s[0]
		if got := s.popDue(start.Add(2000)); got != first || got.scheduled != 0 {
			t.Fatalf("popDue() = %+v, want %+v", got, first)
		}
		due = append(due, first.due)
	}
	if len(due) != 900 || !slices.IsSortedFunc(due, time.Time.Compare) {
		t.Errorf("got %d subs, sorted: %t; want 900 in order", len(due), slices.IsSortedFunc(due, time.Time.Compare))
	}
}
