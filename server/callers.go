package server

import (
	"context"
	"net/http"

	"github.com/rshub/rshub/access"
	"github.com/rshub/rshub/problem"
)

// callers finds out who makes a request, and ends what outlives one when the rights of
// its caller end.
type callers struct {
	authenticator access.Authenticator // nil: everybody may do everything
	watch         *access.Watch        // nil as well
	errors        *problem.Adapter
}

func newCallers(a access.Authenticator, errors *problem.Adapter) *callers {
	c := &callers{authenticator: a, errors: errors}
	if a != nil {
		c.watch = access.NewWatch(a)
	}
	return c
}

// identify puts the caller into the request's context.
func (c *callers) identify(next http.Handler) http.Handler {
	return c.errors.Handle(func(w http.ResponseWriter, r *http.Request) error {
		caller := access.Caller{Rights: access.All()}
		if c.authenticator != nil {
			var err error
			if caller, err = c.authenticator.Caller(r); err != nil {
				return err
			}
		}
		next.ServeHTTP(w, r.WithContext(access.NewContext(r.Context(), caller)))
		return nil
	})
}

// hold calls end when the caller of ctx may not follow a set any more. See
// subscribe.Options.
func (c *callers) hold(ctx context.Context, set string, end func(error)) (release func()) {
	if c.watch == nil {
		return func() {}
	}
	return c.watch.Hold(ctx, func(r access.Rights) bool { return r.Follow(set) }, end)
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
