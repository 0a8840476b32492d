package callback

import (
	"slices"
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/internal/outbound"
)

// A standing is what the requests to a callback have shown of it. All but proven are on
// probation.
type standing uint8

const (
	proven   standing = iota // the last request to the callback succeeded, and soon
	untried                  // there was no request yet
	doubtful                 // the last request failed, or took long
	standings
)

// share returns how many of n slots the callbacks of a standing may have: all, or a
// quarter. A callback that was not called yet waits for no callback that hangs, and
// neither of them delays one that is well.
func (s standing) share(n int) int {
	if s == proven {
		return n
	}
	return max(1, n/4)
}

// standingOf returns the standing of a callback after the newest attempts, oldest first. failed is
// how often its deliveries have failed in a row.
func standingOf(last []subscription.Attempt, failed int) standing {
	for _, a := range slices.Backward(last) {
		switch {
		case a.Kind != "deliver":
		case failed == 0 && a.Error == "":
			return standingAfter(a.Took)
		default:
			return doubtful
		}
	}
	if failed > 0 {
		return doubtful
	}
	return untried
}

// slowAfter is how long a success may take that proves a callback.
const slowAfter = time.Second

// standingAfter returns the standing of a callback after a success that took so long.
func standingAfter(took time.Duration) standing {
	if took <= slowAfter {
		return proven
	}
	return doubtful
}

// How many slots one subscriber's callbacks at a host may have, and in these, how many an
// address and a subscriber there may have.
const (
	hostSlots    = 8
	addressSlots = 8
	ownerSlots   = 4
)

// A limiter is a semaphore with a fair queue of those that wait for it.
type limiter struct {
	key     limiterKey
	most    int
	taken   [standings]int
	waiting *[standings]fairQueue // nil: nobody ever waited
	last    standing              // the one that got the last permit from next
}

// A limiterKey says what a limiter bounds: the requests for an owner to a host, those for
// an owner to an address, or all to an address.
type limiterKey struct {
	permit      int // index in waiter.permits
	owner, name string
}

// may reports whether there is a permit for a callback of a standing.
func (l *limiter) may(s standing) bool {
	return l.taken[s] < s.share(l.most) && l.inUse() < l.most
}

func (l *limiter) inUse() (n int) {
	for _, some := range l.taken {
		n += some
	}
	return n
}

// next gives a permit to who has the next turn, if there is one to give. The standings
// take turns, too.
func (l *limiter) next() *waiter {
	if l.waiting == nil {
		return nil
	}
	for range standings {
		l.last = (l.last + 1) % standings
		for q := &l.waiting[l.last]; l.may(l.last) && len(q.turns) > 0; {
			if w := q.pop(); !w.cancelled {
				l.taken[l.last]++
				w.held++
				return w
			}
		}
	}
	return nil
}

// A fairQueue holds waiters by group. The groups take turns.
type fairQueue struct {
	turns  []*limiter             // the groups, each once
	groups map[*limiter][]*waiter // in the order in which they came
}

func (q *fairQueue) push(group *limiter, w *waiter) {
	if q.groups == nil {
		q.groups = map[*limiter][]*waiter{}
	}
	if len(q.groups[group]) == 0 {
		q.turns = append(q.turns, group)
	}
	q.groups[group] = append(q.groups[group], w)
}

func (q *fairQueue) pop() *waiter {
	group := q.turns[0]
	q.turns = q.turns[1:]
	all := q.groups[group]
	if len(all) == 1 {
		delete(q.groups, group)
	} else {
		q.groups[group] = all[1:]
		q.turns = append(q.turns, group)
	}
	return all[0]
}

// A waiter is a task on its way to a slot. It needs a permit of each limiter of its
// permits, one after the other. While it waits for one, it holds those before.
type waiter struct {
	task      *task
	doer      doer
	standing  standing
	owner     string
	address   string
	permits   [4]*limiter // of the owner at the host, of the owner at the address, of the address, of all
	held      int         // how many permits it has
	cancelled bool        // it waits no more, and holds nothing
	turn      turn        // with a slot
}

// slots bound the requests that are under way: each needs a slot. All requests have a
// limiter, and so has each address, each owner's callbacks at an address, and each owner's
// callbacks at a host. So nobody gets more slots by many names, ports or callbacks. Where
// permits are scarce, those who wait take turns: for the permits of an owner the hosts, for
// those of an address the owners, and for a slot the owners at each address.
type slots struct {
	perHost int // set when the slots are made, never changed

	hosts    map[string]*host // with users, by name
	limiters map[limiterKey]*limiter
	all      limiter
}

func newSlots(total, perHost int) *slots {
	return &slots{perHost: perHost, hosts: map[string]*host{}, limiters: map[limiterKey]*limiter{}, all: limiter{most: total}}
}

// queue lets a task wait for a slot.
func (s *slots) queue(t *task, d doer) {
	t.stage = queued
	t.waiter = &waiter{task: t, doer: d, standing: t.standing, owner: d.owner(), address: t.host.place}
	s.advance(t.waiter)
}

// advance takes permits for a waiter, up to the first that is not free, or to the slot,
// which only next gives.
func (s *slots) advance(w *waiter) {
	for {
		l, group := s.limiter(w), (*limiter)(nil)
		w.permits[w.held] = l
		switch {
		case l == &s.all:
			group = w.permits[1]
		case l.may(w.standing):
			l.taken[w.standing]++
			w.held++
			continue
		case w.held > 0:
			group = w.permits[w.held-1]
		}
		if l.waiting == nil {
			l.waiting = &[standings]fairQueue{}
		}
		l.waiting[w.standing].push(group, w)
		return
	}
}

// limiter returns the limiter of which a waiter needs a permit next.
func (s *slots) limiter(w *waiter) *limiter {
	key, most := limiterKey{permit: w.held}, s.perHost
	switch w.held {
	case 0:
		key.owner, key.name = w.owner, w.task.host.name
	case 1:
		key.owner, key.name, most = w.owner, w.address, ownerSlots*s.perHost
	case 2:
		key.name, most = w.address, addressSlots*s.perHost
	default:
		return &s.all
	}
	l := s.limiters[key]
	if l == nil {
		l = &limiter{key: key, most: most}
		s.limiters[key] = l
	}
	return l
}

// next gives a slot to the task whose turn it is. It returns nil when no slot is free,
// or no task may have it.
func (s *slots) next() *waiter {
	w := s.all.next()
	if w != nil {
		w.task.stage = running
	}
	return w
}

// done frees a task's slot.
func (s *slots) done(t *task) {
	s.release(t.waiter)
	t.waiter = nil
	if t.stage == running {
		t.stage = idle
	}
}

// cancel takes a task out that waits for a slot. It does nothing with another task.
func (s *slots) cancel(t *task) {
	if t.stage == queued {
		t.waiter.cancelled = true
		s.release(t.waiter)
		t.stage, t.waiter = idle, nil
	}
}

// release returns the permits of a waiter, and gives them to those that wait.
func (s *slots) release(w *waiter) {
	for _, l := range w.permits[:w.held] {
		l.taken[w.standing]--
		if l == &s.all {
			continue // nextTurn asks for the next
		}
		if next := l.next(); next != nil {
			s.advance(next)
		} else if l.inUse() == 0 {
			delete(s.limiters, l.key)
		}
	}
}

// leave takes a task out for ever: it is dead. Its host has one user less, and is forgotten
// without users.
func (s *slots) leave(t *task) {
	s.cancel(t)
	t.stage = dead
	if t.host.users--; t.host.users == 0 {
		delete(s.hosts, t.host.name)
	}
}

// A host is where callbacks lead to: a name and a port.
type host struct {
	name  string // never changed
	place string // the address where it is, as far as is known: see outbound.PlaceOf
	users int    // tasks that point here
}

// host returns the host of a callback, which gets one more user.
func (s *slots) host(callback string) *host {
	name := outbound.Host(callback)
	h := s.hosts[name]
	if h == nil {
		h = &host{name: name, place: outbound.OwnerKey(name)}
		s.hosts[name] = h
	}
	h.users++
	return h
}

// met notes where a connection to the host led. Tasks that are queued from now on wait
// for the permits of that address.
func (h *host) met(place string) {
	if place != "" {
		h.place = place
	}
}
