package server

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/rshub/rshub/access"
	"github.com/rshub/rshub/internal/forwarded"
	"github.com/rshub/rshub/limit"
)

// Limits that are in force where Config has none. A caller is somebody that an operator
// knows. An address may be many people behind one router, or one who means harm.
var (
	callerLimits = limit.Limits{
		limit.Requests: perMinute(60_000), limit.Publishes: perMinute(60_000), limit.Changes: perMinute(6_000_000), limit.Bytes: perMinute(6 << 30),
		limit.Sets: perHour(1000), limit.Connections: {Most: 10_000},
	}
	addressLimits = limit.Limits{
		limit.Requests: perMinute(6000), limit.Publishes: perMinute(600), limit.Changes: perMinute(600_000), limit.Bytes: perMinute(600 << 20),
		limit.Sets: perHour(10), limit.Connections: {Most: 1000},
	}
)

func perMinute(n int64) limit.Limit { return limit.Limit{Most: n, Within: time.Minute} }
func perHour(n int64) limit.Limit   { return limit.Limit{Most: n, Within: time.Hour} }

// newLimiter returns what knows the use of everybody, and what counts refusals.
func newLimiter(c *Config, r prometheus.Registerer) (*limit.Limiter, func(whose string, kind limit.Kind)) {
	refused := promauto.With(r).NewCounterVec(prometheus.CounterOpts{
		Name: "rshub_limit_refused_total", Help: "Requests, and batches of streams, that were refused because a limit was reached, by whose limit it was, and of what.",
	}, []string{"whose", "limit"})
	for _, whose := range []string{"caller", "address"} {
		for kind := range limit.Connections + 1 {
			refused.WithLabelValues(whose, kind.String())
		}
	}
	count := func(whose string, kind limit.Kind) { refused.WithLabelValues(whose, kind.String()).Inc() }
	return limit.New(limit.Options{
		Caller: c.CallerLimits.Or(callerLimits), Address: c.AddressLimits.Or(addressLimits), Refused: count,
	}), count
}

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

// limited is identify, and counts each request for the limits of who makes it.
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
			v.holders.Store(1)
			defer v.leave()
			for i, u := range []*limit.User{user, share} {
				if v.done[i], err = u.Open(); err != nil {
					return err
				}
			}
			ctx = context.WithValue(ctx, visitKey{}, v)
		}
		admit(ctx)
		next.ServeHTTP(w, r.WithContext(ctx))
		return nil
	})
}

// shareOf returns whose share of the connections a request takes, if a proxy has named its client.
// Otherwise the connection itself counts; see crowd. An operator gets in, whatever others do, if
// operators are known.
func (c *callers) shareOf(r *http.Request, caller access.Caller) *limit.User {
	if !forwarded.Behind(r) || c.authenticator != nil && caller.Rights.Operate() {
		return nil
	}
	return c.share.Address(forwarded.Client(r))
}

// A visit is a request that counts as a connection. A WebSocket goes on when the handler has
// returned, and holds the visit as well.
type visit struct {
	done    [2]func() // nil: it does not count
	holders atomic.Int32
}

type visitKey struct{}

func (v *visit) leave() {
	if v.holders.Add(-1) == 0 {
		for _, done := range v.done {
			if done != nil {
				done()
			}
		}
	}
}

// holdVisit holds the visit of ctx, if there is one, until release is called.
func holdVisit(ctx context.Context) (release func()) {
	v, _ := ctx.Value(visitKey{}).(*visit)
	if v == nil {
		return func() {}
	}
	v.holders.Add(1)
	return v.leave
}

// holder says for whom memory is taken; see budget.Budget.Divide.
func holder(ctx context.Context) any {
	if u := limit.FromContext(ctx); u != nil {
		return u
	}
	return nil
}

// addressOf returns the address of the other end of a connection, and what counts as one
// address; see limit.Limiter.Address.
func addressOf(conn net.Conn) (netip.Addr, netip.Prefix) {
	t, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}, netip.Prefix{}
	}
	addr := t.AddrPort().Addr().Unmap().WithZone("")
	bits := 64
	if addr.Is4() {
		bits = 32
	}
	p, _ := addr.Prefix(bits)
	return addr, p
}
