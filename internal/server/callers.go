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

// callers identifies the callers of requests, enforces their limits, and ends streams, publishes and
// subscriptions when a caller loses a right or a set becomes private.
type callers struct {
	authenticator access.Authenticator // nil if everyone has all rights
	watch         *access.Watch        // nil if authenticator is
	tickets       *access.Tickets      // nil if authenticator is; set by start
	limiter       *limit.Limiter
	refusals      *limit.Refusals
	share         *limit.Limiter // limits connections of an address behind a proxy; set by start
	limits        limit.Limits   // default limits of a caller
	errors        *problem.Adapter
	log           *slog.Logger

	memory  changelog.Log                   // set by start, like hub
	hub     setCreator                      // knows the sets that a publish would create
	private atomic.Pointer[map[string]bool] // private sets as of the last poll
	changed atomic.Uint64                   // number of changes of private
	wake    backoff.Wakeup                  // requests a poll
	polling sync.Mutex                      // held during a poll
	lastErr string                          // logged error of the last poll; guarded by polling
}

// A setCreator knows the sets that a publish would create. *hub.Hub implements it.
type setCreator interface{ Waits(set string) bool }

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

// start completes c once the memory is open. It must be called before the first request and the
// first delivery. one is the maximum number of connections of an address behind a proxy; zero means
// no limit.
func (c *callers) start(ctx context.Context, memory changelog.Log, h setCreator, keys access.TicketKeys, one int64) {
	c.memory, c.hub = memory, h
	c.share = limit.New(limit.Options{Address: limit.Limits{limit.Connections: {Most: one}}, Refusals: c.refusals})
	if c.watch != nil {
		c.tickets = access.NewTickets(c.authenticator, keys)
		c.updatePrivateSets(ctx)
	}
}

// identify returns the caller of a request. It removes a ticket from the URL, so that neither
// responses nor logs can show it.
func (c *callers) identify(r *http.Request) (caller access.Caller, err error) {
	text, inURL := ticket.FromRequest(r)
	if c.authenticator == nil {
		return access.Caller{Rights: access.All()}, nil
	}
	if text != "" {
		caller, err = c.tickets.Caller(r.Context(), text)
	}
	if refused := new(feed.Problem); text == "" || !inURL && errors.As(err, &refused) { // ignore an expired cookie
		caller, err = c.authenticator.Caller(r)
	}
	if err == nil {
		caller.IsPrivate = c.isPrivate
		trail.FromContext(r.Context()).SetCaller(caller.Name)
	}
	return caller, err
}

// withAnyone returns a context with a caller without a token.
func (c *callers) withAnyone(ctx context.Context) context.Context {
	caller := access.Caller{Rights: access.All()}
	if c.authenticator != nil {
		caller, _ = c.authenticator.CallerByName("", "")
	}
	return access.NewContext(ctx, caller)
}

// isPrivate reports whether a set is private; see access.Caller. A nonexistent set that a publish
// would not create counts as private.
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

// WhileFollowing calls end when the caller of ctx may no longer follow a set. The request of ctx
// counts as a connection until release is called; see connectionSlot.
func (c *callers) WhileFollowing(ctx context.Context, set string, end func(why error)) (release func()) {
	leave, unwatch := shareSlot(ctx), c.watchRight(ctx, set, access.MayFollow, end)
	return func() { unwatch(); leave() }
}

// WhileConnected watches the rights of the caller of ctx to all sets; see subscribe.Rights. The request
// of ctx counts as a connection until release is called.
func (c *callers) WhileConnected(ctx context.Context, changed func(mayFollow func(feed.State) bool), end func(why error)) (release func()) {
	leave := shareSlot(ctx)
	if c.watch == nil {
		return leave
	}
	update := func(caller access.Caller) error {
		changed(caller.Rights.MaySee)
		return nil
	}
	unwatch := c.watch.While(ctx, update, end)
	return func() { unwatch(); leave() }
}

// WhilePublishing calls end when the caller of ctx may no longer publish to a set.
func (c *callers) WhilePublishing(ctx context.Context, set string, end func(why error)) (release func()) {
	return c.watchRight(ctx, set, access.MayPublish, end)
}

// watchRight calls end when the caller of ctx loses a right to a set. may checks the right:
// access.MayFollow or access.MayPublish. The caller must have the right when watchRight is called.
func (c *callers) watchRight(ctx context.Context, set string, may func(ctx context.Context, set string) error, end func(error)) (release func()) {
	if c.watch == nil {
		return func() {}
	}
	still := func(caller access.Caller) error {
		caller.IsPrivate = c.cachedPrivate
		return may(access.NewContext(context.Background(), caller), set)
	}
	if (*c.private.Load())[set] && still(access.FromContext(ctx)) != nil {
		c.updatePrivateSets(ctx) // another hub may have made the set public since the last poll
	}
	return c.watch.While(ctx, still, end)
}

// cachedPrivate reports whether a set was private at the last poll. It does not block.
func (c *callers) cachedPrivate(_ context.Context, set string) (bool, error) {
	return (*c.private.Load())[set], nil
}

// Interval for polling which sets are private. Polls take at most 1/privateShare of the time, but
// start at least every maxPrivateInterval, because rights must end within ten seconds.
const (
	privateInterval    = 3 * time.Second
	maxPrivateInterval = 6 * time.Second
	privateShare       = 200
)

// run watches for changes of rights until ctx is done.
func (c *callers) run(ctx context.Context) {
	if c.watch == nil {
		return
	}
	watched, polled := make(chan struct{}), make(chan struct{})
	go func() { defer close(watched); c.authenticator.Watch(ctx) }()
	go func() { defer close(polled); c.pollPrivateSets(ctx) }()
	c.watch.Run(ctx)
	<-watched
	<-polled
}

// Rescan requests a poll of the private sets.
func (c *callers) Rescan() {
	c.wake.Wake()
}

// pollPrivateSets polls which sets are private until ctx is done. It pauses while callers without a
// token have no rights, because private sets are private only for them. It does not pause without
// followers, because the next follower, and subscriptions taken over from another hub, need
// the current state.
func (c *callers) pollPrivateSets(ctx context.Context) {
	for interval := privateInterval; ; {
		if backoff.SleepOrWake(ctx, interval, c.wake) != nil {
			return
		}
		if anyone, _ := c.authenticator.CallerByName("", ""); anyone.Rights.None() {
			interval = privateInterval
			continue
		}
		start := time.Now()
		c.updatePrivateSets(ctx)
		interval = min(max(privateInterval, privateShare*time.Since(start)), maxPrivateInterval)
	}
}

// updatePrivateSets reads which sets are private. Sets that cannot be read keep their last state.
func (c *callers) updatePrivateSets(ctx context.Context) {
	c.polling.Lock()
	defer c.polling.Unlock()
	states, err := c.memory.Sets(ctx)
	text := ""
	if err != nil && ctx.Err() == nil && !errors.Is(err, feed.ErrUnavailable) { // if the memory is unavailable, there are no followers
		text = err.Error()
	}
	if text != "" && text != c.lastErr {
		c.log.Warn("cannot read some sets; the hub uses the last known state of which are private", "err", err)
	}
	c.lastErr = text
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
