package reader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
)

// A view has the snapshots, the overlay and the cached states of one set. All queries of the set share it.
// Methods without Locked in their names require the lock of the view, but not Reader.mu.
type view struct {
	reader *Reader
	set    string
	inv    *inventory.Inventory
	lock   chan struct{} // full while the view is locked; a channel, so that a context can end the wait

	// Guarded by lock.
	begin   int64    // when the log of all this began
	overlay *overlay // the overlay that is extended to new states, or nil
	tooOld  uint64   // Root.Upto of the newest root with too many changes after it

	// Guarded by Reader.mu.
	snapshots map[uint64]*snapshot // by Root.Upto
	states    []*cachedState       // ascending by position
	used      time.Time
	users     int // goroutines that hold or await the lock
}

// lockView returns the view of a set, locked.
func (r *Reader) lockView(ctx context.Context, set string) (*view, error) {
	r.mu.Lock()
	v := r.views[set]
	if v == nil {
		inv := r.inventory(set)
		v = &view{reader: r, set: inv.Set(), inv: inv, lock: make(chan struct{}, 1), snapshots: map[uint64]*snapshot{}}
		r.views[v.set] = v
	}
	v.users++
	v.used = time.Now()
	r.mu.Unlock()
	select {
	case v.lock <- struct{}{}:
		return v, nil
	case <-ctx.Done():
		r.mu.Lock()
		defer r.mu.Unlock()
		v.users--
		return nil, fmt.Errorf("wait for other readers: %w", ctx.Err())
	}
}

// unlock unlocks the view. It removes a view without content immediately: clients may request any number of
// nonexistent sets.
func (v *view) unlock() {
	v.reader.mu.Lock()
	defer v.reader.mu.Unlock()
	v.users--
	v.removeIfEmptyLocked()
	<-v.lock
}

func (v *view) removeIfEmptyLocked() {
	if v.users == 0 && v.overlay == nil && len(v.states) == 0 && len(v.snapshots) == 0 {
		delete(v.reader.views, v.set)
	}
}

// load reads the record of the set. If the set has another log, or none, it empties the view.
func (v *view) load(ctx context.Context) (*record, error) {
	rec, err := load(ctx, v.inv)
	switch {
	case errors.Is(err, feed.ErrNoSet), errors.Is(err, feed.ErrNoInventory):
		v.empty()
	case err == nil && rec.Log.Begin != v.begin:
		v.empty()
		v.begin = rec.Log.Begin
	}
	return rec, err
}

func (v *view) empty() {
	v.reader.mu.Lock()
	defer v.reader.mu.Unlock()
	v.discardLocked(v.overlay)
	for i := range slices.Backward(v.states) {
		v.removeLocked(i)
	}
	clear(v.snapshots)
}

// knows reports whether the log knows a cursor. If not, the log has lost it, or retention has removed it.
func (v *view) knows(ctx context.Context, at feed.Cursor) (bool, error) {
	return inventory.Knows(ctx, v.reader.log, v.set, at)
}
