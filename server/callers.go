package server

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/rshub/rshub/access"
	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/trail"
	"github.com/rshub/rshub/limit"
	"github.com/rshub/rshub/problem"
)

// callers finds out who makes a request, counts what each of them uses, and ends what
// outlives a request when the rights of its caller end, or when a set becomes private.
type callers struct {
	authenticator access.Authenticator // nil: everybody may do everything
	watch         *access.Watch        // nil as well
	tickets       *access.Tickets      // of the callers; nil as well. Set by open
	limiter       *limit.Limiter
	limits        limit.Limits // of a caller that has none of its own
	errors        *problem.Adapter
	log           *slog.Logger

	memory   changelog.Log                   // set by open
	public   atomic.Int64                    // what is held by nothing but anyone's rights
	private  atomic.Pointer[map[string]bool] // the sets that are private, as of the last look
	changed  atomic.Uint64                   // how often private has changed
	followed atomic.Bool                     // a subscription may be held by nothing but anyone's rights
	wake     chan struct{}                   // of capacity 1; asks for a look
}

func newCallers(config *Config, limiter *limit.Limiter, errors *problem.Adapter, log *slog.Logger) *callers {
	c := &callers{
		authenticator: config.Callers, limiter: limiter, limits: config.CallerLimits.Or(callerLimits),
		errors: errors, log: log, wake: make(chan struct{}, 1),
	}
	c.private.Store(&map[string]bool{})
	if c.authenticator != nil {
		c.watch = access.NewWatch(c.authenticator)
	}
	return c
}

// open says where it is written which sets are private, and looks which are so now. No
// request, and no delivery, comes before.
func (c *callers) open(ctx context.Context, memory changelog.Log, keys access.TicketKeys) {
	c.memory = memory
	if c.watch != nil {
		c.tickets = access.NewTickets(c.authenticator, keys)
		c.lookOnce(ctx)
	}
}

// caller returns who makes a request. It takes a ticket out of the request's URL, so that
// nothing that is answered or logged can show it.
func (c *callers) caller(r *http.Request) (caller access.Caller, err error) {
	ticket, inURL := takeTicket(r)
	if c.authenticator == nil {
		return access.Caller{Rights: access.All()}, nil
	}
	if ticket != "" {
		caller, err = c.tickets.Caller(r.Context(), ticket)
	}
	if refused := new(problem.Problem); ticket == "" || !inURL && errors.As(err, &refused) { // an old cookie does no harm
		caller, err = c.authenticator.Caller(r)
	}
	if err == nil {
		caller.Private = c.isPrivate
		trail.From(r.Context()).As(caller.Name)
	}
	return caller, err
}

// identify puts the caller into the request's context.
func (c *callers) identify(next http.Handler) http.Handler {
	return c.errors.Handle(func(w http.ResponseWriter, r *http.Request) error {
		caller, err := c.caller(r)
		if err != nil {
			return err
		}
		next.ServeHTTP(w, r.WithContext(access.NewContext(r.Context(), caller)))
		return nil
	})
}

// isPrivate reports whether a set is private now. See access.Caller.
func (c *callers) isPrivate(ctx context.Context, set string) (bool, error) {
	st, err := c.memory.State(ctx, set)
	return st.Private, err
}

// hold calls end when the caller of ctx may not follow a set any more. See
// subscribe.Options. Until release it also holds the visit of ctx.
func (c *callers) hold(ctx context.Context, set string, end func(error)) (release func()) {
	visit := holdVisit(ctx)
	if c.watch == nil {
		return visit
	}
	may := func(r access.Rights) bool {
		return r.Sees(feed.State{Set: set, Description: feed.Description{Private: (*c.private.Load())[set]}})
	}
	if access.FromContext(ctx).Rights.FollowPrivate(set) {
		leave := c.watch.Hold(ctx, may, end)
		return func() { leave(); visit() }
	}
	c.public.Add(1)
	leave := c.watch.Hold(ctx, may, end)
	return func() {
		leave()
		c.public.Add(-1)
		visit()
	}
}

// How often callers looks at which sets are private. A look takes one of privateShare parts
// of the time at most.
const (
	privateEvery = 3 * time.Second
	privateShare = 200
)

// run looks for changes of what callers may do until ctx is done.
func (c *callers) run(ctx context.Context) error {
	if c.watch == nil {
		return nil
	}
	watched, looked := make(chan struct{}), make(chan struct{})
	go func() { defer close(watched); c.authenticator.Watch(ctx) }()
	go func() { defer close(looked); c.lookAround(ctx) }()
	c.watch.Run(ctx)
	<-watched
	<-looked
	return nil
}

// look has it looked soon at which sets are private.
func (c *callers) look() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// lookAround looks at which sets are private, as long as somebody follows one by nothing but
// anyone's rights.
func (c *callers) lookAround(ctx context.Context) {
	for pause := privateEvery; ; {
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		case <-c.wake:
			timer.Stop()
		}
		if c.public.Load() == 0 && !c.followed.Load() {
			continue
		}
		begin := time.Now()
		c.lookOnce(ctx)
		pause = max(privateEvery, privateShare*time.Since(begin))
	}
}

// lookOnce looks which sets are private.
func (c *callers) lookOnce(ctx context.Context) {
	states, err := c.memory.Sets(ctx)
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, feed.ErrUnavailable) { // then nobody can follow either
			c.log.Warn("it is not known which sets are private now", "err", err)
		}
		return
	}
	private := map[string]bool{}
	for _, st := range states {
		if st.Private {
			private[st.Set] = true
		}
	}
	if !maps.Equal(private, *c.private.Load()) {
		c.private.Store(&private)
		c.changed.Add(1)
		c.watch.Recheck()
	}
}

// err returns why what is newest of the callers is not in force. It is nil if it is.
func (c *callers) err() error {
	if c.authenticator == nil {
		return nil
	}
	return c.authenticator.Err()
}
