package mirror

import (
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

// DirectoryOptions say how a Directory works. Zero values are the defaults.
type DirectoryOptions struct {
	Fetch     fetch.Options
	Names     filename.Names
	MaxDelete reconcile.Bound // how many of the mirror's resources may be deleted within a day
	Did       func(Deed)      // called after each Deed, by several goroutines at once; default: nothing is called
}

const (
	applyPatience = 2 * time.Minute  // how long Apply waits for one content before it leaves the content to Retry
	failPause     = 10 * time.Second // before a failed resource is tried again, doubled each time
	mostFailPause = time.Hour
)

// A Deed is what a Directory did for a resource.
type Deed struct {
	Kind  DeedKind
	Loc   string
	Bytes int64 // bytes that were fetched
	Err   error // why it failed
}

// A DeedKind says what was done.
type DeedKind int

// The kinds of deeds.
const (
	Fetched DeedKind = iota // the content was fetched
	Kept                    // the file was already right
	Failed                  // the content was not fetched; it is tried again later
	Removed                 // the file was removed
)

// A Directory is a Sink that keeps the contents of resources as files. A file is replaced
// in one step, so readers of the directory see either the whole old content or the whole
// new one.
type Directory struct {
	home    *home.Home
	fetcher *fetch.Fetcher
	opts    DirectoryOptions

	removing sync.Mutex // held while files are removed

	mu   sync.Mutex
	busy map[string]*holder // by loc: a goroutine works on the resource
}

// A holder is a goroutine that works on a resource.
type holder struct {
	done  chan struct{}      // closed when it has finished
	end   context.CancelFunc // ends its work early; nil: it ends soon
	ended bool               // somebody else wants the resource
}

var _ Sink = (*Directory)(nil)

// NewDirectory returns the Directory of a home.
func NewDirectory(h *home.Home, o DirectoryOptions) (*Directory, error) {
	if o.Did == nil {
		o.Did = func(Deed) {}
	}
	d := &Directory{home: h, fetcher: fetch.New(o.Fetch), opts: o, busy: map[string]*holder{}}
	if h.Copied() {
		return d, nil // a copy is only read
	}
	return d, d.sweep()
}

// sweep removes temporary files that will not be continued.
func (d *Directory) sweep() error {
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

// hold waits until no goroutine works on a resource, and then reserves the resource until
// release. It ends what Retry does with the resource: that may take hours, and is overtaken.
func (d *Directory) hold(ctx context.Context, loc string) error {
	for {
		d.mu.Lock()
		other := d.busy[loc]
		if other == nil {
			d.busy[loc] = &holder{done: make(chan struct{})}
			d.mu.Unlock()
			return nil
		}
		if other.ended = true; other.end != nil {
			other.end()
		}
		d.mu.Unlock()
		select {
		case <-other.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (d *Directory) release(loc string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.busy[loc].done)
	delete(d.busy, loc)
}

// Apply fetches and removes files.
func (d *Directory) Apply(ctx context.Context, entries []feed.Entry) error {
	return d.applyPacked(ctx, entries, nil)
}

// applyPacked is Apply with contents from a package. It fetches a content from the
// resource's URL if the package lacks it or has a wrong one.
func (d *Directory) applyPacked(ctx context.Context, entries []feed.Entry, packed map[string]*pack.Member) error {
	wanted, gone := newest(entries)
	locs := make([]string, len(wanted))
	for i := range wanted {
		locs[i] = wanted[i].Change.Loc
	}
	if err := d.home.Ledger.Place(d.opts.Names, locs...); err != nil { // all at once, because get would place them one by one
		return err
	}
	err := d.work(ctx, wanted, func(ctx context.Context, e feed.Entry) (outcome, error) {
		return d.get(ctx, e, applyPatience, false, packed[e.Change.Loc])
	})
	if err != nil {
		return err
	}
	return d.remove(ctx, gone)
}

// Retry fetches files whose earlier tries failed.
func (d *Directory) Retry(ctx context.Context, all bool) (Left, error) {
	const most = 1_000 // at once
	var due []feed.Entry
	now := time.Now()
	left, err := d.left(ctx, func(f *ledger.Failure) {
		ahead := f.Next.After(now.Add(2 * mostFailPause)) // no pause is as long: the clock was wrong
		if all || (ahead || !f.Next.After(now)) && len(due) < most {
			due = append(due, f.Entry)
		}
	})
	if err != nil || len(due) == 0 {
		return left, err
	}
	err = d.work(ctx, due, func(ctx context.Context, e feed.Entry) (outcome, error) {
		f, ok, err := d.home.Ledger.Failure(e.Change.Loc)
		if err != nil || !ok {
			return outcome{}, err // a newer change was applied, or the resource was deleted
		}
		mine, end := context.WithCancel(ctx)
		defer end()
		d.mu.Lock()
		if h := d.busy[e.Change.Loc]; h.ended {
			end()
		} else {
			h.end = end
		}
		d.mu.Unlock()
		o, err := d.get(mine, f.Entry, 0, false, nil)
		if errors.Is(err, context.Canceled) && ctx.Err() == nil {
			return outcome{}, nil // a newer change is there
		}
		return o, err
	})
	if err != nil {
		return left, err
	}
	return d.left(ctx, func(*ledger.Failure) {})
}

// left returns what is left to do, and calls each with every failure.
func (d *Directory) left(ctx context.Context, each func(*ledger.Failure)) (left Left, err error) {
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

// fail returns the outcome of a resource that could not be fetched. before is its
// earlier failure, if any.
func (d *Directory) fail(e feed.Entry, before *ledger.Failure, f *fetch.Failure) outcome {
	now := time.Now()
	next := ledger.Failure{Loc: e.Change.Loc, Entry: e, Reason: f.Error(), Since: now, Tries: 1}
	if before != nil && before.Entry.Cursor == e.Cursor {
		next.Since, next.Tries = before.Since, before.Tries+1
	}
	pause := backoff.Exponential(failPause, mostFailPause, next.Tries-1)
	next.Next = now.Add(max(backoff.Jitter(pause), f.After))
	return outcome{failure: &next, deed: Deed{Kind: Failed, Err: f}}
}
