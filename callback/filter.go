package callback

import (
	"slices"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// A filter is a feed.Filter that is shared by all subscriptions that have an equal
// one.
type filter struct {
	feed.Filter        // never changed
	key         string // Filter.Key, never changed; empty: every change passes

	users int // how many subs have it

	// The last publish that was tried, so that it is tried once for all subs.
	tried  uint64 // state.publishes
	passes bool   // some of its changes pass
}

// match reports whether a change passes.
func (f *filter) match(c *resourcesync.Change) bool { return f.key == "" || f.Match(c) }

// filters are the filters that are in use, by key.
type filters map[string]*filter

// of returns the filter that is equal to f, which gets one more user.
func (all filters) of(f feed.Filter) *filter {
	key := f.Key()
	known := all[key]
	if known == nil {
		known = &filter{Filter: f, key: key}
		all[key] = known
	}
	known.users++
	return known
}

// drop takes a user from a filter.
func (all filters) drop(f *filter) {
	if f.users--; f.users == 0 {
		delete(all, f.key)
	}
}

// matchAny reports whether any of the entries passes.
func (f *filter) matchAny(entries []feed.Entry) bool {
	for i := range entries {
		if f.match(&entries[i].Change) {
			return true
		}
	}
	return false
}

// wants reports whether any change of a publish passes.
func (f *filter) wants(publish uint64, batches []*feed.Batch) bool {
	if f.tried != publish {
		f.tried = publish
		f.passes = slices.ContainsFunc(batches, func(b *feed.Batch) bool { return f.matchAny(b.Entries) })
	}
	return f.passes
}
