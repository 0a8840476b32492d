// Package auditor compares the caller's resources with a hub's over HTTP. It sends the questions of
// package audit until every difference is found, and checks differences again if the hub may not have
// received all changes yet.
//
// It sends requests through a Hub, such as a *client.Client. Package client offers audits to other
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

// A Hub sends requests to a hub. *client.Client implements it, and documents the methods.
type Hub interface {
	Request(ctx context.Context, method, ref string, body []byte, read func(io.Reader) error) error
	ReadUpTo(ctx context.Context, set, place string, f feed.Filter, to feed.Cursor) iter.Seq2[[]feed.Entry, error]
}

// Options configures Audit. The zero value uses the defaults.
type Options struct {
	Prefix string    // prefix of the loc of the resources to compare; default: all resources
	By     digest.By // default: digest.ByPosition

	// Since is for a state without a cursor: the position in the hub's log, a cursor or a datetime, at
	// which the caller started to collect its state. Resources that the log names after it are not
	// reported. Default: the time at which Audit starts.
	Since string

	// Tally is for a state without a cursor that is expensive to collect. Audit calls it after it has
	// the hub's summary. It returns the tally, within Prefix, of the state that own would return, or,
	// if it cannot be exact, one that cannot equal the hub's. If it equals the hub's, the audit ends
	// without a call of own. Default: own is always called.
	Tally func(context.Context) (digest.Tally, error)

	// Settle is the time to wait before differences of a state without a cursor are checked again.
	// Default: 5 s.
	Settle time.Duration

	OnSummary func(audit.Summary) // called with each summary of the hub; default: nil

	// OnStart is called when Audit starts to compare, and when it starts from scratch because the hub
	// dropped its state. States that own returned earlier are no longer read. Default: nil.
	OnStart func()

	// OnProof is called at most once, if the caller's resources within Prefix have the hub's digest at
	// the same cursor. The caller may pass the proof to SubmitProof. An audit by content may yield
	// nothing without a proof, because equal contents can have versions of different kinds. Default:
	// nil.
	OnProof func(audit.Proof)

	Sleep func(context.Context, time.Duration) error // waits for Settle; default: backoff.Sleep
}

const (
	defaultSettle = 5 * time.Second
	maxSummary    = 1 << 20 // bytes
	maxCandidates = 10_000  // differences that are checked again at a time
	maxStarts     = 5       // starts of one Audit, because the hub dropped its state
)

// A StateFunc returns the caller's current state. Audit reads the first state after Options.OnStart
// until the next OnStart, and each later one until the next call.
type StateFunc func(ctx context.Context) (*inventory.State, error)

// FixedState returns a StateFunc for a state that does not change.
func FixedState(s *inventory.State) StateFunc {
	return func(context.Context) (*inventory.State, error) { return s, nil }
}

// Audit compares the caller's resources with the hub's resources of a set. It yields each difference
// once, in no order. If it ends without an error and yields nothing, both sides have the same
// resources. If they are equal, it takes one small request; with a few differences among a million
// resources, it takes four.
//
// A state with a cursor has applied the log up to it, as a Replica has. Audit adds the hub's later
// changes to it, and compares both at one cursor, so every yielded resource really differs, even
// while changes arrive.
//
// A state without a cursor was made without the log, for example from a directory or a database. It
// can be compared only by content, and the hub may not have received all changes yet. So Audit checks
// differences again after Settle, with another state from own. It yields only differences that are
// unchanged, and whose resources the log has not named since Since.
//
// While the hub is unavailable, Audit retries as Publish does. An error is the last thing that it
// yields: an *UnavailableError, a *RefusedError, ErrNotHub, ctx's error, or an error of own or of its
// state. It is feed.ErrGone if the hub's log no longer has the state's cursor: the caller must then
// Follow, or read a new Baseline, first. It is feed.ErrNoInventory if the hub has only changes of the
// set, and no inventory.
func Audit(ctx context.Context, hub Hub, set string, own StateFunc, o Options) iter.Seq2[audit.Difference, error] {
	o.By = cmp.Or(o.By, digest.ByPosition)
	if o.Settle <= 0 {
		o.Settle = defaultSettle
	}
	if o.Sleep == nil {
		o.Sleep = backoff.Sleep
	}
	return func(yield func(audit.Difference, error) bool) {
		a := &auditor{hub: hub, set: set, own: own, opts: o, yield: yield, yielded: map[digest.Digest]bool{}}
		err := feed.CheckSet(set)
		for n := 1; err == nil; n++ {
			if err = a.run(ctx); err == nil {
				return
			}
			if a.asked && errors.Is(err, feed.ErrGone) && n < maxStarts {
				err = nil // the hub dropped its state: start from scratch
			}
		}
		if err != errStopped {
			yield(audit.Difference{}, err)
		}
	}
}

var errStopped = errors.New("the caller stopped the iteration")

// An auditor is one call of Audit, FetchSummary or SubmitProof.
type auditor struct {
	hub     Hub
	set     string
	own     StateFunc
	opts    Options
	name    string // name of the destination, for SubmitProof; empty otherwise
	yield   func(audit.Difference, error) bool
	yielded map[digest.Digest]bool // keys of the yielded locs: 16 bytes of a hash take less memory

	first feed.Cursor // cursor of the first summary, in an audit by content
	at    feed.Cursor // cursor of the newest summary, for questions
	asked bool        // whether a question was asked since the newest summary
}

// run compares both ends once.
func (a *auditor) run(ctx context.Context) (err error) {
	a.asked = false
	if a.opts.OnStart != nil {
		a.opts.OnStart()
	}
	var summary audit.Summary
	content := a.opts.By == digest.ByContent
	if content { // before own is called, so that the log after the summary names every later change
		if summary, err = a.fetchSummary(ctx, feed.Cursor{}); err != nil {
			return err
		}
		if a.first.IsZero() {
			a.first = summary.Cursor
		}
		if a.opts.Tally != nil {
			t, err := a.opts.Tally(ctx)
			if err != nil || a.prove(&t, &summary) {
				return err
			}
		}
	}
	own, err := a.own(ctx)
	if err != nil {
		return err
	}
	if own.Cursor().IsZero() {
		if content {
			return a.compareTwice(ctx, own, summary)
		}
		if t, err := own.Tally(ctx, inventory.Range{}); err != nil {
			return err
		} else if t.Count > 0 { // the zero cursor is also the start of a log, where no resource exists
			return resourcesync.Invalidf("comparing by position requires a state with a cursor")
		}
	}
	if summary, err = a.fetchSummary(ctx, own.Cursor()); err != nil {
		return err
	}
	if own, err = a.advance(ctx, own, summary.Cursor); err != nil {
		return err
	}
	return a.compare(ctx, own, summary, a.report)
}

// prove reports whether a tally equals a summary. If so, the caller gets the proof.
func (a *auditor) prove(t *digest.Tally, s *audit.Summary) bool {
	by := a.opts.By
	equal := t.Count == s.Count && t.Digest(by) == s.Digest(by)
	if equal && a.opts.OnProof != nil {
		a.opts.OnProof(audit.Proof{Set: a.set, Prefix: a.opts.Prefix, By: by, Cursor: s.Cursor, Count: t.Count, Digest: t.Digest(by)})
	}
	return equal
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

// compare calls f with each difference between a state and the hub's state of a summary.
func (a *auditor) compare(ctx context.Context, own *inventory.State, s audit.Summary, f func(audit.Difference) error) error {
	r, by := inventory.Prefix(a.opts.Prefix), a.opts.By
	t, err := own.Tally(ctx, r)
	if err != nil {
		return fmt.Errorf("audit set %q: %w", a.set, err)
	}
	if a.prove(&t, &s) {
		return nil
	}
	n := 0
	err = forEach(audit.Compare(ctx, own, by, r, a.ask), func(d audit.Difference) error { n++; return f(d) })
	if err == nil && n == 0 && by == digest.ByPosition {
		err = fmt.Errorf("audit set %q: %w", a.set, ErrInconsistent)
	}
	return err
}

func forEach(differences iter.Seq2[audit.Difference, error], f func(audit.Difference) error) error {
	for d, err := range differences {
		if err == nil {
			err = f(d)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// report yields a difference, unless its loc was yielded before.
func (a *auditor) report(d audit.Difference) error {
	e := digest.Element(d.Loc, "")
	key := digest.Digest(e[:16])
	if !a.yielded[key] && !a.yield(d, nil) {
		return errStopped
	}
	a.yielded[key] = true
	return nil
}

// compareTwice compares a state without a cursor, and checks what differs again.
func (a *auditor) compareTwice(ctx context.Context, own *inventory.State, s audit.Summary) error {
	r := &recheck{auditor: a, firstOwn: own, firstAt: s.Cursor, since: cmp.Or(a.opts.Since, a.first.String()), named: map[string]bool{}}
	err := a.compare(ctx, own, s, func(d audit.Difference) error {
		if r.candidates = append(r.candidates, d); len(r.candidates) < maxCandidates {
			return nil
		}
		return r.run(ctx)
	})
	if err == nil && len(r.candidates) > 0 {
		err = r.run(ctx)
	}
	return err
}

// A recheck checks the differences of a comparison again.
type recheck struct {
	*auditor
	firstOwn   *inventory.State // caller's state of the comparison
	firstAt    feed.Cursor      // cursor of the comparison
	candidates []audit.Difference
	since      string          // position in the log up to which named is complete
	named      map[string]bool // locs that the log has named since the comparison
	waited     bool
}

// run reports the candidates that still differ, and empties them.
func (r *recheck) run(ctx context.Context) error {
	if !r.waited {
		if err := r.opts.Sleep(ctx, r.opts.Settle); err != nil {
			return err
		}
		r.waited = true
	}
	own, err := r.own(ctx)
	if err != nil {
		return err
	}
	summary, err := r.fetchSummary(ctx, r.firstAt)
	if err != nil {
		return err
	}
	for entries, err := range r.hub.ReadUpTo(ctx, r.set, r.since, feed.Filter{Prefix: r.opts.Prefix}, summary.Cursor) {
		if err != nil {
			return err
		}
		for i := range entries {
			r.named[entries[i].Change.Loc] = true
		}
	}
	r.since = summary.Cursor.String()
	named := func(loc string) bool { return r.named[loc] }
	differences := audit.Confirm(ctx, own, r.candidates, named, r.ask)
	if own == r.firstOwn { // neither end has changed, except for what the log names
		differences = func(yield func(audit.Difference, error) bool) {
			for _, d := range r.candidates {
				if !named(d.Loc) && !yield(d, nil) {
					return
				}
			}
		}
	}
	if err := forEach(differences, r.report); err != nil {
		return err
	}
	r.candidates, r.at = nil, r.firstAt // the comparison continues at its cursor
	return nil
}

// fetchSummary requests the summary of the hub's state at a cursor, or at a later one.
func (a *auditor) fetchSummary(ctx context.Context, from feed.Cursor) (s audit.Summary, err error) {
	query := url.Values{}
	if !from.IsZero() {
		query.Set("from", from.String())
	}
	if a.opts.Prefix != "" {
		query.Set("prefix", a.opts.Prefix)
	}
	err = a.request(ctx, http.MethodGet, query, nil, maxSummary, func(r io.Reader) (err error) {
		if s, err = audit.ReadSummary(r); err == nil && (s.Set != a.set || s.Cursor.Position < from.Position) {
			err = fmt.Errorf("got a summary at %v of set %q, want set %q at %v or later", s.Cursor, s.Set, a.set, from)
		}
		return err
	})
	if err != nil {
		return s, err
	}
	a.at, a.asked = s.Cursor, false
	if a.opts.OnSummary != nil {
		a.opts.OnSummary(s)
	}
	return s, nil
}

// ask asks a question at the cursor of the newest summary. If the answer is too large for the hub, it
// asks about each half of the ranges.
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
	err = a.request(ctx, http.MethodPost, query, q.AppendJSON(nil), 2*audit.MaxReply, func(r io.Reader) (err error) {
		if reply, err = audit.ReadReply(r); err == nil && (reply.Set != a.set || reply.Cursor != q.At) {
			err = fmt.Errorf("got an answer about set %q at %v, want set %q at %v", reply.Set, reply.Cursor, a.set, q.At)
		}
		return err
	})
	return reply, err
}

// request sends a request, and calls read with at most limit bytes of the response.
func (a *auditor) request(ctx context.Context, method string, query url.Values, body []byte, limit int64, read func(io.Reader) error) error {
	ref := feed.Base("").Audit(a.set)
	if len(query) > 0 {
		ref += "?" + query.Encode()
	}
	return a.hub.Request(ctx, method, ref, body, func(r io.Reader) error {
		return read(http.MaxBytesReader(nil, io.NopCloser(r), limit)) // unlike io.LimitReader, it fails at the limit
	})
}

// FetchSummary returns a hub's summary of the resources of a set that have a prefix. It fails like
// Audit.
func FetchSummary(ctx context.Context, hub Hub, set, prefix string) (audit.Summary, error) {
	a := &auditor{hub: hub, set: set, opts: Options{Prefix: prefix}}
	return a.fetchSummary(ctx, feed.Cursor{})
}

// ErrProofMismatch means that the hub did not hold the resources that a proof states.
var ErrProofMismatch = errors.New("the hub has different resources")

// ErrInconsistent means that the hub's digest differs, but its answers show no difference.
var ErrInconsistent = errors.New("digests differ, but no difference was found")

// SubmitProof sends a proof to the hub. The hub compares it with the resources that it held at the
// proof's cursor, and shows its operators when the destination with the given name was last in sync.
// A name has 1 to 100 printable bytes. It must be unique among the destinations of the same caller
// and set.
//
// SubmitProof returns ErrProofMismatch if the hub held other resources. It returns feed.ErrGone if the
// hub can no longer check the cursor, which it can do for some minutes after the audit. Otherwise it
// fails like Audit. A hub of an earlier version refuses the proof.
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
