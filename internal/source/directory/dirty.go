package directory

import "time"

// maxDirty is the maximum number of dirty paths in memory. If there are more, the whole directory
// is listed again.
const maxDirty = 100_000

// dirtyPaths is the set of paths that may have changed.
type dirtyPaths struct {
	paths map[string]pathState
	lost  bool // whether other paths may have changed, too
}

// A pathState is what is known about a path that may have changed.
type pathState struct {
	dueAt     time.Time // when to check the path, if it does not change before
	created   bool      // whether something was created at the path, or moved to it
	movedAway bool      // whether the file or directory at the path was moved away
}

// mark records that a path may have changed.
func (d *dirtyPaths) mark(path string, s pathState) {
	if d.paths == nil {
		d.paths = map[string]pathState{}
	}
	before := d.paths[path]
	s.created, s.movedAway = s.created || before.created, s.movedAway || before.movedAway
	if d.paths[path] = s; len(d.paths) > maxDirty {
		d.markAll()
	}
}

// markAll records that any path may have changed.
func (d *dirtyPaths) markAll() { d.paths, d.lost = nil, true }

// takeDue removes and returns the paths that are due, at most n of them. If none is due, next is
// when the first will be; the zero Time if there is no path.
func (d *dirtyPaths) takeDue(now time.Time, n int) (due map[string]pathState, next time.Time) {
	due = map[string]pathState{}
	for path, s := range d.paths {
		switch {
		case s.dueAt.After(now):
			if next.IsZero() || s.dueAt.Before(next) {
				next = s.dueAt
			}
		case len(due) < n:
			due[path] = s
			delete(d.paths, path)
		}
	}
	return due, next
}
