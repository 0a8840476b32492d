package server

import (
	"context"
	"net/http"
	"sync/atomic"

	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/forwarded"
	"github.com/rshub/rshub/internal/limit"
)

// user returns whose limits count for a request. It is nil for who may operate the hub,
// and so where there are no tokens: an operator gets in, whatever others do.
func (c *callers) user(r *http.Request, caller access.Caller) *limit.User {
	switch {
	case caller.Rights.Operate():
		return nil
	case caller.Name == "":
		return c.limiter.Address(forwarded.Client(r))
	}
	own := caller.Limits
	if own != nil {
		all := own.Or(c.limits)
		own = &all
	}
	return c.limiter.Caller(caller.Name, own)
}

// limited puts the caller into the context of each request, and counts the request for the
// limits of who makes it.
func (c *callers) limited(next http.Handler) http.Handler {
	return c.errors.Handle(func(w http.ResponseWriter, r *http.Request) error {
		caller, err := c.caller(r)
		if err != nil {
			if full := c.limiter.Address(forwarded.Client(r)).Use(limit.Requests, 1); full != nil {
				return full // who guesses tokens
			}
			return err
		}
		ctx := access.NewContext(r.Context(), caller)
		user := c.user(r, caller)
		if user != nil {
			if err := user.Use(limit.Requests, 1); err != nil {
				return err
			}
			ctx = limit.NewContext(ctx, user)
		}
		if share := c.shareOf(r, caller); user != nil || share != nil {
			v := &visit{}
			v.within.Store(1)
			defer v.leave()
			for i, u := range []*limit.User{user, share} {
				if v.done[i], err = u.Open(); err != nil {
					return err
				}
			}
			ctx = context.WithValue(ctx, visitKey{}, v)
		}
		a := answerOf(w)
		a.admitted = true
		next.ServeHTTP(a, r.WithContext(ctx))
		return nil
	})
}

// shareOf returns whose share of the connections a request takes, if a proxy has named its client.
// Otherwise the connection itself counts; see limit.Listener. An operator gets in, whatever others do, if
// operators are known.
func (c *callers) shareOf(r *http.Request, caller access.Caller) *limit.User {
	if !forwarded.Behind(r) || c.authenticator != nil && caller.Rights.Operate() {
		return nil
	}
	return c.share.Address(forwarded.Client(r))
}

// A visit is a request that counts as a connection, until everybody who takes part in it has
// left: its handler, and a WebSocket, which goes on when the handler has returned.
type visit struct {
	done   [2]func() // nil: it does not count
	within atomic.Int32
}

type visitKey struct{}

func (v *visit) leave() {
	if v.within.Add(-1) == 0 {
		for _, done := range v.done {
			if done != nil {
				done()
			}
		}
	}
}

// stay takes part in the visit of ctx, if there is one, until leave is called.
func stay(ctx context.Context) (leave func()) {
	v, _ := ctx.Value(visitKey{}).(*visit)
	if v == nil {
		return func() {}
	}
	v.within.Add(1)
	return v.leave
}
