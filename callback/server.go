package callback

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/rshub/rshub/changelog"
)

// ServerOptions are the options of a Server. Zero values are the defaults.
type ServerOptions struct {
	Waits func(set string) bool // whether a set that is not made can be subscribed to; default: none

	// Ping fetches what a source that only pings has changed. Default: such a
	// request is refused.
	Ping func(ctx context.Context, set string) error

	// Leases that are granted (Change Notification section 4.2); default 300 s, 10
	// days and 31 days.
	LeaseMin, LeaseDefault, LeaseMax time.Duration

	// Requests that make a subscription, for callbacks at one host in one minute;
	// default 1,000. Renewals have a bound of their own.
	MaxRequests int

	// How many subscriptions there may be. Hubs that share the work each know a part
	// and conclude on the whole, so there it is about that many.
	MaxPerHost    int // with callbacks at one host and port; default 10,000
	MaxPerSet     int // default 100,000
	MaxUnverified int // that are asked for and not confirmed yet, with callbacks at one host and port; default 1,000

	ClockSkew time.Duration    // by how much a datetime may lie in the future; default 1 minute
	Now       func() time.Time // default time.Now
}

// A Server answers what subscribers and operators ask of the subscriptions. What
// they want becomes a request that an Engine carries out.
type Server struct {
	engine   *Engine
	registry Registry
	log      changelog.Log
	begin    changelog.Start // but for the parameter
	base     string
	opts     ServerOptions
	rates    rates
}

// NewServer returns a Server for the subscriptions of an Engine.
func NewServer(e *Engine, log changelog.Log, o ServerOptions) *Server {
	if o.Waits == nil {
		o.Waits = func(string) bool { return false }
	}
	o.LeaseMin = or(o.LeaseMin, 300*time.Second)
	o.LeaseDefault = or(o.LeaseDefault, 10*24*time.Hour)
	o.LeaseMax = or(o.LeaseMax, 31*24*time.Hour)
	o.MaxRequests = or(o.MaxRequests, 1000)
	o.MaxPerHost = or(o.MaxPerHost, 10_000)
	o.MaxPerSet = or(o.MaxPerSet, 100_000)
	o.MaxUnverified = or(o.MaxUnverified, 1000)
	o.ClockSkew = or(o.ClockSkew, time.Minute)
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Server{engine: e, registry: e.registry, log: log, base: e.opts.BaseURL, opts: o}
	s.begin = changelog.Start{Log: log, Waits: o.Waits, Now: o.Now, ClockSkew: o.ClockSkew}
	return s
}

// ServeHub answers a form that was POSTed to the hub: a request to subscribe or
// to unsubscribe (section 5.1), or a source's ping (section 6). Requests are
// answered 202 once they are durable, and verified after. Errors are one line of
// text. follow and publish say whether the caller may do that with a set.
func (s *Server) ServeHub(w http.ResponseWriter, r *http.Request, follow, publish func(set string) error) {
	note, err := s.take(w, r, follow, publish)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusAccepted)
	_, _ = w.Write([]byte(note + "\n")) // the subscriber may be gone
}

// take carries a form as far as it goes at once, and returns what to say of it.
func (s *Server) take(w http.ResponseWriter, r *http.Request, follow, publish func(set string) error) (note string, err error) {
	form, err := readForm(w, r)
	if err != nil {
		return "", err
	}
	mode, err := parseMode(form)
	if err != nil {
		return "", err
	}
	if mode == publishing {
		return s.ping(r.Context(), form, publish)
	}
	var set string
	if form.Has("callbackURI") && !form.Has("hub.topic") {
		set, err = s.onlySet(r.Context(), follow)
	} else {
		set, err = s.parseTopic(form, "hub.topic")
	}
	if err != nil {
		return "", err
	}
	if err := follow(set); err != nil {
		return "", err
	}
	request, err := s.parse(r.Context(), form, Mode(mode), set)
	if err != nil {
		return "", err
	}
	if err := s.send(r.Context(), request); err != nil {
		return "", err
	}
	note = "accepted: the callback will be asked to confirm"
	if request.Secret != "" && strings.HasPrefix(request.Callback, "http:") {
		note += "; a secret over plain HTTP can be read by others on the way, better use https"
	}
	return note, nil
}

// onlySet returns the set that the draft of 2012 means, which knew no topics: the
// only one that the caller may follow.
func (s *Server) onlySet(ctx context.Context, follow func(set string) error) (string, error) {
	sets, err := s.log.Sets(ctx)
	if err != nil {
		return "", err
	}
	sets = slices.DeleteFunc(sets, func(st changelog.State) bool { return follow(st.Set) != nil })
	if len(sets) != 1 {
		return "", changelog.Invalid("hub.topic is missing, and there are %d sets here that you may follow: GET %s/sets lists them", len(sets), s.base)
	}
	return sets[0].Set, nil
}

// parse reads a request to subscribe or to unsubscribe.
func (s *Server) parse(ctx context.Context, form url.Values, mode Mode, set string) (r Request, err error) {
	r = Request{Mode: mode, Set: set, At: s.opts.Now().UTC()}
	if r.Callback, err = s.parseCallback(form); err != nil {
		return r, err
	}
	if mode == Unsubscribe {
		if known, err := s.admit(ctx, &r); known || err != nil {
			return r, err
		}
		return r, s.asked(ctx, r.ID())
	}
	if r.Secret, err = parseSecret(form); err != nil {
		return r, err
	}
	if r.Lease, err = s.parseLease(form); err != nil {
		return r, err
	}
	if r.Filter, err = parseFilter(form); err != nil {
		return r, err
	}
	since, err := one(form, "rs.since")
	if err != nil {
		return r, err
	}
	begin, err := s.find(ctx, "rs.since", set, since)
	if err != nil {
		return r, err
	}
	r.Start, r.Diverged, r.Move = begin.Cursor, begin.Diverged, since != ""
	_, err = s.admit(ctx, &r)
	return r, err
}

// find finds where a subscription begins, see changelog.Start. parameter is what
// the client calls it.
func (s *Server) find(ctx context.Context, parameter, set, since string) (*changelog.Batch, error) {
	begin := s.begin
	begin.Parameter = parameter
	b, err := begin.Find(ctx, set, since)
	if errors.Is(err, changelog.ErrGone) {
		p := changelog.NewStatus(http.StatusGone, "gone",
			fmt.Sprintf("%s: the change memory does not reach back that far: read the resources of the source anew, then begin with %[1]s=start", parameter))
		p.Err = err
		return nil, p
	}
	return b, err
}

// asked returns nil when a subscription, of which there was no record just now, is
// asked for or there by now. The inbox is read first: what leaves it meanwhile is
// in a record by then.
func (s *Server) asked(ctx context.Context, id ID) error {
	for after := uint64(0); ; {
		requests, err := s.registry.Inbox(ctx, id.Shard(), after, inboxPage)
		if err != nil {
			return err
		}
		for i := range requests {
			if requests[i].ID() == id {
				return nil
			}
			after = requests[i].Number
		}
		if len(requests) == 0 {
			break
		}
	}
	_, err := s.registry.Find(ctx, id)
	return err
}

// send makes a request durable, to be carried out.
func (s *Server) send(ctx context.Context, r Request) error {
	err := s.engine.Send(ctx, r)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("keep a request to %s: %w", r.Mode, err)
	if errors.Is(err, ErrBusy) {
		p := changelog.NewStatus(http.StatusServiceUnavailable, "busy", "too many requests about subscriptions wait to be carried out: try again in a minute")
		p.RetryAfter, p.Err = 60, err
		return p
	}
	if errors.Is(err, changelog.ErrUnknown) {
		p := changelog.NewStatus(http.StatusServiceUnavailable, "unknown", "it is unknown whether the request was kept: send it again, twice does no harm")
		p.RetryAfter, p.Err = 2, err
		return p
	}
	return err
}

// ping takes a source's word that a topic has news, under either name that is
// in use for it.
func (s *Server) ping(ctx context.Context, form url.Values, allowed func(set string) error) (string, error) {
	name := "hub.topic"
	if form.Has("hub.url") {
		name = "hub.url"
	}
	set, err := s.parseTopic(form, name)
	if err != nil {
		return "", err
	}
	if err := allowed(set); err != nil {
		return "", err
	}
	if s.opts.Ping == nil {
		return "", changelog.Invalid("hub.mode=publish: this hub fetches nothing; POST the changes themselves")
	}
	if err := s.opts.Ping(ctx, set); err != nil {
		return "", err
	}
	return "accepted: the source's Change List will be read", nil
}

// refuse answers with an error, and logs what is the hub's own fault.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, ErrNoSubscription) {
		err = changelog.NewStatus(http.StatusNotFound, "no-such-subscription", "this callback has no subscription to this topic")
	}
	if p := WriteError(w, err); p.Status == http.StatusInternalServerError {
		s.engine.opts.Logger.ErrorContext(r.Context(), "request failed", "method", r.Method, "path", r.URL.Path, "err", err)
	}
}

// WriteError answers a form with an error as one line of text (section 5.1.2),
// and returns the problem that err is, as changelog.WriteError does.
func WriteError(w http.ResponseWriter, err error) *changelog.Problem {
	p := changelog.NewProblem(err)
	h := w.Header()
	for name, values := range p.Header {
		h[name] = values
	}
	if p.RetryAfter > 0 {
		h.Set("Retry-After", fmt.Sprint(p.RetryAfter))
	}
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	text := p.Detail
	if text == "" {
		text = p.Title
	}
	_, _ = w.Write([]byte(strings.ReplaceAll(text, "\n", " ") + "\n"))
	return p
}
