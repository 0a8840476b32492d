package live

import (
	"cmp"
	"slices"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/inventory"
)

// A kept is a state that is kept because readers may ask for it again.
type kept struct {
	view  *view
	state *inventory.State
	snap  *snapshot // this kept has a use of it
	made  time.Time

	// Guarded by Live.mu.
	bytes   int // memory of the state alone
	readers int
	used    time.Time
}

// keepFor is how long a state is kept after its last use.
const keepFor = 10 * time.Minute

// About the memory of a kept state alone, besides State.Bytes: always, and for each later
// change. A later change may replace one, and the state then holds the old one alone.
const (
	keptBytes   = 1 << 10
	keptPerNext = 1 << 8
)

// keep keeps a state, and returns it with one more reader. The caller has the view's
// turn. If the same state is kept already, keep returns that one. It replaces a kept
// state at another cursor of the same position, which belongs to a lost log, and one on
// another root, which may have been dropped. own is the memory of the state that is not
// charged yet.
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
	k := &kept{view: v, state: s, snap: snap, made: now, bytes: keptBytes + s.Bytes() + own, used: now}
	snap.users++
	l.bytes += k.bytes
	v.kept = slices.Insert(v.kept, i, k)
	return k.readLocked()
}

func (v *view) findLocked(at feed.Cursor) (int, bool) {
	return slices.BinarySearchFunc(v.kept, at, func(k *kept, at feed.Cursor) int { return cmp.Compare(k.state.Cursor().Position, at.Position) })
}

// take returns the state that is kept at a cursor, with one more reader; nil if there is
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

// newest returns the newest kept state, with one more reader, if it was made a
// moment ago; else nil.
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

// released notes that a reader of the state has finished.
func (k *kept) released() {
	l := k.view.live
	l.mu.Lock()
	defer l.mu.Unlock()
	k.readers--
	k.snap.users--
	k.used = time.Now()
	k.view.used = k.used
}

// forgetLocked removes a state from its view. Its readers may go on reading it.
func (l *Live) forgetLocked(k *kept) {
	k.view.kept = slices.DeleteFunc(k.view.kept, func(o *kept) bool { return o == k })
	l.bytes -= k.bytes
	k.snap.users--
}

// makeRoom drops states that nobody reads, the least recently used first, until the
// rest fits into memory. It reports whether the rest fits.
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
