package mirror

import (
	"strings"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// names reports whether changes of a resource concern the mirror.
func (m *Mirror) names(loc string) bool { return strings.HasPrefix(loc, m.opts.Prefix) }

// wants reports whether a change belongs in the mirror: the newest of a resource leaves the
// resource there. A deletion belongs there wherever the resource was.
func (m *Mirror) wants(c *resourcesync.Change) bool {
	return feed.Filter{Prefix: m.opts.Prefix, Collection: m.opts.Collection}.Match(c)
}

// holds reports whether the mirror has a resource, or tries to get it, for whatever reason.
func (m *Mirror) holds(loc string) (bool, error) {
	if _, listed, err := m.home.Ledger.Seen(loc); err != nil || listed {
		return listed, err
	}
	if _, placed, err := m.home.Ledger.Path(loc); err != nil || placed {
		return placed, err
	}
	_, failed, err := m.home.Ledger.Failure(loc)
	return failed, err
}
