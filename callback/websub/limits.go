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

// maxAgain is how many requests in one minute may be about one existing
// subscription. Each of them makes the hub call the callback.
const maxAgain = 60

// rates counts requests in the current minute, by what they are about. The
// counts are limited because each request makes the hub call a host that need
// not belong to the client.
type rates struct {
	mu     sync.Mutex
	minute time.Time
	counts map[string]int // by the text that take gets
}

// A limit is how many requests about the same are taken in one minute.
type limit struct {
	about string // ends the sentence "there were so many requests …"
	most  int
}

// take counts one request under each of the limits, or refuses it when one of
// them is reached in this minute.
func (r *rates) take(now time.Time, limits ...limit) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if minute := now.Truncate(time.Minute); !minute.Equal(r.minute) {
		r.minute, r.counts = minute, map[string]int{}
	}
	for _, l := range limits {
		if r.counts[l.about] >= l.most {
			p := problem.New(http.StatusTooManyRequests, "too-many-requests",
				fmt.Sprintf("limit of %d requests %s per minute reached; try again in the next minute", l.most, l.about))
			p.RetryAfter = int(r.minute.Add(time.Minute).Sub(now)/time.Second) + 1
			return p
		}
	}
	for _, l := range limits {
		r.counts[l.about]++
	}
	return nil
}

// shared returns the limits of requests about something that several callers
// may ask for: one caller gets half of it, so that a stranger cannot use up
// what others need. by is empty for callers that cannot be told apart.
func shared(by, about string, most int) []limit {
	all := limit{about, most}
	if by == "" {
		return []limit{all}
	}
	return []limit{{"by " + by + " " + about, half(most)}, all}
}

// half returns the part of a bound that one caller may use up.
func half(most int) int { return (most + 1) / 2 }

// admit returns nil when a request may be made: there were not too many
// requests, and there is room for a new subscription. known says whether the
// subscription exists.
//
// Requests about an existing subscription are counted on their own and need no
// room. So nobody can keep a subscription from being renewed by asking for many
// others at its host. The other requests are counted by the host alone, because
// one machine has many ports.
func (s *Server) admit(ctx context.Context, r *subscription.Request) (known bool, err error) {
	record, err := s.registry.Find(ctx, r.ID())
	if err == nil && record.Ended.IsZero() {
		about := "about subscription " + r.ID().String()
		limits := shared(r.By, about, maxAgain)
		if r.Shows(&record.Subscription) { // requests of strangers do not count
			limits = shared(cmp.Or(r.By, "its subscriber"), about, maxAgain)[:1]
		}
		if err = s.rates.take(r.At, limits...); err == nil {
			err = r.May(&record.Subscription)
		}
		return true, err
	}
	if err != nil && !errors.Is(err, subscription.ErrNoSubscription) {
		return false, err
	}
	host := outbound.Host(r.Callback)
	if r.Mode == subscription.Subscribe {
		if full := s.full(ctx, r, host); full != nil {
			return false, full
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
	return false, s.rates.take(r.At, limits...)
}

// full returns the problem with which a new subscription is refused, or nil
// when there is room for it.
func (s *Server) full(ctx context.Context, r *subscription.Request, host string) *feed.Problem {
	c := s.engine.Count(r, host)
	refuse := func(status int, format string, args ...any) *feed.Problem {
		return problem.New(status, "too-many-subscriptions", fmt.Sprintf(format, args...))
	}
	switch {
	case c.Host >= s.opts.MaxPerHost:
		return refuse(http.StatusForbidden, "limit of %d subscriptions with callbacks at %s reached; only renewals are accepted", s.opts.MaxPerHost, host)
	case c.Set >= s.opts.MaxPerSet:
		return refuse(http.StatusForbidden, "limit of %d subscriptions to set %s reached; only renewals are accepted", s.opts.MaxPerSet, r.Set)
	}
	if r.By != "" && !access.FromContext(ctx).Rights.Operate() { // nobody takes the places of all others
		switch most := s.opts.MaxPerSet; {
		case c.OwnHost >= half(s.opts.MaxPerHost):
			return refuse(http.StatusForbidden, "limit of %d subscriptions of one caller with callbacks at %s reached; only renewals are accepted", half(s.opts.MaxPerHost), host)
		case c.OwnSet >= half(most):
			return refuse(http.StatusForbidden, "limit of %d subscriptions of one caller to set %s reached; only renewals are accepted", half(most), r.Set)
		case c.OwnAll >= most:
			return refuse(http.StatusForbidden, "limit of %d subscriptions of one caller reached; only renewals are accepted", most)
		}
	}
	unverified := ""
	switch {
	case c.Fresh >= s.opts.MaxUnverified:
		unverified = fmt.Sprintf("%d subscriptions with callbacks at %s", s.opts.MaxUnverified, host)
	case r.By != "" && c.Own >= half(s.opts.MaxUnverified):
		unverified = fmt.Sprintf("%d subscriptions of one caller with callbacks at %s", half(s.opts.MaxUnverified), host)
	default:
		return nil
	}
	p := refuse(http.StatusTooManyRequests, "limit of unconfirmed requests reached (%s); try again when some are confirmed", unverified)
	p.RetryAfter = 30 // by then the third attempt to verify is over
	return p
}
