// Package dump makes the Resource Dumps and Change Dumps of sets (core sections 11 and 13),
// and serves them. The hub that makes the inventory of a set makes its dumps: it fetches the
// contents of the resources from where they are, checks them against hash and length, and
// packs them into ZIP files, which go to a place for content while they are made.
//
// A Resource Dump has the resources of one root of the inventory, the one of a Resource
// List. A Change Dump has the changes of one closed Change List. What could not be fetched is
// not in the manifest of its package, but in a document beside it, with the reason.
//
// The package knows no hub and no change memory but by small interfaces.
package dump

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/dump/place"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/inventory"
	"github.com/rshub/rshub/mirror/fetch"
	"github.com/rshub/rshub/outbound"
)

// A Log is what a Maker needs of the change memory. See changelog.Log.
type Log interface {
	State(ctx context.Context, set string) (feed.State, error)
	Sets(ctx context.Context, names ...string) ([]feed.State, error)
	Since(ctx context.Context, set string, after feed.Cursor, limit int) (*feed.Batch, error)
	At(ctx context.Context, set string, position uint64) (feed.Cursor, error)
}

// Resources are what a set held at one cursor. The methods block while the store is
// read. They return feed.ErrGone when the resources are not kept any more.
type Resources interface {
	Cursor() feed.Cursor
	Walk(ctx context.Context, r inventory.Range) iter.Seq2[*feed.Entry, error]
	Get(ctx context.Context, loc string) (e feed.Entry, ok bool, err error)
}

// Options of a Maker. List, Newest and Client have to be there. The zero values of the others
// are the defaults.
type Options struct {
	// List returns what the Resource List of a set shows: that at exactly the cursor at, and
	// with the zero cursor the newest one. It returns a *feed.Error with the status 404 if
	// there is none, and feed.ErrGone if there is none at that cursor any more.
	List func(ctx context.Context, set string, at feed.Cursor) (Resources, error)

	// Newest returns what a set holds at a cursor or later. The caller calls release.
	Newest func(ctx context.Context, set string, from feed.Cursor) (held Resources, release func(), err error)

	Client *http.Client                 // fetches contents; it follows only the rules for addresses, no redirects
	Check  func(name, url string) error // returns an error, which names what the URL is, if the hub may not fetch the URL; default: it may
	Mine   func(set string) bool        // whether this hub makes the dumps of a set; default: it does

	Interval     time.Duration // how often a Resource Dump is renewed, if anything changed; default a day
	PackageBytes int64         // of all contents in a package, before they are compressed, and so of one content; default 1 GiB
	PackageCount int           // of the resources or changes in a package, at most 50,000; default 10,000
	Dir          string        // of temporary files; default os.TempDir

	Parallel, PerHost int           // requests at a time, in all and at one host; default 16 and 4
	Tries             int           // how often a content is asked for; default 3
	Pause             time.Duration // before the second try, doubled each time; default 1 s
	Stall             time.Duration // a request ends if less than 1 KiB comes in that time; default 30 s

	Grace time.Duration // files that no dump names are kept for so long; default a day

	most int // packages in one document; default mostPackages. Tests set it

	Logger  *slog.Logger          // default: discard
	Metrics prometheus.Registerer // takes the metrics of one Maker; default: nowhere
}

func (o *Options) defaults() {
	if o.Check == nil {
		o.Check = func(string, string) error { return nil }
	}
	if o.Mine == nil {
		o.Mine = func(string) bool { return true }
	}
	o.Interval = cmp.Or(o.Interval, 24*time.Hour)
	o.PackageBytes = cmp.Or(o.PackageBytes, 1<<30)
	o.PackageCount = min(cmp.Or(o.PackageCount, 10_000), MaxCount)
	o.Grace = cmp.Or(o.Grace, 24*time.Hour)
	o.most = cmp.Or(o.most, mostPackages)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// A Maker makes the dumps of the sets of one hub, and serves those of all hubs that share the
// place. Its methods may be called concurrently.
type Maker struct {
	// Set by New, never changed.
	log       Log
	place     place.Place
	base      feed.Base
	opts      Options
	gatherer  *gatherer
	deflaters *sync.Pool
	metrics   *metrics
	wake      chan struct{} // of capacity 1; says that a set was described

	// Only the goroutine of Run uses these.
	jobs    map[string]*job
	scanned time.Time
	rest    time.Duration   // between two scans
	cleaned time.Time       // when the files of sets without dumps were last looked for
	orphans map[string]bool // sets that had some then
	done    chan *job
	running int
	wg      sync.WaitGroup

	mu    sync.Mutex
	views map[string]view // records that were read a moment ago
}

const (
	atOnce     = 2                // sets whose dumps are made at a time
	scanEvery  = 2 * time.Second  // a look at all sets
	scanShare  = 200              // which takes one of so many parts of the time at most
	lookEvery  = time.Minute      // at a set where nothing seems to be due
	firstEvery = 2 * time.Second  // at one that waits for its first Resource List
	firstPause = 10 * time.Second // after a failure; it doubles up to
	mostPause  = time.Hour
)

// A job is a set whose dumps this hub makes.
type job struct {
	state   feed.State
	list    uint64    // the Change List whose dump comes next; 0: unknown
	next    time.Time // when the set is looked at in any case
	running bool
	failed  int
	swept   time.Time
}

// isOver reports whether the files of a set that wants no dumps any more are removed.
func (j *job) isOver() bool {
	return !j.state.Dumps && !j.running && !j.next.IsZero() && j.failed == 0
}

// New returns a Maker. It makes nothing until Run, but serves at once. base begins the URLs
// in all documents.
func New(log Log, p place.Place, base feed.Base, o Options) *Maker {
	o.defaults()
	fetcher := fetch.New(fetch.Options{
		Client: o.Client, Parallel: o.Parallel, PerHost: o.PerHost, Tries: o.Tries, Pause: o.Pause, Stall: o.Stall,
		MaxSize: o.PackageBytes, UserAgent: outbound.UserAgent, Explain: explain,
	})
	return &Maker{
		log: log, place: p, base: base, opts: o, deflaters: newDeflaters(), metrics: newMetrics(o.Metrics),
		gatherer: &gatherer{fetcher: fetcher, check: o.Check, dir: o.Dir, most: o.PackageBytes},
		wake:     make(chan struct{}, 1), jobs: map[string]*job{}, done: make(chan *job), views: map[string]view{},
	}
}

// Described says that a set was described, and is in this state now. Its dumps are begun, or
// removed, soon, by whoever makes them. Which Change List is the first of which there is a dump
// is settled when Described returns, unless the place cannot be reached.
func (m *Maker) Described(ctx context.Context, st feed.State) {
	if err := m.begin(ctx, &st); err != nil && ctx.Err() == nil {
		m.opts.Logger.WarnContext(ctx, "the dumps of a set cannot be begun now", "set", st.Set, "err", err)
	}
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// begin makes the record of a set that wants dumps, if it has none.
func (m *Maker) begin(ctx context.Context, st *feed.State) error {
	if !st.Dumps {
		return nil
	}
	rec, err := readRecord(ctx, m.place, st.Set)
	if err != nil || rec.Begin == st.Begin {
		return err
	}
	rec.fits(st)
	return writeRecord(ctx, m.place, st.Set, rec)
}

// Run makes dumps until ctx is done. What is under way then is gone on with by whoever makes
// the dumps of the set next. When Run returns, none of its goroutines is left.
func (m *Maker) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		m.scan(ctx)
		m.start(ctx)
		timer := time.NewTimer(m.pause())
		select {
		case <-timer.C:
		case <-m.wake:
			m.scanned = time.Time{}
		case j := <-m.done:
			j.running = false
			m.running--
		case <-ctx.Done():
		}
		timer.Stop()
	}
	go func() { // jobs that are under way end, too
		for range m.done {
		}
	}()
	m.wg.Wait()
	close(m.done)
	return nil
}

// pause returns how long there is nothing to do.
func (m *Maker) pause() time.Duration {
	next := m.scanned.Add(m.rest)
	for _, j := range m.jobs {
		if !j.running && m.running < atOnce && j.next.Before(next) {
			next = j.next
		}
	}
	return max(time.Until(next), 0)
}

// scan looks at all sets, if it is time to.
func (m *Maker) scan(ctx context.Context) {
	begin := time.Now()
	if !m.scanned.IsZero() && begin.Sub(m.scanned) < m.rest {
		return
	}
	states, err := m.log.Sets(ctx)
	m.scanned = time.Now()
	m.rest = max(scanEvery, scanShare*m.scanned.Sub(begin))
	if err != nil {
		if ctx.Err() == nil {
			m.opts.Logger.Warn("the sets cannot be read, so no dump is made that is new", "err", err)
		}
		return
	}
	seen := map[string]bool{}
	for _, st := range states {
		j := m.jobs[st.Set]
		if !m.opts.Mine(st.Set) || !st.Dumps && (j == nil || j.isOver()) {
			continue
		}
		seen[st.Set] = true
		if j == nil {
			j = &job{}
			m.jobs[st.Set] = j
		}
		if j.running {
			continue
		}
		_, open := st.Lists()
		if st.Begin != j.state.Begin || st.Dumps != j.state.Dumps || j.failed == 0 && j.list > 0 && open > j.list {
			j.next = time.Time{}
		}
		j.state = st
	}
	for set, j := range m.jobs {
		if !seen[set] && !j.running {
			delete(m.jobs, set)
		}
	}
	if m.scanned.Sub(m.cleaned) >= m.opts.Grace {
		m.cleaned = m.scanned
		if err := m.clean(ctx, states); err != nil && ctx.Err() == nil {
			m.opts.Logger.Warn("the place for content cannot be cleaned", "err", err)
		}
	}
}

// start starts the jobs that are due.
func (m *Maker) start(ctx context.Context) {
	for set, j := range m.jobs {
		if m.running == atOnce {
			return
		}
		if j.running || j.next.After(time.Now()) || ctx.Err() != nil {
			continue
		}
		if !m.opts.Mine(set) {
			delete(m.jobs, set)
			continue
		}
		j.running = true
		m.running++
		m.wg.Go(func() {
			m.turn(ctx, set, j)
			m.done <- j
		})
	}
}

// turn does what is due for a set, and says when to look again.
func (m *Maker) turn(ctx context.Context, set string, j *job) {
	every, err := m.work(ctx, set, j)
	switch {
	case ctx.Err() != nil:
		return
	case err == nil, errors.Is(err, feed.ErrNoSet):
		j.failed, j.next = 0, time.Now().Add(cmp.Or(every, lookEvery))
		return
	case errors.Is(err, errNotMine), errors.Is(err, errChanged): // perhaps only for a moment
		j.failed, j.next = 0, time.Now().Add(scanEvery)
		return
	}
	pause := min(backoff.Jitter(firstPause<<min(j.failed, 20)), mostPause)
	j.failed++
	j.next = time.Now().Add(pause)
	m.metrics.failed.Inc()
	m.opts.Logger.Warn("the dumps of a set cannot be made now", "set", set, "err", err, "again", pause.Round(time.Second).String())
}

// errNotMine means that another hub makes the dumps of the set by now.
var errNotMine = errors.New("another hub makes the dumps of this set")

// work makes the dumps of a set that are due, one after another.
func (m *Maker) work(ctx context.Context, set string, j *job) (every time.Duration, err error) {
	st, err := m.log.State(ctx, set)
	if err != nil {
		return 0, err
	}
	j.list = 0
	if !st.Dumps {
		return 0, m.remove(ctx, set, time.Now())
	}
	rec, err := readRecord(ctx, m.place, set)
	if err != nil {
		return 0, err
	}
	fresh := rec.Begin != st.Begin
	if rec.fits(&st); fresh { // which Change List is the first must not depend on when the first dump is made
		if err := m.keep(ctx, set, rec); err != nil {
			return 0, err
		}
	}
	if err := m.changes(ctx, set, rec); err != nil {
		return 0, err
	}
	waits, err := m.resources(ctx, &st, rec)
	if err != nil {
		return 0, err
	}
	j.list = rec.next()
	if time.Since(j.swept) >= min(m.opts.Grace, lookEvery*60) {
		if err := m.sweep(ctx, set, rec); err != nil {
			return 0, err
		}
		j.swept = time.Now()
	}
	if waits {
		return firstEvery, nil
	}
	return lookEvery, nil
}

// keep makes a record what the place has of a set, if this hub still makes its dumps.
func (m *Maker) keep(ctx context.Context, set string, rec *record) error {
	if !m.opts.Mine(set) {
		return errNotMine
	}
	if err := writeRecord(ctx, m.place, set, rec); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.views[set] = view{rec.clone(), time.Now()}
	return nil
}
