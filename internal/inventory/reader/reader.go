// Package reader reads the inventories of sets on any hub. Package writer commits them.
//
// From the store to a reader:
//   - A root is a tree that a writer has committed. A baseline or a Resource List is a root as it is.
//   - A snapshot is a root that this hub has pinned in the store for its readers.
//   - An overlay has the changes of the log after a root, in memory.
//   - A state is the content of a set at one cursor: a root and the changes of an overlay. States are
//     cached, because audits and the pages of a list request the same state again.
//   - A view is everything that this hub has in memory of one set.
package reader

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
	"github.com/rshub/rshub/internal/limit"
)

var (
	// ErrIncomplete reports that no publisher has declared the set complete, or that this is no longer true.
	ErrIncomplete = &feed.Error{Code: "incomplete", Status: 404, Text: "the inventory is not complete",
		Detail: `the hub has no Resource List of this set, because it may not know all resources; a publisher declares the set complete: PUT /sets/NAME with {"complete":true}`}

	// ErrBehind reports that the inventory has not reached the requested cursor. A retry may succeed soon.
	ErrBehind = &feed.Error{Code: "behind", Status: 503, RetryAfter: 5, Text: "the inventory is behind",
		Detail: "the inventory of this set has not reached the cursor yet; try again soon"}

	// ErrTooMany reports that the maximum number of readers are reading inventories, or half of it for one
	// user. A retry may succeed soon.
	ErrTooMany = &feed.Error{Code: "too-many", Status: 429, RetryAfter: 5, Text: "too many readers of inventories",
		Detail: "too many baselines or audits are in progress; try again soon"}

	// errOff is the feed.ErrNoInventory of a set whose source wants no inventory.
	errOff = &feed.Error{Code: feed.ErrNoInventory.Code, Status: feed.ErrNoInventory.Status, Text: "the inventory of the set is turned off",
		Detail: `the description of this set has "inventory":"off", so there are no baselines, lists of resources and audits`}
)

// A Log is the part of changelog.Log that a Reader needs.
type Log interface {
	Since(ctx context.Context, set string, after feed.Cursor, limit int) (*feed.Batch, error)
	At(ctx context.Context, set string, position uint64) (feed.Cursor, error)
}

// Options configures a Reader. The zero value uses the defaults.
type Options struct {
	Cache *inventory.Cache // pages, shared with the writer; default: a new one of 32 MiB

	StateBytes int // memory of overlays and cached states of all sets; default: 128 MiB
	Baselines  int // maximum number of baselines in progress; default: 128
	States     int // maximum number of states in use, for audits and listings; default: 128

	// Request asks the writer of a set, on any hub, for a newer root. damaged means that a read found damage.
	// It must not block. Default: does nothing.
	Request func(set string, damaged bool)

	Logger  *slog.Logger          // default: discard
	Metrics prometheus.Registerer // for the metrics of one Reader; default: nil, which registers none
}

// A Reader reads the inventories of all sets. Its methods may be called concurrently.
type Reader struct {
	log    Log
	store  inventory.Store
	holder string // of this hub's pins
	opts   Options

	baselines, states *gate

	mu    sync.Mutex
	views map[string]*view // by set
	bytes int              // memory of overlays and cached states
}

// New returns a Reader of the inventories in store, which belong to the sets of log. holder names this hub in pins.
// The caller closes log and store after Run has returned and everything is released.
func New(log Log, store inventory.Store, holder string, o Options) *Reader {
	if o.Cache == nil {
		o.Cache = inventory.NewCache(32 << 20)
	}
	o.StateBytes = cmp.Or(o.StateBytes, 128<<20)
	if o.Request == nil {
		o.Request = func(string, bool) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Reader{
		log: log, store: store, holder: holder, opts: o, views: map[string]*view{},
		baselines: &gate{max: cmp.Or(o.Baselines, 128), byUser: map[*limit.User]int{}},
		states:    &gate{max: cmp.Or(o.States, 128), byUser: map[*limit.User]int{}},
	}
	r.register(o.Metrics)
	return r
}

// renewInterval is the time between two renewals of a pin. It is less than half of pinPeriod, so one may fail.
const renewInterval = time.Minute

// Run renews pins and drops states that were not used for a while, until ctx is done. Then it removes all pins, within 3
// seconds.
func (r *Reader) Run(ctx context.Context) {
	tick := time.NewTicker(renewInterval)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-tick.C:
			r.expire(time.Now())
			r.renewPins(ctx, false)
		case <-ctx.Done():
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
	defer cancel()
	r.renewPins(ctx, true)
}

// inventory returns the inventory of a set. It copies the name, which may be part of a long request: the keys
// of cached pages retain it.
func (r *Reader) inventory(set string) *inventory.Inventory {
	set = strings.Clone(set)
	return inventory.New(r.store, set, inventory.Options{Cache: r.opts.Cache, Damaged: func(error) { r.opts.Request(set, true) }})
}
