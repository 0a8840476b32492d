package server

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/hub"
	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/access/ticket"
	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/internal/limit"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/internal/trail"
	"github.com/rshub/rshub/subscribe"
)

// callers finds out who makes a request, counts what each of them uses, and ends what
// outlives a request when the rights of its caller end, or when a set becomes private.
type callers struct {
	authenticator access.Authenticator // nil: everybody may do everything
	watch         *access.Watch        // nil as well
	tickets       *access.Tickets      // of the callers; nil as well. Set by open
	limiter       *limit.Limiter
	refusals      *limit.Refusals
	share         *limit.Limiter // of connections, for an address behind a proxy. Set by open
	limits        limit.Limits   // of a caller that has none of its own
	errors        *problem.Adapter
	log           *slog.Logger

	memory  changelog.Log                   // set by open, and the next
	hub     waiter                          // knows which sets the first publish makes
	private atomic.Pointer[map[string]bool] // the sets that are private, as of the last look
	changed atomic.Uint64                   // how often private has changed
	wake    backoff.Wakeup                  // asks for a look
	looking sync.Mutex                      // held during a look
	said    string                          // why the last look failed, as the log was told; looking guards it
}

// A waiter knows which sets the first publish to them makes. It is a *hub.Hub.
type waiter interface{ Waits(set string) bool }

func newCallers(config *Config, r prometheus.Registerer, errors *problem.Adapter, log *slog.Logger) *callers {
	all, refusals := config.CallerLimits.Or(limit.DefaultCaller()), newRefusals(r)
	c := &callers{
		authenticator: config.Callers, limits: all, refusals: refusals,
		limiter: limit.New(limit.Options{Caller: all, Address: config.AddressLimits.Or(limit.DefaultAddress()), Refusals: refusals}),
		errors:  errors, log: log, wake: backoff.NewWakeup(),
	}
	c.private.Store(&map[string]bool{})
	if c.authenticator != nil {
		c.watch = access.NewWatch(c.authenticator)
	}
	return c
}

// open gives callers what a hub has once its memory is open. It must be called before the
// first request and the first delivery. memory says which sets are private, and h which sets
// the first publish makes. one is how many connections an address behind a proxy may have; 0:
// any number.
func (c *callers) open(ctx context.Context, memory changelog.Log, h waiter, keys access.TicketKeys, one int64) {
	c.memory, c.hub = memory, h
	c.share = limit.New(limit.Options{Address: limit.Limits{limit.Connections: {Most: one}}, Refusals: c.refusals})
	if c.watch != nil {
		c.tickets = access.NewTickets(c.authenticator, keys)
		c.lookOnce(ctx)
	}
}

// caller returns who makes a request. It removes a ticket from the request's URL, so that no
// answer and no log can show it.
func (c *callers) caller(r *http.Request) (caller access.Caller, err error) {
	text, inURL := ticket.Take(r)
	if c.authenticator == nil {
		return access.Caller{Rights: access.All()}, nil
	}
	if text != "" {
		caller, err = c.tickets.Caller(r.Context(), text)
	}
	if refused := new(feed.Problem); text == "" || !inURL && errors.As(err, &refused) { // an old cookie does no harm
		caller, err = c.authenticator.Caller(r)
	}
	if err == nil {
		caller.Private = c.isPrivate
		trail.From(r.Context()).As(caller.Name)
	}
	return caller, err
}

// anyone returns ctx with a caller without a token.
func (c *callers) anyone(ctx context.Context) context.Context {
	caller := access.Caller{Rights: access.All()}
	if c.authenticator != nil {
		caller, _ = c.authenticator.Named("", "")
	}
	return access.NewContext(ctx, caller)
}

// isPrivate reports whether a set is private now. See access.Caller. A set that does not
// exist, and that no publish makes, counts as private.
func (c *callers) isPrivate(ctx context.Context, set string) (bool, error) {
	st, err := c.memory.State(ctx, set)
	if errors.Is(err, feed.ErrNoSet) && !c.hub.Waits(set) {
		return true, nil
	}
	return st.Private, err
}

var (
	_ subscribe.Rights = (*callers)(nil)
	_ hub.Rights       = (*callers)(nil)
)

// WhileFollowing calls end when the caller of ctx may not follow a set any more. The request
// of ctx counts as a connection until release; see visit.
func (c *callers) WhileFollowing(ctx context.Context, set string, end func(why error)) (release func()) {
	leave, ended := stay(ctx), c.while(ctx, set, access.MayFollow, end)
	return func() { ended(); leave() }
}

// WhilePublishing calls end when the caller of ctx may not publish to a set any more.
func (c *callers) WhilePublishing(ctx context.Context, set string, end func(why error)) (release func()) {
	return c.while(ctx, set, access.MayPublish, end)
}

// while calls end when the caller of ctx loses a right to a set. may checks the right: it is
// access.MayFollow or access.MayPublish. The caller has the right when while is called.
func (c *callers) while(ctx context.Context, set string, may func(ctx context.Context, set string) error, end func(error)) (release func()) {
	if c.watch == nil {
		return func() {}
	}
	still := func(caller access.Caller) error {
		caller.Private = c.wasPrivate
		return may(access.NewContext(context.Background(), caller), set)
	}
	if (*c.private.Load())[set] && still(access.FromContext(ctx)) != nil {
		c.lookOnce(ctx) // perhaps another hub has made the set public since the last look
	}
	return c.watch.While(ctx, still, end)
}

// wasPrivate reports whether a set was private at the last look. It does not block.
func (c *callers) wasPrivate(_ context.Context, set string) (bool, error) {
	return (*c.private.Load())[set], nil
}

// How often callers looks at which sets are private. Looks take at most 1/privateShare of the
// time. But the next look begins after privateMost at the latest, because rights must end
// within ten seconds.
const (
	privateEvery = 3 * time.Second
	privateMost  = 6 * time.Second
	privateShare = 200
)

// run looks for changes of what callers may do until ctx is done.
func (c *callers) run(ctx context.Context) {
	if c.watch == nil {
		return
	}
	watched, looked := make(chan struct{}), make(chan struct{})
	go func() { defer close(watched); c.authenticator.Watch(ctx) }()
	go func() { defer close(looked); c.lookAround(ctx) }()
	c.watch.Run(ctx)
	<-watched
	<-looked
}

// Look makes run look soon at which sets are private.
func (c *callers) Look() {
	c.wake.Wake()
}

// lookAround looks again and again at which sets are private. It does not look while callers
// without a token have no rights, because private sets are only private for them. It does look
// while nobody follows: the next follower, and a subscription that another hub hands over, must
// be judged by what is private then.
func (c *callers) lookAround(ctx context.Context) {
	for pause := privateEvery; ; {
		if backoff.SleepOrWake(ctx, pause, c.wake) != nil {
			return
		}
		if anyone, _ := c.authenticator.Named("", ""); anyone.Rights.None() {
			pause = privateEvery
			continue
		}
		begin := time.Now()
		c.lookOnce(ctx)
		pause = min(max(privateEvery, privateShare*time.Since(begin)), privateMost)
	}
}

// lookOnce looks which sets are private. A set that cannot be read stays what it was.
func (c *callers) lookOnce(ctx context.Context) {
	c.looking.Lock()
	defer c.looking.Unlock()
	states, err := c.memory.Sets(ctx)
	said := ""
	if err != nil && ctx.Err() == nil && !errors.Is(err, feed.ErrUnavailable) { // then nobody can follow either
		said = err.Error()
	}
	if said != "" && said != c.said {
		c.log.Warn("some sets cannot be read: the hub goes on with what it knew about which of them are private", "err", err)
	}
	c.said = said
	private := map[string]bool{}
	if err != nil {
		private = maps.Clone(*c.private.Load())
	}
	for _, st := range states {
		if delete(private, st.Set); st.Private {
			private[st.Set] = true
		}
	}
	if !maps.Equal(private, *c.private.Load()) {
		c.private.Store(&private)
		c.changed.Add(1)
		c.watch.Recheck()
	}
}
