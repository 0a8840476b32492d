package websub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/outbound"
	"github.com/rshub/rshub/internal/problem"
)

// maxRenewals bounds the requests per minute about one existing subscription. Each makes the hub call the callback.
const maxRenewals = 60

// rates counts requests in the current minute. They are limited because each makes the hub call a host that need
// not belong to the client.
type rates struct {
	mu     sync.Mutex
	minute time.Time
	counts map[string]int // by limit.about
}

// A limit is the maximum number of requests per minute about one subject.
type limit struct {
	about string // subject, as in "3 requests for callbacks at a.example per minute"
	max   int
}

// count counts a request under each of the limits, or refuses it if one is reached in this minute.
func (r *rates) count(now time.Time, limits ...limit) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if minute := now.Truncate(time.Minute); !minute.Equal(r.minute) {
		r.minute, r.counts = minute, map[string]int{}
	}
	for _, l := range limits {
		if r.counts[l.about] >= l.max {
			p := problem.New(http.StatusTooManyRequests, "too-many-requests",
				fmt.Sprintf("limit of %d requests %s per minute reached; try again in the next minute", l.max, l.about))
			p.RetryAfter = int(r.minute.Add(time.Minute).Sub(now)/time.Second) + 1
			return p
		}
	}
	for _, l := range limits {
		r.counts[l.about]++
	}
	return nil
}

// shared returns the limits of requests about a subject. One caller gets half, so that a stranger cannot use up what
// others need. by is empty for callers that the hub cannot tell apart.
func shared(by, about string, max int) []limit {
	all := limit{about, max}
	if by == "" {
		return []limit{all}
	}
	return []limit{{"by " + by + " " + about, half(max)}, all}
}

// half returns the part of a limit that one caller may use up.
func half(limit int) int { return (limit + 1) / 2 }

// admit returns nil if a request may be made: its rates are below the limits, and there is room for a new
// subscription. known reports whether the subscription exists.
//
// Requests about an existing subscription are counted separately and need no room, so requests about others at its
// host cannot prevent a renewal. Requests about new ones are counted by host without the port, because one machine
// has many ports.
func (s *Server) admit(ctx context.Context, r *subscription.Request) (known bool, err error) {
	record, err := s.registry.Find(ctx, r.ID())
	if err == nil && record.Ended.IsZero() {
		about := "about subscription " + r.ID().String()
		limits := shared(r.By, about, maxRenewals)
		if r.Shows(&record.Subscription) { // requests of strangers do not count
			limits = shared(cmp.Or(r.By, "its subscriber"), about, maxRenewals)[:1]
		}
		if err = s.rates.count(r.At, limits...); err == nil {
			err = r.May(&record.Subscription)
		}
		return true, err
	}
	if err != nil && !errors.Is(err, subscription.ErrNoSubscription) {
		return false, err
	}
	host := outbound.Host(r.Callback)
	if r.Mode == subscription.Subscribe {
		if p := s.full(ctx, r, host); p != nil {
			return false, p
		}
	}
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		return false, fmt.Errorf("host of the callback: %w", err)
	}
	limits := shared(r.By, "for callbacks at "+name, s.opts.MaxRequests)
	if r.By != "" {
		limits = append(limits, limit{"by " + r.By, s.opts.MaxRequests})
	}
	return false, s.rates.count(r.At, limits...)
}

// full returns the problem with which a new subscription is refused, or nil if there is room for it.
func (s *Server) full(ctx context.Context, r *subscription.Request, host string) *feed.Problem {
	type bound struct {
		count, max int
		what       string // continues "3 subscriptions"
	}
	c, o := s.engine.Count(r, host), &s.opts
	at, to := "with callbacks at "+host, "to set "+r.Set
	all := []bound{{c.Host, o.MaxPerHost, at}, {c.Set, o.MaxPerSet, to}}
	if !access.FromContext(ctx).Rights.Operate() {
		all = append(all, bound{c.OwnHost, half(o.MaxPerHost), "of one caller " + at},
			bound{c.OwnSet, half(o.MaxPerSet), "of one caller " + to}, bound{c.OwnAll, o.MaxPerSet, "of one caller"})
	}
	for _, b := range all {
		if b.count >= b.max {
			return problem.New(http.StatusForbidden, "too-many-subscriptions",
				fmt.Sprintf("limit of %d subscriptions %s reached; only renewals are accepted", b.max, b.what))
		}
	}
	for _, b := range []bound{{c.Fresh, o.MaxUnverified, at}, {c.Own, half(o.MaxUnverified), "of one caller " + at}} {
		if b.count >= b.max {
			p := problem.New(http.StatusTooManyRequests, "too-many-subscriptions",
				fmt.Sprintf("limit of unconfirmed requests reached (%d subscriptions %s); try again when some are confirmed", b.max, b.what))
			p.RetryAfter = 30 // the last of three verifications is then over
			return p
		}
	}
	return nil
}
