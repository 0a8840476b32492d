// Package archive keeps the closed Change Lists of sets for good, in a place for content, and
// serves them through Change List Archives (ResourceSync Archives 0.9.1 section 5). Each list
// is copied soon after it is closed, and retention does not remove it from the change memory
// before. So a destination that was away for longer than the memory reaches back reads the
// archive, and goes on with the Change Lists, without a hole.
//
// It keeps Resource Lists, too, one in a while, and serves them through Resource List Archives
// (section 3): what a set had at former times.
//
// The hub that makes the inventory of a set makes its archive. The package knows no hub and no
// change memory but by small interfaces.
package archive

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/dump/place"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/backoff"
)

// A Log is what an Archive needs of the change memory. See changelog.Log.
type Log interface {
	State(ctx context.Context, set string) (feed.State, error)
	Sets(ctx context.Context, names ...string) ([]feed.State, error)
	At(ctx context.Context, set string, position uint64) (feed.Cursor, error)
}

// Options of an Archive. Write has to be there. The zero values of the others are the defaults.
type Options struct {
	// Write writes closed Change List n of a set as it is served.
	Write func(ctx context.Context, w io.Writer, st feed.State, n uint64) error

	// Resources returns the newest Resource List of a set; nil: there is none. Default: no Resource
	// Lists are archived.
	Resources func(ctx context.Context, st feed.State) (*ResourceList, error)
	Every     time.Duration // how much later than the last one that was archived the next one is, at least; default a day

	Mine func(set string) bool // whether this hub makes the archive of a set; default: it does

	// Scarce reports whether the change memory has so little room left that retention must
	// not wait for the place. Default: it has room.
	Scarce func(ctx context.Context) bool

	Grace time.Duration // files that no archive names are kept for so long; default a day

	most int // lists in one document; default mostLists. Tests set it

	Logger  *slog.Logger          // default: discard
	Metrics prometheus.Registerer // takes the metrics of one Archive; default: nowhere
}

// A ResourceList is one that can be archived.
type ResourceList struct {
	At        feed.Cursor
	Completed time.Time
	Documents int // of which it is: itself, or an index and its parts

	// Write writes document n, from 0. loc returns the URL of each.
	Write func(ctx context.Context, w io.Writer, n int, loc func(n int) string) error
}

func (o *Options) defaults() {
	if o.Mine == nil {
		o.Mine = func(string) bool { return true }
	}
	if o.Scarce == nil {
		o.Scarce = func(context.Context) bool { return false }
	}
	o.Every = cmp.Or(o.Every, 24*time.Hour)
	o.Grace = cmp.Or(o.Grace, 24*time.Hour)
	o.most = cmp.Or(o.most, mostLists)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// An Archive makes the archives of the sets of one hub, and serves those of all hubs that share
// the place. Its methods may be called concurrently.
type Archive struct {
	// Set by New, never changed.
	log     Log
	place   place.Place
	base    feed.Base
	opts    Options
	metrics *metrics
	wake    chan struct{} // of capacity 1; says that a set was described

	// Only the goroutine of Run uses these.
	jobs    map[string]*job
	rest    time.Duration // between two scans
	cleaned time.Time     // when the files of sets without archives were last looked for
	orphans map[string]bool

	mu    sync.Mutex
	views map[string]view // records that were read a moment ago
}

const (
	scanEvery  = 2 * time.Second // a look at all sets
	scanShare  = 200             // which takes one of so many parts of the time at most
	atOnce     = 16              // lists of a set that are copied before it is another set's turn
	lookEvery  = time.Minute     // for a Resource List
	lookSoon   = 5 * time.Second // while there is none
	firstPause = 5 * time.Second // after a failure; it doubles up to
	mostPause  = 5 * time.Minute
)

// A job is a set whose archive this hub makes.
type job struct {
	begin  int64
	epochs feed.Epochs
	next   uint64 // the Change List that comes next; 0: unknown
	failed int
	again  time.Time // after a failure, nothing is tried before
	swept  time.Time
	looked time.Time // for a Resource List
	bare   bool      // there was none
}

// New returns an Archive. It copies nothing until Run, but serves at once. base begins the URLs
// in all documents.
func New(log Log, p place.Place, base feed.Base, o Options) *Archive {
	o.defaults()
	return &Archive{
		log: log, place: p, base: base, opts: o, metrics: newMetrics(o.Metrics),
		wake: make(chan struct{}, 1), jobs: map[string]*job{}, views: map[string]view{},
	}
}

// Described says that a set was described. Its archive is begun, or removed, soon, by whoever
// makes it.
func (a *Archive) Described() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// Run copies lists until ctx is done. A list that is being copied then is copied again by
// whoever makes the archive of the set next.
func (a *Archive) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		a.scan(ctx)
		timer := time.NewTimer(a.rest)
		select {
		case <-timer.C:
		case <-a.wake:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return nil
}

// scan looks at all sets, and copies what is closed by now. a.rest says when to look again.
func (a *Archive) scan(ctx context.Context) {
	begin := time.Now()
	states, err := a.log.Sets(ctx)
	a.rest = max(scanEvery, scanShare*time.Since(begin))
	if err != nil {
		if ctx.Err() == nil {
			a.opts.Logger.Warn("the sets cannot be read, so nothing is archived", "err", err)
		}
		return
	}
	seen, waiting := map[string]bool{}, uint64(0)
	for i := range states {
		st := &states[i]
		j := a.jobs[st.Set]
		if ctx.Err() != nil {
			return
		}
		if !a.opts.Mine(st.Set) || !st.Archives && j == nil {
			continue
		}
		seen[st.Set] = true
		if j == nil {
			j = &job{}
			a.jobs[st.Set] = j
		}
		a.turn(ctx, st, j)
		if !st.Archives && j.failed == 0 {
			delete(a.jobs, st.Set)
		}
		if _, open := st.Lists(); st.Archives && open > j.next {
			waiting += open - max(j.next, wholeLists(st))
		}
	}
	a.metrics.waiting.Set(float64(waiting))
	for set := range a.jobs {
		if !seen[set] {
			delete(a.jobs, set)
		}
	}
	if time.Since(a.cleaned) >= a.opts.Grace {
		a.cleaned = time.Now()
		if err := a.clean(ctx, states); err != nil && ctx.Err() == nil {
			a.opts.Logger.Warn("the archives in the place for content cannot be cleaned", "err", err)
		}
	}
}

// turn does what is due for a set.
func (a *Archive) turn(ctx context.Context, st *feed.State, j *job) {
	if time.Now().Before(j.again) {
		return
	}
	_, open := st.Lists()
	if st.Archives && j.next >= open && j.begin == st.Begin && j.epochs == st.Epochs && time.Since(j.swept) < a.opts.Grace && !a.looks(j) {
		return
	}
	err := a.work(ctx, st, j)
	switch {
	case ctx.Err() != nil:
		return
	case err == nil, errors.Is(err, feed.ErrNoSet), errors.Is(err, errChanged), errors.Is(err, errNotMine):
		j.failed = 0
		return
	}
	pause := min(backoff.Jitter(firstPause<<min(j.failed, 20)), mostPause)
	j.failed++
	j.again = time.Now().Add(pause)
	a.metrics.failed.Inc()
	a.opts.Logger.Warn("Change Lists cannot be archived now, so retention waits", "set", st.Set, "list", j.next, "err", err, "again", pause.Round(time.Second).String())
}

// looks reports whether it is time to look for a Resource List.
func (a *Archive) looks(j *job) bool {
	every := lookEvery
	if j.bare {
		every = lookSoon
	}
	return a.opts.Resources != nil && time.Since(j.looked) >= every
}

var (
	// errChanged means that the set is another one since its state was read.
	errChanged = errors.New("the set was described or made anew meanwhile")

	// errNotMine means that another hub makes the archive of the set by now.
	errNotMine = errors.New("another hub makes the archive of this set")
)
