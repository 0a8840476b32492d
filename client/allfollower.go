package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// closeNoRight is the close code of a hub for a token that expired or was withdrawn.
const closeNoRight = 4401

// socketError returns the error of FollowAll for an error of the connection.
func (f *allFollower) socketError(err error) error {
	if errors.Is(err, ErrNotHub) {
		return notHubError(fmt.Sprintf("%s: %v", f.client.base.Changes(), err))
	}
	if c, ok := errors.AsType[*closeError](err); ok && c.code == closeNoRight {
		p := &feed.Problem{
			Type: resourcesync.Terms + "problems/unauthorized", Title: http.StatusText(http.StatusUnauthorized),
			Status: http.StatusUnauthorized, Detail: resourcesync.Shorten(c.reason),
		}
		return &RefusedError{Problem: p}
	}
	return &UnavailableError{Err: fmt.Errorf("connection to %s: %w", f.client.base.Changes(), err), Tries: 1}
}

// firstCommands returns the commands of a new connection. All sets with cursors are named before those
// that opts.All adds.
func (f *allFollower) firstCommands() (texts [][]byte) {
	names := slices.Sorted(maps.Keys(f.sets))
	for _, name := range names {
		if s := f.sets[name]; s.state == active {
			texts = append(texts, newFollow(name, s.since, s.filter).text())
		}
	}
	if !f.opts.All {
		return texts
	}
	texts = append(texts, newFollow(everySet, f.allSince, &f.opts.AllFilter).text())
	for _, name := range names {
		// The hub excludes a set only from a follow of every set that precedes.
		if s := f.sets[name]; s.state == excluded {
			s.leaving = true
			texts = append(texts, command{Unfollow: name}.text())
		}
	}
	return texts
}

// handleMessage handles a message of the hub.
func (f *allFollower) handleMessage(ctx context.Context, m *hubMessage) error {
	var err error
	switch {
	case m.batch != nil:
		err = f.handleBatch(ctx, m.batch)
	case m.problem != nil:
		err = f.handleProblem(m)
	case m.cursors != nil:
		err = f.handleCursors(ctx, m.cursors)
	case m.unfollowed != "":
		s := f.sets[m.unfollowed]
		if s == nil || !s.leaving {
			err = notHubError(fmt.Sprintf("the hub no longer follows set %q, without a reason", m.unfollowed))
			break
		}
		s.leaving = false
	case m.followed == everySet && f.opts.All:
		f.allSince = "start"
		if f.opts.OnAllStarted != nil {
			f.opts.OnAllStarted()
		}
	default:
		return nil // of a later version
	}
	if err == nil {
		f.started = true
	}
	return err
}

// handleBatch yields a batch unless it brings nothing new. A batch that does not continue its set is
// an error.
func (f *allFollower) handleBatch(ctx context.Context, b *feed.Batch) error {
	s := f.sets[b.Set]
	switch {
	case s == nil && f.opts.All:
		s = newFollowedSet("", &f.opts.AllFilter)
		f.sets[b.Set] = s
	case s == nil, s.state == excluded && !s.leaving:
		return notHubError(fmt.Sprintf("got changes of set %q, which is not followed", b.Set))
	case s.leaving:
		return nil
	case s.state == absent:
		s.state, s.known = active, false
		b.Diverged = true
	}
	if s.known && !b.Diverged && !continues(b, s.cursor) {
		return notHubError(fmt.Sprintf("got changes of set %q after %v, want after %v", b.Set, b.After, s.cursor))
	}
	if s.yielded && b.Cursor == s.cursor && !b.Diverged && len(b.Entries) == 0 {
		return nil // the start of a set in a later connection
	}
	return f.yieldBatch(ctx, s, b)
}

// yieldBatch yields a batch of a set, and saves its cursor.
func (f *allFollower) yieldBatch(ctx context.Context, s *followedSet, b *feed.Batch) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	set, cursor := b.Set, b.Cursor // the caller owns b
	s.moveTo(cursor)
	s.yielded, s.failures, f.failures = true, 0, 0
	f.started = true
	if !f.yield(b, nil) {
		return errBreak
	}
	if f.opts.Cursors == nil {
		return nil
	}
	if err := f.opts.Cursors.Save(context.WithoutCancel(ctx), set, cursor); err != nil {
		return fmt.Errorf("save cursor of set %q: %w", set, err)
	}
	return nil
}

// handleCursors yields an empty batch for each set whose filter omitted changes.
func (f *allFollower) handleCursors(ctx context.Context, cursors map[string]feed.Cursor) error {
	for _, set := range slices.Sorted(maps.Keys(cursors)) {
		s, at := f.sets[set], cursors[set]
		switch {
		case s == nil, s.state != active && !s.leaving, s.state == active && !s.known:
			return notHubError(fmt.Sprintf("got a cursor of set %q, which is not followed", set))
		case s.leaving:
			continue
		case at.Position < s.cursor.Position || at.Micros < s.cursor.Micros:
			return notHubError(fmt.Sprintf("got cursor %v of set %q, want one after %v", at, set, s.cursor))
		case at == s.cursor:
			continue
		}
		if err := f.yieldBatch(ctx, s, &feed.Batch{Set: set, After: s.cursor, Cursor: at}); err != nil {
			return err
		}
	}
	return nil
}

// handleProblem handles an error that the hub reports.
func (f *allFollower) handleProblem(m *hubMessage) error {
	refused := &RefusedError{Problem: m.problem}
	if m.set == "" {
		return refused
	}
	if m.set == everySet {
		if isTemporary(m.problem.Status) {
			return &UnavailableError{Err: &statusError{f.client.base, m.problem}, Tries: 1}
		}
		return refused
	}
	s := f.sets[m.set]
	switch {
	case s == nil && f.opts.All:
		s = newFollowedSet("", &f.opts.AllFilter)
		f.sets[m.set] = s
	case s == nil:
		return notHubError(fmt.Sprintf("got an error of set %q, which is not followed", m.set))
	case s.leaving:
		return nil
	case s.yielded && s.state == active && isTemporary(m.problem.Status):
		f.retrySet(m, s)
		return nil
	}
	switch {
	case !f.opts.All:
		delete(f.sets, m.set)
	case errors.Is(refused, feed.ErrNoSet):
		s.state, s.filter = absent, &f.opts.AllFilter
	default:
		s.state = excluded
	}
	if !f.yield(nil, &SetError{Set: m.set, Cursor: m.floor, Err: refused}) {
		return errBreak
	}
	return nil
}

// retrySet follows a set again after a delay, in the same connection.
func (f *allFollower) retrySet(m *hubMessage, s *followedSet) {
	wait := retryDelay(s.failures)
	s.failures++
	f.client.opts.OnRetry(&SetError{Set: m.set, Err: &UnavailableError{Err: &statusError{f.client.base, m.problem}, Tries: 1}}, wait)
	socket, text := f.socket, newFollow(m.set, s.since, s.filter).text()
	s.retry = time.AfterFunc(wait, func() { socket.send(text) })
}
