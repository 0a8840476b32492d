package mirror

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"sync"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/internal/mirror/fetch"
	"github.com/rshub/rshub/internal/mirror/filename"
	"github.com/rshub/rshub/internal/mirror/home"
	"github.com/rshub/rshub/internal/mirror/ledger"
	"github.com/rshub/rshub/internal/mirror/pack"
	"github.com/rshub/rshub/internal/source/reconcile"
)

// DirectoryOptions configures a Directory. Zero values are the defaults.
type DirectoryOptions struct {
	Fetcher    *fetch.Fetcher // fetches contents; several Directories may share it; default: fetch.New with defaults
	Names      filename.Names
	RetryPause time.Duration   // before the first retry of a resource that could not be fetched, doubled each time up to an hour; default 10 s
	MaxDelete  reconcile.Bound // maximum deletions of the mirror's resources per day
	OnAction   func(Action)    // called after each Action, concurrently; default: no call
}

const (
	applyTimeout  = 2 * time.Minute // time that Apply spends on one content before it leaves it to Retry
	maxRetryPause = time.Hour
)

// An Action is what a Directory did for a resource.
type Action struct {
	Kind  ActionKind
	Loc   string
	Bytes int64 // number of fetched bytes
	Err   error // cause of a failure
}

// An ActionKind is the kind of an Action.
type ActionKind int

// The kinds of actions.
const (
	Fetched   ActionKind = iota // the content was fetched
	Unchanged                   // the file was already correct
	Failed                      // the content could not be fetched and will be retried
	Removed                     // the file was removed
)

// A Directory is a Sink that stores the contents of resources as files. It replaces each file
// atomically: readers see either the whole old content or the whole new one.
type Directory struct {
	home *home.Home
	opts DirectoryOptions

	removing sync.Mutex // held while files are removed

	mu    sync.Mutex
	locks map[string]*resourceLock // by loc
}

// A resourceLock is held by the goroutine that processes a resource.
type resourceLock struct {
	done     chan struct{}      // closed when the lock is released
	cancel   context.CancelFunc // cancels the work of the holder; nil if that is short
	canceled bool               // whether another goroutine waits for the lock
}

var _ Sink = (*Directory)(nil)

// NewDirectory returns the Directory of a home. It removes temporary files of earlier processes,
// unless the home is a copy.
func NewDirectory(h *home.Home, o DirectoryOptions) (*Directory, error) {
	if o.OnAction == nil {
		o.OnAction = func(Action) {}
	}
	o.RetryPause = cmp.Or(o.RetryPause, 10*time.Second)
	if o.Fetcher == nil {
		o.Fetcher = fetch.New(fetch.Options{})
	}
	d := &Directory{home: h, opts: o, locks: map[string]*resourceLock{}}
	if h.IsCopy() {
		return d, nil // a copy is read-only
	}
	return d, d.removeStaleParts()
}

// removeStaleParts removes temporary files that no retry will resume.
func (d *Directory) removeStaleParts() error {
	used := map[string]bool{}
	for f, err := range d.home.Ledger.Failures(context.Background()) {
		if err != nil {
			return err
		}
		if f.Part != nil {
			used[f.Part.File] = true
		}
	}
	entries, err := fs.ReadDir(d.home.Root.FS(), home.Parts)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !used[e.Name()] {
			if err := d.home.Root.Remove(home.Parts + "/" + e.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}

// lockResource locks a resource until unlockResource. It cancels a retry of the resource,
// because that may take hours and is superseded.
func (d *Directory) lockResource(ctx context.Context, loc string) error {
	for {
		d.mu.Lock()
		holder := d.locks[loc]
		if holder == nil {
			d.locks[loc] = &resourceLock{done: make(chan struct{})}
			d.mu.Unlock()
			return nil
		}
		if holder.canceled = true; holder.cancel != nil {
			holder.cancel()
		}
		d.mu.Unlock()
		select {
		case <-holder.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (d *Directory) unlockResource(loc string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.locks[loc].done)
	delete(d.locks, loc)
}

// Apply fetches and removes files. Contents that cannot be fetched are left to Retry.
func (d *Directory) Apply(ctx context.Context, entries []feed.Entry) error {
	return d.applyPacked(ctx, entries, nil)
}

// applyPacked is Apply with contents from a package. It fetches a content from the resource's
// URL if the package does not have it or has a wrong one.
func (d *Directory) applyPacked(ctx context.Context, entries []feed.Entry, packed map[string]*pack.Member) error {
	updated, deleted := splitNewest(entries)
	locs := make([]string, len(updated))
	for i := range updated {
		locs[i] = updated[i].Change.Loc
	}
	if err := d.home.Ledger.AssignPaths(d.opts.Names, locs...); err != nil { // in one batch, because updateFile would assign them one by one
		return err
	}
	err := d.processEach(ctx, updated, func(ctx context.Context, e feed.Entry) (outcome, error) {
		return d.updateFile(ctx, e, applyTimeout, false, packed[e.Change.Loc])
	})
	if err != nil {
		return err
	}
	return d.removeResources(ctx, deleted)
}

// Retry fetches files whose earlier attempts failed.
func (d *Directory) Retry(ctx context.Context, all bool) (Backlog, error) {
	const limit = 1_000 // retries per call
	var due []feed.Entry
	now := time.Now()
	left, err := d.backlog(ctx, func(f *ledger.Failure) {
		ahead := f.Next.After(now.Add(2 * maxRetryPause)) // longer than any pause: the clock was wrong
		if all || (ahead || !f.Next.After(now)) && len(due) < limit {
			due = append(due, f.Entry)
		}
	})
	if err != nil || len(due) == 0 {
		return left, err
	}
	err = d.processEach(ctx, due, func(ctx context.Context, e feed.Entry) (outcome, error) {
		f, ok, err := d.home.Ledger.Failure(e.Change.Loc)
		if err != nil || !ok {
			return outcome{}, err // a newer change was applied, or the resource was deleted
		}
		retryCtx, cancel := context.WithCancel(ctx)
		defer cancel()
		d.mu.Lock()
		if h := d.locks[e.Change.Loc]; h.canceled {
			cancel()
		} else {
			h.cancel = cancel
		}
		d.mu.Unlock()
		o, err := d.updateFile(retryCtx, f.Entry, 0, false, nil)
		if errors.Is(err, context.Canceled) && ctx.Err() == nil {
			return outcome{}, nil // a newer change has taken over
		}
		return o, err
	})
	if err != nil {
		return left, err
	}
	return d.backlog(ctx, func(*ledger.Failure) {})
}

// backlog returns the remaining work. It calls each with every failure.
func (d *Directory) backlog(ctx context.Context, each func(*ledger.Failure)) (left Backlog, err error) {
	for f, err := range d.home.Ledger.Failures(ctx) {
		if err != nil {
			return left, err
		}
		left.Resources++
		if left.Next.IsZero() || f.Next.Before(left.Next) {
			left.Next = f.Next
		}
		each(&f)
	}
	return left, nil
}

// failure returns the outcome for a resource that could not be fetched. before is its earlier
// failure, or nil.
func (d *Directory) failure(e feed.Entry, before *ledger.Failure, f *fetch.Failure) outcome {
	now := time.Now()
	next := ledger.Failure{Loc: e.Change.Loc, Entry: e, Reason: f.Error(), Since: now, Tries: 1}
	if before != nil && before.Entry.Cursor == e.Cursor {
		next.Since, next.Tries = before.Since, before.Tries+1
	}
	pause := backoff.Exponential(d.opts.RetryPause, maxRetryPause, next.Tries-1)
	next.Next = now.Add(max(backoff.Jitter(pause), f.RetryAfter))
	return outcome{failure: &next, action: Action{Kind: Failed, Err: f}}
}
