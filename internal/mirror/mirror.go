// Package mirror maintains a copy of a source's resources. It follows a hub, or polls the
// source's lists, and passes the changes to a Sink such as a directory.
//
// Package home manages the mirror's directory, ledger and filename map resources to files, fetch
// downloads contents, pack reads the packages of dumps, and patch applies patches. Package client
// follows hubs, and internal/source/harvest reads lists. The command is rsmirror.
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

// Options configures a Mirror. Zero values are the defaults.
type Options struct {
	HTTP          *http.Client // client for the source's documents; default http.DefaultClient
	Hub           client.Options
	Prefix        string        // mirrors only resources whose loc starts with it; default: all
	PollInterval  time.Duration // time between polls of a source without a hub; default 5 minutes
	SourceTimeout time.Duration // how long Run with once waits for an unresponsive source; default 10 minutes
	UserAgent     string

	// Collection is a URI. Only resources with a link rel=collection to it are mirrored; one
	// that leaves the collection is deleted. Default: all resources.
	Collection string

	MaxSize int64 // maximum size of a package of a dump in bytes; default 10 GiB

	// Logf is called with messages for the user. It must be safe for concurrent use. Default:
	// messages are dropped.
	Logf func(format string, args ...any)

	// OnCount is called with the number of resources at the hub before they are mirrored.
	// Default: no call.
	OnCount func(resources uint64)
}

// A Mirror passes the resources and changes of a source to a Sink. Its state is in its
// home.Home, so it resumes where it stopped, even after a crash.
type Mirror struct {
	home   *home.Home
	sink   Sink
	source discovery.Source
	opts   Options
	lister *harvest.Lister

	packages *fetch.Fetcher // for packages of dumps

	notedMu sync.Mutex
	noted   map[string]bool // defects of the source that were logged

	position Position // position that the last followReplica has reached; zero if it was not called

	applyMu     sync.Mutex      // held while changes of the source are applied
	lastReplica *client.Replica // replica of the last update; nil before the first
	lastCursor  feed.Cursor     // cursor of that update
}

// New returns the Mirror of a source, with its state in h.
func New(h *home.Home, source *discovery.Source, sink Sink, o Options) *Mirror {
	o.HTTP = cmp.Or(o.HTTP, http.DefaultClient)
	o.PollInterval = cmp.Or(o.PollInterval, 5*time.Minute)
	o.SourceTimeout = cmp.Or(o.SourceTimeout, 10*time.Minute)
	if o.Logf == nil {
		o.Logf = func(string, ...any) {}
	}
	m := &Mirror{home: h, sink: sink, source: *source, opts: o, noted: map[string]bool{}}
	m.lister = &harvest.Lister{Getter: &harvest.Getter{Client: o.HTTP, UserAgent: o.UserAgent, MaxWait: o.SourceTimeout}, Note: m.noteMistake}
	m.packages = fetch.New(fetch.Options{Client: o.HTTP, MaxSize: o.MaxSize, UserAgent: o.UserAgent})
	return m
}

// maxMistakes is the maximum number of defects of a source that are logged.
const maxMistakes = 1000

// noteMistake logs a defect in a document of the source that loses no data. It logs each defect
// once.
func (m *Mirror) noteMistake(document string, mistake *resourcesync.Error) {
	m.notedMu.Lock()
	defer m.notedMu.Unlock()
	if key := document + " " + mistake.Msg; !m.noted[key] && len(m.noted) < maxMistakes {
		m.noted[key] = true
		m.opts.Logf("%s: %v", document, mistake)
	}
}

// ErrNoLists reports that a source offers nothing that can be mirrored.
var ErrNoLists = errors.New("find resources of the source: want a hub that rsmirror can follow, a Resource List, a Resource Dump, a sitemap, a Change List or a Change Dump, got none")

// A SourceError reports that the source or its hub is unavailable or sends invalid data. The
// mirror is intact: the next Run resumes it.
type SourceError struct{ Err error }

func (s *SourceError) Error() string { return s.Err.Error() }
func (s *SourceError) Unwrap() error { return s.Err }

// Run mirrors the source until ctx is canceled, then returns a nil error. With once, Run returns
// when the sink has applied everything that the source has and has retried all failures; the
// Backlog has what is still missing. If ctx is canceled before that, it returns the error of
// ctx. An error of the sink, such as *reconcile.TooManyDeletions, ends Run in both cases.
func (m *Mirror) Run(ctx context.Context, once bool) (Backlog, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	defer wg.Wait()
	copyCtx, stopCopies := context.WithCancel(ctx)
	defer stopCopies()
	wg.Go(func() { m.ServeCopies(copyCtx) })
	if !once {
		wg.Go(func() {
			if err := m.retryFailed(ctx); err != nil {
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
		return Backlog{}, nil
	case !once || err != nil:
		return Backlog{}, err
	}
	return m.sink.Retry(ctx, true)
}

// ServeCopies gives copies of the bookkeeping to processes that audit the mirror, until ctx is
// canceled. Run does so itself.
func (m *Mirror) ServeCopies(ctx context.Context) {
	m.home.ServeCopies(ctx, func(dir string) error { return m.copyTo(ctx, dir) }, m.opts.Logf)
}

// hubOptions returns options for a client of the hub, and a function to call whenever the hub
// has responded. With once, hubOptions calls cancel if the hub has been unavailable for
// SourceTimeout.
func (m *Mirror) hubOptions(cancel context.CancelCauseFunc, once bool) (o client.Options, responded func()) {
	if !once {
		return m.opts.Hub, func() {}
	}
	return LimitOutage(m.opts.Hub, m.opts.SourceTimeout, cancel)
}

// LimitOutage returns options for a client of a hub that call cancel with a SourceError when the
// hub has been unavailable for the duration of limit, and a function to call whenever the hub has
// responded. Neither is safe for concurrent use.
func LimitOutage(o client.Options, limit time.Duration, cancel context.CancelCauseFunc) (limited client.Options, responded func()) {
	var down time.Time // start of the outage; zero if the hub responds
	note := o.OnRetry
	o.OnRetry = func(err error, wait time.Duration) {
		if note != nil {
			note(err, wait)
		}
		now := time.Now()
		if down.IsZero() {
			down = now
		}
		if since := now.Sub(down); since > limit {
			cancel(&SourceError{fmt.Errorf("hub has been unavailable for %v: %w", since.Round(time.Second), err)})
		}
	}
	return o, func() { down = time.Time{} }
}

func (m *Mirror) follow(ctx context.Context, cancel context.CancelCauseFunc, once bool) error {
	hub, set, ok := m.source.RSHub()
	if !ok {
		return m.followLists(ctx, once)
	}
	o, responded := m.hubOptions(cancel, once)
	c, err := client.New(hub, o)
	if err != nil {
		return &SourceError{err}
	}
	for {
		complete, at, err := m.checkComplete(ctx, c, set)
		switch {
		case errors.Is(err, feed.ErrNoInventory):
			m.opts.Logf("the hub has no inventory of the set; polling its lists every %v instead", m.opts.PollInterval)
			return m.followLists(ctx, once)
		case err != nil:
			return err
		}
		ownList := m.source.ResourceList == feed.Base(hub).ResourceList(set)
		if err := m.applyOwnList(ctx, complete || ownList, at); err != nil {
			return err
		}
		reread, err := m.followReplica(ctx, c, set, once, m.hasListing() && !ownList, responded)
		if err != nil || !reread {
			return err
		}
		m.opts.Logf("the hub's log starts after the mirror's cursor; reading the source's list again")
		if err := errors.Join(m.home.RemovePages(), m.saveListState(new(listState))); err != nil {
			return err
		}
	}
}

// checkComplete reports whether a hub knows all resources of a set. The returned cursor is still
// in its log.
func (m *Mirror) checkComplete(ctx context.Context, c *client.Client, set string) (complete bool, at feed.Cursor, err error) {
	for page, err := range c.Baseline(ctx, set, client.BaselineOptions{Limit: 1, Prefix: m.opts.Prefix}) {
		if err != nil {
			return false, at, &SourceError{err}
		}
		if m.opts.OnCount != nil && m.opts.Collection == "" { // the hub counts the whole set, not the collection
			m.opts.OnCount(page.Count)
		}
		return page.Complete, page.Next.Cursor, nil
	}
	return false, at, context.Cause(ctx)
}

// applyOwnList applies the source's own Resource List, unless the hub knows all resources. It
// does so only once and before any change from the hub, because the list would revert those. It
// stores the hub's cursor before it reads the list: a resource deleted in the meantime is in the
// log after this cursor, but in no baseline.
func (m *Mirror) applyOwnList(ctx context.Context, known bool, at feed.Cursor) error {
	var st listState
	if _, err := m.home.Ledger.Meta("looks", &st); err != nil || st.Pushed {
		return err
	}
	switch {
	case known || st.Listed && st.After != "":
	case !m.hasListing():
		m.opts.Logf("the hub does not know all resources of the set, and the source has no Resource List; mirroring only the resources that the hub knows")
	default:
		m.opts.Logf("the hub does not know all resources of the set; reading the source's own list first")
		if st.After == "" { // else resume the partly read dump
			st.After = at.String()
			if err := m.saveListState(&st); err != nil {
				return err
			}
		}
		if err := m.applyListing(ctx, &st); err != nil {
			return err
		}
	}
	st.Pushed = true
	return m.saveListState(&st)
}

// followReplica follows a hub through a Replica, and calls responded whenever the hub has
// responded. listed reports whether the source has a list of its own. reread means that this
// list must be read again, because the log starts after its last reading, or after the mirror's
// cursor.
func (m *Mirror) followReplica(ctx context.Context, c *client.Client, set string, once, listed bool, responded func()) (reread bool, err error) {
	r, closed, err := m.openReplica(ctx, c, set)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, closed()) }()
	defer func() {
		m.position.Cursor, _ = r.Cursor()
		m.position.Leftovers = r.HasLeftovers()
	}()
	if at, complete := r.Cursor(); complete { // the last run may have stopped at the end of a baseline
		if reread, err := m.finishBaseline(ctx, c, set, r, listed, &client.Update{Cursor: at}); reread || err != nil {
			return reread, err
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
		responded()
		atEnd := u.Baseline && len(u.Entries) == 0
		if atEnd {
			m.opts.Logf("baseline is complete at cursor %v", u.Cursor)
		}
		if err := m.applyUpdate(ctx, r, u); err != nil {
			return false, err
		}
		if !atEnd {
			continue
		}
		if reread, err := m.finishBaseline(ctx, c, set, r, listed, u); reread || err != nil {
			return reread, err
		}
	}
	return false, nil
}

// beforeBaseline is called before a baseline of a hub changes anything. A later baseline does
// not name the resources that were deleted since the previous one, unless it is complete.
func (m *Mirror) beforeBaseline() error {
	var st listState
	if _, err := m.home.Ledger.Meta("looks", &st); err != nil || !st.Pushed || st.After != "" || st.Again {
		return err
	}
	st.Again = true
	return m.saveListState(&st)
}

// finishBaseline finishes a baseline whose last update is u. reread is as in followReplica.
func (m *Mirror) finishBaseline(ctx context.Context, c *client.Client, set string, r *client.Replica, listed bool, u *client.Update) (reread bool, err error) {
	var st listState
	if _, err := m.home.Ledger.Meta("looks", &st); err != nil {
		return false, err
	}
	if st.Again {
		if listed && !u.Complete {
			return true, nil
		}
		st.Again = false
		if err := m.saveListState(&st); err != nil {
			return false, err
		}
	}
	return m.applyMissedDeletions(ctx, c, set, r, u.Cursor)
}

// applyMissedDeletions applies the deletions between the start of reading the source's list and
// the cursor to. The replica holds a baseline as of that cursor, which does not name deleted
// resources. Then it removes what neither the list nor the baseline names. reread means that the
// log starts after the stored cursor.
func (m *Mirror) applyMissedDeletions(ctx context.Context, c *client.Client, set string, r *client.Replica, to feed.Cursor) (reread bool, err error) {
	m.applyMu.Lock()
	defer m.applyMu.Unlock()
	var st listState
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
		var deleted []feed.Entry
		for _, e := range b.Entries {
			if now, held, err := state.Get(ctx, e.Change.Loc); err != nil {
				return false, err
			} else if !held || !m.matches(&now.Change) {
				deleted = append(deleted, e)
			}
		}
		if err := m.applyEntries(ctx, deleted); err != nil {
			return false, err
		}
		if b.Cursor.Position >= to.Position {
			if st.Seen != nil && !st.Seen.At.IsZero() { // the list cannot name later resources
				if err := m.removeOrphans(ctx, r, feed.Cursor{Position: to.Position, Micros: st.Seen.At.UnixMicro()}); err != nil {
					return false, err
				}
			}
			st.After = ""
			return false, m.saveListState(&st)
		}
	}
	return false, context.Cause(ctx)
}

// applyUpdate passes an update of a replica to the sink.
func (m *Mirror) applyUpdate(ctx context.Context, r *client.Replica, u *client.Update) error {
	m.applyMu.Lock()
	defer m.applyMu.Unlock()
	m.lastReplica, m.lastCursor = r, u.Cursor
	if err := m.applyEntries(ctx, u.Entries); err != nil || !u.Complete {
		return err
	}
	return m.removeOrphans(ctx, r, u.Cursor)
}

// applyEntries passes entries to the sink, then removes the source's listing of their resources:
// from now on the hub decides whether they exist.
func (m *Mirror) applyEntries(ctx context.Context, entries []feed.Entry) error {
	if err := m.sink.Apply(ctx, entries); err != nil {
		return err
	}
	var b ledger.Batch
	for i := range entries {
		loc := entries[i].Change.Loc
		_, listed, err := m.home.Ledger.ListedResource(loc)
		if err != nil {
			return err
		}
		if listed {
			b.RemoveListed(loc)
		}
	}
	if b.Empty() {
		return nil
	}
	return m.home.Ledger.Commit(&b)
}

// openReplica opens the replica of a home. The deletions of a baseline count toward the same
// limit of a Directory as all others. Other sinks have no limit here.
func (m *Mirror) openReplica(ctx context.Context, c *client.Client, set string) (*client.Replica, func() error, error) {
	pages, closed, err := m.home.OpenPages()
	if err != nil {
		return nil, nil, err
	}
	o := client.ReplicaOptions{Store: pages, Prefix: m.opts.Prefix, Collection: m.opts.Collection, Holds: m.holds, MaxDelete: -1, BeforeBaseline: m.beforeBaseline}
	if d, ok := m.sink.(*Directory); ok {
		o.MayDelete = d.mayDelete
	}
	r, err := c.OpenReplica(ctx, set, o)
	if err != nil {
		return nil, nil, errors.Join(err, closed())
	}
	return r, closed, nil
}

// retryFailed calls Retry of the sink whenever work is due, until ctx is canceled.
func (m *Mirror) retryFailed(ctx context.Context) error {
	const interval = 5 * time.Second // new failures can appear at any time
	for {
		backlog, err := m.sink.Retry(ctx, false)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		wait := interval
		if !backlog.Next.IsZero() {
			wait = max(100*time.Millisecond, min(wait, time.Until(backlog.Next)))
		}
		if backoff.Sleep(ctx, wait) != nil {
			return nil
		}
	}
}
