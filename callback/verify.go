package callback

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/resourcesync"
)

// verifyRetries are the waits before the second and third try of a verification
// that got no answer, or one of the 5xx. Every other answer is final.
var verifyRetries = [...]time.Duration{5 * time.Second, 20 * time.Second}

// verify asks the callback whether its owner wants what the request says (WebSub
// section 5.3), and does it if so. Else everything stays as it was. It returns
// how long to wait for the next try, 0 when the request is carried out.
func (s *shard) verify(p *pending) (again time.Duration) {
	e, r := s.engine, &p.Request
	if p.confirmed != nil {
		return s.keep(p)
	}
	e.mu.Lock()
	known := s.subs[r.ID()]
	if known == nil && r.Mode == Unsubscribe {
		s.finish(r)
		e.mu.Unlock()
		return 0
	}
	c, about := &confirmation{since: r.Start}, Subscription{}
	if known != nil {
		about = *known.about
		if !r.Move {
			c.since = known.cursor
		}
		// What the old filter left out the new one may want.
		if c.refilters = !r.Move && known.filter.key != r.Filter.Key(); c.refilters {
			c.since = known.begin()
		}
	}
	e.mu.Unlock()

	begin := time.Now()
	c.wanted = r.subscription(&about, begin)
	q := verification(r, e.topicURL(r.Set))
	if r.Mode == Subscribe {
		q = append(q, extras(r, c.since, known != nil, e.statusURL(c.wanted.ID(), c.wanted.Token))...)
	}
	status, final, no := e.ask(s.ctx, r.Callback, q)
	if s.ctx.Err() != nil {
		return 0 // the next hub asks again
	}
	c.attempt = Attempt{At: begin.UTC(), Kind: string(r.Mode), Status: status, Took: time.Since(begin)}
	if no == nil {
		e.metrics.attempted(forVerification, outcomeSuccess, c.attempt.Took)
		p.confirmed = c
		return s.keep(p)
	}
	e.metrics.attempted(forVerification, no.outcome, c.attempt.Took)
	c.attempt.Error = no.text
	return s.unconfirmed(p, c.attempt, final)
}

// A confirmation is what a callback has confirmed.
type confirmation struct {
	wanted    Subscription
	since     changelog.Cursor // as it was told
	refilters bool             // a renewal goes on there, for its filter is another one
	attempt   Attempt
}

// subscription returns what a request makes of a subscription; the zero one is
// new.
func (r *Request) subscription(was *Subscription, now time.Time) Subscription {
	now = now.UTC().Round(0)
	wanted := Subscription{
		Set: r.Set, Callback: r.Callback, Secret: r.Secret, Filter: r.Filter,
		LeaseEnd: now.Add(r.Lease), Token: was.Token, Made: was.Made,
	}
	if was.Token == "" {
		wanted.Token, wanted.Made = rand.Text(), now
	} else {
		wanted.Renewed = now
	}
	return wanted
}

// keep does what was confirmed. It returns what commitSoon does.
func (s *shard) keep(p *pending) (again time.Duration) {
	e, r, c := s.engine, &p.Request, p.confirmed
	return s.commitSoon(r, func() Changes {
		known := s.subs[r.ID()]
		if r.Mode == Unsubscribe {
			if known == nil {
				return Changes{}
			}
			return Changes{Delete: []ID{known.id}}
		}
		rec := Record{Subscription: c.wanted, Progress: Progress{Cursor: r.Start, Diverged: r.Diverged, Last: []Attempt{c.attempt}}}
		if known != nil {
			last := slices.Clone(known.last)
			last.add(c.attempt)
			if r.Move {
				rec.Gaps = known.gaps
			} else {
				rec.Progress = known.unpack()
				rec.Next = time.Time{}
			}
			if c.refilters {
				rec.Cursor, rec.From, rec.Failed = c.since, changelog.Cursor{}, 0
			}
			rec.Last = last.unpack()
		}
		return Changes{Put: []Record{rec}}
	}, func(done Changes) {
		for _, id := range done.Delete {
			if known := s.subs[id]; known != nil {
				s.remove(known)
				e.metrics.ended[Unsubscribe].Inc()
			}
		}
		for i := range done.Put {
			if known := s.subs[r.ID()]; known != nil {
				known.last.add(c.attempt)
				known.proven = known.proven && c.attempt.Took <= slowAfter
			}
			s.put(&done.Put[i], r.Move || c.refilters)
		}
		e.opts.Logger.Info("callbacks: confirmed", "mode", r.Mode, "id", r.ID(), "set", r.Set, "host", hostName(r.Callback))
		e.fill()
	})
}

func (s *shard) unconfirmed(p *pending, a Attempt, final bool) (again time.Duration) {
	e, r := s.engine, &p.Request
	e.mu.Lock()
	defer e.mu.Unlock()
	if known := s.subs[r.ID()]; known != nil {
		known.last.add(a)
		known.proven = known.proven && a.Took <= slowAfter
		known.soil()
	}
	if p.tries++; !final && p.tries <= len(verifyRetries) {
		return jitter(verifyRetries[p.tries-1])
	}
	e.opts.Logger.Info("callbacks: not confirmed", "mode", r.Mode, "id", r.ID(), "set", r.Set, "host", hostName(r.Callback), "status", a.Status, "err", a.Error)
	s.finish(r)
	return 0
}

// A param is one parameter of a query. Their order is kept.
type param struct{ name, value string }

// verification returns the parameters of section 5.3, without the challenge.
func verification(r *Request, topic string) []param {
	q := []param{{"hub.mode", string(r.Mode)}, {"hub.topic", topic}}
	if r.Mode == Subscribe {
		q = append(q, param{"hub.lease_seconds", strconv.FormatInt(int64(r.Lease/time.Second), 10)})
	}
	return q
}

// extras returns what rshub adds, with its effective value: so a subscriber
// knows that it was understood.
func extras(r *Request, since changelog.Cursor, renewed bool, status string) []param {
	q := []param{
		{"rs.since", since.String()},
		{"rs.renewed", strconv.FormatBool(renewed)},
		{"rs.status", status},
	}
	if r.Filter.Prefix != "" {
		q = append(q, param{"rs.prefix", r.Filter.Prefix})
	}
	if len(r.Filter.Changes) > 0 {
		q = append(q, param{"rs.change", join(r.Filter.Changes)})
	}
	if len(r.Filter.Types) > 0 {
		q = append(q, param{"rs.type", strings.Join(r.Filter.Types, ",")})
	}
	return q
}

func join(changes []resourcesync.ChangeType) string {
	var b strings.Builder
	for i, c := range changes {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(string(c))
	}
	return b.String()
}

// ask sends a GET with a challenge, and returns nil when the callback gave it
// back. final says that asking again is of no use.
func (e *Engine) ask(ctx context.Context, callback string, q []param) (status int, final bool, no *failure) {
	challenge := rand.Text()
	q = append(q, param{"hub.challenge", challenge})
	var answer []byte
	status, err := e.get(ctx, addQuery(callback, q), func(body io.Reader) (err error) {
		answer, err = io.ReadAll(io.LimitReader(body, int64(len(challenge))+1))
		return err
	})
	switch {
	case err != nil:
		no = explain(err)
		return status, no.outcome == outcomeRefusedAddress, no
	case status < 200 || status > 299:
		return status, status < 500, answered("the answer is no confirmation", status)
	case string(answer) != challenge:
		return status, true, &failure{"the answer's body is not the challenge", outcomeOther}
	}
	return status, true, nil
}

// whyExpired is what a callback is told whose lease ended. A set that was removed
// ends no subscription, since it may be made anew, and then RS-Gap says what is
// gone. If it was not by now, nothing else will say so.
func (e *Engine) whyExpired(ctx context.Context, set string) string {
	if _, err := e.log.State(ctx, set); errors.Is(err, changelog.ErrNoSet) {
		return "lease expired; there is no such set"
	}
	return "lease expired"
}

// deny tells a callback that its subscription ended (WebSub section 5.2), once
// and as well as it goes.
func (s *shard) deny(r *Request, reason string) {
	q := []param{{"hub.mode", "denied"}, {"hub.topic", s.engine.topicURL(r.Set)}, {"hub.reason", reason}}
	e, begin := s.engine, time.Now()
	status, err := e.get(s.ctx, addQuery(r.Callback, q), nil)
	switch {
	case s.ctx.Err() != nil: // given up
	case err != nil:
		no := explain(err)
		e.metrics.attempted(forDenial, no.outcome, time.Since(begin))
		e.opts.Logger.Info("callbacks: could not be told that its subscription ended", "id", r.ID(), "host", hostName(r.Callback), "err", no)
	default:
		e.metrics.attempted(forDenial, statusOutcome(status), time.Since(begin))
	}
}

// get sends a GET and gives a successful answer's body to read, unless that is
// nil.
func (e *Engine) get(ctx context.Context, target string, read func(io.Reader) error) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, e.opts.VerifyTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return 0, fmt.Errorf("ask a callback: %w", err)
	}
	r.Header.Set("User-Agent", userAgent)
	resp, err := e.transport.RoundTrip(r)
	if err != nil {
		return 0, err
	}
	defer drain(resp, cancel)
	if read != nil && resp.StatusCode >= 200 && resp.StatusCode <= 299 {
		err = read(resp.Body)
	}
	return resp.StatusCode, err
}

// addQuery appends parameters to a callback, whose own query stays as it is.
func addQuery(callback string, q []param) string {
	var b strings.Builder
	b.WriteString(callback)
	sep := byte('?')
	if _, own, ok := strings.Cut(callback, "?"); ok {
		sep = '&'
		if own == "" || strings.HasSuffix(own, "&") {
			sep = 0
		}
	}
	for _, p := range q {
		if sep != 0 {
			b.WriteByte(sep)
		}
		sep = '&'
		b.WriteString(url.QueryEscape(p.name))
		b.WriteByte('=')
		b.WriteString(url.QueryEscape(p.value))
	}
	return b.String()
}
