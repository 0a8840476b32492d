package inventory

import (
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// A Range is the locs from From on, up to and without To, in the order of their bytes.
// An empty From is the beginning, an empty To the end: no loc is empty.
type Range struct {
	From, To string
}

// Has reports whether a loc is in the range.
func (r Range) Has(loc string) bool { return loc >= r.From && (r.To == "" || loc < r.To) }

// Prefix returns the range of all locs that begin with a prefix. An empty prefix is the
// range of all locs.
func Prefix(prefix string) Range {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] < 0xff {
			return Range{prefix, prefix[:i] + string([]byte{prefix[i] + 1})}
		}
	}
	return Range{From: prefix} // only 0xff bytes: no loc comes after these
}

// Exists reports whether a resource exists after its newest change e.
func Exists(e *feed.Entry) bool { return e.Change.Change != resourcesync.Deleted }
