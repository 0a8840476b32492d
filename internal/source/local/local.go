// Package local compares a source with a set of the hub in this process, and publishes to that set.
// It implements reconcile.Hub without HTTP.
//
// Package reconcile decides what to publish; reconcile.Set does the same over HTTP.
package local

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/audit"
	"github.com/rshub/rshub/internal/inventory/auditor"
	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/internal/source/reconcile"
	"github.com/rshub/rshub/resourcesync"
)

// A Hub is the hub in this process.
type Hub struct {
	Memory      Memory
	Publisher   Publisher
	Inventories Inventories
	Trail       Trail
}

// A Memory is the reading part of changelog.Log.
type Memory interface {
	State(ctx context.Context, set string) (feed.State, error)
	Since(ctx context.Context, set string, after feed.Cursor, limit int) (*feed.Batch, error)
}

// A Publisher publishes to a set. It is implemented by *hub.Hub.
type Publisher interface {
	Publish(ctx context.Context, set string, p changelog.Publish) (changelog.Appended, error)
}

// Inventories returns the inventories of sets.
type Inventories interface {
	// State returns a state at a cursor that is not before from; with the zero cursor, the newest
	// one. It waits for such a state, but no longer than wait.
	State(ctx context.Context, set string, from feed.Cursor, wait time.Duration) (*inventory.Pinned, error)
	// At returns the state at exactly a cursor, or feed.ErrGone.
	At(ctx context.Context, set string, at feed.Cursor) (*inventory.Pinned, error)
	// Complete records whether the hub knows all resources of a set.
	Complete(ctx context.Context, set string, complete bool) error
}

// A Trail is an audit log.
type Trail interface {
	// Fetched returns a context for a publish of changes found at a source, and a function that
	// adds the publish, with its error, to the audit log.
	Fetched(ctx context.Context, set string) (context.Context, func(error))
}

// A Set is a set of the hub in this process, as package reconcile uses it. It compares and
// publishes without requests, and with all rights.
//
// A Set is not safe for concurrent use.
type Set struct {
	Hub  *Hub
	Name string

	current *comparison // comparison in progress; nil if Differences is not running
}

// A span is a part of the log: the entries after one cursor, up to another one.
type span struct{ after, last feed.Cursor }

var _ reconcile.Hub = (*Set)(nil)

const (
	retryTime     = 5 * time.Minute // maximum time of retries for the hub's own memory and inventory
	wait          = 5 * time.Second // maximum wait for the newest inventory
	maxAudits     = 5               // how often a comparison restarts because its inventory is no longer retained
	maxFound      = 10_000          // differences that are held until the log was read
	maxFoundBytes = 8 << 20         // approximate maximum bytes of these
	pageSize      = 1_000           // entries of the log that are read together
)

// errDeleted is not feed.ErrNoSet, so that a deleted set is not recreated.
var errDeleted = errors.New("the set was deleted")

// retry calls f until it succeeds, or until its error does not ask for a retry.
func (s *Set) retry(ctx context.Context, f func() error) error {
	for end := time.Now().Add(retryTime); ; {
		err := f()
		if errors.Is(err, feed.ErrNoSet) {
			return errDeleted
		}
		e, ok := errors.AsType[*feed.Error](err)
		if !ok || e.RetryAfter == 0 || time.Now().After(end) {
			return err
		}
		if backoff.Sleep(ctx, time.Duration(e.RetryAfter)*time.Second) != nil {
			return errors.Join(err, ctx.Err())
		}
	}
}

// Differences compares by content.
func (s *Set) Differences(ctx context.Context, tally reconcile.TallyFunc, own auditor.StateFunc, look func(audit.Summary)) iter.Seq2[audit.Difference, error] {
	return func(yield func(audit.Difference, error) bool) {
		c := &comparison{Set: s, yield: yield}
		s.current = c
		defer func() { s.current = nil }()
		for n := 1; ; n++ {
			err := c.run(ctx, tally, own, look)
			if errors.Is(err, feed.ErrGone) && !c.yielded && n < maxAudits {
				continue
			}
			if err != nil && err != errNoMore {
				yield(audit.Difference{}, err)
			}
			return
		}
	}
}

var errNoMore = errors.New("the caller stopped the iteration")

// A comparison is one call of Differences.
type comparison struct {
	*Set
	yield    func(audit.Difference, error) bool
	first    feed.Cursor // cursor of the first state that was examined; zero before it
	found    []audit.Difference
	size     int64  // approximate bytes of found
	yielded  bool   // whether a difference was yielded
	ownSpans []span // publishes of the Set since the first state, in the order of the log
}

func (c *comparison) run(ctx context.Context, tally reconcile.TallyFunc, own auditor.StateFunc, look func(audit.Summary)) error {
	l, err := c.auditNewest(ctx)
	if err != nil {
		return err
	}
	look(l)
	if c.first.IsZero() {
		c.first = l.Cursor
	}
	t, err := tally(ctx)
	if err != nil || t.Count == l.Count && t.Digest(digest.ByContent) == l.Content {
		return err
	}
	state, err := own(ctx)
	if err != nil {
		return err
	}
	ask := func(ctx context.Context, q audit.Question) (audit.Reply, error) {
		q.At = l.Cursor
		return c.answer(ctx, q)
	}
	c.found, c.size = nil, 0
	for d, err := range audit.Compare(ctx, state, digest.ByContent, inventory.Range{}, ask) {
		if err != nil {
			return err
		}
		c.found = append(c.found, d)
		for _, e := range []*feed.Entry{d.Own, d.Theirs} {
			if e != nil {
				c.size += e.Change.Memory()
			}
		}
		if len(c.found) == maxFound || c.size > maxFoundBytes {
			if err := c.yieldFound(ctx); err != nil {
				return err
			}
		}
	}
	return c.yieldFound(ctx)
}

// auditNewest returns the digests of the newest inventory.
func (c *comparison) auditNewest(ctx context.Context) (l audit.Summary, err error) {
	err = c.retry(ctx, func() error {
		held, err := c.Hub.Inventories.State(ctx, c.Name, feed.Cursor{}, wait)
		if err != nil {
			return err
		}
		defer held.Release()
		l, err = audit.Summarize(ctx, held.State, inventory.Range{})
		l.Set, l.Complete = c.Name, held.Complete
		return err
	})
	return l, err
}

// answer answers a question. If the answer is too large, it splits the question.
func (c *comparison) answer(ctx context.Context, q audit.Question) (reply audit.Reply, err error) {
	err = c.retry(ctx, func() error {
		held, err := c.Hub.Inventories.At(ctx, c.Name, q.At)
		if err != nil {
			return err
		}
		defer held.Release()
		reply, err = audit.Answer(ctx, held.State, q)
		reply.Set = c.Name
		return err
	})
	half := len(q.Ranges) / 2
	if !errors.Is(err, resourcesync.ErrTooLarge) || half == 0 {
		return reply, err
	}
	first, second := q, q
	first.Ranges, second.Ranges = q.Ranges[:half], q.Ranges[half:]
	if reply, err = c.answer(ctx, first); err != nil {
		return reply, err
	}
	rest, err := c.answer(ctx, second)
	reply.Ranges = append(reply.Ranges, rest.Ranges...)
	return reply, err
}

// yieldFound yields the differences that were found. It leaves out resources that another publisher
// has published since the first state.
func (c *comparison) yieldFound(ctx context.Context) error {
	unnamed := make(map[string]bool, len(c.found))
	for i := range c.found {
		unnamed[c.found[i].Loc] = true
	}
	if err := c.dropPublished(ctx, unnamed); err != nil {
		return err
	}
	for _, d := range c.found {
		if !unnamed[d.Loc] {
			continue
		}
		if c.yielded = true; !c.yield(d, nil) {
			return errNoMore
		}
	}
	c.found, c.size = c.found[:0], 0
	return nil
}

// dropPublished removes the locs that the log has named since the first state. It reads the log
// from there each time, because a set of all names would grow with the log. It skips the publishes
// of the Set itself, which are most of the new entries: each names only resources that were yielded
// before.
func (c *comparison) dropPublished(ctx context.Context, locs map[string]bool) error {
	own := c.ownSpans
	for at := c.first; ; {
		for len(own) > 0 && own[0].after.Position < at.Position {
			own = own[1:]
		}
		limit := pageSize
		if len(own) > 0 {
			if at == own[0].after {
				at = own[0].last
				continue
			}
			limit = int(min(pageSize, own[0].after.Position-at.Position))
		}
		var b *feed.Batch
		err := c.retry(ctx, func() (err error) {
			b, err = c.Hub.Memory.Since(ctx, c.Name, at, limit)
			return err
		})
		if err == nil && b.Diverged {
			err = fmt.Errorf("%w: the log of set %q does not hold %v", feed.ErrGone, c.Name, at)
		}
		if err != nil {
			return err
		}
		if len(b.Entries) == 0 {
			return nil
		}
		for i := range b.Entries {
			delete(locs, b.Entries[i].Change.Loc)
		}
		at = b.Cursor
	}
}

// Publish publishes under a key of the poller.
func (s *Set) Publish(ctx context.Context, key string, changes []resourcesync.Change) (at feed.Cursor, err error) {
	p := changelog.Publish{Changes: changes, Key: "poll-" + key, Hash: sha256.Sum256([]byte(key))} // the key is a hash of the changes
	ctx = access.NewContext(ctx, access.Caller{Rights: access.All()})
	err = s.retry(ctx, func() error {
		if _, err := s.Hub.Memory.State(ctx, s.Name); err != nil {
			return err
		}
		trailCtx, logPublish := s.Hub.Trail.Fetched(ctx, s.Name)
		a, err := s.Hub.Publisher.Publish(trailCtx, s.Name, p)
		logPublish(err)
		if at = a.Cursor; err == nil && !a.Replayed && s.current != nil {
			s.current.addPublished(span{a.After, a.Cursor})
		}
		return err
	})
	return at, err
}

// addPublished records a publish of the Set.
func (c *comparison) addPublished(p span) {
	if n := len(c.ownSpans); n > 0 && c.ownSpans[n-1].last == p.after {
		c.ownSpans[n-1].last = p.last
		return
	}
	c.ownSpans = append(c.ownSpans, p)
}

// HasCursor reports whether the log has a cursor, or had it until retention removed it.
func (s *Set) HasCursor(ctx context.Context, at feed.Cursor) (held bool, err error) {
	err = s.retry(ctx, func() error {
		b, err := s.Hub.Memory.Since(ctx, s.Name, at, 1)
		if !errors.Is(err, feed.ErrGone) {
			held = err == nil && !b.Diverged
			return err
		}
		// Either retention removed the entry, or the log is another one, which started later.
		st, err := s.Hub.Memory.State(ctx, s.Name)
		held = err == nil && st.Begin <= at.Micros && st.Floor.Position >= at.Position
		return err
	})
	return held, err
}

// Create always fails: only a set that exists has a source.
func (s *Set) Create(context.Context) error { return errDeleted }

// SetComplete records that the hub knows all resources of the set.
func (s *Set) SetComplete(ctx context.Context) error {
	return s.retry(ctx, func() error { return s.Hub.Inventories.Complete(ctx, s.Name, true) })
}
