// Package reconcile brings a hub up to date with a source that can only list its resources: a
// directory, an export of a database, a sitemap. An audit finds what the hub does not know yet, and
// only that is published.
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

// A Listing yields all resources that a source has, in any order. The Position of each
// is its place in the list, for people. A *Gap stands for a part that the list does not
// know, and the list goes on after it. Every other error ends the list, which is then
// not whole.
type Listing func(ctx context.Context) iter.Seq2[*feed.Entry, error]

// A Gap is a part of a Listing whose content is unknown, such as a file that cannot be
// read. Nothing in the gap is deleted at the hub.
type Gap struct {
	Loc string // the resource; empty: any number of unknown resources
	Err error
}

// Error returns the text of Err.
func (g *Gap) Error() string { return g.Err.Error() }

// Unwrap returns Err.
func (g *Gap) Unwrap() error { return g.Err }

// A Hub is one set of a hub, as its source uses it. Its methods block until the hub
// has answered, and their errors end a Sync.
type Hub interface {
	// Differences compares the state of own with what the hub knows. It yields every
	// differing resource, except those that another publisher has published since
	// Differences began. It calls look with each look at the hub. After the first look it calls
	// tally; if that equals the hub's tally, there are no differences. Otherwise it calls
	// own, which must return the same state each time. The error is feed.ErrNoSet if
	// there is no such set.
	Differences(ctx context.Context, tally Tally, own auditor.Own, look func(audit.Look)) iter.Seq2[audit.Difference, error]

	// Publish publishes at most MaxBatch changes, all or none. The hub accepts the same
	// changes with the same key only once. Publish returns the cursor of the last
	// change.
	Publish(ctx context.Context, key string, changes []resourcesync.Change) (feed.Cursor, error)

	// Holds reports whether the hub's log still has the entry at a cursor, or had it
	// until retention removed it. If not, the hub has lost published changes.
	Holds(ctx context.Context, at feed.Cursor) (bool, error)

	// Make makes the set, if there is none.
	Make(ctx context.Context) error

	// Complete says that the hub knows all resources of the set.
	Complete(ctx context.Context) error
}

// A Tally returns the tally of the state that own will return. If the tally is
// unknown, because a resource may be listed several times, it returns a tally that
// cannot equal the hub's.
type Tally func(context.Context) (digest.Tally, error)

// MaxBatch is the most changes of one publish.
const MaxBatch = 1_000

// maxBatchBytes is about the most bytes of one publish.
const maxBatchBytes = 4 << 20

// Options of a Source. Zero values are the defaults.
type Options struct {
	Prefix    string // only resources whose loc begins with it are compared; the list must have no others; default: all
	MaxDelete Bound  // of the deletions of a day; default: see Bound
	Toll      *Toll  // the deletions of a day so far, which the Source goes on counting; default: none
	Dir       string // where temporary directories are made; default os.TempDir

	// Room is called before the list takes more room on the disk, with the total that it
	// then takes, and with 0 when the list is removed. Its error ends the Sync. Default:
	// there is room.
	Room func(bytes int64) error

	// Memory is called before resources are sorted, which takes some ten megabytes of
	// memory until release. It may block. Default: there is memory.
	Memory func(ctx context.Context) (release func(), err error)

	// Unknown publishes resources that cannot be compared, for example because the list
	// has only a hash and the hub only a length. By default they are left alone,
	// because the list does not show that they have changed.
	Unknown bool

	// Doubles allows the list to name a resource several times: the last entry counts,
	// and may be a deletion. By default such a list is an error.
	Doubles bool

	// Missing is called once after the list was read, if it has no gap. It returns a function
	// that is called once with each resource that would be deleted, and reports whether that
	// must not be deleted yet; MaxDelete does not count it then. whole reports whether the
	// list is whole; if not, the hub is not told that it knows all resources. Default: all
	// are deleted.
	Missing func() (keep func(loc string) bool, whole bool)

	// Dry is called with each change, instead of publishing it. Nothing at the hub is
	// changed. Its error ends the Sync.
	Dry func(*resourcesync.Change) error

	// Gap is called with each gap of the list; default: gaps are only counted.
	Gap func(*Gap)

	// Looked is called with the first look at the hub, before the list is read. It is not
	// called if there is no such set. Default: nothing is called.
	Looked func(audit.Look)

	// Planned is called before the first publish, with the planned changes; default:
	// nothing is called.
	Planned func(Result)

	// Published is called after each publish, with the number of changes; default:
	// nothing is called.
	Published func(int)

	// Counted is called when the Toll has changed, before the deletions are published. It
	// stores the Toll. Its error ends the Sync or the Update, and then they are not published.
	// Default: nothing is called.
	Counted func() error

	Now func() time.Time // default time.Now
}

// A Result is what a Sync or an Update found out and did.
type Result struct {
	Listed uint64 // resources that the list has
	Held   uint64 // resources that the hub knew before

	Created, Updated, Deleted int // published changes, or with Options.Dry the changes that would be published

	Unknown int // resources that cannot be compared, and are left alone at the hub
	Gaps    int // gaps of the list
	Kept    int // resources of the hub that are not in the list, and are not deleted because of the gaps or of Options.Missing

	Cursor   feed.Cursor // cursor of the hub's log at which list and hub were equal, except for what is counted above
	Complete bool        // the hub knows all resources of the set
}

// Changes returns the number of changes.
func (r *Result) Changes() int { return r.Created + r.Updated + r.Deleted }

// Count counts published changes. head is the cursor of the last one.
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

// A Source keeps a hub up to date. One goroutine at a time may use it.
type Source struct {
	hub     Hub
	listing Listing
	opts    Options

	// Since the last Sync.
	holding  *holding           // the list of the source
	changes  *inventory.State   // its changes, and further resources of the hub, see toKeep; nil: none
	known    *inventory.Overlay // what the hub knows about the source; nil until it is needed
	position uint64             // of the newest change in known; the Source's own numbering
	head     feed.Cursor        // the newest known cursor of the hub's log
	held     uint64             // number of resources that the hub knows
}

// New returns a Source. It does nothing until Sync. The caller closes it.
func New(hub Hub, listing Listing, o Options) *Source {
	if o.Gap == nil {
		o.Gap = func(*Gap) {}
	}
	if o.Looked == nil {
		o.Looked = func(audit.Look) {}
	}
	if o.Planned == nil {
		o.Planned = func(Result) {}
	}
	if o.Published == nil {
		o.Published = func(int) {}
	}
	if o.Room == nil {
		o.Room = func(int64) error { return nil }
	}
	if o.Memory == nil {
		o.Memory = func(context.Context) (func(), error) { return func() {}, nil }
	}
	if o.Toll == nil {
		o.Toll = new(Toll)
	}
	if o.Counted == nil {
		o.Counted = func() error { return nil }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Source{hub: hub, listing: listing, opts: o}
}

// batch returns a Batch that counts deletions.
func (s *Source) batch(head feed.Cursor) *Batch {
	b := NewBatch(s.hub, head, s.sent)
	b.sending = s.sending
	return b
}

func deletions(changes []resourcesync.Change) uint64 {
	var r Result
	r.Count(feed.Cursor{}, changes)
	return uint64(r.Deleted)
}

// sending counts deletions before they are published: otherwise a run after a crash could
// delete as many again.
func (s *Source) sending(head feed.Cursor, changes []resourcesync.Change) error {
	deleted := deletions(changes)
	if deleted == 0 {
		return nil
	}
	s.opts.Toll.countUnsure(s.opts.MaxDelete, deleted, s.held, s.opts.Now(), head)
	if err := s.opts.Counted(); err != nil {
		return fmt.Errorf("keep how many resources are deleted: %w", err)
	}
	return nil
}

func (s *Source) sent(_ feed.Cursor, changes []resourcesync.Change) error {
	s.opts.Published(len(changes))
	if deleted := deletions(changes); deleted > 0 {
		s.opts.Toll.Unsure = nil
		s.held -= min(deleted, s.held)
	}
	return nil
}

// Close removes the Source's files.
func (s *Source) Close() error {
	h := s.holding
	s.holding, s.changes, s.known = nil, nil, nil
	return h.close()
}
