package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/audit"
	"github.com/rshub/rshub/internal/inventory/auditor"
	"github.com/rshub/rshub/internal/inventory/digest"
)

// A DifferenceKind is the kind of a Difference.
type DifferenceKind string

// Kinds of differences.
const (
	Missing DifferenceKind = "missing" // the hub has the resource, the caller does not
	Stale   DifferenceKind = "stale"   // the caller has another version
	Extra   DifferenceKind = "extra"   // the caller has the resource, the hub does not
	Unknown DifferenceKind = "unknown" // both have the resource, but no comparable information about it
)

// A Difference is a resource that differs between the caller and the hub.
type Difference struct {
	Kind DifferenceKind
	Loc  string
	Own  *feed.Entry // the caller's resource; nil if it has none
	Hub  *feed.Entry // the hub's resource; nil if it has none; only Loc and Position are set if the hub gives no details
}

// A Comparison selects what an audit compares of a resource.
type Comparison string

// Comparisons.
const (
	// ByPosition compares the positions of the newest changes. If nothing differs, every change was
	// applied.
	ByPosition Comparison = "position"

	// ByContent compares the hash if it is known, and otherwise lastmod and length. If nothing
	// differs, both sides have the same content, however they obtained it.
	ByContent Comparison = "content"
)

// A Proof states that the caller and the hub held the same resources of a set at a cursor.
type Proof struct {
	Set    string
	Prefix string // prefix of the loc of all compared resources
	By     Comparison
	Cursor feed.Cursor
	Count  uint64 // number of resources
	Digest string // digest of the resources; docs/audit.md defines it
}

// AuditOptions configures an audit. The zero value uses the defaults.
type AuditOptions struct {
	Prefix string // prefix of the loc of the resources to compare; default: all resources, or the replica's

	// Settle is for Client.Audit: the time to wait before it checks differences again. The default
	// is 5 s.
	Settle time.Duration

	// Since is for Client.Audit: the position in the hub's log, a cursor or a datetime, at which
	// the caller started to collect its resources. Resources that the log names after this position
	// are not reported. The default is the time of the call.
	Since string

	// Store is for Client.Audit: the store for the caller's resources. Only one audit at a time may
	// use it. The default is memory.
	Store Store

	// By is for Replica.Audit. The default is ByPosition.
	By Comparison

	// OnProof is called at most once, if the caller's resources with the Prefix have the hub's
	// digest at the same cursor. The caller may pass the proof to Client.SubmitProof. An audit by
	// content may yield nothing without a proof, because equal contents can have versions of
	// different kinds. The default is nil.
	OnProof func(Proof)
}

// Audit compares the caller's resources with the hub's resources of a set by content. It yields
// each difference once, in no order. If it ends without an error and yields nothing, both sides
// have the same resources. If they are equal, the audit takes one small request; with a few
// differences among a million resources, it takes four.
//
// own yields the caller's resources in any order, each loc once, with what is known of their
// content: hash, lastmod or length. They need not come from the log, but may come from a directory
// or a database. Since the hub may not have received all changes yet, Audit checks differences
// again after Settle. For that it iterates over own again for each 10,000 differences, and starts
// from scratch if the hub drops the state that it compares with. It yields only differences that
// are unchanged, and whose resources the log has not named since Since.
//
// While the hub is unavailable, Audit retries as Publish does. An error is the last thing that it
// yields: an *UnavailableError, a *RefusedError, ErrNotHub, ctx's error, or an error of own. It is
// feed.ErrNoInventory if the hub has only changes of the set, and no inventory.
func (c *Client) Audit(ctx context.Context, set string, own iter.Seq2[*feed.Entry, error], o AuditOptions) iter.Seq2[Difference, error] {
	return func(yield func(Difference, error) bool) {
		pages, err := inventoryStore(o.Store)
		if err != nil {
			yield(Difference{}, fmt.Errorf("audit set %q: %w", set, err))
			return
		}
		o.By = ByContent
		l := &ownList{pages: pages, set: set, resources: own}
		to := o.auditorOptions()
		to.OnStart = l.resetStates
		c.auditState(ctx, set, l.collectState, to)(yield)
	}
}

// An ownList collects the caller's resources for an audit, whenever the audit needs their state.
type ownList struct {
	pages     inventory.Store
	set       string
	resources iter.Seq2[*feed.Entry, error]
	collected bool // whether the first state of the comparison was collected
}

// resetStates makes the next state the first one of a comparison.
func (l *ownList) resetStates() { l.collected = false }

// collectState collects a new state. It replaces the previous one, but not the first one after
// resetStates: a comparison reads the first state until its end, while it checks differences with
// later states.
func (l *ownList) collectState(ctx context.Context) (*inventory.State, error) {
	name := l.set + "~own"
	if l.collected {
		name += "~later"
	}
	l.collected = true
	return inventory.Collect(ctx, l.pages, name, l.resources)
}

// auditorOptions converts o to the options of package auditor.
func (o AuditOptions) auditorOptions() auditor.Options {
	to := auditor.Options{Prefix: o.Prefix, By: digest.By(o.By), Since: o.Since, Settle: o.Settle}
	if o.OnProof != nil {
		to.OnProof = func(p audit.Proof) {
			o.OnProof(Proof{p.Set, p.Prefix, Comparison(p.By), p.Cursor, p.Count, p.Digest.String()})
		}
	}
	return to
}

// auditState yields the differences between a state and the hub's resources.
func (c *Client) auditState(ctx context.Context, set string, own auditor.StateFunc, o auditor.Options) iter.Seq2[Difference, error] {
	o.Sleep = c.opts.Sleep
	return func(yield func(Difference, error) bool) {
		for d, err := range auditor.Audit(ctx, c, set, own, o) {
			if errors.Is(err, auditor.ErrInconsistent) {
				err = notHubError(fmt.Sprintf("%s: got no differences, but another digest", c.base.Audit(set)))
			}
			if !yield(Difference{DifferenceKind(d.Kind), d.Loc, d.Own, d.Theirs}, err) {
				return
			}
		}
	}
}

// ErrProofMismatch means that the hub did not hold the resources that a proof states.
var ErrProofMismatch = auditor.ErrProofMismatch

// SubmitProof sends a proof to the hub. The hub compares it with the resources that it held at the
// proof's cursor, and shows its operators when the destination with the given name was last in
// sync. A name has 1 to 100 printable bytes. It must be unique among the destinations of the same
// caller and set.
//
// While the hub is unavailable, SubmitProof retries as Publish does. It returns ErrProofMismatch if
// the hub held other resources. It returns feed.ErrGone if the hub can no longer check the cursor,
// which it can do for some minutes after the audit. Otherwise it fails like Audit. A hub of
// an earlier version refuses the proof.
func (c *Client) SubmitProof(ctx context.Context, name string, p Proof) error {
	d, err := digest.Parse(p.Digest)
	if err != nil {
		return err
	}
	return auditor.SubmitProof(ctx, c, name, audit.Proof{Set: p.Set, Prefix: p.Prefix, By: digest.By(p.By), Cursor: p.Cursor, Count: p.Count, Digest: d})
}
