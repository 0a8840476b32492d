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

// A view is what the readers of a set on this hub share: the changes after a root, and
// the states that were made from them.
type view struct {
	live *Live
	set  string
	inv  *inventory.Inventory

	turn chan struct{} // of capacity 1; a goroutine that has put an element in has the turn

	// Only the goroutine that has the turn may use these.
	begin   int64              // when the log of all this began
	base    *snapshot          // the overlay's root, with a use of it; nil: no overlay
	overlay *inventory.Overlay // the changes of the log after base
	at      feed.Cursor        // the cursor that the overlay reaches
	charged int                // bytes of the overlay that Live.bytes counts

	// Guarded by Live.mu.
	snapshots map[uint64]*snapshot // by Root.Upto
	kept      []*kept              // ascending by cursor
	used      time.Time
	waiters   int // how many goroutines want or have the turn; the view stays while there are any
}

const (
	overlayMost = 64 << 20 // the most bytes of an overlay
	moveFrom    = 32 << 20 // from so many bytes on, a newer root takes the place of the overlay's
	freshFor    = 2 * time.Second
	addEntries  = 16_000 // entries added to an overlay together, so that each page is read once for all of them
)

// enter returns the view of a set, with its turn.
func (l *Live) enter(ctx context.Context, set string) (*view, error) {
	l.mu.Lock()
	v := l.views[set]
	if v == nil {
		v = &view{live: l, set: set, inv: l.inventory(set), turn: make(chan struct{}, 1), snapshots: map[uint64]*snapshot{}}
		l.views[set] = v
	}
	v.waiters++
	v.used = time.Now()
	l.mu.Unlock()
	select {
	case v.turn <- struct{}{}:
		return v, nil
	case <-ctx.Done():
		l.mu.Lock()
		defer l.mu.Unlock()
		v.waiters--
		return nil, fmt.Errorf("set %q: wait for other readers: %w", set, ctx.Err())
	}
}

// leave gives up the turn. It forgets a view that has nothing, because anybody may ask for sets
// that there are not.
func (v *view) leave() {
	<-v.turn
	v.live.mu.Lock()
	defer v.live.mu.Unlock()
	if v.waiters--; v.waiters == 0 && v.overlay == nil && len(v.kept) == 0 && len(v.snapshots) == 0 {
		delete(v.live.views, v.set)
	}
}

// load reads the record. If the set was made anew, v forgets everything.
func (v *view) load(ctx context.Context) (inventory.Record, *inventory.Head, error) {
	rec, head, err := load(ctx, v.inv)
	if err != nil {
		if errors.Is(err, feed.ErrNoSet) || errors.Is(err, feed.ErrNoInventory) {
			v.reset()
		}
		return rec, head, err
	}
	if rec.Log.Begin != v.begin {
		v.reset()
		v.begin = rec.Log.Begin
	}
	return rec, head, nil
}

// reset forgets everything, because the set has another log.
func (v *view) reset() {
	v.drop()
	l := v.live
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(v.kept) > 0 {
		l.forgetLocked(v.kept[0])
	}
	v.snapshots = map[uint64]*snapshot{}
}

// drop drops the overlay. The states that were made of it keep what they need.
func (v *view) drop() {
	v.live.mu.Lock()
	defer v.live.mu.Unlock()
	v.dropLocked()
}

// dropLocked is drop. The caller also has v's turn.
func (v *view) dropLocked() {
	if v.overlay == nil {
		return
	}
	if k := v.lastLocked(); k != nil {
		k.bytes += v.charged
	} else {
		v.live.bytes -= v.charged
	}
	v.base.users--
	v.base, v.overlay, v.charged, v.at = nil, nil, 0, feed.Cursor{}
}

// lastLocked returns the newest state that was made of the overlay, or nil.
func (v *view) lastLocked() *kept {
	if n := len(v.kept); n > 0 && v.kept[n-1].snap == v.base {
		return v.kept[n-1]
	}
	return nil
}

// charge updates the memory of the overlay after changes were added.
func (v *view) charge(added int) {
	l := v.live
	l.mu.Lock()
	defer l.mu.Unlock()
	n := v.overlay.Bytes()
	l.bytes += n - v.charged
	v.charged = n
	if k := v.lastLocked(); k != nil {
		k.bytes += added * keptPerNext
		l.bytes += added * keptPerNext
	}
}

// settle makes sure that the overlay's root is still kept and not too far behind the
// newest root.
func (v *view) settle(ctx context.Context, rec *inventory.Record, head *inventory.Head) error {
	newest := head.Newest()
	switch {
	case v.overlay == nil:
	case !alive(head, v.base.root):
		v.drop()
	case newest.Upto == v.base.root.Upto:
		return nil
	case v.overlay.Bytes() > moveFrom || time.Since(v.base.since) >= joinFor || v.base.root.Upto == 0:
		// What came after the newest root is read from the log once more.
		v.drop()
		s, err := v.snapshot(ctx, newest)
		if err != nil {
			return err
		}
		v.begins(s, rec)
	}
	if v.overlay != nil {
		return nil
	}
	s, err := v.choose(ctx, rec, head)
	if err != nil {
		return err
	}
	v.begins(s, rec)
	return nil
}

// begins begins an overlay on a snapshot, of which v has a use.
func (v *view) begins(s *snapshot, rec *inventory.Record) {
	v.base, v.overlay, v.at = s, inventory.NewOverlay(s.tree), start(s.root, rec.Log)
}

// alive reports whether a root is still kept. The zero Root always is.
func alive(head *inventory.Head, r inventory.Root) bool {
	return r.Upto == 0 || slices.ContainsFunc(head.Roots, func(k inventory.Kept) bool { return k.Upto == r.Upto })
}

// start returns the cursor of a root, in the log's form.
func start(r inventory.Root, s feed.State) feed.Cursor {
	if r.Cursor.IsZero() && s.Floor.Position == 0 {
		return s.Floor
	}
	return r.Cursor
}

// errMoved means that the log does not know the cursor up to which it was read.
var errMoved = errors.New("the cursor is not in the log")

// read adds to the overlay the changes of the log up to at least a position.
func (v *view) read(ctx context.Context, upto uint64) error {
	at, err := v.live.fill(ctx, v.set, v.overlay, v.at, upto, v.charge)
	v.at = at
	return err
}

// fill adds to an overlay the changes of the log after at, up to exactly a position. It
// returns the cursor that it reached. It calls grown after it added changes.
func (l *Live) fill(ctx context.Context, set string, o *inventory.Overlay, at feed.Cursor, upto uint64, grown func(added int)) (feed.Cursor, error) {
	for at.Position < upto {
		var entries []feed.Entry
		to := at
		for to.Position < upto && len(entries) < addEntries {
			b, err := l.log.Since(ctx, set, to, int(min(readEntries, upto-to.Position)))
			if errors.Is(err, feed.ErrGone) || err == nil && (b.Diverged || len(b.Entries) == 0) {
				return at, fmt.Errorf("set %q: %v: %w", set, to, errMoved)
			}
			if err != nil {
				return at, fmt.Errorf("set %q: read log: %w", set, err)
			}
			entries, to = append(entries, b.Entries...), b.Cursor
		}
		if err := o.Add(ctx, entries); err != nil {
			return at, fmt.Errorf("set %q: %w", set, err)
		}
		at = to
		grown(len(entries))
		if o.Bytes() > overlayMost {
			return at, fmt.Errorf("set %q: pending changes exceed the memory limit: %w", set, ErrBehind)
		}
		if !l.makeRoom() {
			return at, fmt.Errorf("set %q: states of all sets exceed the memory limit: %w", set, ErrTooMany)
		}
	}
	return at, nil
}
