package callback

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// A nothing is work that has nothing to do, of an owner.
type nothing string

func (nothing) turnLocked() turn { return nil }
func (nothing) ringLocked()      {}
func (n nothing) owner() string  { return string(n) }

func (s *slots) newTask(owner, host, place string, standing lane) *task {
	h := s.host("http://" + host + "/")
	h.met(place)
	return &task{work: nothing(owner), host: h, standing: standing, index: -1}
}

// start starts all tasks that may start, and returns their owners and hosts in order.
func (s *slots) start() (order string, running []*task) {
	for t := s.next(); t != nil; t = s.next() {
		order += t.work.owner() + "@" + t.host.name + " "
		running = append(running, t)
	}
	return order, running
}

// Addresses take turns, whatever waits at each; then the subscribers at an address, and
// then the hosts of a subscriber.
func TestSlotsTakeTurns(t *testing.T) {
	s := newSlots(100, 8)
	for _, host := range []string{"a1", "a1", "a2", "a3"} {
		s.queue(s.newTask("x", host, "A", proven))
	}
	s.queue(s.newTask("y", "a1", "A", proven))
	s.queue(s.newTask("x", "b1", "B", proven))
	s.queue(s.newTask("x", "b1", "B", proven))
	order, _ := s.start()
	if want := "x@a1:80 x@b1:80 y@a1:80 x@b1:80 x@a2:80 x@a3:80 x@a1:80 "; order != want {
		t.Errorf("turns: %s, want %s", order, want)
	}
}

// The bounds of everything hold at any time, every task gets its slot, and a slot that
// gets free is used again.
func TestSlotsBounds(t *testing.T) {
	t.Parallel()
	s := newSlots(200, 8)
	random := rand.New(rand.NewPCG(1, 2))
	const n = 8_000
	for i := range n {
		place := random.IntN(8)
		s.queue(s.newTask(fmt.Sprint("owner", random.IntN(3)), fmt.Sprintf("host%d-%d", place, random.IntN(5)), fmt.Sprint("place", place), lane(i%int(lanes))))
	}
	started, most := 0, 0
	var running []*task
	for {
		_, more := s.start()
		started += len(more)
		if running = append(running, more...); len(running) == 0 {
			break
		}
		most = max(most, len(running))
		counts := map[string][lanes]int{}
		for _, r := range running {
			for _, key := range []string{"", r.host.place, r.host.place + r.work.owner(), r.host.place + r.work.owner() + r.host.name} {
				c := counts[key]
				c[r.lane]++
				counts[key] = c
			}
		}
		for _, r := range running {
			for key, bound := range map[string]int{"": 200, r.host.place: 64, r.host.place + r.work.owner(): 32, r.host.place + r.work.owner() + r.host.name: 8} {
				if c := counts[key]; c[proven]+c[untried]+c[doubtful] > bound || c[untried] > bound/4 || c[doubtful] > bound/4 {
					t.Fatalf("%q has %v of %d slots", key, c, bound)
				}
			}
		}
		for range 1 + random.IntN(20) {
			if len(running) > 0 {
				i := random.IntN(len(running))
				done := running[i]
				running[i] = running[len(running)-1]
				running = running[:len(running)-1]
				s.done(done)
				s.leave(done)
			}
		}
	}
	if started != n || most < 150 || len(s.hosts) != 0 || len(s.all.below) != 0 || s.inFlight() != 0 {
		t.Errorf("%d were started, at most %d at once; left are %d hosts, %d lines and %d slots", started, most, len(s.hosts), len(s.all.below), s.inFlight())
	}
}

// A callback that hangs has no part in the slots of those that were not called yet.
func TestSlotsLanes(t *testing.T) {
	s := newSlots(64, 8)
	for i := range 100 {
		place := fmt.Sprint("place", i)
		s.queue(s.newTask("tarpit", place, place, doubtful))
	}
	_, hanging := s.start()
	for i := range 30 {
		place := fmt.Sprint("new", i)
		s.queue(s.newTask("new", place, place, untried))
		s.queue(s.newTask("good", place+"good", place+"good", proven))
	}
	_, others := s.start()
	if len(hanging) != 16 || len(others) != 46 {
		t.Errorf("%d hang, and %d others have a slot", len(hanging), len(others))
	}
}

// A task that is dead when its turn comes is passed over. One whose host turns out to be
// at another address waits there from then on.
func TestSlotsPassOver(t *testing.T) {
	s := newSlots(10, 8)
	a, b := s.newTask("x", "h", "A", proven), s.newTask("x", "h", "A", proven)
	s.queue(a)
	s.queue(b)
	s.leave(a)
	if got := s.next(); got != b {
		t.Errorf("next() = %v", got)
	}
	b.host.met("B")
	s.done(b)
	if b.state != idle || a.state != dead || s.next() != nil || len(s.all.below) != 0 {
		t.Errorf("left are %v", s.all.below)
	}
	s.queue(b)
	if s.all.below["B"] == nil || s.next() != b {
		t.Errorf("it waits at %v", s.all.below)
	}
}
