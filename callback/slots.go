package callback

// A lane is one of the ways to a slot. A callback that was not called yet waits for no
// callback that hangs, and neither of them delays one that is well.
type lane uint8

const (
	proven   lane = iota // the last request to the callback succeeded, and soon
	untried              // there was no request yet
	doubtful             // the last request failed, or took long
	lanes
)

// share returns how many of n slots the tasks of a lane may have: all, or a quarter.
func share(l lane, n int) int {
	if l == proven {
		return n
	}
	return max(1, n/4)
}

// How many slots an address and a subscriber there may have, in slots of a host.
const (
	addressSlots = 8
	ownerSlots   = 4
)

// slots bound the requests that are under way: each needs a slot. Tasks wait for slots in
// a tree of lines: of all, of each address, of each subscriber's callbacks at the address,
// of each of the hosts of these. The lines below a line take turns, and every line has a
// bound. So nobody gets more slots by many names, ports or callbacks, and a line waits for
// one turn of each other line below the same one. Engine.mu guards all of it, also what
// its methods change in tasks and hosts.
type slots struct {
	perHost int // set when the slots are made, never changed

	hosts map[string]*host // with users, by name
	all   line
	last  lane    // the lane that got the last slot
	spare []*line // lines that can be used again
}

func newSlots(total, perHost int) *slots {
	return &slots{perHost: perHost, hosts: map[string]*host{}, all: line{most: total, below: map[string]*line{}}}
}

// inFlight returns how many slots are taken.
func (s *slots) inFlight() int { return s.all.taken() }

// leave takes a task out for ever: it is dead, and its host has one user less.
func (s *slots) leave(t *task) {
	t.state = dead
	s.abandon(t.host)
}

// queue lets a task wait for a slot.
func (s *slots) queue(t *task) {
	t.state, t.lane = queued, t.standing
	h := t.host
	n := s.below(&s.all, h.place, addressSlots*s.perHost)
	n = s.below(n, t.work.owner(), ownerSlots*s.perHost)
	n = s.below(n, h.name, s.perHost)
	t.line = n
	n.tasks[t.lane] = append(n.tasks[t.lane], t)
	n.list()
}

// next gives a slot to the task whose turn it is. It returns nil when no slot is free,
// or no task may have it. The lanes take turns.
func (s *slots) next() *task {
	for range lanes {
		s.last = (s.last + 1) % lanes
		l := s.last
		if !s.all.may(l) {
			continue
		}
		if t := s.take(&s.all, l); t != nil {
			t.state = running
			for n := t.line; n != nil; n = n.above {
				n.running[l]++
			}
			t.line.list()
			return t
		}
	}
	return nil
}

// take takes the next task of a lane out of a line, or out of the lines below it.
func (s *slots) take(n *line, l lane) *task {
	for len(n.tasks[l]) > 0 {
		t := n.tasks[l][0]
		n.tasks[l][0] = nil
		n.tasks[l] = n.tasks[l][1:]
		if t.state == queued && t.lane == l && t.line == n {
			return t
		}
	}
	for len(n.ready[l]) > 0 {
		b := n.ready[l][0]
		n.ready[l][0] = nil
		n.ready[l] = n.ready[l][1:]
		b.listed[l] = false
		if !b.may(l) {
			continue // it is listed again when a slot is free
		}
		if t := s.take(b, l); t != nil {
			return t
		}
		s.prune(b)
	}
	return nil
}

// done frees a task's slot.
func (s *slots) done(t *task) {
	for n := t.line; n != nil; n = n.above {
		n.running[t.lane]--
	}
	t.line.list()
	s.prune(t.line)
	t.line = nil
	if t.state == running {
		t.state = idle
	}
}

// below returns the line of a key below another line.
func (s *slots) below(n *line, key string, most int) *line {
	b := n.below[key]
	if b != nil {
		return b
	}
	if i := len(s.spare) - 1; i >= 0 {
		b, s.spare = s.spare[i], s.spare[:i]
	} else {
		b = &line{below: map[string]*line{}}
	}
	b.above, b.key, b.most = n, key, most
	n.below[key] = b
	return b
}

// prune removes a line that is not used any more, and those above it.
func (s *slots) prune(n *line) {
	for n.above != nil && n.unused() {
		above := n.above
		delete(above.below, n.key)
		n.above = nil
		if len(s.spare) < 1024 {
			s.spare = append(s.spare, n)
		}
		n = above
	}
}
