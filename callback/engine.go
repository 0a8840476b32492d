package callback

import (
	"context"
	"crypto/x509"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Options of an Engine. Zero values are the defaults.
type Options struct {
	BaseURL string         // the hub's own, for topics, Link headers and status URLs; without a slash at the end
	Allow   []netip.Prefix // networks that callbacks may lead to besides public addresses; default: none
	Ports   []uint16       // that callbacks may have; default: 80, 443 and from 1024 on
	CAs     *x509.CertPool // that vouch for callbacks; default: the system's

	ConnectTimeout time.Duration // of a connection, and of its TLS handshake; default 5 s
	Timeout        time.Duration // of a whole delivery, from the connection to the status; default 15 s
	VerifyTimeout  time.Duration // the same of a verification; default 10 s

	InFlight int // requests under way at most; default 1,024
	PerHost  int // of them at most to one host and port; default 8

	MaxChanges int // in one delivery, and looked at for one; default and maximum 1,000
	MaxBytes   int // of changes in one delivery, unless it is a single one; default 1 MiB

	Logger  *slog.Logger          // gets no secret, and of a callback only the host; default: discard
	Metrics prometheus.Registerer // of what is done, its Fetchers' fetches too; default: none
}

func (o *Options) defaults() {
	o.BaseURL = strings.TrimSuffix(o.BaseURL, "/")
	o.ConnectTimeout = or(o.ConnectTimeout, 5*time.Second)
	o.Timeout = or(o.Timeout, 15*time.Second)
	o.VerifyTimeout = or(o.VerifyTimeout, 10*time.Second)
	o.InFlight = or(o.InFlight, 1024)
	o.PerHost = or(o.PerHost, 8)
	o.MaxChanges = min(or(o.MaxChanges, 1000), 1000)
	o.MaxBytes = or(o.MaxBytes, 1<<20)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// An Engine delivers to the subscriptions of those shards that this hub has a
// claim on, and carries out the requests in their inboxes.
//
// It needs a goroutine for each request in flight, which stays a second longer,
// and one for each set that has subscriptions, but none for a subscription.
type Engine struct {
	registry  Registry
	log       Log
	follower  Follower
	opts      Options
	addresses *addresses
	transport *http.Transport
	metrics   *metrics

	readings readings // guarded by its own mutex
	hands    chan job // to goroutines that wait for one
	ringer   nudge    // the schedule's first task may have changed
	saver    nudge    // there is something to save

	claims   *claims
	ctx      context.Context // of all goroutines
	cancel   context.CancelFunc
	working  context.Context // of the claims: when it ends they are given up
	stop     context.CancelFunc
	released chan struct{}  // closed when they are
	wg       sync.WaitGroup // of the goroutines that Run does not begin with

	mu       sync.Mutex
	shards   map[int]*shard
	topics   map[string]*topic
	filters  filters
	fresh    map[string]int // errands that are to make a subscription, by set
	places   places
	schedule schedule
	failing  int // subs whose last attempt failed
	draining bool
}

// New returns an Engine, which does nothing until Run. It registers its metrics,
// so there is one Engine for each registry.
func New(registry Registry, log Log, follower Follower, o Options) *Engine {
	o.defaults()
	e := &Engine{
		registry: registry, log: log, follower: follower, opts: o,
		addresses: &addresses{allow: o.Allow, ports: o.Ports},
		metrics:   newMetrics(o.Metrics),
		hands:     make(chan job), ringer: make(nudge, 1), saver: make(nudge, 1),
		shards: map[int]*shard{}, topics: map[string]*topic{}, filters: filters{}, fresh: map[string]int{},
		places: places{total: o.InFlight, perHost: o.PerHost, hosts: map[string]*host{}},
	}
	e.claims = newClaims(registry, e, o.Logger)
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.working, e.stop = context.WithCancel(e.ctx)
	e.released = make(chan struct{})
	if u, err := url.Parse(o.BaseURL); err == nil && u.Host != "" {
		e.addresses.self = hostOf(u)
	}
	e.transport = newTransport(e.addresses, &e.opts)
	if o.Metrics != nil {
		o.Metrics.MustRegister(newGauges(e))
	}
	return e
}

// CheckCallback returns nil when a callback may be subscribed with. The error
// says what is wrong with it, as a *resourcesync.Error with ErrInvalid. It asks
// no resolver: whether the address may be reached shows at each connection.
func (e *Engine) CheckCallback(callback string) error { return e.addresses.check("callback", callback) }

// CheckChangeList is CheckCallback's twin for where a source's Change List is.
func (e *Engine) CheckChangeList(list string) error { return e.addresses.check("changelist", list) }

// Send adds a request to its shard's inbox. It is durable when nil is returned,
// and is carried out soon, by whichever hub has the shard. Errors are those of
// Registry.Send.
func (e *Engine) Send(ctx context.Context, r Request) error {
	if err := e.registry.Send(ctx, r); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.shards[r.ID().Shard()]; s != nil {
		s.sent++ // it need not wait for the renewal of the claim
		s.newest = max(s.newest, s.after+1)
		s.fetch()
	}
	return nil
}

// topicURL returns the URL of a set's change notification channel.
func (e *Engine) topicURL(set string) string { return e.opts.BaseURL + "/sets/" + set + "/changes" }

// statusURL returns the URL where whoever has it can read how a subscription
// goes.
func (e *Engine) statusURL(id ID, token string) string {
	return e.opts.BaseURL + "/subscriptions/" + statusName(id, token)
}

// A job is a task that has got a place, and what it does there.
type job struct {
	*task
	turn
}

// fill gives places to those whose turn it is, as long as there are both. mu is
// held.
func (e *Engine) fill() {
	for {
		j, ok := e.next()
		if !ok {
			return
		}
		select {
		case e.hands <- j:
		default: // nobody waits there
			e.wg.Go(func() { e.work(j) })
		}
	}
}

// next gives the next task its place. ok is false when there is none. mu is held.
func (e *Engine) next() (j job, ok bool) {
	for !e.draining {
		t := e.places.next()
		if t == nil {
			break
		}
		if !t.shard.leaving {
			if turn := t.work.turn(); turn != nil {
				t.shard.busy++
				return job{t, turn}, true
			}
		}
		e.places.done(t) // nothing is to be done, or its shard is another hub's soon
	}
	return job{}, false
}

// lingerTime is how long a goroutine without a task waits for the next. A new
// one would have to grow its stack for each request.
const lingerTime = time.Second

// work does a job, and then those for which its place gets free, or that it is
// handed a little later.
func (e *Engine) work(j job) {
	linger := time.NewTimer(lingerTime)
	defer linger.Stop()
	for {
		j.do()
		e.mu.Lock()
		e.places.done(j.task)
		if j.shard.busy--; j.shard.busy == 0 && j.shard.leaving {
			close(j.shard.rested)
		}
		j.settle()
		var ok bool
		j, ok = e.next()
		e.fill()
		e.mu.Unlock()
		if ok {
			continue
		}
		linger.Reset(lingerTime)
		select {
		case j = <-e.hands:
		case <-linger.C:
			return
		case <-e.ctx.Done():
			return
		}
	}
}

// remind lets a task be rung at a time. mu is held.
func (e *Engine) remind(t *task, at time.Time) {
	if t.index >= 0 && t.due.Equal(at) {
		return
	}
	e.schedule.set(t, at)
	if t.index == 0 {
		e.ringer.want()
	}
}

// ringLoop rings what is due, until ctx is done.
func (e *Engine) ringLoop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		e.mu.Lock()
		now := time.Now()
		for t := e.schedule.take(now); t != nil; t = e.schedule.take(now) {
			t.work.ring()
		}
		e.fill()
		at, some := e.schedule.next()
		e.mu.Unlock()
		if some {
			timer.Reset(time.Until(at))
		} else {
			timer.Stop()
		}
		select {
		case <-timer.C:
		case <-e.ringer:
		case <-ctx.Done():
			return
		}
	}
}
