// Package live keeps the inventories of one hub, and hands them to readers.
//
// The maker follows the logs of the sets whose shard this hub claims, and commits
// what waits. One goroutine does that for all sets, one set after another. Two hubs that
// make the same inventory do no harm, so a claim only saves work.
//
// Readers need no claim. Whoever asks for the state of a set gets the newest root, or
// one that is read already, and the log behind it, on every hub. A state that was
// made is kept for a while, because audits and pages come back for it.
package live

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/claim"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/inventory"
)

// Kind is the kind of the claims on inventories, and Shards is how many shards
// there are. The shard of a set follows from its name.
const (
	Kind   = "inventory"
	Shards = 64
)

var (
	// ErrOff means that the source wants no inventory of the set.
	ErrOff = &feed.Error{Code: "no-inventory", Status: 409, Text: "the set has no inventory",
		Detail: `the hub keeps no inventory of this set, because the set's description says "inventory":"off"`}

	// ErrIncomplete means that nobody said that the hub knows all resources of the set,
	// or that it is not true any more.
	ErrIncomplete = &feed.Error{Code: "incomplete", Status: 404, Text: "the inventory is not complete",
		Detail: `the hub has no Resource List of this set, because it may not know all resources: whoever may publish says that it does by PUT /sets/SET with {"complete":true}`}

	// ErrBehind means that the inventory is not made up to where the caller wants to
	// read it: it is being made from a long log, or the log has not got there.
	ErrBehind = &feed.Error{Code: "behind", Status: 503, Retry: 5, Text: "the inventory is behind",
		Detail: "the inventory of this set is not there yet; ask again soon"}

	// ErrBusy means that as many readers as there may be read inventories now.
	ErrBusy = &feed.Error{Code: "busy", Status: 429, Retry: 5, Text: "too many read inventories",
		Detail: "too many baselines or audits are under way; ask again soon"}
)

// A Log is what Live needs of the change memory. See changelog.Log.
type Log interface {
	State(ctx context.Context, set string) (feed.State, error)
	Sets(ctx context.Context, names ...string) ([]feed.State, error)
	Since(ctx context.Context, set string, after feed.Cursor, limit int) (*feed.Batch, error)
	At(ctx context.Context, set string, position uint64) (feed.Cursor, error)
}

// Options of a Live. Zero values are the defaults.
type Options struct {
	Poll time.Duration // how often the maker looks at sets that change; default 500 ms. Others it looks at less often
	List time.Duration // how often a Resource List is renewed if anything changed; default an hour

	WaitBytes  int           // of changes that wait for a commit, all sets together; default 64 MiB
	StateBytes int           // of states that are kept, all sets together, besides the roots; default 256 MiB
	CacheBytes int           // of pages that are kept in memory; default 32 MiB
	Keep       time.Duration // how long a state is kept after its last use; default ten minutes

	Baselines int // how many baselines may be read at a time; default 128
	States    int // how many states may be read at a time, for audits and listings; default 128

	// Old reports whether a hub is alive that keeps no inventories. Its retention would
	// pass them, so nothing is written meanwhile. Default: none is.
	Old func(ctx context.Context) (bool, error)

	// Scarce reports whether the store has so little room left that retention must not
	// wait for inventories. Default: it has room.
	Scarce func(ctx context.Context) bool

	Clock   claim.Clock           // of the claims; default: the machine's own
	Logger  *slog.Logger          // default: discard
	Metrics prometheus.Registerer // takes the metrics of one Live; default: nowhere
}

// New returns the Live of a log and the inventories beside it. It makes nothing until
// Run, but readers may ask at once. The caller closes log and store after
// Run has returned and all readers have released what they hold.
func New(log Log, store inventory.Store, claims claim.Store, o Options) *Live {
	panic("soon")
}

// Run makes the inventories of the sets whose shard this hub claims, until ctx is
// done. Then it gives up its claims and its pins. A failure is logged, and the maker tries again.
// When Run returns, none of its goroutines is left.
func (l *Live) Run(ctx context.Context) error { panic("soon") }

// State returns a state of a set at a cursor S that is not before from. It waits for
// such a state, but no longer than wait; then it returns ErrBehind. With the zero
// cursor it returns the newest state, at the head of the log, at once.
//
// ErrOff, ErrBehind, ErrBusy, feed.ErrNoSet, feed.ErrGone when the log does not know from.
func (l *Live) State(ctx context.Context, set string, from feed.Cursor, wait time.Duration) (*Held, error) {
	panic("soon")
}

// At returns the state of a set at exactly the cursor at: one that is kept, or one that
// is made of a root that is not newer, and the log. feed.ErrGone when neither is
// possible: then the caller looks anew, see State. The other errors are those of State.
func (l *Live) At(ctx context.Context, set string, at feed.Cursor) (*Held, error) { panic("soon") }

// Baseline returns a root of a set to read as a baseline: the newest, or one
// that is being read already and hardly older. The log reaches back to its cursor. A
// set that has no root yet, because its log is being read, gives ErrBehind.
//
// ErrOff, ErrBehind, ErrBusy, feed.ErrNoSet.
func (l *Live) Baseline(ctx context.Context, set string) (*Held, error) { panic("soon") }

// BaselineAt returns the root of a set at exactly the cursor at, to go on reading a
// baseline. feed.ErrGone when there is none any more: then the baseline begins anew. The
// other errors are those of Baseline.
func (l *Live) BaselineAt(ctx context.Context, set string, at feed.Cursor) (*Held, error) {
	panic("soon")
}

// ResourceList returns the root of the Resource List of a set at the cursor at; with the
// zero cursor, of the newest one. The one before the newest is kept, too. All hubs
// return the same.
//
// ErrIncomplete while there is none, ErrOff, feed.ErrNoSet; feed.ErrGone when there is
// none at that cursor any more.
func (l *Live) ResourceList(ctx context.Context, set string, at feed.Cursor) (*List, error) {
	panic("soon")
}

// Complete says that the hub knows all resources of a set, as of the head of its log, or
// that it does not. It is durable when Complete returns nil. ErrOff, feed.ErrNoSet, feed.ErrUnavailable
// while a hub is alive that keeps no inventories.
func (l *Live) Complete(ctx context.Context, set string, complete bool) error { panic("soon") }

// Hold returns the cursor that retention must not pass in a set, because the
// inventory has not got further. ok is false if retention need not wait: the set has no
// inventory, or the inventory has been stuck for a day, or the store has no room.
func (l *Live) Hold(ctx context.Context, set string) (at feed.Cursor, ok bool) { panic("soon") }

// A Live keeps the inventories of one hub.
type Live struct{}
