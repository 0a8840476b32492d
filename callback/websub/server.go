// Package websub implements WebSub (W3C Recommendation of 23 January 2018) over HTTP: requests of subscribers, pings of
// sources, the pages of operators, and the requests to callbacks. Section numbers in its comments refer to WebSub, unless
// they name another standard.
//
// A Server turns each request into a subscription.Request and executes nothing itself. The engine of package callback
// does, with a Caller as its outlet; it also decides what to deliver and when to retry. The package carries no
// compatibility promise.
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

// Sets is implemented by *hub.Hub.
type Sets interface {
	// Waits reports whether a publish may make a set, so that it may be subscribed to before it exists.
	Waits(set string) bool
}

// Inventories knows which sets have an inventory.
type Inventories interface {
	// Keeps reports whether the hub keeps an inventory of a set.
	Keeps(ctx context.Context, set string) bool
}

// Sources is implemented by *poll.Poller.
type Sources interface {
	// Ping starts a fetch of the changes of a set's source. It does not wait for the fetch.
	Ping(ctx context.Context, set string) error
}

// Options configures a Server. The zero value uses the defaults.
type Options struct {
	Sets        Sets                      // sets that may be made; default: none
	Inventories Inventories               // baselines for subscribers that lost changes; default: none
	Sources     Sources                   // sources that ping; default: pings are refused
	Formats     map[string]*outlet.Format // formats besides change notifications, by the name of their topic in a set; default: none

	// Granted leases (Change Notification section 4.2); default: 300 s, 10 days and 31 days.
	LeaseMin, LeaseDefault, LeaseMax time.Duration

	// Maximum number of requests per minute about new subscriptions with callbacks at one host; default: 1,000.
	// Renewals have their own limit.
	MaxRequests int

	// Maximum numbers of subscriptions. Hubs that share the work estimate the totals from the part that each knows, so
	// there the limits are not exact.
	MaxPerHost    int // with callbacks at one host and port; default: 10,000
	MaxPerSet     int // default: 100,000
	MaxUnverified int // not yet confirmed, with callbacks at one host and port; default: 1,000

	ClockSkew time.Duration    // how far a datetime may be in the future; default: 1 minute
	Now       func() time.Time // default: time.Now
}

// A Server responds to the requests of subscribers and operators about subscriptions. It passes changes to the engine,
// which executes them later.
type Server struct {
	engine   Requests
	registry subscription.Registry
	log      Memory
	check    func(name, target string) error
	base     feed.Base
	opts     Options
	rates    rates
}

// Requests accepts requests about subscriptions. It is implemented by callback.Engine.
type Requests interface {
	// Send adds a request to its shard's inbox. The request is durable when Send returns nil, and is executed soon.
	// For errors, see subscription.Registry.Send.
	Send(ctx context.Context, r subscription.Request) error

	// Count returns the numbers of subscriptions for the limits on a new one, whose callback is at host. Those of the
	// same caller are zero if r.By is empty.
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

// NewServer returns a Server for the topics under base. It sends requests to engine, and finds subscriptions in
// registry. check reports whether a callback is allowed, as outbound.Client.Check does.
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
	return &Server{engine: engine, registry: registry, log: log, check: check, base: base, opts: o}
}

// ServeHub responds to a form that was POSTed to the hub's URL: a request to subscribe or to unsubscribe (section 5.1),
// or the ping of a source (section 6). The response to a request is 202 once it is durable; it is verified later. The
// response to a ping is 204, because some publishers treat any other status as a failure. An error means that nothing
// was stored. The caller must write it as one line of text (section 5.1.2; problem.WriteText).
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
	if mode == publish {
		if err := s.ping(r.Context(), form); err != nil {
			return err
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	request, err := s.sendForm(r, form, subscription.Mode(mode))
	if err != nil {
		return err
	}
	note := "accepted; the callback will be asked to confirm"
	if request.Mode == subscription.Subscribe && request.Secret != "" && strings.HasPrefix(request.Callback, "http:") {
		note += "; warning: the secret is sent over plain HTTP, use https"
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusAccepted)
	_, _ = w.Write([]byte(note + "\n")) // the subscriber may have closed the connection
	return nil
}

// sendForm sends the request to subscribe or to unsubscribe in a form.
func (s *Server) sendForm(r *http.Request, form *form, mode subscription.Mode) (request subscription.Request, err error) {
	ctx := r.Context()
	set, format, err := s.parseTopic(ctx, form)
	if err != nil {
		return request, err
	}
	audit := trail.FromContext(ctx)
	audit.SetAction(trail.Action(mode), set) // actions have the names of modes
	if err := access.MayFollow(ctx, set); err != nil {
		return request, err
	}
	request, err = s.parseRequest(r, form, subscription.Request{Mode: mode, Set: set, Form: format})
	if request.Callback != "" {
		audit.SetSubscription(request.ID().String(), hostOf(request.Callback))
	}
	if err != nil {
		return request, err
	}
	return request, s.send(ctx, request)
}

// hostOf returns the host of a callback, for logs. The rest of the callback may be secret.
func hostOf(callback string) string {
	u, err := url.Parse(callback)
	if err != nil {
		return ""
	}
	return u.Host
}

// parseTopic returns the set and format of the topic in hub.topic. In the draft of 2012 it is in topic, and may be
// missing: that draft had no topics.
func (s *Server) parseTopic(ctx context.Context, form *form) (set, format string, err error) {
	name := "hub.topic"
	if form.Has("callbackURI") && !form.Has(name) {
		if name = "topic"; !form.Has(name) {
			if set, err = s.onlySet(ctx); s.opts.Formats[draftFormat] != nil {
				format = draftFormat
			}
			return set, format, err
		}
	}
	topic := form.one(name)
	if form.err != nil {
		return "", "", form.err
	}
	return s.resolveTopic(name, topic)
}

// draftFormat is the format that the draft of 2012 delivers: changesets.
const draftFormat = "changeset.xml"

// onlySet returns the only set that the caller may follow.
func (s *Server) onlySet(ctx context.Context) (string, error) {
	sets, err := s.log.Sets(ctx)
	if err != nil {
		return "", err
	}
	sets = slices.DeleteFunc(sets, func(st feed.State) bool { return !access.FromContext(ctx).Rights.MaySee(st) })
	if len(sets) != 1 {
		return "", resourcesync.Invalidf("topic (or hub.topic) is missing, and you may follow %d sets; send topic=%s, GET %s lists the sets",
			len(sets), s.base.Topic("SET"), s.base.Sets())
	}
	return sets[0].Set, nil
}

// resolveTopic returns the set and format (see subscription.Subscription.Form) of a topic in the parameter name.
func (s *Server) resolveTopic(name, topic string) (set, format string, err error) {
	if topic == "" {
		return "", "", resourcesync.Invalidf("%s is missing; want a topic such as %s", name, s.base.Topic("SET"))
	}
	if set, ok := s.base.ParseTopic(topic); ok {
		return set, "", nil
	}
	set, format, ok := s.base.ParseDocument(topic)
	if !ok || s.opts.Formats[format] == nil {
		return "", "", problem.New(http.StatusNotFound, "no-such-topic",
			fmt.Sprintf("%s: got %.200q, want a topic of this hub such as %s; GET %s lists the sets", name, topic, s.base.Topic("SET"), s.base.Sets()))
	}
	return set, format, nil
}

// parseRequest completes a request, whose mode and topic are set, from its form, and checks whether it may be made. With
// an error it returns what it has parsed.
func (s *Server) parseRequest(from *http.Request, form *form, r subscription.Request) (subscription.Request, error) {
	ctx := from.Context()
	r.By, r.At = Requester(from), s.opts.Now().UTC()
	if r.Callback = form.callback(s.check); form.err != nil {
		return r, form.err
	}
	if r.Mode == subscription.Unsubscribe {
		if r.Secret = form.secret(); form.err != nil {
			r.Secret, form.err = "", nil // it is not required
		}
		r.Token, r.VerifyToken = form.token(s.base), form.verifyToken()
		if form.err != nil {
			return r, form.err
		}
		known, err := s.admit(ctx, &r)
		if err == nil && !known {
			err = s.requirePending(ctx, r.ID())
		}
		return r, err
	}
	caller := access.FromContext(ctx)
	r.Until, r.Key, r.Anyone = caller.Expires, caller.Key, !caller.Rights.FollowPrivate(r.Set)
	r.Lease, r.Terms = form.lease(&s.opts), form.terms()
	r.Token, r.VerifyToken = form.token(s.base), form.verifyToken()
	since := form.one("rs.since")
	if form.err != nil {
		return r, form.err
	}
	start, err := s.find(ctx, "rs.since", r.Set, since)
	if err != nil {
		return r, err
	}
	r.Start, r.Diverged, r.Move = start.Cursor, start.Diverged, since != ""
	_, err = s.admit(ctx, &r)
	return r, err
}

// find returns where a subscription starts, as changelog.StartFinder.Find does. parameter is the client's name for
// since, for errors.
func (s *Server) find(ctx context.Context, parameter, set, since string) (*feed.Batch, error) {
	waits := func(set string) bool { return s.opts.Sets != nil && s.opts.Sets.Waits(set) }
	start := changelog.StartFinder{Log: s.log, Parameter: parameter, Waits: waits, Now: s.opts.Now, ClockSkew: s.opts.ClockSkew}
	b, err := start.Find(ctx, set, since)
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
