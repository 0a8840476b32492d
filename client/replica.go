package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/inventory/auditor"
	"github.com/rshub/rshub/resourcesync"
)

// ReplicaOptions configures a Replica. The zero value uses the defaults.
type ReplicaOptions struct {
	// Store holds the bookkeeping of the Replica; package client/disk opens one in a directory.
	// The caller closes it after the last use of the Replica. One Store may be of Replicas of
	// several sets. Default: memory, so the next process starts with a baseline.
	Store Store

	// Prefix: only resources whose loc begins with it. It must be the same as long as Store
	// is: what a wider one adds is not fetched, and only Audit shows that. Default: all.
	Prefix string

	// Collection is a URI: only resources whose newest change has a link rel=collection to
	// it. A resource that leaves the collection is yielded as deleted. Store has all
	// resources of the set all the same, because only so the Replica notices that one
	// leaves, and can audit itself. Default: all.
	Collection string

	// Holds reports whether the destination holds a resource, also one that it did not get
	// from the Replica, such as one of the source's own list. With a Collection, the Replica
	// asks this about resources outside. If the destination holds one, it is yielded as
	// deleted. Default: the destination holds what the Replica has yielded.
	Holds func(loc string) (bool, error)

	// MaxDelete is how many resources a baseline may delete, because it does not name
	// them. If it would delete more, Follow ends with a *TooManyDeleted before anything
	// is changed. This protects the destination from a source that was emptied by
	// mistake. Deletions that the source publishes as changes do not count. Default: ten,
	// or a tenth of what the destination holds, whichever is more. Below 0: any number.
	MaxDelete int

	// MayDelete decides instead of MaxDelete. It is called before a baseline deletes some
	// of the resources that the destination holds. If it returns an error, Follow ends
	// with this error before anything is changed.
	MayDelete func(deleted, held uint64) error

	// Begins is called before a baseline changes anything at the destination, and again when
	// an interrupted baseline goes on. If it returns an error, Follow ends with this error.
	// Default: nothing is called.
	Begins func() error
}

// A TooManyDeleted says that a baseline would delete more than ReplicaOptions.MaxDelete
// allows. Nothing was changed, neither at the destination nor in the Replica. If
// the deletion is intended, open the Replica with a greater MaxDelete; it then goes on
// where it was.
type TooManyDeleted struct {
	Delete uint64 // resources that the destination holds and the baseline does not name
	Held   uint64 // resources that the destination held before the baseline
	Most   uint64 // how many may be deleted
}

func (e *TooManyDeleted) Error() string {
	return fmt.Sprintf("the baseline does not name %d of the %d resources that the destination holds, and at most %d may be deleted; nothing was deleted. If the set has really lost them, allow it with ReplicaOptions.MaxDelete",
		e.Delete, e.Held, e.Most)
}

// A Replica is the inventory that a destination keeps of itself: which resources of a set
// it holds, each with the newest change that it has applied. With it a destination
// follows a set without handling baselines itself, and can prove that it is in sync: see
// Audit.
//
// Several goroutines may use a Replica, but only one at a time may be in Follow or CatchUp.
type Replica struct {
	client *Client
	set    string
	opts   ReplicaOptions

	own      *inventory.Inventory
	baseline *inventory.Inventory // the baseline that is being read

	working sync.Mutex // held by Follow and CatchUp
	looked  time.Time  // when the hub was last asked whether it knows all resources; the holder of working may use it

	mu        sync.Mutex // held to look at these or to change them
	root      inventory.Root
	overlay   *inventory.Overlay // the changes that were applied after root
	cursor    feed.Cursor        // the destination has applied the log up to here; zero: it is between two cursors
	whole     bool               // no baseline is missing or half applied
	more      bool               // the destination holds resources that the last baseline did not name, because the hub did not know all; stored as a Head that is not Complete
	committed time.Time          // when root was made
}

// When the changes of a Replica are committed into its tree.
const (
	commitEach   = 1 << 10  // bytes that a commit may write for each change
	commitBytes  = 32 << 20 // of changes that wait in memory
	commitAfter  = time.Minute
	commitSoon   = time.Second
	baselinePage = 5_000  // resources in one page of a baseline
	updateSize   = 2_000  // the most entries of an update in a baseline
	gathered     = 50_000 // entries in one update when the destination is far behind, so that it can skip overtaken ones
	lookEvery    = time.Hour
	pinned       = time.Hour
)

// OpenReplica opens the Replica of a set. If it is new it holds nothing, and Follow starts with
// a baseline. OpenReplica sends no request.
func (c *Client) OpenReplica(ctx context.Context, set string, o ReplicaOptions) (*Replica, error) {
	if err := feed.CheckSet(set); err != nil {
		return nil, err
	}
	store, err := pagesOf(o.Store)
	if err != nil {
		return nil, fmt.Errorf("open the replica: %w", err)
	}
	cache := inventory.NewCache(4 << 20)
	r := &Replica{
		client: c, set: set, opts: o,
		own:      inventory.New(store, set, inventory.Options{Cache: cache}),
		baseline: inventory.New(store, set+"~baseline", inventory.Options{Cache: cache}),
	}
	_, head, err := r.own.Load(ctx)
	if err != nil {
		return nil, fmt.Errorf("open the replica: %w", err)
	}
	r.reach(head.Newest())
	r.cursor = r.root.Cursor
	r.whole = !r.cursor.IsZero()
	r.more = head.Complete.IsZero()
	return r, nil
}

// reach sets the newest root. The caller holds r.mu.
func (r *Replica) reach(root inventory.Root) {
	r.root, r.committed = root, r.client.opts.Now()
	r.overlay = inventory.NewOverlay(r.own.Tree(root))
}

// An Update says what a destination has to do next. For each entry it fetches the
// resource if it was created or updated, and removes the resource if it was deleted.
type Update struct {
	Entries  []feed.Entry
	Cursor   feed.Cursor // the cursor of the destination after the update; zero: a baseline is not over
	Baseline bool        // the entries come from the comparison with a baseline, not from the log
	Complete bool        // the baseline is over, and the hub knew all resources
}

// Follow yields what the destination has to do, update by update, and blocks while there
// is nothing. The destination applies an update before it asks for the next one; asking
// means that the update was applied. An update that is not applied comes again at the
// next Follow. After a crash some that were applied may come again, too.
//
// Follow begins with a baseline, and takes another one whenever the hub's log does not
// reach back far enough or has lost entries. From a baseline it yields only resources
// that the destination does not hold in their newest version. At the end it yields as
// deleted the resources that the destination holds and the baseline does not name, but
// only if the hub knows all resources (see also MaxDelete). If the hub does not, the
// destination keeps these resources. Follow then asks the hub, at its beginning and each
// hour, whether it now knows all resources, and if so takes another baseline. An
// interrupted baseline goes on where it was, also in another process.
//
// An error is the last thing that Follow yields. It is one of Baseline or of the Store, a
// *TooManyDeleted, or one of MayDelete or Begins.
// When ctx is done, Follow ends without an error.
func (r *Replica) Follow(ctx context.Context) iter.Seq2[*Update, error] { return r.run(ctx, false) }

// CatchUp is Follow, but it ends when the hub has no more changes.
func (r *Replica) CatchUp(ctx context.Context) iter.Seq2[*Update, error] { return r.run(ctx, true) }

var (
	errBusy   = errors.New("the replica is followed already")
	errEnough = errors.New("the caller wants no more updates")
)

func (r *Replica) run(ctx context.Context, once bool) iter.Seq2[*Update, error] {
	return func(yield func(*Update, error) bool) {
		if !r.working.TryLock() {
			yield(nil, errBusy)
			return
		}
		defer r.working.Unlock()
		err := r.work(ctx, once, func(u *Update) bool { return yield(u, nil) })
		if err != nil && err != errEnough && ctx.Err() == nil {
			yield(nil, fmt.Errorf("replica of set %q: %w", r.set, err))
		}
	}
}

// work yields updates until ctx is done, or with once until there are no more. It
// returns errEnough when yield returns false.
func (r *Replica) work(ctx context.Context, once bool, yield func(*Update) bool) error {
	r.looked = time.Time{}
	for ctx.Err() == nil {
		if r.outgrow(ctx); !r.whole {
			if err := r.takeBaseline(ctx, yield); err != nil {
				return err
			}
		}
		again, err := r.follow(ctx, once, yield)
		if cerr := r.flush(ctx); err == nil {
			err = cerr
		}
		if err != nil || !again {
			return err
		}
	}
	return ctx.Err()
}

// follow yields the changes after the replica's cursor. It returns true if a baseline
// has to come first.
func (r *Replica) follow(ctx context.Context, once bool, yield func(*Update) bool) (again bool, err error) {
	options := FollowOptions{Filter: feed.Filter{Prefix: r.opts.Prefix}, once: once, gather: gathered}
	for b, err := range r.client.Follow(ctx, r.set, r.cursor.String(), options) {
		switch {
		case errors.Is(err, feed.ErrGone) || err == nil && b.Diverged:
			r.mu.Lock()
			r.whole = false
			r.mu.Unlock()
			return true, nil
		case err != nil:
			return false, err
		}
		entries, err := r.chosen(ctx, b.Entries)
		if err != nil {
			return false, err
		}
		if len(entries) > 0 && !yield(&Update{Entries: entries, Cursor: b.Cursor}) {
			return false, errEnough
		}
		if err := r.record(ctx, b); err != nil {
			return false, err
		}
		if r.outgrow(ctx); !r.whole {
			return true, nil
		}
	}
	return false, nil
}

// outgrow asks the hub, at the beginning and then each hour, whether it now knows all
// resources. It does so only while the destination holds resources that the last baseline
// did not name. If the hub knows all, outgrow marks that a baseline has to come. It asks once: a
// hub that cannot say it, as with a damaged inventory, may still have changes.
func (r *Replica) outgrow(ctx context.Context) {
	now := r.client.opts.Now()
	if !r.more || !r.whole || !r.looked.IsZero() && now.Sub(r.looked) < lookEvery {
		return
	}
	r.looked = now
	once := *r.client
	once.opts.Patience = -1
	if look, err := auditor.Look(ctx, &once, r.set, r.opts.Prefix); err != nil || !look.Complete {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.whole = false
}

// record notes that the changes of a batch were applied, even if ctx is done.
func (r *Replica) record(ctx context.Context, b *feed.Batch) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	ctx, cancel := last(ctx)
	defer cancel()
	if err := r.overlay.Add(ctx, b.Entries); err != nil {
		return err
	}
	r.cursor = b.Cursor
	waited := r.client.opts.Now().Sub(r.committed)
	few := uint64(r.overlay.Len())*commitEach < r.root.Bytes
	if r.overlay.Bytes() < commitBytes && waited < commitAfter && (few || waited < commitSoon) {
		return nil
	}
	return r.commit(ctx, r.cursor)
}

// commit makes a root of the waiting changes, at a cursor. The caller holds
// r.mu.
func (r *Replica) commit(ctx context.Context, to feed.Cursor) error {
	return r.add(ctx, to, r.overlay.Changes())
}

// add makes a root with sorted changes, at a cursor. No other change may wait. The
// caller holds r.mu.
func (r *Replica) add(ctx context.Context, to feed.Cursor, sorted iter.Seq[*feed.Entry]) error {
	root, err := r.own.Commit(ctx, inventory.Changes{Base: r.root, To: to, Sorted: sorted})
	if err != nil {
		return err
	}
	r.reach(root)
	return nil
}

// Flush writes to the Store what the destination has applied up to now. Follow and
// CatchUp do that by themselves, now and then and at their end; before that, the
// Store has an older state. It may be called while the Replica is followed.
func (r *Replica) Flush(ctx context.Context) error { return r.flush(ctx) }

// flush commits the waiting changes, even if ctx is done.
func (r *Replica) flush(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.root.Cursor == r.cursor {
		return nil
	}
	ctx, cancel := last(ctx)
	defer cancel()
	return r.commit(ctx, r.cursor)
}

// last returns a context for the last writes, which have to be made even if ctx
// is done.
func last(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), pageTimeout)
}

// Cursor returns the cursor up to which the destination holds everything. ok is false
// before the first baseline, and while a new baseline is needed.
func (r *Replica) Cursor() (at feed.Cursor, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cursor, r.whole
}

// ErrNotWhole means that a Replica holds no state of the hub, because its baseline is not
// over. Follow and CatchUp continue the baseline.
var ErrNotWhole = errors.New("the baseline is not over")

// A State is what a destination held at a cursor. It never changes, and its methods may be called
// concurrently. They block while the Store is read.
type State struct{ state *inventory.State }

// Cursor returns the cursor up to which the destination had applied the log.
func (s *State) Cursor() feed.Cursor { return s.state.Cursor() }

// Get returns the newest change of a resource. ok is false if the destination did not hold it.
func (s *State) Get(ctx context.Context, loc string) (e feed.Entry, ok bool, err error) {
	return s.state.Get(ctx, loc)
}

// All yields the newest change of each resource whose loc starts with a prefix, in the order of
// loc. An entry is valid until the next one is yielded. An error is the last thing that All
// yields.
func (s *State) All(ctx context.Context, prefix string) iter.Seq2[*feed.Entry, error] {
	return s.state.Walk(ctx, inventory.Prefix(prefix))
}

// State returns what the destination holds. Later changes of the Replica do not change
// the state. After an hour, reading it may return feed.ErrGone. The caller calls release
// when it is done.
func (r *Replica) State(ctx context.Context) (s *State, release func(), err error) {
	state, release, err := r.state(ctx)
	if err != nil {
		return nil, nil, err
	}
	return &State{state}, release, nil
}

func (r *Replica) state(ctx context.Context) (s *inventory.State, release func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.whole {
		return nil, nil, fmt.Errorf("replica of set %q: %w", r.set, ErrNotWhole)
	}
	holder := rand.Text()
	root, err := r.own.Pin(ctx, r.root.Upto, holder, pinned)
	if err != nil {
		return nil, nil, fmt.Errorf("replica of set %q: %w", r.set, err)
	}
	release = sync.OnceFunc(func() {
		ctx, cancel := last(ctx)
		defer cancel()
		_ = r.own.Unpin(ctx, root.Upto, holder) // if this fails, the pin expires
	})
	return r.overlay.State(r.cursor), release, nil
}

// Audit proves that the destination is in sync: see Client.Audit. It yields every
// difference between the hub and the Replica at one cursor, and nothing else. With a
// Collection it also compares the resources outside of it, of which the Replica knows that
// they are outside. Audit may be
// called while the Replica is followed. If it ends without an error and yields nothing,
// the destination has applied every change up to its cursor. After ErrNotWhole or
// feed.ErrGone the destination has to follow first.
//
// A Replica knows which changes the destination has applied, not whether it still holds
// the content. To check the content, audit a list of it; see Client.Audit.
func (r *Replica) Audit(ctx context.Context, o AuditOptions) iter.Seq2[Difference, error] {
	return func(yield func(Difference, error) bool) {
		if o.Prefix == "" {
			o.Prefix = r.opts.Prefix
		}
		if !strings.HasPrefix(o.Prefix, r.opts.Prefix) {
			yield(Difference{}, resourcesync.Invalid("the replica holds only what begins with %s", r.opts.Prefix))
			return
		}
		release := func() {}
		defer func() { release() }()
		own := func(ctx context.Context) (s *inventory.State, err error) {
			release()
			release = func() {}
			s, end, err := r.state(ctx)
			if err == nil {
				release = end
			}
			return s, err
		}
		for d, err := range r.client.audit(ctx, r.set, own, o.auditor()) {
			if !yield(d, err) {
				return
			}
		}
	}
}
