// Package reconcile makes a hub know what a source has. The source only has to list its
// resources: a directory, an export of a database, a sitemap. Package reconcile finds out
// by an audit what the hub does not know yet, and publishes just that.
//
// What a broken list does not name must not be deleted at the hub. So a list that ends
// with an error publishes nothing, what a list has to leave open (see Gap) is not deleted,
// and a Bound holds for all that would be deleted.
package reconcile

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/rshub/rshub/client"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/inventory"
	"github.com/rshub/rshub/inventory/audit"
	"github.com/rshub/rshub/inventory/digest"
	"github.com/rshub/rshub/resourcesync"
)

// A Listing yields all resources that a source has, in any order. The Position of each
// tells people where in the list it is. What the list cannot say is a *Gap, and the list
// goes on after it. Every other error ends the list, and then the list is not whole.
type Listing func(ctx context.Context) iter.Seq2[*feed.Entry, error]

// A Gap is a part of a Listing of which the source cannot say what is there, such as a file
// that cannot be read. Nothing in the gap is deleted at the hub.
type Gap struct {
	Loc string // the resource; empty: there may be any number of resources, of any loc
	Err error
}

// Error returns the text of Err.
func (g *Gap) Error() string { return g.Err.Error() }

// Unwrap returns Err.
func (g *Gap) Unwrap() error { return g.Err }

// A Hub is one set of a hub, seen by its source. Its methods block until the hub has
// answered, and their errors end a Sync.
type Hub interface {
	// Differences compares what own returns with what the hub knows, and yields every
	// resource that differs and that nobody has published since Differences began. It calls
	// look with each look at the hub. After the first it asks tally, and if the hub holds
	// the same, there are no differences. Else it asks own, which returns the same state
	// each time. The error is feed.ErrNoSet if there is no such set.
	Differences(ctx context.Context, tally Tally, own client.Own, look func(audit.Look)) iter.Seq2[audit.Difference, error]

	// Publish publishes at most MaxBatch changes, all or none. The same changes with the
	// same key are published once. It returns the cursor of the last change.
	Publish(ctx context.Context, key string, changes []resourcesync.Change) (feed.Cursor, error)

	// Holds reports whether the hub's log still has the entry at a cursor, or had it until
	// retention removed it. If not, the hub lost what was published to it.
	Holds(ctx context.Context, at feed.Cursor) (bool, error)

	// Make makes the set, if there is none.
	Make(ctx context.Context) error

	// Complete says that the hub knows all resources of the set.
	Complete(ctx context.Context) error
}

// A Tally returns the tally of what own will return. If that is not known, because a
// resource may have been listed several times, it returns the tally of something else.
type Tally func(context.Context) (digest.Tally, error)

// MaxBatch is how many changes are published together at most.
const MaxBatch = 1_000

// maxBatchBytes is how many bytes of changes are published together, about.
const maxBatchBytes = 4 << 20

// Options of a Source. Zero values are the defaults.
type Options struct {
	Prefix    string // the list and the hub are compared only below it; the list has nothing else; default: everywhere
	MaxDelete Bound  // of what is deleted within a day; default: see Bound
	Toll      *Toll  // what was deleted within a day; the Source counts on; default: nothing was
	Dir       string // where temporary directories are made; default os.TempDir

	// Room is called before the list takes more room on the disk, with all that it takes by
	// then, and with 0 when it takes none any more. Its error ends the Sync. Default: there
	// is room.
	Room func(bytes int64) error

	// Memory is called before resources are sorted, which takes some ten megabytes of memory
	// until release. It may wait. Default: there is memory.
	Memory func(ctx context.Context) (release func(), err error)

	// Unknown has a resource published of which list and hub say nothing that can be
	// compared, for example the one only a hash and the other only a length. By default
	// such a resource stays as it is: the list does not show that it has changed.
	Unknown bool

	// Doubles allows the list to name a resource several times: the last time counts, and it
	// may be a deletion. By default such a list is an error.
	Doubles bool

	// Missing is called with what would be deleted, if MaxDelete allows it. It returns which
	// of it must not be deleted yet; that is kept. It also says whether the list is whole: if
	// not, the hub is not told that it knows all resources. Default: nothing is kept.
	Missing func(locs []string) (keep []string, whole bool)

	// Dry is called with each change, instead of publishing it. Nothing at the hub is
	// changed. Its error ends the Sync.
	Dry func(*resourcesync.Change) error

	// Gap is called with each gap of the list; default: gaps are only counted.
	Gap func(*Gap)

	// Looked is called with the first look at the hub, before the list is read. It is not
	// called if there is no such set. Default: nobody is told.
	Looked func(audit.Look)

	// Planned is called before anything is published, with what will be; default: nobody is told.
	Planned func(Result)

	// Published is called when changes were published, with how many; default: nobody is told.
	Published func(int)

	// Counted is called when the Toll has changed. Its error ends the Sync or the Update;
	// default: nobody keeps it.
	Counted func() error

	Now func() time.Time // default time.Now
}

// A Result is what a Sync or an Update found out and did.
type Result struct {
	Listed uint64 // resources that the list has
	Held   uint64 // resources that the hub knew before

	Created, Updated, Deleted int // changes: published, or, with Options.Dry, to be published

	Unknown int // resources that cannot be compared, and stay as they are at the hub
	Gaps    int // what the list left open
	Kept    int // resources of the hub that are not in the list, and are not deleted because of the gaps

	Cursor   feed.Cursor // of the hub's log: the list and the hub were the same there, but for what is counted above
	Complete bool        // the hub knows all resources of the set
}

// Changes returns the number of changes.
func (r *Result) Changes() int { return r.Created + r.Updated + r.Deleted }

// A Source keeps a hub up to date. One goroutine at a time may use it.
type Source struct {
	hub     Hub
	listing Listing
	opts    Options

	// Since the last Sync.
	holding  *holding           // what the source has
	kept     []feed.Entry       // what the hub has besides, see Result.Kept
	known    *inventory.Overlay // what the hub knows of the source; nil until it is needed
	position uint64             // of the newest change in known: a number of our own
	head     feed.Cursor        // the newest cursor of the hub's log that is known
	held     uint64             // resources that the hub knows
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

// sent takes in what was published.
func (s *Source) sent(changes []resourcesync.Change) error {
	s.opts.Published(len(changes))
	deleted := uint64(0)
	for i := range changes {
		if changes[i].Change == resourcesync.Deleted {
			deleted++
		}
	}
	if deleted == 0 {
		return nil
	}
	s.opts.Toll.Count(s.opts.MaxDelete, deleted, s.held, s.opts.Now())
	s.held -= min(deleted, s.held)
	if err := s.opts.Counted(); err != nil {
		return fmt.Errorf("keep how many resources were deleted: %w", err)
	}
	return nil
}

// Close removes what the Source keeps on the disk.
func (s *Source) Close() error {
	h := s.holding
	s.holding, s.kept, s.known = nil, nil, nil
	return h.close()
}
