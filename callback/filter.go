package callback

import (
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// A filter is a feed.Filter that is shared by all subscriptions that have an equal
// one.
type filter struct {
	feed.Filter        // never changed
	key         string // Filter.Key, never changed; empty: every change passes

	users int // how many subs have it
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

// matches reports whether any change of the batches passes a filter. It keeps the answer
// in known, for the other subs that have the filter.
func matches(known map[*filter]bool, f *filter, batches []*feed.Batch) bool {
	m, ok := known[f]
	if ok {
		return m
	}
search:
	for _, b := range batches {
		for i := range b.Entries {
			if m = f.match(&b.Entries[i].Change); m {
				break search
			}
		}
	}
	known[f] = m
	return m
}
