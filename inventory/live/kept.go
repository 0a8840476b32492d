package live

import (
	"cmp"
	"slices"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/inventory"
)

// A kept is a state that readers may come back for.
type kept struct {
	view  *view
	state *inventory.State
	snap  *snapshot // a use of it
	made  time.Time

	// Guarded by Live.mu.
	bytes   int // that the state takes for itself
	readers int
	used    time.Time
}

// What a kept state takes for itself, about: always, and for each change that came
// since, because it holds nodes of which the next state has its own.
const (
	keptBytes   = 1 << 10
	keptPerNext = 1 << 9
)

// keep keeps a state, and returns it with one reader. The caller has the view's turn. If
// the state is kept already, that is returned. One at another cursor of the same position
// is of a log that was lost, and one that stands on another root may stand on one that
// lives no more: the new state takes their place. own is what it takes besides what is
// charged already.
func (v *view) keep(s *inventory.State, snap *snapshot, own int) *kept {
	l := v.live
	l.mu.Lock()
	defer l.mu.Unlock()
	i, found := v.findLocked(s.Cursor())
	if found {
		if k := v.kept[i]; k.state.Cursor() == s.Cursor() && k.snap == snap {
			return k.readLocked()
		}
		l.forgetLocked(v.kept[i])
	}
	now := time.Now()
	k := &kept{view: v, state: s, snap: snap, made: now, bytes: keptBytes + own, used: now}
	snap.users++
	l.bytes += k.bytes
	v.kept = slices.Insert(v.kept, i, k)
	return k.readLocked()
}

func (v *view) findLocked(at feed.Cursor) (int, bool) {
	return slices.BinarySearchFunc(v.kept, at, func(k *kept, at feed.Cursor) int { return cmp.Compare(k.state.Cursor().Position, at.Position) })
}

// take returns the state that is kept at a cursor, with one reader more; nil if there is
// none.
func (v *view) take(at feed.Cursor) *kept {
	v.live.mu.Lock()
	defer v.live.mu.Unlock()
	i, found := v.findLocked(at)
	if !found || v.kept[i].state.Cursor() != at {
		return nil
	}
	return v.kept[i].readLocked()
}

// newest returns the newest state that is kept, with one reader more, if it was made
// just now; else nil.
func (v *view) newest() *kept {
	v.live.mu.Lock()
	defer v.live.mu.Unlock()
	n := len(v.kept)
	if n == 0 || time.Since(v.kept[n-1].made) >= freshFor {
		return nil
	}
	return v.kept[n-1].readLocked()
}

// readLocked adds a reader.
func (k *kept) readLocked() *kept {
	k.readers++
	k.snap.users++
	return k
}

// released says that a reader of the state has finished.
func (k *kept) released() {
	l := k.view.live
	l.mu.Lock()
	defer l.mu.Unlock()
	k.readers--
	k.snap.users--
	k.used = time.Now()
	k.view.used = k.used
}

// forgetLocked takes a state out of its view. Whoever reads it may go on.
func (l *Live) forgetLocked(k *kept) {
	k.view.kept = slices.DeleteFunc(k.view.kept, func(o *kept) bool { return o == k })
	l.bytes -= k.bytes
	k.snap.users--
}

// makeRoom drops states that nobody reads, those used longest ago first, until all fit
// into memory. It reports whether they do.
func (l *Live) makeRoom() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bytes <= l.opts.StateBytes {
		return true
	}
	var idle []*kept
	for _, v := range l.views {
		for _, k := range v.kept {
			if k.readers == 0 {
				idle = append(idle, k)
			}
		}
	}
	slices.SortFunc(idle, func(a, b *kept) int { return a.used.Compare(b.used) })
	for _, k := range idle {
		if l.bytes <= l.opts.StateBytes {
			break
		}
		l.forgetLocked(k)
	}
	for _, v := range l.views {
		if v.waiters == 0 && l.bytes > l.opts.StateBytes {
			v.dropLocked() // without waiters, nobody has the turn
		}
	}
	return l.bytes <= l.opts.StateBytes
}
