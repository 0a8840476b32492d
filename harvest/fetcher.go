// Package harvest reads other people's sources. A Lister lists the resources that a source
// has: those of a Resource List or of a sitemap. A Fetcher reads the Change Lists of
// sources that only say that they have news (a ping, hub.mode=publish), and publishes what
// is new in them; it finds out what is new from the list and from the set's log, so it
// keeps nothing of its own. The package knows neither the hub nor the store, only the few
// methods that it declares.
package harvest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/outbound"
	"github.com/rshub/rshub/resourcesync"
)

// Bounds of fetching Change Lists.
const (
	fetchesAtOnce = 4               // each of them may hold a whole list in memory
	slowAtOnce    = 4               // the same of those that take longer than quickTime
	atOnePlace    = 1               // of either, at one machine or domain
	quickTime     = 2 * time.Second // of a fetch among the quick ones: then it begins anew among the slow ones
	fetchTime     = 5 * time.Minute // of one fetch, with all the lists of an index
)

// fetchAgain is how long after a failed fetch the next one begins. The source
// does not know that its fetch failed, because a ping is answered before the
// fetch, so the source will not ping again by itself. After the last of these,
// only a new ping starts a fetch.
var fetchAgain = [...]time.Duration{5 * time.Second, 30 * time.Second, 3 * time.Minute}

// A Fetcher fetches the Change List of a set when its source pings, and
// publishes what is new.
//
// It keeps no state: what is new follows from the list and from the set's log,
// which holds the source's own datetimes. So every hub finds the same.
type Fetcher struct {
	reader  Reader
	log     Memory
	publish Publish
	opts    Options

	ctx    context.Context // of all fetches; ended by Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // of the goroutines that fetch, one for each set in pinged

	// Sources that let the hub wait have a room of their own, so that the fetch of
	// another list waits at most quickTime for each of them.
	quick, slow *room

	mu     sync.Mutex
	pinged map[string]chan struct{} // the sets that are fetched or wait for it; the channel has an element when there was another ping; nil after Close
}

// A Memory is the part of changelog.Log from which a Fetcher learns what a set
// has of its source.
type Memory interface {
	State(ctx context.Context, set string) (feed.State, error)
	At(ctx context.Context, set string, position uint64) (feed.Cursor, error)
	Since(ctx context.Context, set string, after feed.Cursor, limit int) (*feed.Batch, error)
}

// Publish adds changes to a set's log under an idempotency key; digest is a
// digest of them. It returns the cursor of the last change, and how many
// changes were added: 0 when the log had the same changes under this key
// already. The error is feed.ErrKeyReused when the log had other changes under
// it.
type Publish func(ctx context.Context, set, key string, digest [32]byte, changes []resourcesync.Change) (last feed.Cursor, added int, err error)

// Options of a Fetcher. Zero values are the defaults.
type Options struct {
	Sets   string                                             // the URL that the hub's sets are under, for messages
	Check  func(name, target string) error                    // says whether a URL may be fetched; name says what the URL is; default: all may
	Count  func(outcome outbound.Outcome, took time.Duration) // is called after each fetch; default: nobody is told
	Logger *slog.Logger                                       // gets the host of a list, never its URL; default: discard
}

// New returns a Fetcher that reads lists with client and publishes with
// publish. client must not follow redirects. Nothing runs until Ping. The
// caller must Close the Fetcher.
func New(client *http.Client, log Memory, publish Publish, o Options) *Fetcher {
	if o.Check == nil {
		o.Check = func(string, string) error { return nil }
	}
	if o.Count == nil {
		o.Count = func(outbound.Outcome, time.Duration) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	f := &Fetcher{
		reader: Reader{Client: client, Check: o.Check}, log: log, publish: publish, opts: o,
		quick: newRoom(fetchesAtOnce, atOnePlace), slow: newRoom(slowAtOnce, atOnePlace), pinged: map[string]chan struct{}{},
	}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f
}

// Close ends the fetches that are under way and waits for them. What they have
// published stays; the next ping brings the rest. After Close, Ping returns
// feed.ErrUnavailable.
func (f *Fetcher) Close() {
	f.mu.Lock()
	f.pinged = nil
	f.mu.Unlock()
	f.cancel()
	f.wg.Wait()
}

// Ping starts a fetch of a set's Change List, and does not wait for it. If a
// fetch of the set is under way, one more follows it, however many pings come.
// An error with resourcesync.ErrInvalid says that the set has no list that may
// be fetched. Other errors are feed.ErrUnavailable and those of
// changelog.Log.State.
func (f *Fetcher) Ping(ctx context.Context, set string) error {
	state, err := f.log.State(ctx, set)
	if err != nil && !errors.Is(err, feed.ErrNoSet) {
		return err
	}
	if state.ChangeList == "" {
		return resourcesync.Invalid(`the hub does not know the Change List of set %q: name it with PUT %s/%[1]s {"changelist": "URL"}, or POST the changes themselves`,
			set, f.opts.Sets)
	}
	if err := f.opts.Check("changelist", state.ChangeList); err != nil { // the rules may have changed since the set was described
		return resourcesync.About("the description of set "+set, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pinged == nil {
		return feed.ErrUnavailable
	}
	if n, ok := f.pinged[set]; ok {
		select {
		case n <- struct{}{}:
		default: // another fetch is already sure to follow
		}
		return nil
	}
	n := make(chan struct{}, 1)
	f.pinged[set] = n
	f.wg.Go(func() { f.work(set, n) })
	return nil
}

// work fetches a set's list until there is no reason left to do so. It begins
// with the ping that started it.
func (f *Fetcher) work(set string, pinged chan struct{}) {
	for failed := 0; ; {
		took, ok := f.fetchIn(f.quick, set, pinged, quickTime)
		if !took {
			_, ok = f.fetchIn(f.slow, set, pinged, fetchTime)
		}
		if ok {
			failed = 0
		} else {
			failed++
		}
		if f.ctx.Err() != nil || !f.again(set, pinged, failed) {
			return
		}
	}
}

// fetchIn fetches a set's list once in a room. It reports whether the fetch
// ended within the time for the room, and whether it succeeded.
func (f *Fetcher) fetchIn(r *room, set string, pinged chan struct{}, within time.Duration) (took, ok bool) {
	state, err := f.log.State(f.ctx, set)
	if err != nil {
		return true, f.report(&round{Fetcher: f, set: set}, time.Now(), fmt.Errorf("read the set's description: %w", err))
	}
	place := outbound.PlaceOf(outbound.Host(state.ChangeList))
	if !r.enter(f.ctx, place) {
		return true, true
	}
	defer r.leave(place)
	select {
	case <-pinged: // it came before the fetch begins, so this fetch serves it
	default:
	}
	ctx, cancel := context.WithTimeout(f.ctx, within)
	defer cancel()
	this, begin := &round{Fetcher: f, set: set}, time.Now()
	err = this.run(ctx)
	if err != nil && r == f.quick && ctx.Err() != nil {
		return false, false
	}
	return true, f.report(this, begin, err)
}

// again waits for the next reason to fetch a set's list: a ping, or the time to
// retry a failed fetch. If there is none, it removes the set from pinged and
// reports false.
func (f *Fetcher) again(set string, pinged chan struct{}, failed int) bool {
	if failed > 0 && failed <= len(fetchAgain) {
		timer := time.NewTimer(backoff.Jitter(fetchAgain[failed-1]))
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

// report logs and counts what came of a fetch. It returns whether the fetch
// succeeded.
func (f *Fetcher) report(r *round, begin time.Time, err error) bool {
	if f.ctx.Err() != nil {
		return true // Close ended the fetch; that is no failure
	}
	outcome := outbound.Success
	logger := f.opts.Logger.With("set", r.set, "host", r.host, "changes", r.added)
	if err != nil {
		outcome = outbound.Other
		if no, ok := errors.AsType[*outbound.Failure](err); ok {
			outcome = no.Outcome
		}
		logger.Warn("fetch: the Change List of the source could not be read", "err", err)
	} else {
		logger.Debug("fetch: done")
	}
	f.opts.Count(outcome, time.Since(begin))
	return err == nil
}
