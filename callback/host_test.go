package callback

import (
	"fmt"
	"testing"
)

// nothing is work that is never done.
type nothing struct{}

func (nothing) turn() turn { return nil }
func (nothing) ring()      {}

func newPlaces(total, perHost int) *places {
	return &places{total: total, perHost: perHost, hosts: map[string]*host{}}
}

func (p *places) newTask(name string, proven bool) *task {
	return &task{work: nothing{}, host: p.host(name), proven: proven, index: -1}
}

// Hosts take turns, whatever waits at each.
func TestPlacesTakeTurns(t *testing.T) {
	p := newPlaces(100, 8)
	for range 5 {
		p.queue(p.newTask("busy", true))
	}
	p.queue(p.newTask("b", true))
	p.queue(p.newTask("c", true))
	var order string
	for range 7 {
		order += p.next().host.name + " "
	}
	if want := "busy b c busy busy busy busy "; order != want {
		t.Errorf("turns: %s, want %s", order, want)
	}
	if p.next() != nil {
		t.Error("there is one more")
	}
}

// The bounds hold, and a place that gets free is used again.
func TestPlacesBounds(t *testing.T) {
	p := newPlaces(40, 8)
	for i := range 200 {
		p.queue(p.newTask(fmt.Sprint("host", i%20), true))
		p.queue(p.newTask(fmt.Sprint("slow", i%20), false))
		p.queue(p.newTask("one", true))
		p.queue(p.newTask("one", false))
	}
	started, most := 0, 0
	var running []*task
	for {
		for t := p.next(); t != nil; t = p.next() {
			running = append(running, t)
		}
		if len(running) == 0 {
			break
		}
		started++
		perHost, slow := map[string]int{}, map[string]int{}
		unprovens := 0
		for _, r := range running {
			perHost[r.host.name]++
			if !r.proven {
				slow[r.host.name]++
				unprovens++
			}
		}
		for name, n := range perHost {
			if n > 8 || slow[name] > 2 {
				t.Fatalf("%s has %d running, %d of them unproven", name, n, slow[name])
			}
		}
		if len(running) > 40 || unprovens > 10 {
			t.Fatalf("%d run, %d of them unproven", len(running), unprovens)
		}
		most = max(most, len(running))
		done := running[0]
		running = running[1:]
		p.done(done)
		p.leave(done)
	}
	if started != 800 || most != 40 || len(p.hosts) != 0 {
		t.Errorf("%d were started, at most %d at once, %d hosts are left", started, most, len(p.hosts))
	}
}

// What is dead when its turn comes is passed over.
func TestPlacesPassOver(t *testing.T) {
	p := newPlaces(10, 8)
	a, b := p.newTask("h", true), p.newTask("h", true)
	p.queue(a)
	p.queue(b)
	p.leave(a)
	if got := p.next(); got != b {
		t.Errorf("next() = %v", got)
	}
	p.done(b)
	if b.state != idle || a.state != dead || p.next() != nil {
		t.Error("something is left")
	}
}
