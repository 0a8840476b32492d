// Package indexnow tells search engines by IndexNow which resources of sets have changed, so that
// they look there soon. The hub POSTs the URLs; an engine that takes them tells the others.
//
// One of several hubs does it at a time: the one that has the claim. Each set is followed from
// its cursor on, and the cursor moves only after the engine has taken the URLs. So every URL is
// sent at least once, and after a crash some are sent again.
package indexnow

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

	"github.com/rshub/rshub/claim"
	"github.com/rshub/rshub/claim/cursors"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/backoff"
)

// Kind is the kind of the claim, and Shards is how many shards there are: one, because an engine
// counts the requests of a site.
const (
	Kind   = "indexnow"
	Shards = 1
)

// MostURLs is how many URLs the protocol allows in one request.
const MostURLs = 10_000

// DefaultEndpoint passes on to all engines that take part.
const DefaultEndpoint = "https://api.indexnow.org/indexnow"

// A Follower yields the batches of a set that follow a cursor, and waits for more until ctx is
// done. See hub.Hub.
type Follower interface {
	Follow(ctx context.Context, set string, after feed.Cursor) iter.Seq2[[]*feed.Batch, error]

	// Attend keeps what Behind knows of a set until leave is called.
	Attend(set string) (leave func())

	// Behind returns by how many changes a cursor is behind, and the datetime of the oldest of
	// them in microseconds.
	Behind(set string, after feed.Cursor) (changes uint64, oldest int64)
}

// A Log is what a Publisher needs of the change memory. See changelog.Log.
type Log interface {
	State(ctx context.Context, set string) (feed.State, error)
}

// Options of a Publisher. Endpoint and Key must be there; of the rest, zero values are the
// defaults.
type Options struct {
	Endpoint string // URL that takes the requests
	Key      string // shows engines that the hub may speak for a site: the site has a file with it

	// KeyLocation is the URL of that file. Then only URLs of its host are sent. Default: the
	// file KEY.txt at the root of each host.
	KeyLocation string

	Client  http.RoundTripper // makes the requests; outbound.Client is one
	Timeout time.Duration     // of a request; default 30 s
	Pause   time.Duration     // between requests of one set, in which changes gather; default 10 s

	Delivered func(set string, changes int)  // is told what an engine took; default: nobody is
	Outcome   func(set string, failed error) // is told what came of each request; nil is a success; default: nobody is

	Logger  *slog.Logger          // default: discard
	Metrics prometheus.Registerer // takes the metrics of one Publisher; default: nowhere
}

func (o *Options) defaults() {
	o.Endpoint = cmp.Or(o.Endpoint, DefaultEndpoint)
	o.Timeout = cmp.Or(o.Timeout, 30*time.Second)
	o.Pause = cmp.Or(o.Pause, 10*time.Second)
	if o.Delivered == nil {
		o.Delivered = func(string, int) {}
	}
	if o.Outcome == nil {
		o.Outcome = func(string, error) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// A Publisher tells engines what has changed in sets while this hub has the claim.
type Publisher struct {
	// Set by New, never changed.
	sets     []string
	follower Follower
	log      Log
	cursors  cursors.Cursors
	opts     Options
	keeper   *claim.Keeper
	metrics  *metrics
	standing *standing

	wg sync.WaitGroup // of sessions; only the goroutine of the keeper adds to it

	session *session // only the goroutine of the keeper uses it; nil: this hub has no claim
}

// A session is the work under one claim. begins is done first: nothing new begins then. calls
// ends with the claim, and with it all that is under way.
type session struct {
	hold          *claim.Hold
	begins, calls context.Context
	end, cut      context.CancelFunc
}

// New returns a Publisher of sets. It does nothing until Run.
func New(sets []string, f Follower, log Log, kept cursors.Cursors, claims claim.Store, o Options) *Publisher {
	o.defaults()
	p := &Publisher{sets: sets, follower: f, log: log, cursors: kept, opts: o, metrics: newMetrics(o.Metrics), standing: newStanding(f)}
	if o.Metrics != nil {
		o.Metrics.MustRegister(p.standing)
	}
	p.keeper = claim.NewKeeper(claims, p, Shards, nil, o.Logger.With("work", Kind))
	return p
}

// yieldWithin is how long Run waits at most for an answer that is under way.
const yieldWithin = 3 * time.Second

// Run publishes while this hub has the claim, until ctx is done. Failures are logged, and it
// tries again. When Run returns, none of its goroutines is left.
func (p *Publisher) Run(ctx context.Context) error {
	p.keeper.Run(ctx, yieldWithin)
	p.wg.Wait()
	return nil
}

// Gained begins a session. It is for the claim.Keeper alone, as are Lost and Yield.
func (p *Publisher) Gained(h *claim.Hold) {
	s := &session{hold: h}
	s.calls, s.cut = context.WithCancel(context.Background())
	s.begins, s.end = context.WithCancel(s.calls)
	p.session = s
	p.wg.Go(func() {
		defer s.cut()
		var lines sync.WaitGroup
		for _, set := range p.sets {
			l := &line{publisher: p, session: s, set: set, logger: p.opts.Logger.With("set", set)}
			lines.Go(l.run)
		}
		lines.Wait()
		p.keeper.Release(h)
	})
}

// Lost ends the session at once.
func (p *Publisher) Lost(h *claim.Hold) {
	if s := p.session; s != nil && s.hold == h {
		s.cut()
	}
}

// Yield lets the session end what is under way.
func (p *Publisher) Yield(h *claim.Hold) {
	if s := p.session; s != nil && s.hold == h {
		s.end()
	} else {
		p.keeper.Release(h)
	}
}

// How long to wait after a failure.
const (
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute // it doubles up to here
)

// A line is the way of one set to the engine. One request is under way at a time. Only the
// goroutine of run uses it.
type line struct {
	publisher *Publisher
	session   *session
	set       string
	logger    *slog.Logger

	cursor   feed.Cursor // as it is kept
	known    bool        // cursor was read
	round    *round      // what is to be sent next; nil: nothing is
	failures int         // since the last success
	said     string      // what was logged last of a failure
}

// errPrivate means that the set is private: what it has is not for everybody.
var errPrivate = errors.New("the set is private, so no engine is told of it")

// run publishes until the session ends.
func (l *line) run() {
	defer l.publisher.follower.Attend(l.set)()
	l.publisher.standing.begins(l.set)
	defer l.publisher.standing.ends(l.set)
	for l.session.begins.Err() == nil {
		err := l.work()
		if l.session.begins.Err() != nil {
			return
		}
		if err != nil {
			_ = backoff.Sleep(l.session.begins, l.failed(err)) // the session may end meanwhile
		}
	}
}

// work publishes until something fails.
func (l *line) work() error {
	p, ctx := l.publisher, l.session.begins
	if err := l.begin(); err != nil {
		return err
	}
	if err := l.send(); err != nil {
		return err
	}
	for batches, err := range p.follower.Follow(ctx, l.set, l.cursor) {
		switch {
		case errors.Is(err, feed.ErrGone):
			return l.overrun()
		case err != nil:
			return err
		}
		for len(batches) > 0 && ctx.Err() == nil {
			l.round, batches = gather(batches, &p.opts)
			sends := len(l.round.requests) > 0
			if err := l.send(); err != nil {
				return err
			}
			if sends {
				_ = backoff.Sleep(ctx, p.opts.Pause) // the session may end meanwhile
			}
		}
	}
	return nil
}

// begin reads where to go on. A set that is published for the first time begins at its head, and
// that is kept before anything is sent.
func (l *line) begin() error {
	if l.known {
		return nil
	}
	p, ctx := l.publisher, l.session.calls
	at, ok, err := p.cursors.Get(ctx, l.set)
	if err != nil {
		return err
	}
	if !ok {
		st, err := p.log.State(ctx, l.set) // zero for a set that is not made
		if err != nil && !errors.Is(err, feed.ErrNoSet) {
			return err
		}
		at = st.Head
		if err := p.cursors.Put(ctx, l.session.hold.Claim, l.set, at); err != nil {
			return err
		}
		l.logger.Info("indexnow: engines are told of a set from here on", "cursor", at.String())
	}
	l.known, l.cursor = true, at
	p.standing.reached(l.set, at)
	return nil
}

// overrun goes on behind changes that the memory has removed before they were sent. The protocol
// has no way to tell that to an engine.
func (l *line) overrun() error {
	p, ctx := l.publisher, l.session.calls
	st, err := p.log.State(ctx, l.set)
	if err != nil {
		return err // also of a set that was deleted, until it is made again
	}
	l.logger.Error("indexnow: no engine was told of some changes: the memory had removed them", "after", l.cursor.String(), "until", st.Floor.String())
	p.metrics.gaps.Inc()
	return l.keep(st.Floor)
}

// keep moves the cursor.
func (l *line) keep(at feed.Cursor) error {
	if err := l.publisher.cursors.Put(l.session.calls, l.session.hold.Claim, l.set, at); err != nil {
		return err
	}
	l.cursor = at
	l.publisher.standing.reached(l.set, at)
	return nil
}

// send sends what is left of the round, and then keeps how far the set is published.
func (l *line) send() error {
	if l.round == nil {
		return nil
	}
	p, ctx := l.publisher, l.session.calls
	for len(l.round.requests) > 0 {
		st, err := p.log.State(ctx, l.set)
		switch {
		case errors.Is(err, feed.ErrNoSet):
			l.round = nil // it was deleted, and nobody is to be told of it any more
			return err
		case err != nil:
			return err
		case st.Private:
			return errPrivate
		case l.session.hold.Over():
			return claim.ErrLost
		case l.session.begins.Err() != nil:
			return l.session.begins.Err()
		}
		r := &l.round.requests[0]
		if err := p.opts.post(ctx, r); err != nil {
			p.metrics.requests.WithLabelValues("failure").Inc()
			if f, ok := errors.AsType[*Failure](err); ok && f.Status == http.StatusBadRequest && r.refused < mostRefused-1 {
				r.refused++
				return err
			} else if ok && f.Status == http.StatusBadRequest {
				l.logger.Error("indexnow: an engine finds that URLs are malformed, so they are left out", "host", r.host, "urls", len(r.urls), "first", r.urls[0])
				p.metrics.refused.Add(float64(len(r.urls)))
				l.round.requests = l.round.requests[1:]
				continue
			}
			return err
		}
		p.metrics.requests.WithLabelValues("success").Inc()
		p.metrics.urls.Add(float64(len(r.urls)))
		l.succeeded()
		l.round.requests = l.round.requests[1:]
	}
	if err := l.keep(l.round.cursor); err != nil {
		return err
	}
	p.opts.Delivered(l.set, l.round.changes)
	p.metrics.others.Add(float64(l.round.others))
	l.round = nil
	return nil
}

// failed notes a failure, and returns how long to wait.
func (l *line) failed(err error) time.Duration {
	p := l.publisher
	l.failures++
	p.standing.fails(l.set, true)
	p.opts.Outcome(l.set, err)
	if said := err.Error(); l.said != said {
		l.said = said
		l.logger.Warn("indexnow: an engine cannot be told of a set; the hub tries again", "err", err)
	}
	wait := backoff.Jitter(min(firstRetry<<min(l.failures-1, 10), lastRetry))
	f, ok := errors.AsType[*Failure](err)
	switch {
	case ok && f.lasting(), errors.Is(err, errPrivate):
		return lastRetry
	case ok:
		return max(wait, f.After)
	}
	return wait
}

// succeeded notes that a request was taken.
func (l *line) succeeded() {
	if l.failures > 0 {
		l.logger.Info("indexnow: an engine takes what is sent again", "failures", l.failures)
	}
	l.failures, l.said = 0, ""
	l.publisher.standing.fails(l.set, false)
	l.publisher.opts.Outcome(l.set, nil)
}
