package mirror

import (
	"strings"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// hasPrefix reports whether a loc starts with Options.Prefix.
func (m *Mirror) hasPrefix(loc string) bool { return strings.HasPrefix(loc, m.opts.Prefix) }

// matches reports whether the mirror has the resource after the change. A deletion matches
// wherever the resource was.
func (m *Mirror) matches(c *resourcesync.Change) bool {
	return feed.Filter{Prefix: m.opts.Prefix, Collection: m.opts.Collection}.Match(c)
}

// holds reports whether the mirror has a resource or tries to fetch it.
func (m *Mirror) holds(loc string) (bool, error) {
	if _, listed, err := m.home.Ledger.ListedResource(loc); err != nil || listed {
		return listed, err
	}
	if _, hasPath, err := m.home.Ledger.Path(loc); err != nil || hasPath {
		return hasPath, err
	}
	_, failed, err := m.home.Ledger.Failure(loc)
	return failed, err
}
