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
	// Store holds the state of the Replica; package client/disk opens one in a directory. The
	// caller closes it after the last use of the Replica. Replicas of several sets may share a
	// Store. The default is memory, so that the next process starts with a baseline.
	Store Store

	// Prefix restricts the Replica to resources whose loc starts with it. It must not change as
	// long as the Store is used: Follow does not fetch the resources that a wider prefix adds, and
	// only Audit reports them. The default is all resources.
	Prefix string

	// Collection is the URI of a collection. The Replica yields only resources whose newest change
	// has a link rel=collection to it. A resource that leaves the collection is yielded as deleted.
	// The Store has all resources of the set anyway, since the Replica otherwise could not detect
	// that a resource leaves, nor audit itself. The default is all resources.
	Collection string

	// Holds reports whether the destination has a resource, including one that it did not get from
	// the Replica, for example from a list of the source. With a Collection, the Replica calls
	// Holds for resources outside of it. A resource that the destination has is yielded as deleted.
	// By default, the destination is assumed to have the resources that the Replica has yielded.
	// After a crash, this can miss resources of the updates that were applied shortly before it.
	Holds func(loc string) (bool, error)

	// MaxDelete is the maximum number of resources that a baseline may delete because it does not
	// name them. If it would delete more, Follow ends with a *DeleteLimitError before anything is
	// changed. This protects the destination if a source was emptied by mistake. Deletions that the
	// source publishes as changes do not count. The default is ten resources or a tenth of those at
	// the destination, whichever is more. Negative means no limit.
	MaxDelete int

	// MayDelete decides in place of MaxDelete. It is called before a baseline deletes resources,
	// with the number of resources to delete and the number of those that the destination has. If
	// it returns an error, Follow ends with this error before anything is changed.
	MayDelete func(deleted, held uint64) error

	// BeforeBaseline is called before a baseline changes anything at the destination, and again
	// when an interrupted baseline continues. If it returns an error, Follow ends with this error.
	// The default is nil.
	BeforeBaseline func() error
}

// A DeleteLimitError reports that a baseline would delete more resources than
// ReplicaOptions.MaxDelete permits. Nothing was changed, neither at the destination nor in the
// Replica. If the deletion is intended, open the Replica with a greater MaxDelete; it then
// continues where it stopped.
type DeleteLimitError struct {
	Delete uint64 // number of resources that the destination has and the baseline does not name
	Held   uint64 // number of resources that the destination had before the baseline
	Limit  uint64 // maximum number of resources to delete
}

func (e *DeleteLimitError) Error() string {
	return fmt.Sprintf("the baseline would delete %d of %d resources, want at most %d; nothing was deleted; if the deletion is intended, increase ReplicaOptions.MaxDelete",
		e.Delete, e.Held, e.Limit)
}

// A Replica is a destination's inventory of its own resources of a set, each with the newest change
// that the destination has applied. With it, a destination follows a set without handling baselines
// itself, and can verify that it is in sync, see Audit.
//
// A Replica is safe for concurrent use, but only one call of Follow, CatchUp or ApplyBatch may be in
// progress.
type Replica struct {
	client *Client
	set    string
	opts   ReplicaOptions

	own      *inventory.Writer
	baseline *inventory.Writer // baseline that is being read

	running           sync.Mutex // held by Follow, CatchUp and ApplyBatch
	completeCheckedAt time.Time  // when the hub was last asked whether it knows all resources; guarded by running

	mu           sync.Mutex // guards the fields below
	root         inventory.Root
	overlay      *inventory.Overlay // changes that were applied after root
	cursor       feed.Cursor        // the destination has applied the log up to this cursor; zero while it is between two cursors
	baselineDone bool               // whether a baseline was applied completely, and no other is required
	hasLeftovers bool               // whether the destination has resources that the last baseline did not name, since the hub did not know all; stored as a Head that is not Complete
	committedAt  time.Time          // when root was created
}

// Sizes and intervals. The first four determine when changes are committed to the tree.
const (
	commitBytesPerChange  = 1 << 10  // bytes that a commit may write for each change
	maxPendingBytes       = 32 << 20 // bytes of pending changes in memory
	maxCommitInterval     = time.Minute
	minCommitInterval     = time.Second
	baselinePageSize      = 5_000  // resources in one page of a baseline
	maxUpdateEntries      = 2_000  // maximum number of entries in an update of a baseline
	maxMergedEntries      = 50_000 // entries in one update if the destination is far behind, so that it can skip superseded changes
	completeCheckInterval = time.Hour
	pinDuration           = time.Hour
)

// onlyTerm is the term of the writers of a Replica, which has its Store to itself.
const onlyTerm = 1

// OpenReplica opens the Replica of a set. A new Replica is empty, and Follow starts with a
// baseline. OpenReplica sends no request.
func (c *Client) OpenReplica(ctx context.Context, set string, o ReplicaOptions) (*Replica, error) {
	if err := feed.CheckSet(set); err != nil {
		return nil, err
	}
	store, err := inventoryStore(o.Store)
	if err != nil {
		return nil, fmt.Errorf("open replica: %w", err)
	}
	cache := inventory.NewCache(4 << 20)
	r := &Replica{
		client: c, set: set, opts: o,
		own:      inventory.New(store, set, inventory.Options{Cache: cache}).Writer(onlyTerm),
		baseline: inventory.New(store, set+"~baseline", inventory.Options{Cache: cache}).Writer(onlyTerm),
	}
	_, head, err := r.own.Load(ctx)
	if err != nil {
		return nil, fmt.Errorf("open replica: %w", err)
	}
	r.setRootLocked(head.Newest())
	r.cursor = r.root.Cursor
	r.baselineDone = !r.cursor.IsZero()
	r.hasLeftovers = head.Complete.IsZero()
	return r, nil
}

// setRootLocked sets the newest root. The caller must hold r.mu.
func (r *Replica) setRootLocked(root inventory.Root) {
	r.root, r.committedAt = root, r.client.opts.Now()
	r.overlay = inventory.NewOverlay(r.own.Tree(root))
}

// An Update describes what a destination must do next: for each entry in order, fetch the resource
// if it was created or updated, or remove the resource if it was deleted.
type Update struct {
	Entries  []feed.Entry
	Cursor   feed.Cursor // cursor of the destination after the update; zero while a baseline is in progress
	Baseline bool        // whether the entries result from the comparison with a baseline, not from the log

	// Complete reports whether this is the last update of a baseline, and the hub knew all resources.
	// Then the destination has exactly the resources of the Replica's State (with a Collection, those
	// in it), except after a crash: from updates that it applied shortly before the crash, it may
	// have resources that the hub has deleted since, and that neither the Replica nor the baseline
	// knows. It should remove those.
	Complete bool
}

// Follow yields the updates that the destination must apply, and blocks while there are none. The
// destination must apply an update before it asks for the next one: asking for it means that the
// update was applied. An update that was not applied is repeated by the next Follow. After a crash,
// some updates that were applied may be repeated, too.
//
// Follow starts with a baseline, and reads another one whenever the hub's log no longer reaches
// back far enough or has lost entries. From a baseline it yields only resources of which the
// destination does not have the newest version. At the end of a baseline it yields as deleted the
// resources that the destination has and the baseline does not name, but only if the hub knows all
// resources (see also MaxDelete). Otherwise the destination retains these resources. Follow then
// asks the hub at its start and every hour whether it now knows all resources, and if so, reads
// another baseline. An interrupted baseline continues where it stopped, even in another process.
//
// An error is the last thing that Follow yields. It is an error of Baseline, the Store, Holds,
// MayDelete or BeforeBaseline, or a *DeleteLimitError, or it reports that another call of Follow,
// CatchUp or ApplyBatch is in progress. When ctx is done, Follow ends without an error.
func (r *Replica) Follow(ctx context.Context) iter.Seq2[*Update, error] { return r.updates(ctx, false) }

// CatchUp is like Follow, but ends when the hub has no more changes.
func (r *Replica) CatchUp(ctx context.Context) iter.Seq2[*Update, error] { return r.updates(ctx, true) }

var (
	errBusy    = errors.New("the replica is already being followed")
	errStopped = errors.New("the caller stopped the iteration")
)

// ApplyBatch is like CatchUp, but takes the changes from a batch of FollowAll, without a request. The
// batch must have all changes of the set, or all with the Replica's Prefix, and the Replica retains
// its entries. If the Replica does not continue with the batch, for example because a baseline is
// required, ApplyBatch reads from the hub, as CatchUp does. So batches may be omitted.
//
// ApplyBatch writes to the Store only from time to time. Call Flush before the Store is closed.
func (r *Replica) ApplyBatch(ctx context.Context, b *feed.Batch) iter.Seq2[*Update, error] {
	return r.sequence(ctx, func(yield func(*Update) bool) error {
		if b.Set != r.set {
			return fmt.Errorf("got a batch of set %q", b.Set)
		}
		if !r.Continues(b) {
			return r.run(ctx, true, yield)
		}
		return r.applyBatch(ctx, b, yield)
	})
}

// Continues reports whether a batch of the set starts at the Replica's cursor, so that ApplyBatch needs
// no request.
func (r *Replica) Continues(b *feed.Batch) bool {
	at, ok := r.Cursor()
	return ok && !b.Diverged && at == b.After
}

// updates returns the sequence of Follow, or of CatchUp if once is true.
func (r *Replica) updates(ctx context.Context, once bool) iter.Seq2[*Update, error] {
	return r.sequence(ctx, func(yield func(*Update) bool) error { return r.run(ctx, once, yield) })
}

// sequence returns the sequence of the updates that run yields, and of its error.
func (r *Replica) sequence(ctx context.Context, run func(yield func(*Update) bool) error) iter.Seq2[*Update, error] {
	return func(yield func(*Update, error) bool) {
		if !r.running.TryLock() {
			yield(nil, errBusy)
			return
		}
		defer r.running.Unlock()
		err := run(func(u *Update) bool { return yield(u, nil) })
		if err != nil && err != errStopped && ctx.Err() == nil {
			yield(nil, fmt.Errorf("replica of set %q: %w", r.set, err))
		}
	}
}

// run yields updates until ctx is done, or with once until there are no more. It returns errStopped
// if yield returns false.
func (r *Replica) run(ctx context.Context, once bool, yield func(*Update) bool) error {
	r.completeCheckedAt = time.Time{}
	for ctx.Err() == nil {
		if r.checkComplete(ctx); !r.baselineDone {
			if err := r.applyBaseline(ctx, yield); err != nil {
				return err
			}
		}
		again, err := r.followLog(ctx, once, yield)
		if cerr := r.flush(ctx); err == nil {
			err = cerr
		}
		if err != nil || !again {
			return err
		}
	}
	return ctx.Err()
}

// followLog yields the changes after the replica's cursor. It returns true if a baseline is
// required before others.
func (r *Replica) followLog(ctx context.Context, once bool, yield func(*Update) bool) (again bool, err error) {
	options := FollowOptions{Filter: feed.Filter{Prefix: r.opts.Prefix}, once: once, mergeLimit: maxMergedEntries}
	for b, err := range r.client.Follow(ctx, r.set, r.cursor.String(), options) {
		switch {
		case errors.Is(err, feed.ErrGone) || err == nil && b.Diverged:
			r.mu.Lock()
			r.baselineDone = false
			r.mu.Unlock()
			return true, nil
		case err != nil:
			return false, err
		}
		if err := r.applyBatch(ctx, b, yield); err != nil {
			return false, err
		}
		if r.checkComplete(ctx); !r.baselineDone {
			return true, nil
		}
	}
	return false, nil
}

// applyBatch yields the changes of a batch that continues the replica's cursor.
func (r *Replica) applyBatch(ctx context.Context, b *feed.Batch, yield func(*Update) bool) error {
	entries, err := r.selectEntries(ctx, b.Entries)
	if err != nil {
		return err
	}
	if len(entries) > 0 && !yield(&Update{Entries: entries, Cursor: b.Cursor}) {
		return errStopped
	}
	return r.recordBatch(ctx, b)
}

// checkComplete asks the hub, at the start and then every hour, whether it now knows all resources.
// It does so only while the destination has resources that the last baseline did not name. If the
// hub knows all, checkComplete clears baselineDone, so that another baseline is read. It does not
// retry: a hub that cannot answer, for example because its inventory is damaged, may still have
// changes.
func (r *Replica) checkComplete(ctx context.Context) {
	now := r.client.opts.Now()
	if !r.HasLeftovers() || !r.baselineDone || !r.completeCheckedAt.IsZero() && now.Sub(r.completeCheckedAt) < completeCheckInterval {
		return
	}
	r.completeCheckedAt = now
	once := *r.client
	once.opts.RetryTimeout = -1
	if look, err := auditor.FetchSummary(ctx, &once, r.set, r.opts.Prefix); err != nil || !look.Complete {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.baselineDone = false
}

// recordBatch records that the changes of a batch were applied, even if ctx is done.
func (r *Replica) recordBatch(ctx context.Context, b *feed.Batch) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	ctx, cancel := finalContext(ctx)
	defer cancel()
	if err := r.overlay.Add(ctx, b.Entries); err != nil {
		return err
	}
	r.cursor = b.Cursor
	waited := r.client.opts.Now().Sub(r.committedAt)
	few := uint64(r.overlay.Len())*commitBytesPerChange < r.root.Bytes
	if r.overlay.Bytes() < maxPendingBytes && waited < maxCommitInterval && (few || waited < minCommitInterval) {
		return nil
	}
	return r.commitLocked(ctx, r.cursor)
}

// commitLocked commits the pending changes as a root at the cursor to. The caller must hold r.mu.
func (r *Replica) commitLocked(ctx context.Context, to feed.Cursor) error {
	return r.commitSortedLocked(ctx, to, r.overlay.Changes())
}

// commitSortedLocked commits sorted changes as a root at the cursor to. No other changes may be
// pending. The caller must hold r.mu.
func (r *Replica) commitSortedLocked(ctx context.Context, to feed.Cursor, sorted iter.Seq[*feed.Entry]) error {
	root, err := r.own.Commit(ctx, inventory.Changes{Base: r.root, To: to, Sorted: sorted})
	if err != nil {
		return err
	}
	r.setRootLocked(root)
	return nil
}

// Flush writes the current state of the destination to the Store. Follow and CatchUp do that from
// time to time and at their end; until then, the Store has an older state. Flush may be called
// while the Replica is followed.
func (r *Replica) Flush(ctx context.Context) error { return r.flush(ctx) }

// flush commits the pending changes, even if ctx is done.
func (r *Replica) flush(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.root.Cursor == r.cursor {
		return nil
	}
	ctx, cancel := finalContext(ctx)
	defer cancel()
	return r.commitLocked(ctx, r.cursor)
}

// finalContext returns a context for final writes, which must be made even if ctx is done.
func finalContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), pageTimeout)
}

// Cursor returns the cursor up to which the destination has applied the log. ok is false before the
// first baseline, and while another baseline is required.
func (r *Replica) Cursor() (at feed.Cursor, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cursor, r.baselineDone
}

// HasLeftovers reports whether the destination has resources that the last baseline did not name, and
// that may still exist because the hub did not know all resources. CatchUp, and Follow at its start
// and every hour, ask the hub whether it now knows all, and then delete those that do not exist.
func (r *Replica) HasLeftovers() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hasLeftovers
}

// ErrBaselinePending means that a Replica has no state as of a cursor, because its baseline is not
// finished. Follow and CatchUp continue the baseline.
var ErrBaselinePending = errors.New("the baseline is not finished")

// A State is the state of a destination at a cursor. It is immutable, and safe for concurrent use.
// Its methods block while they read the Store.
type State struct{ state *inventory.State }

// Cursor returns the cursor up to which the destination had applied the log.
func (s *State) Cursor() feed.Cursor { return s.state.Cursor() }

// Get returns the newest change of a resource. ok is false if the destination did not have the
// resource.
func (s *State) Get(ctx context.Context, loc string) (e feed.Entry, ok bool, err error) {
	return s.state.Get(ctx, loc)
}

// All yields the newest change of each resource whose loc starts with prefix, in the order of loc.
// An entry is valid until the next one is yielded. An error is the last thing that All yields.
func (s *State) All(ctx context.Context, prefix string) iter.Seq2[*feed.Entry, error] {
	return s.state.Walk(ctx, inventory.Prefix(prefix))
}

// State returns the current state of the destination. Later changes of the Replica do not affect
// it. After an hour, reading it may return feed.ErrGone. The caller must call release when it no
// longer needs the state.
func (r *Replica) State(ctx context.Context) (s *State, release func(), err error) {
	state, release, err := r.pinState(ctx)
	if err != nil {
		return nil, nil, err
	}
	return &State{state}, release, nil
}

// pinState is State with the internal type.
func (r *Replica) pinState(ctx context.Context) (s *inventory.State, release func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.baselineDone {
		return nil, nil, fmt.Errorf("replica of set %q: %w", r.set, ErrBaselinePending)
	}
	holder := rand.Text()
	root, err := r.own.Pin(ctx, r.root.Upto, holder, pinDuration)
	if err != nil {
		return nil, nil, fmt.Errorf("replica of set %q: %w", r.set, err)
	}
	release = sync.OnceFunc(func() {
		ctx, cancel := finalContext(ctx)
		defer cancel()
		_ = r.own.Unpin(ctx, root.Upto, holder) // if this fails, the pin expires
	})
	return r.overlay.State(r.cursor), release, nil
}

// Audit verifies that the destination is in sync. It yields each difference between the hub and the
// Replica at one cursor, and nothing else; see Client.Audit. With a Collection it also compares
// resources outside of it, which the Replica knows to be outside. Audit may be called while the
// Replica is followed. If it ends without an error and yields nothing, the destination has applied
// every change up to its cursor. After ErrBaselinePending or feed.ErrGone, the destination must
// follow first.
//
// A Replica knows which changes the destination has applied, but not whether the destination still
// has the content. To verify the content, use Client.Audit with a list of it.
func (r *Replica) Audit(ctx context.Context, o AuditOptions) iter.Seq2[Difference, error] {
	return func(yield func(Difference, error) bool) {
		if o.Prefix == "" {
			o.Prefix = r.opts.Prefix
		}
		if !strings.HasPrefix(o.Prefix, r.opts.Prefix) {
			yield(Difference{}, resourcesync.Invalidf("the prefix of the audit must start with %q, the prefix of the replica", r.opts.Prefix))
			return
		}
		release := func() {}
		defer func() { release() }()
		own := func(ctx context.Context) (s *inventory.State, err error) {
			release()
			release = func() {}
			s, end, err := r.pinState(ctx)
			if err == nil {
				release = end
			}
			return s, err
		}
		for d, err := range r.client.auditState(ctx, r.set, own, o.auditorOptions()) {
			if !yield(d, err) {
				return
			}
		}
	}
}
