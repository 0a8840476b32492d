package inventory

import (
	"fmt"
	"iter"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// maxAhead is how many changes a lookahead holds.
const maxAhead = 2_000

// A lookahead reads a sequence of changes, and holds the next ones.
type lookahead struct {
	next func() (*feed.Entry, bool)
	step func() error // Changes.Step; may be nil
	buf  []feed.Entry
	off  int    // index in buf of the next change
	last string // loc of the newest change in buf
	end  bool   // whether the sequence has ended
	err  error  // why it ended early
}

// newLookahead returns the changes of a sequence. The caller must call stop.
func newLookahead(sorted iter.Seq[*feed.Entry], step func() error) (l *lookahead, stop func()) {
	next, stop := iter.Pull(sorted)
	return &lookahead{next: next, step: step}, stop
}

// peek returns the change after the next n, without removing it. It returns nil if the sequence has ended
// before it, or if n is not less than maxAhead.
func (l *lookahead) peek(n int) *feed.Entry {
	for l.off+n >= len(l.buf) {
		if l.end || n >= maxAhead {
			return nil
		}
		l.fetch()
	}
	return &l.buf[l.off+n]
}

// fetch adds the next change of the sequence to buf.
func (l *lookahead) fetch() {
	e, ok := l.next()
	if l.step != nil {
		l.err = l.step()
	}
	if ok && l.err == nil && (e.Change.Loc == "" || e.Change.Loc <= l.last) {
		l.err = fmt.Errorf("changes out of order: %q after %q", resourcesync.Shorten(e.Change.Loc), resourcesync.Shorten(l.last))
	}
	if l.end = !ok || l.err != nil; l.end {
		return
	}
	if l.off > 0 && l.off == len(l.buf) {
		l.buf, l.off = l.buf[:0], 0
	} else if l.off >= maxAhead {
		l.buf, l.off = l.buf[:copy(l.buf, l.buf[l.off:])], 0
	}
	l.buf = append(l.buf, *e)
	l.last = e.Change.Loc
}

// before reports whether the change after the next n exists and comes before a loc. An empty loc is the end
// of all.
func (l *lookahead) before(n int, to string) bool {
	e := l.peek(n)
	return e != nil && (to == "" || e.Change.Loc < to)
}

// pop removes the next change.
func (l *lookahead) pop() { l.off++ }
