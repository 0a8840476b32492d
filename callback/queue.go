package callback

import (
	"slices"
	"sync"
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/internal/outbound"
)

// Limits on the calls in flight, besides Options.InFlight.
const (
	subscriberHostCalls    = 8  // for one subscriber to one host
	subscriberAddressCalls = 32 // for one subscriber to one address
	addressCalls           = 64 // to one address
)

// A readyQueue holds the subs that have something to do. It hands them out, each with a permit that
// bounds the calls in flight: in total, per address, per subscriber at an address, and per subscriber
// at a host. So no subscriber gets more calls by having many callbacks, and no address receives more
// of them by having many names and ports.
//
// Subscribers take turns, and so do the hosts of one subscriber, and the standings. Its methods may
// be called concurrently and do not block.
type readyQueue struct {
	mu         sync.Mutex
	stopped    bool
	all        semaphore
	semaphores map[semaphoreKey]*semaphore // semaphores with permits in use
	hosts      map[string]*host            // hosts with users, by name
	groups     map[groupKey]*group         // groups with entries
	ready      [standings]ring[*subscriber]
	waiting    map[subscriberKey]*subscriber // subscribers in ready
	last       standing                      // standing of the last permit
}

// A host is the name and port of callbacks.
type host struct {
	name    string // immutable
	address string // network address, or the name while that is unknown; guarded by readyQueue.mu
	users   int    // subs with a callback at this host; guarded by readyQueue.mu
}

// A group is the subs of one subscriber at one host that have the same standing. It is in the ring of
// its subscriber, or parked at a semaphore that has no permit left.
type group struct {
	key      groupKey
	entries  ring[*queueEntry]
	parkedAt *semaphore // or nil
}

type groupKey struct {
	subscriberKey
	host *host
}

// A subscriber is a ring of groups.
type subscriber struct {
	key    subscriberKey
	groups ring[*group]
}

type subscriberKey struct {
	name     string
	standing standing
}

// A queueEntry is the place of a sub in a group.
type queueEntry struct{ sub *sub } // nil if it was removed

// A permit allows a worker to call the callback of a sub.
type permit struct {
	sub        *sub
	standing   standing
	semaphores []*semaphore
}

// A semaphore bounds calls. Callbacks on probation, which are all that are not proven, have a quarter
// of the permits for each standing: a callback that hangs delays neither new ones nor proven ones.
type semaphore struct {
	key    semaphoreKey
	limit  int
	used   [standings]int
	parked [standings]ring[*group] // groups that wait for a permit
}

// A semaphoreKey names what a semaphore bounds. Fields that do not matter are empty.
type semaphoreKey struct{ subscriber, host, address string }

// has reports whether the semaphore has a permit for a callback with the standing.
func (s *semaphore) has(of standing) bool {
	limit := s.limit
	if of != proven {
		limit = max(1, limit/4)
	}
	return s.used[of] < limit && s.inUse() < s.limit
}

func (s *semaphore) inUse() (n int) {
	for _, used := range s.used {
		n += used
	}
	return n
}

// A ring is a queue whose elements take turns.
type ring[T any] []T

func (r *ring[T]) push(v T) { *r = append(*r, v) }

func (r *ring[T]) pop() T {
	v := (*r)[0]
	clear((*r)[:1])
	*r = (*r)[1:]
	return v
}

func newReadyQueue(inFlight int) *readyQueue {
	return &readyQueue{
		all: semaphore{limit: inFlight}, semaphores: map[semaphoreKey]*semaphore{}, hosts: map[string]*host{},
		groups: map[groupKey]*group{}, waiting: map[subscriberKey]*subscriber{},
	}
}

// stop makes pop return nil from now on.
func (q *readyQueue) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopped = true
}

// inUse returns the number of permits in use.
func (q *readyQueue) inUse() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.all.inUse()
}

// push adds a sub on behalf of a subscriber. The sub must not be in the queue.
func (q *readyQueue) push(s *sub, name string, of standing) {
	q.mu.Lock()
	defer q.mu.Unlock()
	key := groupKey{subscriberKey{name, of}, s.host}
	g := q.groups[key]
	if g == nil {
		g = &group{key: key}
		q.groups[key] = g
		q.addReady(g)
	}
	s.entry = &queueEntry{s}
	g.entries.push(s.entry)
}

// remove removes a sub. It reports false if the sub is not in the queue.
func (q *readyQueue) remove(s *sub) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s.entry == nil {
		return false
	}
	s.entry.sub, s.entry = nil, nil
	return true
}

// pop removes the next sub for which all permits are available. It returns nil if there is none. The
// caller must release the permit.
func (q *readyQueue) pop() *permit {
	q.mu.Lock()
	defer q.mu.Unlock()
	for range standings {
		q.last = (q.last + 1) % standings
		for !q.stopped && q.all.has(q.last) && len(q.ready[q.last]) > 0 {
			if p := q.acquire(q.nextGroup(q.last)); p != nil {
				return p
			}
		}
	}
	return nil
}

// nextGroup removes the next group from the ring of its subscriber.
func (q *readyQueue) nextGroup(of standing) *group {
	s := q.ready[of].pop()
	g := s.groups.pop()
	if len(s.groups) > 0 {
		q.ready[of].push(s)
	} else {
		delete(q.waiting, s.key)
	}
	return g
}

// addReady adds a group to the ring of its subscriber.
func (q *readyQueue) addReady(g *group) {
	s := q.waiting[g.key.subscriberKey]
	if s == nil {
		s = &subscriber{key: g.key.subscriberKey}
		q.waiting[s.key] = s
		q.ready[s.key.standing].push(s)
	}
	s.groups.push(g)
}

// acquire removes the first sub of a group that is not in a ring, and returns its permit. If a
// semaphore has no permit, it parks the group there and returns nil.
func (q *readyQueue) acquire(g *group) *permit {
	of, semaphores := g.key.standing, q.semaphoresOf(g)
	// A group that was unparked may not use the permit. Then another one may.
	defer q.settle(append(semaphores, g.parkedAt))
	g.parkedAt = nil
	for len(g.entries) > 0 && g.entries[0].sub == nil {
		g.entries.pop()
	}
	if len(g.entries) == 0 {
		delete(q.groups, g.key)
		return nil
	}
	for _, s := range semaphores {
		if !s.has(of) {
			s.parked[of].push(g)
			g.parkedAt = s
			return nil
		}
	}
	p := &permit{sub: g.entries.pop().sub, standing: of, semaphores: semaphores}
	p.sub.entry = nil
	q.all.used[of]++
	for _, s := range semaphores {
		s.used[of]++
		q.semaphores[s.key] = s
	}
	if len(g.entries) > 0 {
		q.addReady(g)
	} else {
		delete(q.groups, g.key)
	}
	return p
}

// semaphoresOf returns the semaphores of a group, except all.
func (q *readyQueue) semaphoresOf(g *group) []*semaphore {
	get := func(key semaphoreKey, limit int) *semaphore {
		if s := q.semaphores[key]; s != nil {
			return s
		}
		return &semaphore{key: key, limit: limit} // has permits, so no group parks there
	}
	name, h := g.key.name, g.key.host
	return []*semaphore{
		get(semaphoreKey{subscriber: name, host: h.name}, subscriberHostCalls),
		get(semaphoreKey{subscriber: name, address: h.address}, subscriberAddressCalls),
		get(semaphoreKey{address: h.address}, addressCalls),
	}
}

// settle makes the first groups that are parked at semaphores ready if there are permits for them. It
// forgets semaphores that are not in use. A semaphore may be nil.
func (q *readyQueue) settle(all []*semaphore) {
	for _, s := range all {
		if s == nil {
			continue
		}
		inUse := s.inUse() > 0
		for of := range standings {
			if len(s.parked[of]) > 0 {
				inUse = true
				if s.has(of) {
					q.addReady(s.parked[of].pop())
				}
			}
		}
		if !inUse && q.semaphores[s.key] == s {
			delete(q.semaphores, s.key)
		}
	}
}

// release returns a permit.
func (q *readyQueue) release(p *permit) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.all.used[p.standing]--
	for _, s := range p.semaphores {
		s.used[p.standing]--
	}
	q.settle(p.semaphores)
}

// host returns the host of a callback, and adds a user to it.
func (q *readyQueue) host(callback string) *host {
	q.mu.Lock()
	defer q.mu.Unlock()
	name := outbound.Host(callback)
	h := q.hosts[name]
	if h == nil {
		h = &host{name: name, address: outbound.OwnerKey(name)}
		q.hosts[name] = h
	}
	h.users++
	return h
}

// leaveHost removes a user from a host. A host without users is forgotten.
func (q *readyQueue) leaveHost(h *host) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if h.users--; h.users == 0 {
		delete(q.hosts, h.name)
	}
}

// setAddress notes the network address that a call to the host has found. Empty means nothing new.
func (q *readyQueue) setAddress(h *host, address string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if address != "" {
		h.address = address
	}
}

// A standing is what the latest call to a callback says about it.
type standing uint8

const (
	proven   standing = iota // a delivery succeeded, and not slowly
	untried                  // there was no delivery
	doubtful                 // a delivery failed, or the call was slow
	standings
)

// slowAfter is the longest time of a call to a proven callback.
const slowAfter = time.Second

// standingAfter returns the standing of a callback after a successful delivery.
func standingAfter(took time.Duration) standing {
	if took <= slowAfter {
		return proven
	}
	return doubtful
}

// standingOf returns the standing of a callback with the given latest attempts, oldest first, and
// number of deliveries that failed in a row.
func standingOf(last []subscription.Attempt, failed int) standing {
	for _, a := range slices.Backward(last) {
		switch {
		case a.Kind != kindDelivery:
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
