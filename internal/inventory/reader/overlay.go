package reader

import (
	"context"
	"errors"
	"fmt"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
)

// An overlay has the changes of the log after the root of a snapshot, up to a cursor. It uses the snapshot until it is
// discarded. The states made from it refer to it for their root, and because they share its changes.
type overlay struct {
	*snapshot
	view    *view
	changes *inventory.Overlay // nil if the overlay was discarded
	at      feed.Cursor        // cursor that it has reached
	bytes   int                // memory of changes, as counted in Reader.bytes; guarded by Reader.mu
}

// newOverlay returns an overlay without changes. It takes over the caller's use of the snapshot.
func newOverlay(v *view, s *snapshot, rec *record) *overlay {
	o := &overlay{snapshot: s, view: v, changes: inventory.NewOverlay(s.tree), at: s.root.Cursor}
	if o.at.IsZero() && rec.Log.Floor.Position == 0 {
		o.at = rec.Log.Floor // the same in the form of the log
	}
	return o
}

const (
	maxOverlay  = 64 << 20 // maximum bytes of an overlay
	readEntries = 1_000    // maximum number of entries of one read of the log
	addEntries  = 16_000   // entries added together, so that each page of the root is read once for all of them
)

// reaches reports whether the overlay is at a cursor, or can be extended to it.
func (o *overlay) reaches(at feed.Cursor) bool { return o.at == at || o.at.Position < at.Position }

// extend adds the changes of the log up to exactly a cursor. It returns errMoved if the log does not know one of the
// two cursors, and ErrBehind or ErrTooMany if the changes do not fit into memory.
func (o *overlay) extend(ctx context.Context, to feed.Cursor) error {
	for o.at.Position < to.Position {
		at, entries, err := o.readLog(ctx, to.Position)
		if err == nil {
			err = o.changes.Add(ctx, entries)
		}
		if err != nil {
			return err
		}
		o.at = at
		if err := o.charge(len(entries)); err != nil {
			return err
		}
	}
	if o.at != to {
		return fmt.Errorf("log has %v, want %v: %w", o.at, to, errMoved)
	}
	return nil
}

// readLog returns about addEntries entries after the overlay's cursor, but none after the position to, and the cursor
// of the last one.
func (o *overlay) readLog(ctx context.Context, to uint64) (at feed.Cursor, entries []feed.Entry, err error) {
	at = o.at
	for at.Position < to && len(entries) < addEntries {
		b, err := o.view.reader.log.Since(ctx, o.view.set, at, int(min(readEntries, to-at.Position)))
		if errors.Is(err, feed.ErrGone) || err == nil && (b.Diverged || len(b.Entries) == 0) {
			err = errMoved
		}
		if err != nil {
			return at, nil, fmt.Errorf("read log after %v: %w", at, err)
		}
		entries, at = append(entries, b.Entries...), b.Cursor
	}
	return at, entries, nil
}

// charge counts the memory of added changes. If they replace changes, the newest state may still have these.
func (o *overlay) charge(added int) error {
	v, n := o.view, o.changes.Bytes()
	r := v.reader
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bytes += n - o.bytes
	o.bytes = n
	v.inheritLocked(o, len(v.states), added*n/max(1, o.changes.Len()))
	if n > maxOverlay {
		return fmt.Errorf("changes after root at %v: more than %d bytes: %w", o.root.Cursor, maxOverlay, ErrBehind)
	}
	if !r.evictLocked() {
		return fmt.Errorf("states of all sets: more than %d bytes: %w", r.opts.StateBytes, ErrTooMany)
	}
	return nil
}

// discard frees an overlay, which may be nil. Its states remain.
func (v *view) discard(o *overlay) {
	v.reader.mu.Lock()
	defer v.reader.mu.Unlock()
	v.discardLocked(o)
}

// discardLocked is discard. The caller must also hold the lock of the view, unless the view has no users.
func (v *view) discardLocked(o *overlay) {
	if o == nil {
		return
	}
	if o == v.overlay {
		v.overlay = nil
	}
	v.reader.bytes -= o.bytes
	v.inheritLocked(o, len(v.states), o.bytes)
	o.unuseLocked()
	o.changes = nil
}
