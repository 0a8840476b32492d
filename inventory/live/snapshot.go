package live

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/inventory"
)

// A snapshot is a root that readers of this hub use. All of them share one pin.
type snapshot struct {
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
	for i := len(head.Roots) - 1; i >= 0; i-- {
		k := &head.Roots[i]
		if newest.Cursor.Position > k.Cursor.Position+max(joinMost, newest.Tally.Count/10) || head.IsComplete(newest.Cursor) && !head.IsComplete(k.Cursor) {
			break
		}
		if known, err := v.live.knows(ctx, v.set, k.Cursor); err != nil && !errors.Is(err, feed.ErrGone) {
			return nil, err
		} else if !known {
			continue // the log does not know its cursor, so nobody could follow from it
		}
		if s := v.use(k.Upto); s != nil {
			if time.Since(s.since) < joinFor {
				return s, nil
			}
			v.live.unuse(s)
		} else if rec.Now-k.Made < joinFor.Microseconds() && pinned(k, rec.Now) {
			return v.pin(ctx, k.Root)
		}
	}
	return v.snapshot(ctx, newest)
}

// pinned reports whether a root has readers.
func pinned(k *inventory.Kept, now int64) bool {
	for _, p := range k.Pins {
		if p.Until > now {
			return true
		}
	}
	return false
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
			return nil, fmt.Errorf("set %q: pin the root at %v: %w", v.set, r.Cursor, errMoved)
		}
		if err != nil && !errors.Is(err, feed.ErrFull) {
			return nil, fmt.Errorf("set %q: pin the root at %v: %w", v.set, r.Cursor, err)
		}
	}
	now := time.Now()
	s := &snapshot{root: r, tree: v.inv.Tree(r), since: now, users: 1, pinned: now}
	v.live.mu.Lock()
	defer v.live.mu.Unlock()
	v.snapshots[r.Upto] = s
	return s, nil
}

// A pinning is a pin that has to be renewed or removed.
type pinning struct {
	view *view
	snap *snapshot
	drop bool
}

// pinnings returns the pins to renew or remove now. It forgets snapshots that
// nobody uses, and those that are pinned for an hour.
func (l *Live) pinnings(now time.Time) []pinning {
	l.mu.Lock()
	defer l.mu.Unlock()
	var todo []pinning
	for _, v := range l.views {
		for upto, s := range v.snapshots {
			old := now.Sub(s.since) >= pinMost
			switch {
			case now.Sub(s.pinned) < pinEvery:
			case s.users == 0 || old:
				delete(v.snapshots, upto)
				todo = append(todo, pinning{v, s, true})
			default:
				s.pinned = now
				todo = append(todo, pinning{v, s, false})
			}
		}
	}
	return todo
}

// renew renews pins, and removes those that nobody needs.
func (l *Live) renew(ctx context.Context) {
	for _, p := range l.pinnings(time.Now()) {
		var err error
		switch {
		case p.snap.root.Upto == 0:
		case p.drop:
			err = p.view.inv.Unpin(ctx, p.snap.root.Upto, l.holder)
		default:
			_, err = p.view.inv.Pin(ctx, p.snap.root.Upto, l.holder, pinFor)
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil && !errors.Is(err, feed.ErrGone) && !errors.Is(err, feed.ErrNoSet) {
			l.logger.Warn("a pin of an inventory cannot be renewed; its readers may have to begin anew", "set", p.view.set, "err", err)
		}
	}
}

// unpinAll removes all pins of this hub.
func (l *Live) unpinAll(ctx context.Context) {
	l.mu.Lock()
	var todo []pinning
	for _, v := range l.views {
		for _, s := range v.snapshots {
			todo = append(todo, pinning{v, s, true})
		}
	}
	l.mu.Unlock()
	for _, p := range todo {
		if p.snap.root.Upto > 0 {
			_ = p.view.inv.Unpin(ctx, p.snap.root.Upto, l.holder) // if this fails, the pin expires
		}
	}
}
