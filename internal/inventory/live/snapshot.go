package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
)

// A snapshot is a root that readers of this hub use. All of them share one pin.
type snapshot struct {
	inv   *inventory.Inventory
	root  inventory.Root
	tree  *inventory.Tree
	since time.Time // when it was pinned first

	// Guarded by Live.mu.
	users  int       // readers, kept states and the overlay
	pinned time.Time // when the pin was last renewed
}

const (
	pinFor   = 150 * time.Second // how long a pin lasts
	pinEvery = time.Minute       // how often it is renewed
	pinMost  = time.Hour         // how long it is renewed at most
	joinFor  = 10 * time.Minute  // how long new readers join the readers of an older root,
	joinMost = 2_000             // and how many changes it may be behind: this many, or a tenth of the resources
)

// choose returns a snapshot to read. It prefers a root that others already read, on any
// hub, and that is hardly older than the newest root; so few roots are kept. If the
// newest root is complete, the chosen root is complete, too. The caller has v's turn, and
// gets a use of the snapshot.
func (v *view) choose(ctx context.Context, rec *inventory.Record, head *inventory.Head) (*snapshot, error) {
	newest := head.Newest()
	for _, k := range slices.Backward(head.Roots) {
		if newest.Cursor.Position > k.Cursor.Position+max(joinMost, newest.Tally.Count/10) || head.IsComplete(newest.Cursor) && !head.IsComplete(k.Cursor) {
			break
		}
		if known, err := v.live.knows(ctx, v.set, k.Cursor); err != nil {
			return nil, err
		} else if !known {
			continue // the log does not know its cursor, so nobody could follow from it
		}
		if s := v.use(k.Upto); s != nil {
			if time.Since(s.since) < joinFor {
				return s, nil
			}
			v.live.unuse(s)
		} else if rec.Now-k.Made < joinFor.Microseconds() && k.Pinned(rec.Now) {
			return v.pin(ctx, k.Root)
		}
	}
	return v.snapshot(ctx, newest)
}

// snapshot returns the snapshot of a root. The caller has v's turn, and gets a use
// of it.
func (v *view) snapshot(ctx context.Context, r inventory.Root) (*snapshot, error) {
	if s := v.use(r.Upto); s != nil {
		return s, nil
	}
	return v.pin(ctx, r)
}

// use returns the snapshot that v has of a root, with a use of it, or nil.
func (v *view) use(upto uint64) *snapshot {
	v.live.mu.Lock()
	defer v.live.mu.Unlock()
	s := v.snapshots[upto]
	if s != nil {
		s.users++
	}
	return s
}

// unuse ends a use of a snapshot. Its pin stays for a while, for the next reader.
func (l *Live) unuse(s *snapshot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.users--
}

// pin pins a root. It ignores a full store: that takes no pins, but no commits
// either, so the root stays.
func (v *view) pin(ctx context.Context, r inventory.Root) (*snapshot, error) {
	if r.Upto > 0 {
		_, err := v.inv.Pin(ctx, r.Upto, v.live.holder, pinFor)
		if errors.Is(err, feed.ErrGone) {
			return nil, fmt.Errorf("set %q: pin root at %v: %w", v.set, r.Cursor, errMoved)
		}
		if err != nil && !errors.Is(err, feed.ErrFull) {
			return nil, fmt.Errorf("set %q: pin root at %v: %w", v.set, r.Cursor, err)
		}
	}
	now := time.Now()
	s := &snapshot{inv: v.inv, root: r, tree: v.inv.Tree(r), since: now, users: 1, pinned: now}
	v.live.mu.Lock()
	defer v.live.mu.Unlock()
	v.snapshots[r.Upto] = s
	return s, nil
}

// renew renews the pins of snapshots, and removes those that nobody uses or that are an hour
// old. If ending is set, it removes all.
func (l *Live) renew(ctx context.Context, ending bool) {
	for s, drop := range l.due(time.Now(), ending) {
		var err error
		switch {
		case s.root.Upto == 0:
		case drop:
			err = s.inv.Unpin(ctx, s.root.Upto, l.holder) // if this fails, the pin expires
		default:
			_, err = s.inv.Pin(ctx, s.root.Upto, l.holder, pinFor)
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil && !errors.Is(err, feed.ErrGone) && !errors.Is(err, feed.ErrNoSet) {
			l.logger.Warn("renewal of a pin failed; its readers may have to start over", "set", s.inv.Set(), "err", err)
		}
	}
}

// due returns the snapshots whose pins have to be renewed now (false) or removed (true), and
// forgets those that it returns for removal.
func (l *Live) due(now time.Time, ending bool) map[*snapshot]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	due := map[*snapshot]bool{}
	for _, v := range l.views {
		for upto, s := range v.snapshots {
			if !ending && now.Sub(s.pinned) < pinEvery {
				continue
			}
			s.pinned = now
			if due[s] = ending || s.users == 0 || now.Sub(s.since) >= pinMost; due[s] {
				delete(v.snapshots, upto)
			}
		}
	}
	return due
}
