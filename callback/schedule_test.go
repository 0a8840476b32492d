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
	begin := time.Now()
	timers := make([]*timer, 1000)
	for i := range timers {
		timers[i] = &timer{}
		s.set(timers[i], begin.Add(time.Duration(random.IntN(1000))))
	}
	for _, x := range timers[:500] {
		s.set(x, begin.Add(time.Duration(random.IntN(1000))))
	}
	for _, x := range timers[900:] {
		s.stop(x)
		s.stop(x)
	}
	if s.take(begin.Add(-1)) != nil {
		t.Error("something is due before its time")
	}
	var got []time.Time
	for len(s) > 0 {
		first := s[0]
		x := s.take(begin.Add(2000))
		if x != first || x.at != 0 {
			t.Fatalf("took %+v, the first was %+v", x, first)
		}
		got = append(got, x.due)
	}
	if len(got) != 900 || !slices.IsSortedFunc(got, time.Time.Compare) {
		t.Errorf("%d were due, in order: %v", len(got), slices.IsSortedFunc(got, time.Time.Compare))
	}
}
