package callback

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A worker may get a sub from the ready queue just after its shard came to rest to be handed over. It starts
// nothing, and does not wake the goroutine that hands the shard over again.
func TestWorkOnRestedShard(t *testing.T) {
	e := New(nil, nil, nil, nil, nil, Options{})
	sh := &shard{engine: e, ctx: context.Background(), leaving: true, rested: make(chan struct{})}
	close(sh.rested)
	s := &sub{shard: sh, stage: queued, commands: commandList{{}}}
	s.work()
	if s.stage != idle || sh.owned != 0 || len(s.commands) != 1 {
		t.Errorf("after work: stage %d, %d owned, %d commands; want an idle sub that has its command", s.stage, sh.owned, len(s.commands))
	}
}

func TestBatchSize(t *testing.T) {
	const most = 1000
	var b batchSize
	check := func(step string, want bool) {
		t.Helper()
		if !want {
			t.Errorf("%s: got %+v", step, b)
		}
	}
	b.succeed(most)
	check("success without a refusal", b == batchSize{})
	for changes := most; changes > 1; changes = int(b.limit) {
		b.refuse(changes)
	}
	check("refusals down to one change", b.limit == 1)
	for range 10 {
		b.succeed(most)
	}
	check("ten successes", b.limit == 0)
	for range 1000 { // the callback accepts at most 100 changes
		switch {
		case b.limit == 0:
			b.refuse(most)
		case b.limit > 100:
			b.refuse(int(b.limit))
		default:
			b.succeed(most)
		}
	}
	check("1,000 deliveries to a callback with a limit", b.patience == maxPatience-1)
}

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
