package server

import (
	"context"
	"net/http"

	"github.com/rshub/rshub/access"
	"github.com/rshub/rshub/limit"
	"github.com/rshub/rshub/problem"
)

// callers finds out who makes a request, counts what each of them uses, and ends what
// outlives a request when the rights of its caller end.
type callers struct {
	authenticator access.Authenticator // nil: everybody may do everything
	watch         *access.Watch        // nil as well
	limiter       *limit.Limiter
	limits        limit.Limits // of a caller that has none of its own
	errors        *problem.Adapter
}

func newCallers(c *Config, limiter *limit.Limiter, errors *problem.Adapter) *callers {
	cs := &callers{authenticator: c.Callers, limiter: limiter, limits: c.CallerLimits.Or(callerLimits), errors: errors}
	if c.Callers != nil {
		cs.watch = access.NewWatch(c.Callers)
	}
	return cs
}

// caller returns who makes a request.
func (c *callers) caller(r *http.Request) (access.Caller, error) {
	if c.authenticator == nil {
		return access.Caller{Rights: access.All()}, nil
	}
	return c.authenticator.Caller(r)
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

// hold calls end when the caller of ctx may not follow a set any more. See
// subscribe.Options. Until release it also holds the visit of ctx.
func (c *callers) hold(ctx context.Context, set string, end func(error)) (release func()) {
	leave := holdVisit(ctx)
	if c.watch == nil {
		return leave
	}
	let := c.watch.Hold(ctx, func(r access.Rights) bool { return r.Follow(set) }, end)
	return func() { let(); leave() }
}

// run looks for changes of what callers may do until ctx is done.
func (c *callers) run(ctx context.Context) error {
	if c.watch == nil {
		return nil
	}
	done := make(chan struct{})
	go func() { defer close(done); c.authenticator.Watch(ctx) }()
	c.watch.Run(ctx)
	<-done
	return nil
}

// err returns why what is newest of the callers is not in force. It is nil if it is.
func (c *callers) err() error {
	if c.authenticator == nil {
		return nil
	}
	return c.authenticator.Err()
}
