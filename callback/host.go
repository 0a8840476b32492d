package callback

import "github.com/rshub/rshub/outbound"

// A host is where callbacks lead to: a name and a port. Engine.mu guards all of it but
// the name, which never changes.
type host struct {
	name   string
	place  string         // the address where it is, as far as is known: see outbound.PlaceOf
	users  int            // tasks that point here
	subs   int            // how many of users are subscriptions
	fresh  int            // how many of users are errands that are to make a subscription
	asked  map[string]int // the same as fresh, by who asked for the subscription; nil: there were none
	makers tally          // subs, by who made them
}

// host returns the host of a callback, which gets one more user.
func (s *slots) host(callback string) *host {
	name := outbound.Host(callback)
	h := s.hosts[name]
	if h == nil {
		h = &host{name: name, place: outbound.PlaceOf(name)}
		s.hosts[name] = h
	}
	h.users++
	return h
}

// abandon takes a user from a host. A host without users is forgotten.
func (s *slots) abandon(h *host) {
	if h.users--; h.users == 0 {
		delete(s.hosts, h.name)
	}
}

// met notes where a connection to the host led. Tasks that are queued from now on wait
// in the line of that address.
func (h *host) met(place string) {
	if place != "" {
		h.place = place
	}
}

// setFresh counts an errand that is to make a subscription, or one that is not any more.
func (h *host) setFresh(by string, n int) {
	if h.asked == nil {
		h.asked = map[string]int{}
	}
	h.fresh += n
	if h.asked[by] += n; h.asked[by] == 0 {
		delete(h.asked, by)
	}
}
