package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// FollowAllOptions configures Client.FollowAll. It must name sets or have All.
type FollowAllOptions struct {
	Sets []FollowSet // sets to follow, each once

	// All adds every other set that the caller may follow. Sets that are created or become visible
	// later start with their oldest change.
	All       bool
	AllSince  string      // start of the sets that All adds at first: "now", "start" or a datetime; default: "now"
	AllFilter feed.Filter // filter of the changes of sets that All adds; default: all changes

	// OnAllStarted is called in each connection with All, after FollowAll has yielded the first
	// batch of every set that existed at its start. Default: no call.
	OnAllStarted func()

	// Cursors stores how far the caller has processed each set. A stored cursor has precedence over
	// FollowSet.Since. With All, every set that has a cursor is followed from there. If there are
	// such cursors, AllSince is "start", so sets that were created in the meantime are complete.
	// Default: nil, and nothing is stored.
	Cursors CursorStore

	// Silence is the time without a sign of life of the hub after which FollowAll connects again.
	// It must be longer than the hub's RSHUB_HEARTBEAT. Default: 2 minutes.
	Silence time.Duration
}

// A FollowSet is a set for FollowAll to follow.
type FollowSet struct {
	Set    string
	Since  string      // position to start from, as for Client.Follow; default: "now"
	Filter feed.Filter // filter of the changes to yield; default: all changes
}

// A CursorStore stores a cursor for each of several sets. *CursorFile implements it.
type CursorStore interface {
	// Load returns the cursors that were saved last. The caller may modify the map.
	Load(ctx context.Context) (map[string]feed.Cursor, error)

	// Save stores the cursor of a set, and replaces its former one. After a crash, the store may
	// have an earlier cursor of the set; changes are then repeated.
	Save(ctx context.Context, set string, cursor feed.Cursor) error
}

// A SetError reports that FollowAll no longer follows a set, and why. The other sets are not
// affected.
type SetError struct {
	Set    string
	Cursor feed.Cursor // oldest cursor of the set that works; zero if unknown or if there is no such set
	Err    error       // a *RefusedError; errors.Is finds the feed.Error that it names, such as feed.ErrGone or feed.ErrNoSet
}

// Error returns the set and the reason that the hub gave.
func (e *SetError) Error() string { return fmt.Sprintf("follow set %q: %v", e.Set, e.Err) }

// Unwrap returns e.Err.
func (e *SetError) Unwrap() error { return e.Err }

const defaultSilence = 2 * time.Minute

// FollowAll yields the changes of any number of sets over one WebSocket, batch by batch, and blocks
// until there are changes. It gives the promise of Follow for each set: the batches are in order, each
// starts where the previous one ended, and only a Diverged one may repeat changes. The first batch of
// a set may be empty. A later batch is empty only if the filter omitted its changes. Batches of
// different sets arrive in any order.
//
// FollowAll continues after outages and restarts of the hub, as Follow does, and after the hub has
// closed the connection because the caller is slow. It reads a message only when the caller asks for
// the next batch, so it needs memory for one message, and for the cursor of each set.
//
// If options.Cursors is not nil, FollowAll saves the cursor of a batch when the caller asks for the
// next one. So if the loop ends early or the program crashes, the next FollowAll yields the batch
// again.
//
// A *SetError concerns one set, which is then no longer followed. FollowAll continues with the other
// sets, and ends if none is left. With All, a set that does not exist or is hidden (feed.ErrNoSet) is
// followed again when it appears: its first batch then is Diverged, it starts with its oldest
// change, and AllFilter applies to it. If a hub refuses to continue with a set for a reason that may
// pass, such as a limit, FollowAll retries as in an outage.
//
// Any other error is the last thing that FollowAll yields. It is a *RefusedError if the hub refuses
// the connection, for example because the token expired, an error of options.Cursors, or one that
// Follow yields before its first batch. When ctx is done, FollowAll ends without an error. FollowAll
// always closes the connection and waits for its goroutines before it ends.
//
// FollowAll does not read baselines. A destination that maintains copies passes the batches of each
// set to the ApplyBatch of a Replica, which reads a baseline when one is needed.
func (c *Client) FollowAll(ctx context.Context, o FollowAllOptions) iter.Seq2[*feed.Batch, error] {
	return func(yield func(*feed.Batch, error) bool) {
		f, err := newAllFollower(ctx, c, o)
		if err == nil {
			f.yield = yield
			err = f.run(ctx)
		}
		if err != nil && err != errBreak && ctx.Err() == nil {
			yield(nil, err)
		}
	}
}

// errBreak means that the caller ended the loop over FollowAll.
var errBreak = errors.New("the caller ended the loop")

// An allFollower holds the state of a call of FollowAll. Only the caller's goroutine uses it.
type allFollower struct {
	client   *Client
	opts     FollowAllOptions
	attempts // connections

	yield    func(*feed.Batch, error) bool
	sets     map[string]*followedSet
	allSince string // start of sets without a cursor in the next connection, with opts.All

	socket *webSocket // current connection
}

// A followedSet is the state of a set of FollowAll.
type followedSet struct {
	since    string       // start of the set in the next connection: a cursor if known
	cursor   feed.Cursor  // since as a cursor
	known    bool         // whether cursor is set
	filter   *feed.Filter // read-only
	yielded  bool         // whether a batch was yielded
	state    setState
	leaving  bool        // whether the hub follows an excluded set until it executes the command to unfollow it
	failures int         // number of temporary errors since the last batch
	retry    *time.Timer // last command after a temporary error; nil if there was no error
}

// A setState is the state of a set as far as FollowAll knows.
type setState byte

const (
	active   setState = iota // followed, or named in the next connection
	absent                   // deleted or hidden; the hub follows it when it appears, because of opts.All
	excluded                 // ended with an error; opts.All does not add it
)

// newAllFollower checks the options, and loads the cursors.
func newAllFollower(ctx context.Context, c *Client, o FollowAllOptions) (*allFollower, error) {
	if o.Silence <= 0 {
		o.Silence = defaultSilence
	}
	f := &allFollower{client: c, opts: o, sets: map[string]*followedSet{}, allSince: o.AllSince}
	if f.allSince == "" {
		f.allSince = "now"
	}
	_, terr := resourcesync.ParseTime(f.allSince)
	switch {
	case len(o.Sets) == 0 && !o.All:
		return nil, resourcesync.Invalidf("nothing to follow: name sets, or set All")
	case isBaseline(f.allSince):
		return nil, baselineError("AllSince")
	case o.All && f.allSince != "now" && f.allSince != "start" && terr != nil:
		return nil, resourcesync.Invalidf("AllSince: got %q, want now, start or a datetime", resourcesync.Shorten(f.allSince))
	}
	for i := range o.Sets {
		s := &o.Sets[i]
		if err := feed.CheckSet(s.Set); err != nil {
			return nil, err
		}
		switch {
		case f.sets[s.Set] != nil:
			return nil, resourcesync.Invalidf("set %q: named twice", s.Set)
		case isBaseline(s.Since):
			return nil, baselineError(fmt.Sprintf("set %q", s.Set))
		}
		f.sets[s.Set] = newFollowedSet(s.Since, &s.Filter)
	}
	for name, s := range f.sets {
		if err := checkCommand(newFollow(name, s.since, s.filter)); err != nil {
			return nil, err
		}
	}
	if err := checkCommand(newFollow(everySet, f.allSince, &o.AllFilter)); err != nil {
		return nil, err
	}
	return f, f.loadCursors(ctx)
}

func newFollowedSet(since string, filter *feed.Filter) *followedSet {
	if since == "" {
		since = "now"
	}
	s := &followedSet{since: since, filter: filter}
	s.cursor, s.known = parseSince(since)
	return s
}

// isBaseline reports whether a since asks for a baseline.
func isBaseline(since string) bool {
	_, err := feed.ParseBaselineCursor(since)
	return since == feed.SinceBaseline || err == nil
}

func baselineError(where string) error {
	return resourcesync.Invalidf("%s: cannot start with a baseline; use Client.Baseline, or a Replica with ApplyBatch", where)
}

// checkCommand returns an error if a command is larger than the hub accepts.
func checkCommand(m command) error {
	if n := len(m.text()) + 2*len(feed.Cursor{Position: feed.MaxNumber, Micros: feed.MaxNumber}.String()); n > maxCommand {
		return resourcesync.Invalidf("follow %q: the filter is too long; want at most %d bytes", m.Follow, maxCommand)
	}
	return nil
}

// loadCursors sets the positions of sets that opts.Cursors has.
func (f *allFollower) loadCursors(ctx context.Context) error {
	if f.opts.Cursors == nil {
		return nil
	}
	cursors, err := f.opts.Cursors.Load(ctx)
	if err != nil {
		return fmt.Errorf("load cursors: %w", err)
	}
	for set, at := range cursors {
		if err := feed.CheckSet(set); err != nil {
			return fmt.Errorf("load cursors: %w", err)
		}
		s := f.sets[set]
		if s == nil {
			if !f.opts.All {
				continue
			}
			s = &followedSet{filter: &f.opts.AllFilter}
			f.sets[set] = s
		}
		s.moveTo(at)
		f.allSince = "start"
	}
	return nil
}

// moveTo sets the position of s.
func (s *followedSet) moveTo(at feed.Cursor) { s.cursor, s.known, s.since = at, true, at.String() }

// run follows the sets until ctx is done. It returns errBreak or the error that ends FollowAll.
func (f *allFollower) run(ctx context.Context) error {
	for ctx.Err() == nil && f.hasSets() {
		begin := f.client.opts.Now()
		err := f.followOnce(ctx)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		if f.client.opts.Now().Sub(begin) > maxRetryDelay {
			f.failures = 0
		}
		wait, err := f.handleError(f.client, err)
		if err != nil {
			return err
		}
		if f.client.opts.Sleep(ctx, wait) != nil {
			return nil
		}
	}
	return nil
}

// hasSets reports whether there is a set to follow, or may be one later.
func (f *allFollower) hasSets() bool { return f.opts.All || len(f.sets) > 0 }

// followOnce follows the sets over one connection. It returns nil if no set is left to follow, or if
// ctx is done.
func (f *allFollower) followOnce(ctx context.Context) error {
	socket, err := f.client.dialWebSocket(ctx, f.client.base.Changes(), "rs.json+zstd", f.opts.Silence)
	if err != nil {
		return err
	}
	f.socket = socket
	defer func() {
		for _, s := range f.sets {
			if s.retry != nil {
				s.retry.Stop()
				s.retry = nil
			}
		}
		socket.close()
	}()
	socket.send(f.firstCommands()...)
	for ctx.Err() == nil && f.hasSets() {
		opcode, data, err := socket.receive(ctx)
		if err != nil {
			return f.socketError(err)
		}
		m, err := decodeMessage(opcode, data)
		if err == nil {
			err = f.handleMessage(ctx, &m)
		}
		if text, ok := errors.AsType[notHubError](err); ok {
			return notHubError(fmt.Sprintf("%s: %s", f.client.base.Changes(), string(text)))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
