package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"mime"
	"net/http"
	"net/url"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/audit"
	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/resourcesync"
)

// AuditOptions say how an Audit compares. Zero values are the defaults.
type AuditOptions struct {
	Prefix string    // only resources whose loc begins with it; default: all
	By     digest.By // what is compared; default: by position

	// Since is for a state without a cursor. It is the place in the hub's log, a cursor
	// or a datetime, at which the caller began to collect its state. Audit does not
	// report resources that the log names after this place. Default: the moment at
	// which Audit begins.
	Since string

	// Tally is for a state without a cursor that takes long to make. Audit calls it after
	// its first look at the hub. It returns the tally of the state that own would return,
	// within Prefix. If the hub's tally is equal, the audit ends without a call of own.
	// If it cannot be exact, it must return a tally that cannot equal the hub's. Default:
	// own is always called.
	Tally func(context.Context) (digest.Tally, error)

	// Settle is how long Audit waits before its second look, if the state has no cursor
	// and something differs. Default 5 s.
	Settle time.Duration

	Look func(audit.Look) // called with each look at the hub; default: nothing is called

	// Proved is called at most once, if the caller's resources within Prefix have the hub's
	// digest at one cursor. The caller may give the proof to Client.Tell. An audit by content
	// may yield nothing without a proof, because equal contents can have versions of
	// different kinds. Default: nothing is called.
	Proved func(audit.Proof)
}

const (
	defaultSettle = 5 * time.Second
	auditTimeout  = time.Minute // one question and its answer
	maxLook       = 1 << 20     // bytes of a look
	maxCandidates = 10_000      // differences of one second look
	maxAudits     = 5           // how often an audit begins, because the hub dropped the state that it compared with
)

// An Own returns the state that the caller holds now. The caller keeps the pages of the
// state until the audit has ended.
type Own func(ctx context.Context) (*inventory.State, error)

// Always returns an Own of a state that does not change.
func Always(s *inventory.State) Own {
	return func(context.Context) (*inventory.State, error) { return s, nil }
}

// Audit compares the caller's resources with the hub's resources of a set. It yields each
// difference once, in no order. If it ends without an error and yields nothing, both
// sides hold the same resources. If both are equal this takes one small request; a few
// differences among a million resources take four.
//
// A state with a cursor has applied the log up to the cursor, as a Replica has. Audit
// adds the changes that the hub has since then to the state, and compares both at one
// cursor. So every yielded resource really differs, even if changes arrive meanwhile.
//
// A state without a cursor was made without the log, for instance from a directory or a
// database. It can be compared only by content, and changes may be on their way to the
// hub. So Audit looks at the differences a second time, after Settle, and calls own
// again. It yields only differences that are unchanged, and whose resources the log has
// not named since Since.
//
// Audit tries again as Publish does when the hub cannot be reached. An error is the last
// thing that it yields: an *Unavailable, a *Refused, an ErrNoHub, ctx's error, or an
// error of own or of its state. It is feed.ErrGone if the hub's log does not have the
// state's cursor any more: the caller then has to Follow first, or read a new Baseline.
// It is feed.ErrNoInventory if the hub knows no resources of the set, only changes.
func (c *Client) Audit(ctx context.Context, set string, own Own, o AuditOptions) iter.Seq2[audit.Difference, error] {
	if o.By == "" {
		o.By = digest.ByPosition
	}
	if o.Settle <= 0 {
		o.Settle = defaultSettle
	}
	if o.Look == nil {
		o.Look = func(audit.Look) {}
	}
	if o.Proved == nil {
		o.Proved = func(audit.Proof) {}
	}
	return func(yield func(audit.Difference, error) bool) {
		a := &auditor{client: c, set: set, own: own, opts: o, yield: yield, seen: map[digest.Digest]bool{}}
		err := feed.CheckSet(set)
		for n := 1; err == nil; n++ {
			if err = a.run(ctx); err == nil {
				return
			}
			if a.asked && errors.Is(err, feed.ErrGone) && n < maxAudits {
				err = nil // the hub dropped this state, so begin anew
			}
		}
		if err != errEnough {
			yield(audit.Difference{}, err)
		}
	}
}

// errEnough means that the caller wants no more differences.
var errEnough = errors.New("enough")

// An auditor is the state of one Audit.
type auditor struct {
	client *Client
	set    string
	own    Own
	opts   AuditOptions
	name   string // of the destination, in a question that is a proof; else empty
	yield  func(audit.Difference, error) bool

	first feed.Cursor            // the cursor of the first look, in an audit by content
	at    feed.Cursor            // the cursor of the newest look, at which the hub is asked
	asked bool                   // the newest look is over, and questions were asked
	seen  map[digest.Digest]bool // the yielded locs: 16 bytes of the hash of each
}

// run compares both ends once.
func (a *auditor) run(ctx context.Context) (err error) {
	a.asked = false
	var look audit.Look
	content := a.opts.By == digest.ByContent
	if content { // before own is called, so that the log after the look names every change made meanwhile
		if look, err = a.look(ctx, feed.Cursor{}); err != nil {
			return err
		}
		if a.first.IsZero() {
			a.first = look.Cursor
		}
		if same, err := a.tallied(ctx, look); same || err != nil {
			return err
		}
	}
	own, err := a.own(ctx)
	if err != nil {
		return err
	}
	if content && own.Cursor().IsZero() {
		return a.settled(ctx, own, look)
	}
	t, err := own.Tally(ctx, inventory.Range{})
	switch {
	case err != nil:
		return err
	case own.Cursor().IsZero() && t.Count > 0: // the zero cursor is also the beginning of a log, where nothing is
		return resourcesync.Invalid("only a state with a cursor can be compared by position")
	}
	return a.exactly(ctx, own)
}

// tallied reports whether AuditOptions.Tally proves that the caller holds what the hub
// holds.
func (a *auditor) tallied(ctx context.Context, look audit.Look) (bool, error) {
	if a.opts.Tally == nil {
		return false, nil
	}
	t, err := a.opts.Tally(ctx)
	return err == nil && a.same(&t, &look), err
}

// same reports whether a tally and a look are of the same resources. If they are, the caller
// gets the proof.
func (a *auditor) same(t *digest.Tally, look *audit.Look) bool {
	by := a.opts.By
	if t.Count != look.Count || t.Digest(by) != look.Digest(by) {
		return false
	}
	a.opts.Proved(audit.Proof{Set: a.set, Prefix: a.opts.Prefix, By: by, Cursor: look.Cursor, Count: t.Count, Digest: t.Digest(by)})
	return true
}

// exactly compares a state that is at a cursor of the log.
func (a *auditor) exactly(ctx context.Context, own *inventory.State) error {
	look, err := a.look(ctx, own.Cursor())
	if err != nil {
		return err
	}
	if own, err = a.advance(ctx, own, look.Cursor); err != nil {
		return err
	}
	return a.compare(ctx, own, look, a.report)
}

// compare calls each with every difference at a look.
func (a *auditor) compare(ctx context.Context, own *inventory.State, look audit.Look, each func(audit.Difference) error) error {
	r, by := inventory.Prefix(a.opts.Prefix), a.opts.By
	t, err := own.Tally(ctx, r)
	if err != nil {
		return fmt.Errorf("audit set %q: %w", a.set, err)
	}
	if a.same(&t, &look) {
		return nil
	}
	n := 0
	for d, err := range audit.Compare(ctx, own, by, r, a.ask) {
		if n++; err == nil {
			err = each(d)
		}
		if err != nil {
			return err
		}
	}
	if n == 0 && by == digest.ByPosition {
		return strange(fmt.Sprintf("%s shows no difference, and another digest", a.client.base.Audit(a.set)))
	}
	return nil
}

// report yields a difference, unless it was yielded before.
func (a *auditor) report(d audit.Difference) error {
	e := digest.Element(d.Loc, "")
	loc := digest.Digest(e[:16])
	if a.seen[loc] {
		return nil
	}
	a.seen[loc] = true
	if !a.yield(d, nil) {
		return errEnough
	}
	return nil
}

// advance returns a state with the later changes of the hub's log, up to a cursor.
func (a *auditor) advance(ctx context.Context, own *inventory.State, to feed.Cursor) (*inventory.State, error) {
	if own.Cursor() == to {
		return own, nil
	}
	overlay := own.Overlay()
	err := a.client.upTo(ctx, a.set, own.Cursor().String(), a.opts.Prefix, to, func(entries []feed.Entry) error {
		return overlay.Add(ctx, entries)
	})
	if err != nil {
		return nil, err
	}
	return overlay.State(to), nil
}

// settled compares a state that is at no cursor. It looks a second time at what differs.
func (a *auditor) settled(ctx context.Context, own *inventory.State, look audit.Look) error {
	s := &second{auditor: a, first: own, since: cmp.Or(a.opts.Since, a.first.String()), named: map[string]bool{}}
	err := a.compare(ctx, own, look, func(d audit.Difference) error {
		if s.candidates = append(s.candidates, d); len(s.candidates) < maxCandidates {
			return nil
		}
		return s.look(ctx, look.Cursor)
	})
	if err == nil && len(s.candidates) > 0 {
		err = s.look(ctx, look.Cursor)
	}
	return err
}

// A second is the second look of an audit at what differs.
type second struct {
	*auditor
	first      *inventory.State // the caller's state at the first look
	candidates []audit.Difference
	since      string          // the place in the log up to which named is complete
	named      map[string]bool // the locs that the log named since the first look
	waited     bool
}

// look looks at the candidates again, and reports those that still differ. first is the
// cursor of the first look.
func (s *second) look(ctx context.Context, first feed.Cursor) error {
	if !s.waited {
		if err := s.client.opts.Sleep(ctx, s.opts.Settle); err != nil {
			return err
		}
		s.waited = true
	}
	own, err := s.own(ctx)
	if err != nil {
		return err
	}
	look, err := s.auditor.look(ctx, first)
	if err != nil {
		return err
	}
	err = s.client.upTo(ctx, s.set, s.since, s.opts.Prefix, look.Cursor, func(entries []feed.Entry) error {
		for i := range entries {
			s.named[entries[i].Change.Loc] = true
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.since = look.Cursor.String()
	named := func(loc string) bool { return s.named[loc] }
	if own == s.first { // both ends still have what they had, unless the log names it
		for _, d := range s.candidates {
			if named(d.Loc) {
				continue
			}
			if err := s.report(d); err != nil {
				return err
			}
		}
		s.candidates, s.at = nil, first
		return nil
	}
	for d, err := range audit.Confirm(ctx, own, s.candidates, named, s.ask) {
		if err == nil {
			err = s.report(d)
		}
		if err != nil {
			return err
		}
	}
	s.candidates, s.at = nil, first
	return nil
}

// upTo calls take with the changes of a set after a place, up to the cursor to, which
// the log must hold. It tries again as Follow does.
func (c *Client) upTo(ctx context.Context, set, place, prefix string, to feed.Cursor, take func([]feed.Entry) error) error {
	if place == to.String() {
		return nil
	}
	for b, err := range c.Follow(ctx, set, place, FollowOptions{Filter: feed.Filter{Prefix: prefix}}) {
		switch {
		case err != nil:
			return err
		case b.Diverged:
			return fmt.Errorf("%w: the log of set %q does not hold %s", feed.ErrGone, set, place)
		}
		entries := b.Entries
		for n := len(entries); n > 0 && entries[n-1].Position > to.Position; n = len(entries) {
			entries = entries[:n-1]
		}
		if err := take(entries); err != nil {
			return err
		}
		if b.Cursor.Position >= to.Position {
			return nil
		}
	}
	return ctx.Err()
}

// look looks at the hub's state at a cursor, or at a later one.
func (a *auditor) look(ctx context.Context, from feed.Cursor) (look audit.Look, err error) {
	query := url.Values{}
	if !from.IsZero() {
		query.Set("from", from.String())
	}
	if a.opts.Prefix != "" {
		query.Set("prefix", a.opts.Prefix)
	}
	err = a.exchange(ctx, http.MethodGet, query, nil, func(resp *http.Response) error {
		look, err = audit.ReadLook(http.MaxBytesReader(nil, resp.Body, maxLook))
		return err
	})
	switch {
	case err != nil:
		return look, err
	case look.Set != a.set || look.Cursor.Position < from.Position:
		return look, strange(fmt.Sprintf("%s answers with a look at %v of the set %s", a.client.base.Audit(a.set), look.Cursor, look.Set))
	}
	a.at, a.asked = look.Cursor, false
	a.opts.Look(look)
	return look, nil
}

// ask asks the hub a question at the cursor of the newest look. If the answer is too large
// for the hub, it asks about one half of the ranges, and then about the other.
func (a *auditor) ask(ctx context.Context, q audit.Question) (audit.Reply, error) {
	reply, err := a.askOnce(ctx, q)
	half := len(q.Ranges) / 2
	if r, ok := errors.AsType[*Refused](err); !ok || r.Status != http.StatusRequestEntityTooLarge || half == 0 {
		return reply, err
	}
	first, second := q, q
	first.Ranges, second.Ranges = q.Ranges[:half], q.Ranges[half:]
	if reply, err = a.ask(ctx, first); err != nil {
		return reply, err
	}
	rest, err := a.ask(ctx, second)
	reply.Ranges = append(reply.Ranges, rest.Ranges...)
	return reply, err
}

func (a *auditor) askOnce(ctx context.Context, q audit.Question) (reply audit.Reply, err error) {
	q.At, a.asked = a.at, true
	query := url.Values{}
	if q.Details {
		query.Set("details", "1")
	}
	if a.name != "" {
		query.Set("name", a.name)
	}
	err = a.exchange(ctx, http.MethodPost, query, q.AppendJSON(nil), func(resp *http.Response) error {
		reply, err = audit.ReadReply(http.MaxBytesReader(nil, resp.Body, 2*audit.MaxReply))
		return err
	})
	if err == nil && (reply.Set != a.set || reply.Cursor != q.At) {
		err = strange(fmt.Sprintf("%s answers about %v of the set %s", a.client.base.Audit(a.set), reply.Cursor, reply.Set))
	}
	return reply, err
}

// exchange sends a request of an audit until it is answered.
func (a *auditor) exchange(ctx context.Context, method string, query url.Values, body []byte, read func(*http.Response) error) error {
	c := a.client
	target := c.base.Audit(a.set)
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	return c.patiently(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, auditTimeout)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
		if err != nil {
			return fmt.Errorf("audit set %q: %w", a.set, err)
		}
		req.Header.Set("Accept", "application/json, application/problem+json")
		if body != nil {
			req.Header.Set("Content-Type", "application/json")
		}
		return c.exchange(req, func(resp *http.Response) error {
			t, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
			if t != "application/json" {
				return fmt.Errorf("%s answers 200, but %w", c.base.Audit(a.set), ErrNoHub)
			}
			if err := read(resp); err != nil {
				return fmt.Errorf("%s answers 200, but %w (%v)", c.base.Audit(a.set), ErrNoHub, err)
			}
			return nil
		})
	})
}
