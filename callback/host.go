package callback

import "time"

// A task is what has its turn at a host: a subscription that may have something
// to be delivered, or an errand. All of it is guarded by Engine.mu.
type task struct {
	work  work
	host  *host
	shard *shard
	state state
	// proven means that the last request succeeded, and soon. Others share a part
	// of the places, so that dead and slow callbacks delay nobody else.
	proven bool
	lane   lane // that its place is of, while it is running

	due   time.Time // in the schedule
	index int       // there; -1: it is not in it
}

// work is what a task is for.
type work interface {
	// turn is called with Engine.mu held when the task has got a place. It returns
	// what is to be done there, nil when there is nothing.
	turn() turn

	// ring is called with Engine.mu held when the task is due.
	ring()
}

// A turn is what a task does with its place.
type turn interface {
	// do does it, and blocks meanwhile.
	do()

	// settle is called with Engine.mu held after that, when the place is free again.
	settle()
}

type state uint8

const (
	idle    state = iota // it waits for a time or an event
	queued               // it waits for a place
	running              // it has one
	dead                 // it is no more
)

type lane uint8

const (
	proven lane = iota
	unproven
	lanes
)

// A host is where callbacks lead to: a name and a port.
type host struct {
	name    string
	users   int // tasks that point here
	subs    int // of them subscriptions; and
	fresh   int // errands that are to make one
	queues  [lanes][]*task
	running [lanes]int
	listed  [lanes]bool // in places.rings
}

// places are for the requests in flight, and the hosts that wait for one, in
// turn.
type places struct {
	total, perHost int // bounds
	hosts          map[string]*host
	rings          [lanes][]*host // that have something queued and may start it
	running        [lanes]int
	last           lane // that got a place
}

// share returns what tasks of a lane may take of n places: all, or a quarter.
func share(l lane, n int) int {
	if l == proven {
		return n
	}
	return max(1, n/4)
}

// host returns the host of a name for one more task.
func (p *places) host(name string) *host {
	h := p.hosts[name]
	if h == nil {
		h = &host{name: name}
		p.hosts[name] = h
	}
	h.users++
	return h
}

// leave says that a task is no more.
func (p *places) leave(t *task) {
	t.state = dead
	if t.host.users--; t.host.users == 0 {
		delete(p.hosts, t.host.name)
	}
}

// queue puts a task at the end of its host's queue.
func (p *places) queue(t *task) {
	t.state, t.lane = queued, unproven
	if t.proven {
		t.lane = proven
	}
	h := t.host
	h.queues[t.lane] = append(h.queues[t.lane], t)
	p.list(h)
}

// list puts a host at the end of the rings for which it has something to start.
func (p *places) list(h *host) {
	for l := range lanes {
		if !h.listed[l] && p.may(h, l) && len(h.queues[l]) > 0 {
			h.listed[l] = true
			p.rings[l] = append(p.rings[l], h)
		}
	}
}

func (p *places) may(h *host, l lane) bool {
	return h.running[proven]+h.running[unproven] < p.perHost && h.running[l] < share(l, p.perHost)
}

// next gives a place to the task whose turn it is, or returns nil. The lanes
// take turns, and in a lane the hosts do.
func (p *places) next() *task {
	if p.running[proven]+p.running[unproven] >= p.total {
		return nil
	}
	for range lanes {
		p.last = (p.last + 1) % lanes
		if l := p.last; p.running[l] < share(l, p.total) {
			if t := p.first(l); t != nil {
				t.state = running
				t.host.running[l]++
				p.running[l]++
				p.list(t.host)
				return t
			}
		}
	}
	return nil
}

// first takes the first task of a lane that may start.
func (p *places) first(l lane) *task {
	for len(p.rings[l]) > 0 {
		h := p.rings[l][0]
		p.rings[l][0] = nil
		p.rings[l] = p.rings[l][1:]
		h.listed[l] = false
		for p.may(h, l) && len(h.queues[l]) > 0 {
			t := h.queues[l][0]
			h.queues[l][0] = nil
			h.queues[l] = h.queues[l][1:]
			if t.state == queued && t.lane == l {
				return t
			}
		}
	}
	return nil
}

// done frees a task's place.
func (p *places) done(t *task) {
	t.host.running[t.lane]--
	p.running[t.lane]--
	if t.state == running {
		t.state = idle
	}
	p.list(t.host)
}
