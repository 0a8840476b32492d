package directory

import "time"

// maxDirty is how many dirty paths are kept. With more, the whole directory is
// listed again.
const maxDirty = 100_000

// A dirt holds the paths that may have changed.
type dirt struct {
	at   map[string]spot
	lost bool // other paths may have changed, too
}

// A spot is what is known about a path that may have changed.
type spot struct {
	quiet time.Time // when it is time to look at the path, if it does not change before
	came  bool      // something was made at the path, or moved to it
	moved bool      // the file or directory at the path was moved away
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

// take takes the paths that are due, at most n of them. If none is due, next is when the
// first will be; the zero Time if there is no path at all.
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
