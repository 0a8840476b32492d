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

// A Kind says how a resource differs.
type Kind string

// The kinds of differences.
const (
	Missing Kind = "missing" // the hub has the resource, the caller does not
	Stale   Kind = "stale"   // the caller has another version
	Extra   Kind = "extra"   // the caller has the resource, the hub does not
	Unknown Kind = "unknown" // both have the resource, but nothing about it can be compared
)

// A Difference is a resource by which the caller and the hub differ.
type Difference struct {
	Kind Kind
	Loc  string
	Own  *feed.Entry // resource of the caller; nil if it has none
	Hub  *feed.Entry // resource of the hub; nil if it has none. If the hub gives no details, it has only Loc and Position
}

// By says which version of a resource an audit compares.
type By string

// The versions.
const (
	// ByPosition compares the positions of the newest changes. If nothing differs, every change
	// was applied.
	ByPosition By = "position"

	// ByContent compares what is known of the content: a hash, else lastmod and length. If
	// nothing differs, both have the same content, no matter how they got it.
	ByContent By = "content"
)

// A Proof is what the caller held of a set at a cursor, when the hub held the same.
type Proof struct {
	Set    string
	Prefix string // of the loc of all compared resources
	By     By
	Cursor feed.Cursor
	Count  uint64 // resources
	Digest string // of the resources; docs/audit.md defines it
}

// AuditOptions configures an audit. The zero value uses the defaults.
type AuditOptions struct {
	Prefix string // only resources whose loc starts with it; default: all

	// Settle is how long Client.Audit waits before it checks differences again. Default 5 s.
	Settle time.Duration

	// Since is for Client.Audit: the place in the hub's log, a cursor or a datetime, at which
	// the caller started to collect its resources. Resources that the log names after this
	// place are not reported. Default: the moment at which Audit is called.
	Since string

	// Store is for Client.Audit: where it collects the caller's resources. One audit at a time
	// may use it. Default: memory.
	Store Store

	// By is for Replica.Audit. Default ByPosition.
	By By

	// Proved is called at most once, if the caller's resources within Prefix have the hub's
	// digest at one cursor. The caller may pass the proof to Client.Tell. An audit by content
	// may yield nothing without a proof, because equal contents can have versions of
	// different kinds. Default: nothing is called.
	Proved func(Proof)
}

// Audit compares the caller's resources with what the hub knows of a set, by content. It yields
// each difference once, in no order. If it ends without an error and yields nothing, both have
// the same resources. If both are equal, this takes one small request; a few differences among
// a million resources take four.
//
// own yields the caller's resources, in any order, each loc once, with what is known of their
// content: hash, lastmod or length. The caller does not need the log for
// them: they may come from a directory or a database. Changes may be on their way to the hub, so
// Audit checks the differences again, after Settle. For that it iterates over own once more for
// each 10,000 differences, and from scratch if the hub drops the state that it compares with. It
// yields only differences that are unchanged, and whose resources the log has not named since
// Since.
//
// Audit tries again as Publish does when the hub cannot be reached. An error is the last thing
// that it yields: an *Unavailable, a *Refused, an ErrNoHub, ctx's error, or an error of own. It
// is feed.ErrNoInventory if the hub knows no resources of the set, only changes.
func (c *Client) Audit(ctx context.Context, set string, own iter.Seq2[*feed.Entry, error], o AuditOptions) iter.Seq2[Difference, error] {
	return func(yield func(Difference, error) bool) {
		pages, err := pagesOf(o.Store)
		if err != nil {
			yield(Difference{}, fmt.Errorf("audit set %q: %w", set, err))
			return
		}
		o.By = ByContent
		l := &ownList{pages: pages, set: set, resources: own}
		to := o.auditor()
		to.Begin = l.begin
		c.audit(ctx, set, l.state, to)(yield)
	}
}

// An ownList collects the caller's resources for an audit, each time that it needs them.
type ownList struct {
	pages     inventory.Store
	set       string
	resources iter.Seq2[*feed.Entry, error]
	later     bool // the first state of the comparison is collected
}

func (l *ownList) begin() { l.later = false }

// state returns a new state. It replaces the last one, but not the first after begin: a
// comparison reads that until its end, while it checks differences with later states.
func (l *ownList) state(ctx context.Context) (*inventory.State, error) {
	name := l.set + "~own"
	if l.later {
		name += "~later"
	}
	l.later = true
	return inventory.Collect(ctx, l.pages, name, l.resources)
}

// auditor returns the options with which package auditor does the same.
func (o AuditOptions) auditor() auditor.Options {
	to := auditor.Options{Prefix: o.Prefix, By: digest.By(o.By), Since: o.Since, Settle: o.Settle}
	if o.Proved != nil {
		to.Proved = func(p audit.Proof) {
			o.Proved(Proof{p.Set, p.Prefix, By(p.By), p.Cursor, p.Count, p.Digest.String()})
		}
	}
	return to
}

// audit yields the differences between a state and what the hub knows.
func (c *Client) audit(ctx context.Context, set string, own auditor.Own, o auditor.Options) iter.Seq2[Difference, error] {
	o.Sleep = c.opts.Sleep
	return func(yield func(Difference, error) bool) {
		for d, err := range auditor.Audit(ctx, c, set, own, o) {
			if errors.Is(err, auditor.ErrInconsistent) {
				err = strange(fmt.Sprintf("%s shows no difference, and another digest", c.base.Audit(set)))
			}
			if !yield(Difference{Kind(d.Kind), d.Loc, d.Own, d.Theirs}, err) {
				return
			}
		}
	}
}

// ErrOther means that a hub does not hold what a proof says.
var ErrOther = auditor.ErrOther

// Tell tells a hub that a destination has proved to hold the same. The hub compares the
// proof with what it held at that cursor, and shows its operators when the destination of
// that name was last equal. A name has 1 to 100 bytes, printable; destinations of the same
// caller and set have different names.
//
// Tell tries again as Publish does when the hub cannot be reached. It returns ErrOther if
// the hub held something else. It returns feed.ErrGone if the hub can no longer check that
// cursor, which it can for some minutes after the audit. Otherwise it
// returns the errors of Audit; a hub of an earlier version refuses it.
func (c *Client) Tell(ctx context.Context, name string, p Proof) error {
	d, err := digest.Parse(p.Digest)
	if err != nil {
		return err
	}
	return auditor.Tell(ctx, c, name, audit.Proof{Set: p.Set, Prefix: p.Prefix, By: digest.By(p.By), Cursor: p.Cursor, Count: p.Count, Digest: d})
}
