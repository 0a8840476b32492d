package feed

import (
	"time"

	"github.com/rshub/rshub/resourcesync"
)

// A Lastmod selects the lastmod of entries in Change Lists and Resource Lists. In core 1.1 the
// datetime of an entry states when the change happened. In core 1.0 lastmod was that time, and
// every entry had one, so readers of 1.0 use no other attribute.
type Lastmod string

const (
	LastmodSource   Lastmod = ""         // the lastmod that the source published, if any
	LastmodDatetime Lastmod = "datetime" // the hub's datetime, which increases strictly
	// LastmodSeconds is like LastmodDatetime, but all times in the set's documents are whole
	// seconds, for readers that do not support fractions.
	LastmodSeconds Lastmod = "seconds"
)

// Header returns h with its times rounded as l requires; h itself is not modified. In whole
// seconds, an interval is rounded outwards, so that it includes the exact one.
func (l Lastmod) Header(h *resourcesync.Header) *resourcesync.Header {
	if l != LastmodSeconds {
		return h
	}
	c := *h
	c.At, c.From = l.RoundDown(h.At), l.RoundDown(h.From)
	c.Completed, c.Until = l.RoundUp(h.Completed), l.RoundUp(h.Until)
	return &c
}

// RoundDown returns t rounded down to the precision of l.
func (l Lastmod) RoundDown(t time.Time) time.Time {
	if l != LastmodSeconds {
		return t
	}
	return t.Truncate(time.Second)
}

// RoundUp returns t rounded up to the precision of l. The zero time is returned as it is.
func (l Lastmod) RoundUp(t time.Time) time.Time {
	if down := l.RoundDown(t); down.Equal(t) {
		return down
	}
	return l.RoundDown(t).Add(time.Second)
}

// Namespaces returns the namespaces of an index of the set's documents.
func (l Lastmod) Namespaces() *resourcesync.Namespaces {
	ns := resourcesync.NewNamespaces("h", resourcesync.Terms)
	ns.Micros = l != LastmodSeconds
	return ns
}
