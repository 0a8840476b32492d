package subscribe

import (
	"errors"
	"slices"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// A step is a command, or the start of one of the sets of a command, during its execution.
type step struct {
	command
	every    bool // whether the set starts because the client follows every set
	acquired bool // whether the set counts for the limit already

	f        *setFollow // joined to its topic, but not followed yet; nil if the step does not start a set
	state    feed.State
	exists   bool
	stateErr error // error of reading the state
}

// execute executes some steps. It returns an error if the memory is unavailable; it must then be
// called again.
func (c *session) execute() error {
	if len(c.steps) == 0 {
		c.statesRead = false
		if c.steps = c.nextSets(); len(c.steps) == 0 {
			c.steps = c.nextCommands()
		}
	}
	if !c.statesRead {
		if err := c.readStates(); err != nil {
			return err
		}
		c.statesRead = true
	}
	for begin := time.Now(); len(c.steps) > 0 && len(c.out) < maxChunk && time.Since(begin) < stepsBudget; c.steps = c.steps[1:] {
		if err := c.executeStep(&c.steps[0]); err != nil {
			return err
		}
		c.steps[0] = step{}
	}
	return nil
}

// nextCommands removes the next commands from c and returns their steps. A command to follow every set
// is the last of them, because its sets start before the next command is executed.
func (c *session) nextCommands() (steps []step) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.commands[:min(len(c.commands), maxSteps)] {
		steps = append(steps, step{command: c.commands[i]})
		c.commandBytes -= c.commands[i].size
		if c.commands[i].follow == everySet {
			break
		}
	}
	c.commands = slices.Delete(c.commands, 0, len(steps))
	if len(c.commands) == 0 {
		c.commands = nil
	}
	c.room.Wake()
	return steps
}

// readStates joins the topics of the sets that steps start, and then reads the states of these sets in
// one call, so that no change after the state is missed.
func (c *session) readStates() error {
	var names []string
	for i := range c.steps {
		s := &c.steps[i]
		if s.err != nil || s.follow == "" || s.follow == everySet {
			continue
		}
		if s.f == nil {
			s.f = &setFollow{session: c, filter: s.filter, named: !s.every}
			c.server.topics.join(s.f, s.follow)
		}
		names = append(names, s.follow)
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	states, err := c.server.memory.Sets(c.ctx, slices.Compact(names)...)
	if isTemporary(err) {
		return err
	}
	c.failures = 0
	bySet := make(map[string]feed.State, len(states))
	for _, st := range states {
		bySet[st.Set] = st
		c.server.follower.NoteHead(st.Set, st.Head)
	}
	for i := range c.steps {
		s := &c.steps[i]
		if s.f == nil {
			continue
		}
		if s.state, s.exists = bySet[s.follow]; !s.exists && err != nil {
			s.state, s.stateErr = c.server.memory.State(c.ctx, s.follow) // err does not name the sets that it is about
			s.exists = s.stateErr == nil
			if errors.Is(s.stateErr, feed.ErrNoSet) {
				s.stateErr = nil
			}
		}
	}
	return nil
}

// executeStep executes a step. It returns an error if the memory is unavailable; the step must then be
// executed again.
func (c *session) executeStep(s *step) error {
	switch {
	case s.f != nil:
		return c.startSet(s)
	case s.err != nil:
		c.appendError(s.id, s.set(), s.err, feed.Cursor{})
	case s.follow == everySet:
		return c.followEvery(&s.command)
	case s.unfollow == everySet:
		c.unfollowEvery()
		c.appendAnswer(answer{ID: s.id, Unfollowed: everySet})
	default:
		if f := c.follows[s.unfollow]; f != nil {
			c.drop(f)
		}
		delete(c.stopped, s.unfollow)
		if c.all != nil {
			c.noteStopped(s.unfollow, stop{})
		}
		c.appendAnswer(answer{ID: s.id, Unfollowed: s.unfollow})
	}
	return nil
}

// startSet starts to follow the set of a step. It returns an error if the memory is unavailable.
func (c *session) startSet(s *step) error {
	release := func() {
		c.server.topics.leave(s.f)
		if s.acquired {
			c.releaseFollows(1)
		}
		if s.every && c.all != nil && !c.all.done {
			c.all.sets--
		}
	}
	again := false // whether the set disappeared before
	if s.every {
		if again = c.stopped[s.follow].absent; again {
			s.since = "start"
		}
		if c.all == nil || !c.wants(s.follow) || s.stateErr == nil && !(s.exists && c.mayFollowNow(s.state)) {
			release()
			return nil
		}
	} else if old := c.follows[s.follow]; old != nil {
		c.drop(old)
	}
	first, err := c.findStart(s)
	if isTemporary(err) {
		return err
	}
	if err == nil && !s.acquired {
		err = c.acquireFollows(1)
		s.acquired = err == nil
	}
	if err != nil {
		release()
		floor := feed.Cursor{}
		if s.exists && (errors.Is(err, feed.ErrGone) || errors.Is(err, feed.ErrNoSet) && c.mayFollowNow(s.state)) {
			floor = s.state.Floor
		}
		c.noteStopped(s.follow, stop{absent: errors.Is(err, feed.ErrNoSet), named: !s.every})
		c.appendError(s.id, s.follow, err, floor)
		return nil
	}
	delete(c.stopped, s.follow)
	f := s.f
	f.begin = s.state.Begin
	c.add(f)
	if first == nil {
		c.addBaseline(f, s)
		return nil
	}
	first.Diverged = first.Diverged || again
	f.moveTo(first.Cursor, first.Cursor)
	c.appendStart(s.id, first)
	if !s.exists || f.woken || first.Cursor != s.state.Head {
		c.markBehind(f)
	}
	return nil
}

// findStart returns a batch without changes at the cursor where a set starts, or nil if it starts with
// a baseline. A cursor is verified by the first read after it.
func (c *session) findStart(s *step) (*feed.Batch, error) {
	switch {
	case s.stateErr != nil:
		return nil, s.stateErr
	case s.exists && !c.mayFollowNow(s.state), !s.exists && !(c.server.follower.Waits(s.follow) && c.mayFollowNow(absentState(s.follow))):
		return nil, feed.ErrNoSet
	case isBaseline(s.since):
		return nil, nil
	}
	at, err := feed.ParseCursor(s.since)
	if _, terr := resourcesync.ParseTime(s.since); err != nil || terr == nil { // a month such as 2026-01 is a datetime
		return c.server.startFinder.FindIn(c.ctx, s.follow, s.state, s.exists, s.since)
	}
	switch {
	case !s.exists && !at.IsZero():
		return nil, feed.ErrNoSet
	case !at.IsZero() && at.Micros < s.state.Begin:
		return nil, remade()
	case at.Position < s.state.Floor.Position, !at.IsZero() && at.Micros < s.state.Floor.Micros:
		return nil, feed.ErrGone
	}
	return &feed.Batch{Set: s.follow, After: at, Cursor: at}, nil
}
