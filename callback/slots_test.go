package callback

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/callback/subscription"
)

// A nothing is a task that has nothing to do, of an owner.
type nothing struct {
	task
	by string
}

func (*nothing) takeTurn(*state) turn { return nil }
func (n *nothing) owner() string      { return n.by }

func (s *slots) newTask(owner, host, place string, well standing) *nothing {
	h := s.host("http://" + host + "/")
	h.met(place)
	return &nothing{task: task{host: h, standing: well}, by: owner}
}

// wait lets a task wait for a slot.
func (s *slots) wait(n *nothing) { s.queue(&n.task, n) }

// take returns the task that gets the next slot, nil if none does.
func (s *slots) take() *nothing {
	if w := s.next(); w != nil {
		return w.doer.(*nothing)
	}
	return nil
}

// start starts all tasks that may start, and returns them.
func (s *slots) start() (started []*nothing) {
	for t := s.take(); t != nil; t = s.take() {
		started = append(started, t)
	}
	return started
}

// Where slots are scarce the owners at each address take turns, whatever waits for each.
// Where those of an address are, its owners do, and where those of an owner are, the hosts.
func TestSlotsTakeTurns(t *testing.T) {
	for _, test := range []struct {
		name           string
		total, perHost int
		wait, want     string // owner@host; the first letter of a host is its address
	}{
		{"slots", 1, 8,
			"x@a1 x@a1 x@a2 x@a3 y@a1 x@b1 x@b1",
			"x@a1 y@a1 x@b1 x@a1 x@b1 x@a2 x@a3"},
		{"slots of an address", 100, 1,
			"x@a1 x@a2 x@a3 x@a4 x@a5 x@a6 x@a7 y@a1 y@a2 y@a3 y@a4 y@a5 z@a1 z@a2",
			"x@a1 y@a1 x@a2 y@a2 x@a3 y@a3 x@a4 y@a4 z@a1 x@a5 z@a2 y@a5 x@a6 x@a7"},
		{"slots of an owner", 100, 2,
			"x@a1 x@a1 x@a2 x@a2 x@a3 x@a3 x@a4 x@a4 x@a5 x@a5 x@a6 x@a6 x@a6",
			"x@a1 x@a1 x@a2 x@a2 x@a3 x@a3 x@a4 x@a4 x@a5 x@a6 x@a5 x@a6 x@a6"},
	} {
		s := newSlots(test.total, test.perHost)
		for _, name := range strings.Fields(test.wait) {
			owner, host, _ := strings.Cut(name, "@")
			s.wait(s.newTask(owner, host, host[:1], proven))
		}
		var order []string
		var running []*nothing
		for {
			for _, started := range s.start() {
				running = append(running, started)
				order = append(order, started.by+"@"+strings.TrimSuffix(started.host.name, ":80"))
			}
			if len(running) == 0 {
				break
			}
			s.done(&running[0].task)
			running = running[1:]
		}
		if got := strings.Join(order, " "); got != test.want {
			t.Errorf("%s: turns are %s, want %s", test.name, got, test.want)
		}
	}
}

// The bounds of everything are kept at any time, every task gets its slot unless it dies
// before, and a slot that gets free is used again.
func TestSlotsBounds(t *testing.T) {
	t.Parallel()
	s := newSlots(200, 8)
	random := rand.New(rand.NewPCG(1, 2))
	const n = 8_000
	all := make([]*nothing, n)
	for i := range all {
		place := random.IntN(8)
		all[i] = s.newTask(fmt.Sprint("owner", random.IntN(3)), fmt.Sprintf("host%d-%d", place, random.IntN(5)), fmt.Sprint("place", place), standing(i%int(standings)))
		s.wait(all[i])
	}
	started, died, most := 0, 0, 0
	var running []*nothing
	for {
		more := s.start()
		started += len(more)
		if running = append(running, more...); len(running) == 0 {
			break
		}
		most = max(most, len(running))
		counts := map[string][standings]int{}
		for _, r := range running {
			for _, key := range []string{"", r.host.place, r.host.place + r.by, r.host.place + r.by + r.host.name} {
				c := counts[key]
				c[r.standing]++
				counts[key] = c
			}
		}
		for _, r := range running {
			for key, bound := range map[string]int{"": 200, r.host.place: 64, r.host.place + r.by: 32, r.host.place + r.by + r.host.name: 8} {
				if c := counts[key]; c[proven]+c[untried]+c[doubtful] > bound || c[untried] > bound/4 || c[doubtful] > bound/4 {
					t.Fatalf("%q has %v of %d slots", key, c, bound)
				}
			}
		}
		if x := all[random.IntN(n)]; x.stage == queued {
			s.leave(&x.task)
			died++
		}
		for range 1 + random.IntN(20) {
			if len(running) > 0 {
				i := random.IntN(len(running))
				done := running[i]
				running[i] = running[len(running)-1]
				running = running[:len(running)-1]
				s.done(&done.task)
				s.leave(&done.task)
			}
		}
	}
	if started+died != n || died < 100 || most < 150 || len(s.hosts) != 0 || len(s.limiters) != 0 || s.all.inUse() != 0 {
		t.Errorf("%d were started, %d died, at most %d at once; left are %d hosts, %d limiters and %d slots", started, died, most, len(s.hosts), len(s.limiters), s.all.inUse())
	}
}

// A callback that hangs has no part in the slots of those that were not called yet.
func TestSlotsOnProbation(t *testing.T) {
	s := newSlots(64, 8)
	for i := range 100 {
		place := fmt.Sprint("place", i)
		s.wait(s.newTask("tarpit", place, place, doubtful))
	}
	hanging := s.start()
	for i := range 30 {
		place := fmt.Sprint("new", i)
		s.wait(s.newTask("new", place, place, untried))
		s.wait(s.newTask("good", place+"good", place+"good", proven))
	}
	others := s.start()
	if len(hanging) != 16 || len(others) != 46 {
		t.Errorf("%d hang, and %d others have a slot", len(hanging), len(others))
	}
}

// A task that is dead when its turn comes is passed over. One whose host turns out to be
// at another address waits there from then on.
func TestSlotsPassOver(t *testing.T) {
	s := newSlots(10, 8)
	a, b := s.newTask("x", "h", "A", proven), s.newTask("x", "h", "A", proven)
	s.wait(a)
	s.wait(b)
	s.leave(&a.task)
	if got := s.take(); got != b {
		t.Errorf("next() = %v", got)
	}
	b.host.met("B")
	s.done(&b.task)
	if b.stage != idle || a.stage != dead || s.take() != nil || len(s.limiters) != 0 {
		t.Errorf("left are %v", s.limiters)
	}
	s.wait(b)
	if s.limiters[limiterKey{permit: 2, name: "B"}] == nil || s.take() != b {
		t.Errorf("it waits at %v", s.limiters)
	}
}

func TestStandingByADelivery(t *testing.T) {
	asked := subscription.Attempt{Kind: "subscribe", Status: 200}
	sent := subscription.Attempt{Kind: "deliver", Status: 204, Took: time.Millisecond}
	slow, failed := sent, sent
	slow.Took, failed.Error = 2*slowAfter, "no answer in time"
	for _, test := range []struct {
		last   []subscription.Attempt
		failed int
		want   standing
	}{
		{nil, 0, untried}, {nil, 1, doubtful}, {[]subscription.Attempt{asked}, 0, untried}, {[]subscription.Attempt{sent}, 0, proven}, {[]subscription.Attempt{sent, asked}, 0, proven},
		{[]subscription.Attempt{sent, slow}, 0, doubtful}, {[]subscription.Attempt{sent, failed}, 1, doubtful}, {[]subscription.Attempt{failed, sent}, 0, proven}, {[]subscription.Attempt{sent, asked}, 3, doubtful},
	} {
		if got := standingOf(test.last, test.failed); got != test.want {
			t.Errorf("after %+v, failed %d times, its standing is %d, want %d", test.last, test.failed, got, test.want)
		}
	}
}
