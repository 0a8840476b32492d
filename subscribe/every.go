package subscribe

import (
	"encoding/json"
	"errors"
	"slices"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// An everyFollow is the state of a session that follows every set.
type everyFollow struct {
	id     json.RawMessage // id of the client's message
	since  string          // start of the sets that existed at first
	filter *feed.Filter
	names  []string // sets that existed at first and are not started yet
	sets   int      // number of sets that existed at first and could be started
	done   bool     // whether the client was told that all these sets were started
}

// A stop is a set that a session does not follow although it follows every set.
type stop struct {
	absent bool // the set was deleted or hidden; it is followed when it reappears
	named  bool // the client named the set
}

// maxStopped limits the number of stopped sets that a session remembers, because clients can name
// any number of sets that do not exist.
const maxStopped = 20_000

func (c *session) noteStopped(set string, s stop) {
	if len(c.stopped) < maxStopped {
		c.stopped[set] = s
	}
	if s.absent && c.all != nil {
		c.server.setWatch.tellAll(c) // the set may have reappeared already
	}
}

// followEvery executes a command to follow every set. The sets are started later, in slices. It returns
// an error if the memory is unavailable; nothing has then changed.
func (c *session) followEvery(m *command) error {
	if o := &c.server.opts; m.time.After(o.Now().Add(o.ClockSkew)) {
		c.appendError(m.id, everySet, resourcesync.Invalidf("since=%s is in the future", resourcesync.Shorten(m.since)), feed.Cursor{})
		return nil
	}
	states, err := c.server.memory.Sets(c.ctx)
	if isTemporary(err) {
		return err
	}
	c.unfollowEvery()
	if err != nil {
		c.server.logFailure(everySet, err) // the sets that cannot be read are found later
	}
	all := &everyFollow{id: m.id, since: m.since, filter: m.filter}
	for _, st := range states {
		if c.mayFollowNow(st) && c.wants(st.Set) {
			all.names = append(all.names, st.Set)
		}
	}
	if err := c.acquireFollows(len(all.names)); err != nil {
		c.appendError(m.id, everySet, err, feed.Cursor{})
		return nil
	}
	c.all, all.sets = all, len(all.names)
	c.server.setWatch.tellAll(c) // sets may have appeared since they were read
	return nil
}

// wants reports whether a session that follows every set should start to follow a visible set.
func (c *session) wants(set string) bool {
	s, stopped := c.stopped[set]
	return c.follows[set] == nil && (!stopped || s.absent)
}

// unfollowEvery ends the follows of sets that the client has not named.
func (c *session) unfollowEvery() {
	if c.all == nil {
		return
	}
	c.releaseFollows(len(c.all.names))
	for _, f := range c.follows {
		if !f.named {
			c.drop(f)
		}
	}
	for set, s := range c.stopped {
		if !s.named {
			delete(c.stopped, set)
		}
	}
	c.all, c.found = nil, nil
}

// nextSets returns steps that start the next sets of a session that follows every set.
func (c *session) nextSets() (steps []step) {
	if c.all == nil {
		return nil
	}
	n := min(len(c.all.names), maxSteps)
	for _, set := range c.all.names[:n] {
		steps = append(steps, step{command: command{follow: set, since: c.all.since, filter: c.all.filter}, every: true, acquired: true})
	}
	c.all.names = c.all.names[n:]
	if len(steps) > 0 {
		return steps
	}
	if !c.all.done {
		c.all.done = true
		c.appendAnswer(answer{ID: c.all.id, Followed: everySet, Sets: &c.all.sets})
	}
	n = min(len(c.found), maxSteps)
	for _, set := range c.found[:n] {
		steps = append(steps, step{command: command{follow: set, since: "start", filter: c.all.filter}, every: true})
	}
	c.found = slices.Clone(c.found[n:])
	return steps
}

// applyNews handles changes of sets and of the client's rights. It returns an error if the memory is
// unavailable; it must then be called again.
func (c *session) applyNews() error {
	c.mu.Lock()
	news, recheck := c.news, c.recheck
	c.news, c.recheck = nil, false
	c.mu.Unlock()
	if len(news) > 0 || recheck {
		c.statesRead = false // the states of sets that are about to start may have changed
	}
	for i, changed := range news {
		for k, s := range changed {
			if err := c.applyChange(s); err != nil {
				c.mu.Lock()
				c.news, c.recheck = slices.Concat([][]setState{changed[k:]}, news[i+1:], c.news), recheck || c.recheck
				c.mu.Unlock()
				return err
			}
		}
	}
	if !recheck || len(c.follows) == 0 && c.all == nil {
		return nil
	}
	err := c.recheckRights()
	if err != nil {
		c.mu.Lock()
		c.recheck = true
		c.mu.Unlock()
	}
	return err
}

// recheckRights stops the follows of sets that the client may no longer follow.
func (c *session) recheckRights() error {
	var names []string
	for set, f := range c.follows {
		names = append(names, set)
		if f.begin == 0 && !c.mayFollowNow(absentState(set)) {
			c.stop(f, feed.ErrNoSet, feed.Cursor{}, true)
		}
	}
	if c.all != nil {
		names = nil
	}
	states, err := c.server.memory.Sets(c.ctx, names...)
	for _, st := range states {
		c.applyState(setState{st, true})
	}
	if isTemporary(err) {
		return err
	}
	return nil
}

// applyChange handles a change of a set. The session may have started to follow the set after the change
// was noticed, so a change that ends a follow is checked. It returns an error if the memory is
// unavailable.
func (c *session) applyChange(s setState) error {
	if f := c.follows[s.Set]; f != nil && (!s.exists || !c.mayFollowNow(s.State) || s.Begin != f.begin) {
		st, err := c.server.memory.State(c.ctx, s.Set)
		switch {
		case err == nil:
			s = setState{st, true}
		case isTemporary(err):
			return err
		case errors.Is(err, feed.ErrNoSet):
			s = setState{State: feed.State{Set: s.Set}}
		default:
			return nil // reading the log reports the error
		}
	}
	c.applyState(s)
	return nil
}

// applyState handles the state of a set, which may have changed.
func (c *session) applyState(s setState) {
	f := c.follows[s.Set]
	visible := s.exists && c.mayFollowNow(s.State)
	switch {
	case f == nil:
		if visible && c.all != nil && c.wants(s.Set) {
			c.found = append(c.found, s.Set)
		}
	case visible && f.begin == 0:
		f.begin = s.Begin
	case !visible && (s.exists || f.begin != 0):
		c.stop(f, feed.ErrNoSet, feed.Cursor{}, true)
	case visible && s.Begin != f.begin:
		c.restart(f, s.State)
	}
}

// mayFollowNow reports whether the client may follow a set.
func (c *session) mayFollowNow(st feed.State) bool {
	c.mu.Lock()
	may := c.mayFollow
	c.mu.Unlock()
	return may(st)
}

// absentState returns a state of a set that does not exist, for the check of rights. The rights of
// callers without a token do not extend to such a set, because it may be made as a private one.
func absentState(set string) feed.State {
	return feed.State{Set: set, Description: feed.Description{Private: true}}
}
