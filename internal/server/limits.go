package server

import (
	"context"
	"net/http"
	"sync/atomic"

	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/forwarded"
	"github.com/rshub/rshub/internal/limit"
)

// user returns the owner of the limits that apply to a request. It is nil for operators, who are
// exempt, and therefore without tokens.
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

// limited stores the caller in the context of each request, and enforces its limits.
func (c *callers) limited(next http.Handler) http.Handler {
	return c.errors.Handle(func(w http.ResponseWriter, r *http.Request) error {
		caller, err := c.identify(r)
		if err != nil {
			if full := c.limiter.Address(forwarded.Client(r)).Use(limit.Requests, 1); full != nil {
				return full // guesses of tokens are limited, too
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
		if share := c.addressShare(r, caller); user != nil || share != nil {
			v := &connectionSlot{}
			v.holders.Store(1)
			defer v.release()
			for i, u := range []*limit.User{user, share} {
				if v.done[i], err = u.Open(); err != nil {
					return err
				}
			}
			ctx = context.WithValue(ctx, connectionSlotKey{}, v)
		}
		a := responseOf(w)
		a.admitted = true
		next.ServeHTTP(a, r.WithContext(ctx))
		return nil
	})
}

// addressShare returns the owner of the connection limit for a request whose client address is from a
// proxy. For others the connection itself counts; see limit.Listener. Operators with a token are
// exempt.
func (c *callers) addressShare(r *http.Request, caller access.Caller) *limit.User {
	if !forwarded.ViaProxy(r) || c.authenticator != nil && caller.Rights.Operate() {
		return nil
	}
	return c.share.Address(forwarded.Client(r))
}

// A connectionSlot counts a request as a connection until all holders have released it: the handler,
// and a WebSocket, which outlives the handler.
type connectionSlot struct {
	done    [2]func() // nil if a limit does not apply
	holders atomic.Int32
}

type connectionSlotKey struct{}

func (v *connectionSlot) release() {
	if v.holders.Add(-1) == 0 {
		for _, done := range v.done {
			if done != nil {
				done()
			}
		}
	}
}

// shareSlot holds the connectionSlot of ctx, if there is one, until release is called.
func shareSlot(ctx context.Context) (release func()) {
	v, _ := ctx.Value(connectionSlotKey{}).(*connectionSlot)
	if v == nil {
		return func() {}
	}
	v.holders.Add(1)
	return v.release
}
