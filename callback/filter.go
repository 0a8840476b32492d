package callback

import (
	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/resourcesync"
)

// A filter is a changelog.Filter that is shared by all subscriptions that have
// an equal one.
type filter struct {
	changelog.Filter
	key   string // Filter.Key
	users int
}

func (f *filter) match(c *resourcesync.Change) bool { return f.key == "" || f.Match(c) }

// filters are those in use, by key.
type filters map[string]*filter

// of returns the filter that is equal to f, for one more user.
func (all filters) of(f changelog.Filter) *filter {
	key := f.Key()
	known := all[key]
	if known == nil {
		known = &filter{Filter: f, key: key}
		all[key] = known
	}
	known.users++
	return known
}

// drop says that a filter has one user less.
func (all filters) drop(f *filter) {
	if f.users--; f.users == 0 {
		delete(all, f.key)
	}
}
