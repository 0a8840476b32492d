package callback

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/rshub/rshub/changelog"
)

// How Change Lists are fetched.
const (
	fetchesAtOnce = 4 // each may hold a whole list in memory
	fetchTime     = 5 * time.Minute
)

// fetchAgain is how long after a failed fetch the next one begins: a ping is
// answered before its fetch, so its source does not know that it should ping
// again. After the last only a new ping helps.
var fetchAgain = [...]time.Duration{5 * time.Second, 30 * time.Second, 3 * time.Minute}

// A Fetcher reads the Change Lists of sources that only say that they have news
// (a ping, hub.mode=publish), and publishes what is new in them. It reads under
// the rules that callbacks are called by.
//
// It keeps no state: what is new follows from the list and from the set's log,
// which has the source's own datetimes. So every hub finds the same.
type Fetcher struct {
	engine  *Engine
	log     changelog.Log
	publish func(ctx context.Context, set string, p changelog.Publish) (changelog.Appended, error)

	ctx    context.Context // of the fetches
	cancel context.CancelFunc
	wg     sync.WaitGroup
	room   chan struct{}

	mu     sync.Mutex
	pinged map[string]nudge // by set that is fetched, or waits for it; nil: closed
}

// NewFetcher returns a Fetcher that publishes with publish, as hub.Hub.Publish
// does. It makes its requests as the Engine does, and logs and counts where that
// does. The caller must Close it.
func NewFetcher(e *Engine, log changelog.Log, publish func(ctx context.Context, set string, p changelog.Publish) (changelog.Appended, error)) *Fetcher {
	f := &Fetcher{
		engine: e, log: log, publish: publish,
		room: make(chan struct{}, fetchesAtOnce), pinged: map[string]nudge{},
	}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f
}

// Close ends the fetches that are under way and waits for them. What they have
// published stays; the next ping brings the rest. Pings are refused as
// changelog.ErrUnavailable from then on.
func (f *Fetcher) Close() {
	f.mu.Lock()
	f.pinged = nil
	f.mu.Unlock()
	f.cancel()
	f.wg.Wait()
}

// Ping has a set's Change List fetched soon. However many pings come during a
// fetch, one more follows it. An error with resourcesync.ErrInvalid says that the
// set has no list that can be fetched; others are those of changelog.Log.State,
// and changelog.ErrUnavailable.
func (f *Fetcher) Ping(ctx context.Context, set string) error {
	state, err := f.log.State(ctx, set)
	if err != nil && !errors.Is(err, changelog.ErrNoSet) {
		return err
	}
	if state.ChangeList == "" {
		return changelog.Invalid(`the hub does not know where the Change List of set %q is: PUT %s/sets/%[1]s with {"changelist": "URL"} says it; or POST the changes themselves`,
			set, f.engine.opts.BaseURL)
	}
	if err := f.engine.CheckChangeList(state.ChangeList); err != nil { // the configuration may have changed
		return named("the description of set "+set, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pinged == nil {
		return changelog.ErrUnavailable
	}
	if n, ok := f.pinged[set]; ok {
		n.want()
		return nil
	}
	n := make(nudge, 1)
	f.pinged[set] = n
	f.wg.Go(func() { f.work(set, n) })
	return nil
}

// work fetches a set's list until there is no reason to do so again.
func (f *Fetcher) work(set string, pinged nudge) {
	for failed := 0; ; {
		select {
		case f.room <- struct{}{}:
		case <-f.ctx.Done():
			return
		}
		select {
		case <-pinged: // before the fetch, so it is for that ping too
		default:
		}
		if f.fetch(set) {
			failed = 0
		} else {
			failed++
		}
		<-f.room
		if !f.again(set, pinged, failed) {
			return
		}
	}
}

// again waits for the next reason to fetch a set's list. It reports false when
// there is none, and the set may be pinged anew.
func (f *Fetcher) again(set string, pinged nudge, failed int) bool {
	if failed > 0 && failed <= len(fetchAgain) {
		timer := time.NewTimer(jitter(fetchAgain[failed-1]))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-pinged:
		case <-f.ctx.Done():
		}
		return f.ctx.Err() == nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-pinged:
		return true
	default:
	}
	delete(f.pinged, set)
	return false
}

// fetch fetches a set's list once, and reports whether it succeeded.
func (f *Fetcher) fetch(set string) bool {
	ctx, cancel := context.WithTimeout(f.ctx, fetchTime)
	defer cancel()
	r, begin, outcome := round{Fetcher: f, set: set}, time.Now(), outcomeSuccess
	err := r.run(ctx)
	if f.ctx.Err() != nil {
		return true // it is closed: nothing failed
	}
	logger := f.engine.opts.Logger.With("set", set, "host", r.host, "changes", r.added)
	if err != nil {
		outcome = outcomeOther
		if no, ok := errors.AsType[*failure](err); ok {
			outcome = no.outcome
		}
		logger.Warn("fetch: the source's Change List could not be taken", "err", err)
	} else {
		logger.Debug("fetch: done")
	}
	f.engine.metrics.attempted(forFetch, outcome, time.Since(begin))
	return err == nil
}

// A round is one fetch of a set's list.
type round struct {
	*Fetcher
	set   string
	host  string // of the list, for the log
	known known
	upto  time.Time // the source's changes until then are in the log, or in no list any more
	added int       // changes
}

// run fetches the list, or the lists that an index names, and publishes what is
// new. What it published before an error stays.
func (r *round) run(ctx context.Context) error {
	state, err := r.log.State(ctx, r.set)
	if err != nil {
		return fmt.Errorf("read the set's description: %w", err)
	}
	if u, err := url.Parse(state.ChangeList); err == nil {
		r.host = u.Host
	}
	top, err := r.engine.getList(ctx, state.ChangeList)
	if err != nil {
		return err
	}
	if r.known, err = readKnown(ctx, r.log, r.set); err != nil {
		return fmt.Errorf("read what the memory has: %w", err)
	}
	r.upto = r.known.datetime
	if !top.Index {
		return r.take(ctx, top)
	}
	for _, l := range listsOf(top) {
		if !r.known.reaches(l.until) {
			continue
		}
		doc, err := r.engine.getList(ctx, l.url)
		if err == nil && doc.Index {
			err = errors.New("it is an index again")
		}
		if err == nil {
			err = r.take(ctx, doc)
		}
		if err != nil {
			return fmt.Errorf("list %d of the index: %w", l.number, err)
		}
	}
	return nil
}
