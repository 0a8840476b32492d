package directory

import "time"

// maxDirty is how many dirty paths are kept. With more, all is listed anew.
const maxDirty = 100_000

// A dirt has the paths that may have changed.
type dirt struct {
	at   map[string]spot
	lost bool // there may be others
}

// A spot is what is known of a path that may have changed.
type spot struct {
	quiet time.Time // when it will have been quiet long enough to look at it
	came  bool      // something was made there, or moved there
	moved bool      // what was there was moved elsewhere
}

// mark notes that a path may have changed.
func (d *dirt) mark(path string, s spot) {
	if d.at == nil {
		d.at = map[string]spot{}
	}
	before := d.at[path]
	s.came, s.moved = s.came || before.came, s.moved || before.moved
	if d.at[path] = s; len(d.at) > maxDirty {
		d.lose()
	}
}

// lose notes that any path may have changed.
func (d *dirt) lose() { d.at, d.lost = nil, true }

// take takes the paths that are due, at most n of them. If there is none, next is when the
// first will be; the zero time: there is no path at all.
func (d *dirt) take(now time.Time, n int) (due map[string]spot, next time.Time) {
	due = map[string]spot{}
	for path, s := range d.at {
		switch {
		case s.quiet.After(now):
			if next.IsZero() || s.quiet.Before(next) {
				next = s.quiet
			}
		case len(due) < n:
			due[path] = s
			delete(d.at, path)
		}
	}
	return due, next
}
