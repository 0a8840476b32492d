// Package websub implements WebSub (W3C Recommendation of 23 January 2018) over HTTP: requests of
// subscribers, pings of sources, the pages of operators, and the requests to callbacks. Sections in
// its comments are those of WebSub, unless another standard is named.
//
// A Server turns each request into a subscription.Request and carries out nothing itself. The
// engine of package callback does that, with a Caller as its outlet. How often to try again and
// what to deliver is decided there, too. The package carries no compatibility promise.
package websub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/rshub/rshub/callback/outlet"
	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/internal/trail"
	"github.com/rshub/rshub/resourcesync"
)

// Sets know which sets there may be. They are a *hub.Hub.
type Sets interface {
	// Waits reports whether a publish may make a set.
	Waits(set string) bool
}

// Inventories know what sets hold.
type Inventories interface {
	// Keeps reports whether the hub keeps an inventory of a set.
	Keeps(ctx context.Context, set string) bool
}

// Sources are polled by the hub. They are a *poll.Poller.
type Sources interface {
	// Ping starts a fetch of what a source has changed. It does not wait for the fetch.
	Ping(ctx context.Context, set string) error
}

// Options of a Server. Zero values are the defaults.
type Options struct {
	Sets        Sets        // that are not made yet, and may be subscribed to; default: none
	Inventories Inventories // to begin anew with when changes are gone; default: none
	Sources     Sources     // that only ping; default: pings are refused

	// The leases that are granted (Change Notification section 4.2); default 300 s,
	// 10 days and 31 days.
	LeaseMin, LeaseDefault, LeaseMax time.Duration

	// MaxRequests bounds the requests in one minute about new subscriptions, for
	// callbacks at one host; default 1,000. Renewals have a limit of their own.
	MaxRequests int

	// How many subscriptions there may be. Hubs that share the work each know only
	// a part of them and estimate the whole, so there the limits are not exact.
	MaxPerHost    int // with callbacks at one host and port; default 10,000
	MaxPerSet     int // default 100,000
	MaxUnverified int // still to be confirmed, with callbacks at one host and port; default 1,000

	Formats map[string]*outlet.Format // of what is delivered, besides change notifications, by the names of their topics in a set; default: none

	ClockSkew time.Duration    // how far a datetime may lie in the future; default 1 minute
	Now       func() time.Time // default time.Now
}

// A Server answers what subscribers and operators ask about subscriptions. What
// they want becomes a request, which the engine carries out.
type Server struct {
	engine   Requests
	registry subscription.Registry
	log      Memory
	check    func(name, target string) error
	begin    changelog.StartFinder // without Parameter, which find sets
	base     feed.Base
	opts     Options
	rates    rates
}

// Requests takes the requests about subscriptions. callback.Engine does.
type Requests interface {
	// Send adds a request to its shard's inbox. The request is durable when
	// Send returns nil, and is carried out soon. Errors are those of
	// subscription.Registry.Send.
	Send(ctx context.Context, r subscription.Request) error

	// Count returns how many subscriptions the one that a request is to make
	// would meet. Its callback is at host.
	Count(r *subscription.Request, host string) subscription.Count
}

// A Memory is the part of changelog.Log that a Server reads.
type Memory interface {
	State(ctx context.Context, set string) (feed.State, error)
	Sets(ctx context.Context, names ...string) ([]feed.State, error)
	Since(ctx context.Context, set string, after feed.Cursor, limit int) (*feed.Batch, error)
	Seek(ctx context.Context, set string, micros int64) (feed.Cursor, error)
	At(ctx context.Context, set string, position uint64) (feed.Cursor, error)
}

// NewServer returns a Server for the topics under base. It sends requests to
// engine, and finds subscriptions in registry. check decides which callbacks
// are allowed, as outbound.Client.Check does.
func NewServer(engine Requests, registry subscription.Registry, log Memory, check func(name, target string) error, base feed.Base, o Options) *Server {
	o.LeaseMin = cmp.Or(o.LeaseMin, 300*time.Second)
	o.LeaseDefault = cmp.Or(o.LeaseDefault, 10*24*time.Hour)
	o.LeaseMax = cmp.Or(o.LeaseMax, 31*24*time.Hour)
	o.MaxRequests = cmp.Or(o.MaxRequests, 1000)
	o.MaxPerHost = cmp.Or(o.MaxPerHost, 10_000)
	o.MaxPerSet = cmp.Or(o.MaxPerSet, 100_000)
	o.MaxUnverified = cmp.Or(o.MaxUnverified, 1000)
	o.ClockSkew = cmp.Or(o.ClockSkew, time.Minute)
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Server{engine: engine, registry: registry, log: log, check: check, base: base, opts: o}
	s.begin = changelog.StartFinder{Log: log, Waits: func(set string) bool { return o.Sets != nil && o.Sets.Waits(set) }, Now: o.Now, ClockSkew: o.ClockSkew}
	return s
}

// ServeHub answers a form that was POSTed to the hub's URL: a request to
// subscribe or to unsubscribe (section 5.1), or the ping of a source (section
// 6). The answer to a request is 202 once it is durable; the callback is asked
// to confirm later. The answer to a ping is 204, since there are publishers that
// take everything else for a failure. An error means that nothing was kept. The
// caller answers it with one line of text (section 5.1.2; problem.WriteText).
func (s *Server) ServeHub(w http.ResponseWriter, r *http.Request) error {
	form, err := readForm(w, r)
	if err != nil {
		return err
	}
	mode := form.mode()
	if form.err != nil {
		return form.err
	}
	w.Header().Set("Cache-Control", "no-store")
	if mode == publishing {
		if err := s.ping(r.Context(), form); err != nil {
			return err
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	note, err := s.take(r, form, subscription.Mode(mode))
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusAccepted)
	_, _ = w.Write([]byte(note + "\n")) // the subscriber may be gone
	return nil
}

// take sends the request to subscribe or to unsubscribe that is in a form. It
// returns the text of the answer.
func (s *Server) take(r *http.Request, form *form, mode subscription.Mode) (note string, err error) {
	set, format, err := s.parseTopic(r.Context(), form)
	if err != nil {
		return "", err
	}
	record, action := trail.FromContext(r.Context()), trail.Subscribe
	if mode == subscription.Unsubscribe {
		action = trail.Unsubscribe
	}
	record.SetAction(action, set)
	if err := access.MayFollow(r.Context(), set); err != nil {
		return "", err
	}
	request, err := s.parse(r, form, subscription.Request{Mode: mode, Set: set, Form: format})
	if request.Callback != "" {
		record.SetSubscription(request.ID().String(), hostOf(request.Callback))
	}
	if err != nil {
		return "", err
	}
	if err := s.send(r.Context(), request); err != nil {
		return "", err
	}
	note = "accepted; the callback will be asked to confirm"
	if mode == subscription.Subscribe && request.Secret != "" && strings.HasPrefix(request.Callback, "http:") {
		note += "; warning: the secret is sent over plain HTTP, use https"
	}
	return note, nil
}

// hostOf returns the host of a callback, as logs may show it. The rest may be secret.
func hostOf(callback string) string {
	u, err := url.Parse(callback)
	if err != nil {
		return ""
	}
	return u.Host
}

// parseTopic returns the set whose topic a form names in hub.topic, or in topic of the
// draft of 2012, and the form of what is delivered: see subscription.Subscription.Form.
func (s *Server) parseTopic(ctx context.Context, form *form) (set, format string, err error) {
	name := "hub.topic"
	if form.Has("callbackURI") && !form.Has(name) {
		if name = "topic"; !form.Has(name) {
			if set, err = s.onlySet(ctx); s.opts.Formats[draftForm] != nil {
				format = draftForm
			}
			return set, format, err
		}
	}
	topic := form.one(name)
	if form.err != nil {
		return "", "", form.err
	}
	return s.setOf(name, topic)
}

// draftForm is what the draft of 2012 delivers: changesets.
const draftForm = "changeset.xml"

// onlySet returns the set that a request of the draft of 2012 is about. That
// draft knew no topics, so the caller names one in topic, or may follow exactly one
// set.
func (s *Server) onlySet(ctx context.Context) (string, error) {
	sets, err := s.log.Sets(ctx)
	if err != nil {
		return "", err
	}
	sets = slices.DeleteFunc(sets, func(st feed.State) bool { return !access.FromContext(ctx).Rights.MaySee(st) })
	if len(sets) != 1 {
		return "", resourcesync.Invalidf("topic (or hub.topic) is missing, and you may follow %d sets; send topic=%s, GET %s lists the sets", len(sets), s.base.Topic("SET"), s.base.Sets())
	}
	return sets[0].Set, nil
}

// parse reads the rest of a request to subscribe or to unsubscribe, whose mode and topic are
// known, and checks that it may be made.
func (s *Server) parse(from *http.Request, form *form, r subscription.Request) (subscription.Request, error) {
	ctx := from.Context()
	r.By, r.At = Requester(from), s.opts.Now().UTC()
	if r.Mode == subscription.Subscribe {
		caller := access.FromContext(ctx)
		r.Until, r.Key, r.Anyone = caller.Expires, caller.Key, !caller.Rights.FollowPrivate(r.Set)
	}
	if r.Callback = form.callback(s.check); form.err != nil {
		return r, form.err
	}
	if r.Mode == subscription.Subscribe {
		r.Lease, r.Terms = form.lease(&s.opts), form.terms()
	} else if r.Secret = form.secret(); form.err != nil {
		r.Secret, form.err = "", nil // a request to unsubscribe needs none
	}
	r.Token, r.VerifyToken = form.token(s.base), form.verifyToken()
	if r.Mode == subscription.Unsubscribe {
		if form.err != nil {
			return r, form.err
		}
		if known, err := s.admit(ctx, &r); known || err != nil {
			return r, err
		}
		return r, s.asked(ctx, r.ID())
	}
	since := form.one("rs.since")
	if form.err != nil {
		return r, form.err
	}
	begin, err := s.find(ctx, "rs.since", r.Set, since)
	if err != nil {
		return r, err
	}
	r.Start, r.Diverged, r.Move = begin.Cursor, begin.Diverged, since != ""
	_, err = s.admit(ctx, &r)
	return r, err
}

// find returns where a subscription begins, as changelog.StartFinder.Find does.
// parameter is the client's name for since, used in errors.
func (s *Server) find(ctx context.Context, parameter, set, since string) (*feed.Batch, error) {
	begin := s.begin
	begin.Parameter = parameter
	b, err := begin.Find(ctx, set, since)
	if errors.Is(err, feed.ErrGone) {
		p := problem.New(http.StatusGone, "gone",
			fmt.Sprintf("%s: the changes are gone; read all resources of the source, then use %[1]s=start", parameter))
		if s.opts.Inventories != nil && s.opts.Inventories.Keeps(ctx, set) {
			p.Detail = fmt.Sprintf("%s: the changes are gone; read a baseline from %s, then use the cursor at its end", parameter, s.base.Baseline(set))
			p.Header = http.Header{"Link": {s.base.InventoryLink(set)}}
		}
		p.Err = err
		return nil, p
	}
	return b, err
}

// asked returns nil when a subscription exists or is asked for. The inbox is
// read first: a request that leaves it meanwhile has its outcome in a record,
// which Find then sees.
func (s *Server) asked(ctx context.Context, id subscription.ID) error {
	for r, err := range s.inbox(ctx, id.Shard()) {
		if err != nil || r.ID() == id {
			return err
		}
	}
	record, err := s.registry.Find(ctx, id)
	if err == nil && !record.Ended.IsZero() {
		err = subscription.ErrNoSubscription
	}
	return err
}

// send makes a request durable, so that the engine carries it out.
func (s *Server) send(ctx context.Context, r subscription.Request) error {
	err := s.engine.Send(ctx, r)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("store request to %s: %w", r.Mode, err)
	if errors.Is(err, feed.ErrUnknown) {
		p := problem.New(http.StatusServiceUnavailable, "unknown", "it is unknown whether the request was stored; send it again, a repeat is harmless")
		p.RetryAfter, p.Err = 2, err
		return p
	}
	return err
}
