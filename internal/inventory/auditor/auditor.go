// Package auditor compares what the caller holds with what a hub knows, over HTTP: it sends the
// questions of package audit to the hub until every difference is named, and checks differences a
// second time if changes may be on their way.
//
// It sends requests through a Hub, which is a *client.Client. Package client offers audits to other
// modules, without the types of inventories.
package auditor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/backoff"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/audit"
	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/resourcesync"
)

// A Hub sends requests to a hub. A *client.Client is one, and its methods are documented there.
type Hub interface {
	Request(ctx context.Context, method, ref string, body []byte, read func(io.Reader) error) error
	ReadUpTo(ctx context.Context, set, place string, f feed.Filter, to feed.Cursor) iter.Seq2[[]feed.Entry, error]
}

// Options of Audit. Zero values are the defaults.
type Options struct {
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

	OnSummary func(audit.Summary) // called with each look at the hub; default: nothing is called

	// Begin is called when Audit starts to compare, and when it starts again from scratch
	// because the hub dropped its state. The states that own returned before are no longer
	// read. Default: nothing is called.
	OnStart func()

	// Proved is called at most once, if the caller's resources within Prefix have the hub's
	// digest at one cursor. The caller may give the proof to SubmitProof. An audit by content
	// may yield nothing without a proof, because equal contents can have versions of
	// different kinds. Default: nothing is called.
	OnProof func(audit.Proof)

	Sleep func(context.Context, time.Duration) error // waits for Settle; default: backoff.Sleep
}

const (
	defaultSettle = 5 * time.Second
	maxLook       = 1 << 20 // bytes of a look
	maxCandidates = 10_000  // differences of one second look
	maxAudits     = 5       // how often an audit begins, because the hub dropped the state that it compared with
)

// A StateFunc returns the state that the caller holds now. Audit reads the first state after
// Options.Begin until the next Begin, and each later one until the next call.
type StateFunc func(ctx context.Context) (*inventory.State, error)

// FixedState returns a StateFunc of a state that does not change.
func FixedState(s *inventory.State) StateFunc {
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
// thing that it yields: an *UnavailableError, a *RefusedError, an ErrNotHub, ctx's error, or an
// error of own or of its state. It is feed.ErrGone if the hub's log does not have the
// state's cursor any more: the caller then has to Follow first, or read a new Baseline.
// It is feed.ErrNoInventory if the hub knows no resources of the set, only changes.
func Audit(ctx context.Context, hub Hub, set string, own StateFunc, o Options) iter.Seq2[audit.Difference, error] {
	if o.By == "" {
		o.By = digest.ByPosition
	}
	if o.Settle <= 0 {
		o.Settle = defaultSettle
	}
	if o.OnSummary == nil {
		o.OnSummary = func(audit.Summary) {}
	}
	if o.OnStart == nil {
		o.OnStart = func() {}
	}
	if o.OnProof == nil {
		o.OnProof = func(audit.Proof) {}
	}
	if o.Sleep == nil {
		o.Sleep = backoff.Sleep
	}
	return func(yield func(audit.Difference, error) bool) {
		a := &auditor{hub: hub, set: set, own: own, opts: o, yield: yield, seen: map[digest.Digest]bool{}}
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
	hub   Hub
	set   string
	own   StateFunc
	opts  Options
	name  string // of the destination, in a question that is a proof; else empty
	yield func(audit.Difference, error) bool

	first feed.Cursor            // the cursor of the first look, in an audit by content
	at    feed.Cursor            // the cursor of the newest look, at which the hub is asked
	asked bool                   // the newest look is over, and questions were asked
	seen  map[digest.Digest]bool // the yielded locs: 16 bytes of the hash of each
}

// run compares both ends once.
func (a *auditor) run(ctx context.Context) (err error) {
	a.asked = false
	a.opts.OnStart()
	var look audit.Summary
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
		return resourcesync.Invalidf("comparing by position requires a state with a cursor")
	}
	return a.exactly(ctx, own)
}

// tallied reports whether Options.Tally proves that the caller holds what the hub
// holds.
func (a *auditor) tallied(ctx context.Context, look audit.Summary) (bool, error) {
	if a.opts.Tally == nil {
		return false, nil
	}
	t, err := a.opts.Tally(ctx)
	return err == nil && a.same(&t, &look), err
}

// same reports whether a tally and a look are of the same resources. If they are, the caller
// gets the proof.
func (a *auditor) same(t *digest.Tally, look *audit.Summary) bool {
	by := a.opts.By
	if t.Count != look.Count || t.Digest(by) != look.Digest(by) {
		return false
	}
	a.opts.OnProof(audit.Proof{Set: a.set, Prefix: a.opts.Prefix, By: by, Cursor: look.Cursor, Count: t.Count, Digest: t.Digest(by)})
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
func (a *auditor) compare(ctx context.Context, own *inventory.State, look audit.Summary, each func(audit.Difference) error) error {
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
		return fmt.Errorf("audit set %q: %w", a.set, ErrInconsistent)
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
	for entries, err := range a.hub.ReadUpTo(ctx, a.set, own.Cursor().String(), feed.Filter{Prefix: a.opts.Prefix}, to) {
		if err == nil {
			err = overlay.Add(ctx, entries)
		}
		if err != nil {
			return nil, err
		}
	}
	return overlay.State(to), nil
}

// settled compares a state that is at no cursor. It looks a second time at what differs.
func (a *auditor) settled(ctx context.Context, own *inventory.State, look audit.Summary) error {
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
		if err := s.opts.Sleep(ctx, s.opts.Settle); err != nil {
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
	for entries, err := range s.hub.ReadUpTo(ctx, s.set, s.since, feed.Filter{Prefix: s.opts.Prefix}, look.Cursor) {
		if err != nil {
			return err
		}
		for i := range entries {
			s.named[entries[i].Change.Loc] = true
		}
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

// look looks at the hub's state at a cursor, or at a later one.
func (a *auditor) look(ctx context.Context, from feed.Cursor) (look audit.Summary, err error) {
	query := url.Values{}
	if !from.IsZero() {
		query.Set("from", from.String())
	}
	if a.opts.Prefix != "" {
		query.Set("prefix", a.opts.Prefix)
	}
	err = a.request(ctx, http.MethodGet, query, nil, func(r io.ReadCloser) (err error) {
		if look, err = audit.ReadSummary(http.MaxBytesReader(nil, r, maxLook)); err == nil && (look.Set != a.set || look.Cursor.Position < from.Position) {
			err = fmt.Errorf("got a summary at %v of set %q, want set %q at %v or later", look.Cursor, look.Set, a.set, from)
		}
		return err
	})
	if err != nil {
		return look, err
	}
	a.at, a.asked = look.Cursor, false
	a.opts.OnSummary(look)
	return look, nil
}

// ask asks the hub a question at the cursor of the newest look. If the answer is too large
// for the hub, it asks about one half of the ranges, and then about the other.
func (a *auditor) ask(ctx context.Context, q audit.Question) (audit.Reply, error) {
	reply, err := a.askOnce(ctx, q)
	half := len(q.Ranges) / 2
	if !errors.Is(err, resourcesync.ErrTooLarge) || half == 0 {
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
	err = a.request(ctx, http.MethodPost, query, q.AppendJSON(nil), func(r io.ReadCloser) (err error) {
		if reply, err = audit.ReadReply(http.MaxBytesReader(nil, r, 2*audit.MaxReply)); err == nil && (reply.Set != a.set || reply.Cursor != q.At) {
			err = fmt.Errorf("got an answer about set %q at %v, want set %q at %v", reply.Set, reply.Cursor, a.set, q.At)
		}
		return err
	})
	return reply, err
}

// request sends a request of an audit until it is answered.
func (a *auditor) request(ctx context.Context, method string, query url.Values, body []byte, read func(io.ReadCloser) error) error {
	ref := feed.Base("").Audit(a.set)
	if len(query) > 0 {
		ref += "?" + query.Encode()
	}
	return a.hub.Request(ctx, method, ref, body, func(r io.Reader) error { return read(io.NopCloser(r)) })
}

// Look looks once at what a hub knows of the resources of a set whose loc begins with a prefix.
// Its errors are those of Audit.
func FetchSummary(ctx context.Context, hub Hub, set, prefix string) (audit.Summary, error) {
	a := &auditor{hub: hub, set: set, opts: Options{Prefix: prefix, OnSummary: func(audit.Summary) {}}}
	return a.look(ctx, feed.Cursor{})
}

// ErrProofMismatch means that a hub does not hold what a proof says.
var ErrProofMismatch = errors.New("the hub has different resources")

// ErrInconsistent means that a hub shows no difference, and another digest.
var ErrInconsistent = errors.New("digests differ, but no difference was found")

// SubmitProof tells a hub that a destination has proved to hold the same. The hub compares the
// proof with what it held at that cursor, and shows its operators when the destination of
// that name was last equal. A name has 1 to 100 bytes, printable; destinations of the same
// caller and set have different names.
//
// SubmitProof returns ErrProofMismatch if the hub held something else. It returns feed.ErrGone if the hub
// can no longer look at that cursor, which it can for some minutes after the audit. The other
// errors are those of Audit; a hub of an earlier version refuses it.
func SubmitProof(ctx context.Context, hub Hub, name string, p audit.Proof) error {
	if err := feed.CheckSet(p.Set); err != nil {
		return err
	}
	a := &auditor{hub: hub, set: p.Set, at: p.Cursor, name: name}
	reply, err := a.askOnce(ctx, p.Question())
	if err == nil && len(reply.Ranges) > 0 {
		err = fmt.Errorf("%w; want %d resources of set %q with the digest %v at %v", ErrProofMismatch, p.Count, p.Set, p.Digest, p.Cursor)
	}
	return err
}
