// Package inventory keeps what a set holds now: for every resource that exists, its
// newest change, with the position and the datetime of that change, in the order of loc
// (bytes as they are kept, never normalised). The log says what happened; the inventory
// says what is. It is made from the log, by a follower, and never by an append.
//
// An inventory is a Root, a copy-on-write tree at one cursor, and the log behind that
// cursor. Pages are never changed: a commit writes new ones and then swaps one small
// record, the head. So readers of an older root are not disturbed, a commit that is torn
// or comes late does no harm, and two committers at once do none either.
//
// Two inventories are compared by digests of ranges of locs. So a destination can prove
// that it is in sync, and find every difference if it is not: see Audit.
//
// The package knows no store and no server. A Store is an interface that the change
// memories fulfil, and Memory keeps pages in memory.
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
	return Range{From: prefix} // nothing but 0xff: no loc comes behind
}

// Exists reports whether a resource exists after its newest change e.
func Exists(e *feed.Entry) bool { return e.Change.Change != resourcesync.Deleted }
