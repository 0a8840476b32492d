// Package mirror maintains a copy of a source's resources: it reads a hub, or the source's lists,
// and passes the resources on to a Sink such as a directory.
//
// Its parts: package home is the directory of the bookkeeping, ledger and filename say which file
// belongs to which resource, fetch gets contents, pack reads dumps, and patch applies changes of
// content. What exists at the source comes from package client (a hub) or internal/source/harvest
// (lists). rsmirror is its command.
package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"sync"
	"time"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/internal/mirror/fetch"
	"github.com/rshub/rshub/internal/mirror/home"
	"github.com/rshub/rshub/internal/mirror/ledger"
	"github.com/rshub/rshub/internal/source/discovery"
	"github.com/rshub/rshub/internal/source/harvest"
	"github.com/rshub/rshub/internal/source/reconcile"
	"github.com/rshub/rshub/resourcesync"
)

// Options say how a Mirror works. Zero values are the defaults.
type Options struct {
	HTTP      *http.Client // for a source's documents; default http.DefaultClient
	Hub       client.Options
	Prefix    string        // only resources whose loc begins with it; default: all
	Every     time.Duration // how often to look at a source without a hub; default 5 minutes
	Patience  time.Duration // how long a Run with once waits for a source that does not answer; default 10 minutes
	UserAgent string

	// Collection is a URI: only resources with a link rel=collection to it. A resource that
	// leaves the collection is deleted. Default: all.
	Collection string

	MaxSize int64 // the most bytes of a package of a dump; default 10 GiB

	// Note is called with messages for people. Several goroutines may call it at the
	// same time. Default: nothing is called.
	Note func(format string, args ...any)

	// Expect is called with the number of resources that a hub has, before they are
	// mirrored. Default: nothing is called.
	Expect func(resources uint64)
}

// A Mirror passes the resources and changes of a source on to a Sink. Its state is in its
// home.Home, so it continues where it was, even after a crash.
type Mirror struct {
	home   *home.Home
	sink   Sink
	source discovery.Source
	opts   Options
	lister *harvest.Lister

	packages *fetch.Fetcher // of dumps

	oddly sync.Mutex
	said  map[string]bool // the mistakes of the source that were noted

	working    sync.Mutex      // held while changes of the source are applied
	replicated *client.Replica // the replica that gave the last update; nil: no update yet
	applied    feed.Cursor     // cursor of that update
}

// New returns the Mirror of a source in a home.
func New(h *home.Home, source *discovery.Source, sink Sink, o Options) *Mirror {
	o.HTTP = cmp.Or(o.HTTP, http.DefaultClient)
	o.Every = cmp.Or(o.Every, 5*time.Minute)
	o.Patience = cmp.Or(o.Patience, 10*time.Minute)
	if o.Note == nil {
		o.Note = func(string, ...any) {}
	}
	m := &Mirror{home: h, sink: sink, source: *source, opts: o, said: map[string]bool{}}
	m.lister = &harvest.Lister{Getter: &harvest.Getter{Client: o.HTTP, UserAgent: o.UserAgent, MaxWait: o.Patience}, Note: m.odd}
	m.packages = fetch.New(fetch.Options{Client: o.HTTP, MaxSize: o.MaxSize, UserAgent: o.UserAgent})
	return m
}

// maxSaid is how many mistakes of a source are noted.
const maxSaid = 1000

// odd notes a mistake in a document of the source that loses nothing. It notes each
// mistake once.
func (m *Mirror) odd(document string, mistake *resourcesync.Error) {
	m.oddly.Lock()
	defer m.oddly.Unlock()
	if key := document + " " + mistake.Msg; !m.said[key] && len(m.said) < maxSaid {
		m.said[key] = true
		m.opts.Note("%s: %v", document, mistake)
	}
}

// ErrNoLists means that a source offers nothing that can be mirrored.
var ErrNoLists = errors.New("the source has neither a hub that rsmirror can follow, nor a Resource List, a Resource Dump, a sitemap, a Change List or a Change Dump")

// A SourceError means that the source, or the hub, does not answer as it should. The
// mirror itself is right, and another Run continues it.
type SourceError struct{ Err error }

func (s *SourceError) Error() string { return s.Err.Error() }
func (s *SourceError) Unwrap() error { return s.Err }

// Run mirrors the source until ctx is done. With once, Run ends when the sink has
// everything that the source has, and everything that failed was tried again. Left then
// says what is missing. An error of the sink, such as a *reconcile.TooManyDeletions, ends Run.
// When ctx is done, the error is nil, except with once.
func (m *Mirror) Run(ctx context.Context, once bool) (Left, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	defer wg.Wait()
	asked, end := context.WithCancel(ctx)
	defer end()
	wg.Go(func() {
		m.home.Answer(asked, func(dir string) error { return m.copyTo(asked, dir) }, m.opts.Note)
	})
	if !once {
		wg.Go(func() {
			if err := m.retry(ctx); err != nil {
				cancel(err)
			}
		})
	}
	err := m.follow(ctx, cancel, once)
	if !once {
		cancel(err)
		wg.Wait()
	} else if err == nil {
		err = context.Cause(ctx)
	}
	if cause := context.Cause(ctx); errors.Is(err, context.Canceled) && cause != nil {
		err = cause
	}
	switch {
	case !once && errors.Is(err, context.Canceled):
		return Left{}, nil
	case !once || err != nil:
		return Left{}, err
	}
	return m.sink.Retry(ctx, true)
}

// patient returns options for a hub, and what has to be called when the hub has answered. With
// once, cancel is called when the hub has not answered for as long as Patience.
func (m *Mirror) patient(cancel context.CancelCauseFunc, once bool) (o client.Options, answers func()) {
	var away time.Time // since when the hub does not answer; zero: it does
	o = m.opts.Hub
	note := o.OnRetry
	o.OnRetry = func(err error, wait time.Duration) {
		if note != nil {
			note(err, wait)
		}
		now := time.Now()
		if away.IsZero() {
			away = now
		}
		if since := now.Sub(away); once && since > m.opts.Patience {
			cancel(&SourceError{fmt.Errorf("gave up after %v: %w", since.Round(time.Second), err)})
		}
	}
	return o, func() { away = time.Time{} }
}

func (m *Mirror) follow(ctx context.Context, cancel context.CancelCauseFunc, once bool) error {
	hub, set, ok := m.source.RSHub()
	if !ok {
		return m.lists(ctx, once)
	}
	o, answers := m.patient(cancel, once)
	c, err := client.New(hub, o)
	if err != nil {
		return &SourceError{err}
	}
	for {
		complete, at, err := m.complete(ctx, c, set)
		switch {
		case errors.Is(err, feed.ErrNoInventory):
			m.opts.Note("the hub keeps no inventory of the set: its lists are looked at every %v instead", m.opts.Every)
			return m.lists(ctx, once)
		case err != nil:
			return err
		}
		own := m.source.ResourceList == feed.Base(hub).ResourceList(set)
		if err := m.before(ctx, complete || own, at); err != nil {
			return err
		}
		again, err := m.replica(ctx, c, set, once, m.listed() && !own, answers)
		if err != nil || !again {
			return err
		}
		m.opts.Note("the hub's log does not reach back far enough: reading the source's list again")
		if err := errors.Join(m.home.ForgetPages(), m.keep(new(looks))); err != nil {
			return err
		}
	}
}

// complete reports whether a hub knows all resources of a set, and a cursor that its log
// reaches back to.
func (m *Mirror) complete(ctx context.Context, c *client.Client, set string) (complete bool, at feed.Cursor, err error) {
	for page, err := range c.Baseline(ctx, set, client.BaselineOptions{Limit: 1, Prefix: m.opts.Prefix}) {
		if err != nil {
			return false, at, &SourceError{err}
		}
		if m.opts.Expect != nil && m.opts.Collection == "" { // nobody knows how many a collection has
			m.opts.Expect(page.Count)
		}
		return page.Complete, page.Next.Cursor, nil
	}
	return false, at, context.Cause(ctx)
}

// before applies the source's own Resource List, unless the hub knows all resources. It
// does so only once, before any change from the hub, because the list would undo those.
// It stores the hub's cursor before it reads the list. A resource that is deleted
// meanwhile is in the log after this cursor, but in no baseline.
func (m *Mirror) before(ctx context.Context, known bool, at feed.Cursor) error {
	var st looks
	if _, err := m.home.Ledger.Meta("looks", &st); err != nil || st.Pushed {
		return err
	}
	switch {
	case known || st.Listed && st.After != "":
	case !m.listed():
		m.opts.Note("the hub does not know all resources of the set, and the source has no Resource List: the mirror will have what is published from now on, and what the hub knows")
	default:
		m.opts.Note("the hub does not know all resources of the set: reading the source's own list first")
		if st.After == "" { // a partly read dump continues
			st.After = at.String()
			if err := m.keep(&st); err != nil {
				return err
			}
		}
		if err := m.takeAll(ctx, &st); err != nil {
			return err
		}
	}
	st.Pushed = true
	return m.keep(&st)
}

// replica follows a hub by a Replica, and calls answers whenever the hub has answered. listed
// says that the source has a list of its own. again means that this has to be read again,
// because the log does not reach back to its last reading, or to where the mirror was.
func (m *Mirror) replica(ctx context.Context, c *client.Client, set string, once, listed bool, answers func()) (again bool, err error) {
	r, closed, err := m.open(ctx, c, set)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, closed()) }()
	if at, whole := r.Cursor(); whole { // it may have been stopped at the end of a baseline
		if again, err := m.arrived(ctx, c, set, r, listed, &client.Update{Cursor: at}); again || err != nil {
			return again, err
		}
	}
	var updates iter.Seq2[*client.Update, error]
	if once {
		updates = r.CatchUp(ctx)
	} else {
		updates = r.Follow(ctx)
	}
	for u, err := range updates {
		if many, ok := errors.AsType[*reconcile.TooManyDeletions](err); ok {
			return false, many
		}
		if err != nil {
			return false, &SourceError{err}
		}
		answers()
		over := u.Baseline && len(u.Entries) == 0
		if over {
			m.opts.Note("the baseline is complete, at cursor %v", u.Cursor)
		}
		if err := m.apply(ctx, r, u); err != nil {
			return false, err
		}
		if !over {
			continue
		}
		if again, err := m.arrived(ctx, c, set, r, listed, u); again || err != nil {
			return again, err
		}
	}
	return false, nil
}

// begins is called before a baseline of a hub changes anything. A baseline after the first one
// does not say what was deleted since the one before, unless it is complete.
func (m *Mirror) begins() error {
	var st looks
	if _, err := m.home.Ledger.Meta("looks", &st); err != nil || !st.Pushed || st.After != "" || st.Again {
		return err
	}
	st.Again = true
	return m.keep(&st)
}

// arrived does what is left to do at the end of a baseline, whose last update is u. again is as
// in replica.
func (m *Mirror) arrived(ctx context.Context, c *client.Client, set string, r *client.Replica, listed bool, u *client.Update) (again bool, err error) {
	var st looks
	if _, err := m.home.Ledger.Meta("looks", &st); err != nil {
		return false, err
	}
	if st.Again {
		if listed && !u.Complete {
			return true, nil
		}
		st.Again = false
		if err := m.keep(&st); err != nil {
			return false, err
		}
	}
	return m.meanwhile(ctx, c, set, r, u.Cursor)
}

// meanwhile applies the deletions since the mirror began to read the source's list, up to
// a cursor. The replica holds a baseline as of that cursor, which does not name deleted
// resources. Then meanwhile removes what neither the list nor the baseline names. again means
// that the log does not reach back that far.
func (m *Mirror) meanwhile(ctx context.Context, c *client.Client, set string, r *client.Replica, to feed.Cursor) (again bool, err error) {
	m.working.Lock()
	defer m.working.Unlock()
	var st looks
	if _, err := m.home.Ledger.Meta("looks", &st); err != nil || st.After == "" {
		return false, err
	}
	state, release, err := r.State(ctx)
	if err != nil {
		return false, err
	}
	defer release()
	o := client.FollowOptions{Filter: feed.Filter{Prefix: m.opts.Prefix, Changes: []resourcesync.ChangeType{resourcesync.Deleted}}}
	for b, err := range c.Follow(ctx, set, st.After, o) {
		switch {
		case errors.Is(err, feed.ErrGone) || err == nil && b.Diverged:
			return true, nil
		case err != nil:
			return false, &SourceError{err}
		}
		var gone []feed.Entry
		for _, e := range b.Entries {
			if now, held, err := state.Get(ctx, e.Change.Loc); err != nil {
				return false, err
			} else if !held || !m.wants(&now.Change) {
				gone = append(gone, e)
			}
		}
		if err := m.pass(ctx, gone); err != nil {
			return false, err
		}
		if b.Cursor.Position >= to.Position {
			if st.Seen != nil && !st.Seen.At.IsZero() { // what came after the list, it cannot name
				if err := m.adrift(ctx, r, feed.Cursor{Position: to.Position, Micros: st.Seen.At.UnixMicro()}); err != nil {
					return false, err
				}
			}
			st.After = ""
			return false, m.keep(&st)
		}
	}
	return false, context.Cause(ctx)
}

// apply passes an update of a replica on to the sink.
func (m *Mirror) apply(ctx context.Context, r *client.Replica, u *client.Update) error {
	m.working.Lock()
	defer m.working.Unlock()
	m.replicated, m.applied = r, u.Cursor
	if err := m.pass(ctx, u.Entries); err != nil || !u.Complete {
		return err
	}
	return m.adrift(ctx, r, u.Cursor)
}

// pass passes entries on to the sink, and then forgets the source's listing of their
// resources: the hub knows them now, or they are gone.
func (m *Mirror) pass(ctx context.Context, entries []feed.Entry) error {
	if err := m.sink.Apply(ctx, entries); err != nil {
		return err
	}
	var b ledger.Batch
	for i := range entries {
		loc := entries[i].Change.Loc
		_, listed, err := m.home.Ledger.Seen(loc)
		if err != nil {
			return err
		}
		if listed {
			b.Unlisted(loc)
		}
	}
	if b.Empty() {
		return nil
	}
	return m.home.Ledger.Commit(&b)
}

// open opens the replica of a home. The deletions of a baseline in a directory count for
// the same bound as all others. Another sink decides by itself.
func (m *Mirror) open(ctx context.Context, c *client.Client, set string) (*client.Replica, func() error, error) {
	pages, closed, err := m.home.OpenPages()
	if err != nil {
		return nil, nil, err
	}
	o := client.ReplicaOptions{Store: pages, Prefix: m.opts.Prefix, Collection: m.opts.Collection, Holds: m.holds, MaxDelete: -1, BeforeBaseline: m.begins}
	if d, ok := m.sink.(*Directory); ok {
		o.MayDelete = d.mayDelete
	}
	r, err := c.OpenReplica(ctx, set, o)
	if err != nil {
		return nil, nil, errors.Join(err, closed())
	}
	return r, closed, nil
}

// retry calls Retry of the sink whenever something is due, until ctx is done.
func (m *Mirror) retry(ctx context.Context) error {
	const look = 5 * time.Second // something may fail at any time
	for {
		left, err := m.sink.Retry(ctx, false)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		wait := look
		if !left.Next.IsZero() {
			wait = max(100*time.Millisecond, min(wait, time.Until(left.Next)))
		}
		if backoff.Sleep(ctx, wait) != nil {
			return nil
		}
	}
}
