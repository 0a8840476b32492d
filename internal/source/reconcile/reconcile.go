// Package reconcile brings a hub up to date with a source that can only list its resources, such as
// a directory, a database export or a sitemap. An audit finds what differs, and only that is
// published.
//
// A broken list must not cause deletions at the hub. So nothing is published after a list that ends
// with an error, nothing is deleted in the gaps of a list (see Gap), and a Bound limits all
// deletions.
//
// The package reads no source: packages directory and harvest do.
package reconcile

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/audit"
	"github.com/rshub/rshub/internal/inventory/auditor"
	"github.com/rshub/rshub/internal/inventory/digest"
	"github.com/rshub/rshub/resourcesync"
)

// A Listing yields all resources of a source, in any order. The Position of each is its place in
// the list, for messages. A *Gap stands for a part that could not be listed; the sequence continues
// after it. Every other error ends the sequence, and the list is then incomplete.
type Listing func(ctx context.Context) iter.Seq2[*feed.Entry, error]

// A Gap is a part of a Listing whose content is unknown, such as an unreadable file. Nothing in the
// gap is deleted at the hub.
type Gap struct {
	Loc string // the resource; empty means any number of unknown resources
	Err error
}

// Error returns the text of Err.
func (g *Gap) Error() string { return g.Err.Error() }

// Unwrap returns Err.
func (g *Gap) Unwrap() error { return g.Err }

// A Hub is one set of a hub, as its source uses it. Its methods block until the hub has answered.
// Their errors end a Sync.
type Hub interface {
	// Differences compares the state that own returns with what the hub knows. It yields every
	// resource that differs, except those that another publisher has published since Differences
	// started. It calls look with each state of the hub that it examines. After the first one it
	// calls tally; if the result equals the hub's tally, there are no differences. Otherwise it
	// calls own, which must return the same state each time. The error is feed.ErrNoSet if the set
	// does not exist.
	Differences(ctx context.Context, tally TallyFunc, own auditor.StateFunc, look func(audit.Summary)) iter.Seq2[audit.Difference, error]

	// Publish publishes at most MaxBatch changes, all or none. The hub accepts the same changes
	// with the same key only once. Publish returns the cursor of the last change.
	Publish(ctx context.Context, key string, changes []resourcesync.Change) (feed.Cursor, error)

	// HasCursor reports whether the hub's log still has the entry at a cursor, or had it until
	// retention removed it. If not, the hub has lost published changes.
	HasCursor(ctx context.Context, at feed.Cursor) (bool, error)

	// Create creates the set, if it does not exist.
	Create(ctx context.Context) error

	// SetComplete tells the hub that it knows all resources of the set.
	SetComplete(ctx context.Context) error
}

// A TallyFunc returns the tally of the state that own will return. If the tally is unknown, because
// a resource may be listed several times, it returns one that cannot equal the hub's.
type TallyFunc func(context.Context) (digest.Tally, error)

// MaxBatch is the maximum number of changes in one publish.
const MaxBatch = 1_000

// maxBatchBytes is the approximate maximum size of one publish.
const maxBatchBytes = 4 << 20

// Options configures a Source. Zero values are the defaults.
type Options struct {
	Prefix    string     // compare only resources whose loc has this prefix; the list must have no others; default: all
	MaxDelete Bound      // limit of the deletions of a day; default: see Bound
	Deletions *Deletions // deletions of the day so far, which the Source updates; default: none
	Dir       string     // directory of temporary directories; default: os.TempDir

	// ReserveDisk is called before the list uses more disk space, with the new total, and with 0
	// when the list is removed. Its error ends the Sync. Default: space is not limited.
	ReserveDisk func(bytes int64) error

	// ReserveMemory is called before resources are sorted, which needs some ten megabytes of memory
	// until release is called. It may block. Default: memory is not limited.
	ReserveMemory func(ctx context.Context) (release func(), err error)

	// PublishUnknown publishes resources that cannot be compared, for example because the list has
	// only a hash and the hub only a length. By default they are left alone, because the list does
	// not show that they have changed.
	PublishUnknown bool

	// AllowDuplicates allows the list to name a resource several times. The last entry counts, and
	// may be a deletion. By default such a list is an error.
	AllowDuplicates bool

	// KeepMissing is called once after the list was read, if it has no gap. It returns the function
	// keep, which is called once with each resource that would be deleted and reports whether it
	// must not be deleted yet; MaxDelete then does not count it. whole reports whether the list is
	// complete; if not, the hub is not told that it knows all resources. Default: all missing
	// resources are deleted.
	KeepMissing func() (keep func(loc string) bool, whole bool)

	// DryRun is called with each change instead of publishing it. Nothing at the hub is changed.
	// Its error ends the Sync.
	DryRun func(*resourcesync.Change) error

	// Gap is called with each gap of the list. Default: gaps are only counted.
	Gap func(*Gap)

	// OnAudit is called with the first state of the hub, before the list is read. It is not called
	// if the set does not exist. Default: not called.
	OnAudit func(audit.Summary)

	// OnPlan is called before the first publish, with the planned changes. Default: not called.
	OnPlan func(Result)

	// OnPublish is called after each publish, with the number of changes. Default: not called.
	OnPublish func(int)

	// SaveDeletions is called when Deletions has changed, before the deletions are published. It
	// stores Deletions. Its error ends the Sync or the Update, and the deletions are not published.
	// Default: not called.
	SaveDeletions func() error

	Now func() time.Time // default: time.Now
}

// A Result is the outcome of a Sync or an Update.
type Result struct {
	Listed uint64 // number of resources in the list
	Held   uint64 // number of resources that the hub knew before

	Created, Updated, Deleted int // published changes; with Options.DryRun, changes that would be published

	Unknown int // resources that cannot be compared, and were left alone at the hub
	Gaps    int // number of gaps in the list
	Kept    int // resources of the hub that are not in the list but are not deleted, because of gaps or Options.KeepMissing

	Cursor   feed.Cursor // cursor of the hub's log at which list and hub were equal, except for what is counted above
	Complete bool        // whether the hub knows all resources of the set
}

// Changes returns the number of changes.
func (r *Result) Changes() int { return r.Created + r.Updated + r.Deleted }

// Count adds published changes. head is the cursor of the last one.
func (r *Result) Count(head feed.Cursor, changes []resourcesync.Change) {
	r.Cursor = head
	for i := range changes {
		switch changes[i].Change {
		case resourcesync.Created:
			r.Created++
		case resourcesync.Updated:
			r.Updated++
		case resourcesync.Deleted:
			r.Deleted++
		}
	}
}

// A Source keeps a hub up to date. It is not safe for concurrent use.
type Source struct {
	hub     Hub
	listing Listing
	opts    Options

	// State since the last Sync.
	list     *localList         // the source's list; nil before the first Sync
	changes  *inventory.State   // its changes, and resources that the hub keeps, see toKeep, or nil
	hubState *inventory.Overlay // what the hub knows about the source; nil until it is needed
	position uint64             // of the newest change in hubState, in the Source's own numbering
	head     feed.Cursor        // newest known cursor of the hub's log
	hubCount uint64             // number of resources that the hub knows
}

// New returns a Source. It does nothing until Sync is called. The caller must call Close.
func New(hub Hub, listing Listing, o Options) *Source {
	if o.Gap == nil {
		o.Gap = func(*Gap) {}
	}
	if o.OnAudit == nil {
		o.OnAudit = func(audit.Summary) {}
	}
	if o.OnPlan == nil {
		o.OnPlan = func(Result) {}
	}
	if o.OnPublish == nil {
		o.OnPublish = func(int) {}
	}
	if o.ReserveDisk == nil {
		o.ReserveDisk = func(int64) error { return nil }
	}
	if o.ReserveMemory == nil {
		o.ReserveMemory = func(context.Context) (func(), error) { return func() {}, nil }
	}
	if o.Deletions == nil {
		o.Deletions = new(Deletions)
	}
	if o.SaveDeletions == nil {
		o.SaveDeletions = func() error { return nil }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Source{hub: hub, listing: listing, opts: o}
}

// batch returns a Batch that counts deletions.
func (s *Source) batch(head feed.Cursor) *Batch {
	b := NewBatch(s.hub, head, s.afterSend)
	b.beforeSend = s.beforeSend
	return b
}

func deletions(changes []resourcesync.Change) uint64 {
	var r Result
	r.Count(feed.Cursor{}, changes)
	return uint64(r.Deleted)
}

// beforeSend counts deletions before they are published. Otherwise, a run after a crash could
// delete as many again.
func (s *Source) beforeSend(head feed.Cursor, changes []resourcesync.Change) error {
	deleted := deletions(changes)
	if deleted == 0 {
		return nil
	}
	s.opts.Deletions.addUnconfirmed(s.opts.MaxDelete, deleted, s.hubCount, s.opts.Now(), head)
	if err := s.opts.SaveDeletions(); err != nil {
		return fmt.Errorf("store the number of deletions: %w", err)
	}
	return nil
}

func (s *Source) afterSend(_ feed.Cursor, changes []resourcesync.Change) error {
	s.opts.OnPublish(len(changes))
	if deleted := deletions(changes); deleted > 0 {
		s.opts.Deletions.Unconfirmed = nil
		s.hubCount -= min(deleted, s.hubCount)
	}
	return nil
}

// Close removes the Source's files.
func (s *Source) Close() error {
	h := s.list
	s.list, s.changes, s.hubState = nil, nil, nil
	return h.close()
}
