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

// A snapshot is a root that readers of this hub use. They share one pin.
type snapshot struct {
	inv   *inventory.Inventory
	root  inventory.Root
	tree  *inventory.Tree
	since time.Time // when it was pinned

	// Guarded by Reader.mu.
	users int       // baselines, cached states, and overlays
	used  time.Time // when a use last ended
}

const (
	pinPeriod  = 150 * time.Second // for which a pin lasts, unless it is renewed
	maxPin     = time.Hour         // for which a pin is renewed
	joinPeriod = 10 * time.Minute  // after a commit, for which new readers may join earlier readers of its root
	joinMin    = 2_000             // changes by which such a root may be older, or a tenth of the resources if that is more
)

// chooseRoot returns the root for new readers: the newest one, or one that is hardly older and that others already read,
// on any hub, so that few roots are pinned. If the newest root is complete, it returns a complete one.
func (v *view) chooseRoot(ctx context.Context, rec *record) (inventory.Root, error) {
	newest := rec.head.Newest()
	for _, k := range slices.Backward(rec.head.Roots) {
		if newest.Cursor.Position > k.Cursor.Position+max(joinMin, newest.Tally.Count/10) ||
			rec.head.IsComplete(newest.Cursor) && !rec.head.IsComplete(k.Cursor) || k.Upto <= v.tooOld {
			break
		}
		if old(&k.Root, rec.Now) || !k.Pinned(rec.Now) {
			continue
		}
		if known, err := v.knows(ctx, k.Cursor); known || err != nil { // else a reader could not follow the log from it
			return k.Root, err
		}
	}
	return newest, nil
}

// old reports whether a root is too old for new readers, if there is a newer one. now is the time of the store, which
// may have been set back.
func old(root *inventory.Root, now int64) bool {
	return now < root.Made || now-root.Made >= joinPeriod.Microseconds()
}

// snapshot returns the snapshot of a root, in use by the caller. If the root is not pinned yet, snapshot pins it, and
// returns errMoved if it was dropped.
func (v *view) snapshot(ctx context.Context, root inventory.Root) (*snapshot, error) {
	r := v.reader
	r.mu.Lock()
	s := v.snapshots[root.Upto]
	if s != nil {
		s.users++
	}
	r.mu.Unlock()
	if s != nil {
		return s, nil
	}
	s = &snapshot{inv: v.inv, root: root, tree: v.inv.Tree(root), since: time.Now(), users: 1}
	err := s.pin(ctx, r.holder)
	if errors.Is(err, feed.ErrGone) {
		err = errMoved
	}
	if err != nil && !errors.Is(err, feed.ErrFull) { // a full store takes no commit that could drop the root
		return nil, fmt.Errorf("pin root at %v: %w", root.Cursor, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	v.snapshots[root.Upto] = s
	return s, nil
}

// unuseLocked ends a use. The pin stays for a while, for the next reader.
func (s *snapshot) unuseLocked() {
	s.users--
	s.used = time.Now()
}

// pin pins the root, or renews its pin. The zero Root needs no pin.
func (s *snapshot) pin(ctx context.Context, holder string) error {
	if s.root.Upto == 0 {
		return nil
	}
	_, err := s.inv.Pin(ctx, s.root.Upto, holder, pinPeriod)
	return err
}

// renewPins renews the pins of snapshots that are in use or were used recently, for an hour. It removes the other pins,
// or all of them.
func (r *Reader) renewPins(ctx context.Context, removeAll bool) {
	for s, remove := range r.pins(time.Now(), removeAll) {
		err := error(nil)
		if !remove {
			err = s.pin(ctx, r.holder)
		} else if s.root.Upto > 0 {
			err = s.inv.Unpin(ctx, s.root.Upto, r.holder) // if this fails, the pin expires
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, feed.ErrGone) && !errors.Is(err, feed.ErrNoSet) {
			r.opts.Logger.Warn("renewal of a pin failed; its readers may have to start over", "set", s.inv.Set(), "err", err)
		}
	}
}

// pins returns all snapshots, and whether their pins must be removed. It forgets these snapshots.
func (r *Reader) pins(now time.Time, removeAll bool) map[*snapshot]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	pins := map[*snapshot]bool{}
	for _, v := range r.views {
		for upto, s := range v.snapshots {
			unused := s.users == 0 && now.Sub(s.used) >= renewInterval
			pins[s] = removeAll || unused || now.Sub(s.since) >= maxPin
			if pins[s] {
				delete(v.snapshots, upto)
			}
		}
	}
	return pins
}
