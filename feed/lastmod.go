package feed

import (
	"time"

	"github.com/rshub/rshub/resourcesync"
)

// A Lastmod says what the lastmod of an entry of a Change List or a Resource List is. Core 1.1 has a datetime
// for when a change happened. In core 1.0 lastmod was that time, and every entry had one, so
// readers of 1.0 look nowhere else.
type Lastmod string

const (
	LastmodOfSource   Lastmod = ""         // as the source published it, if it did
	LastmodIsDatetime Lastmod = "datetime" // the datetime of the hub, which ascends
	LastmodInSeconds  Lastmod = "seconds"  // the same, and all times of the set's documents are in whole seconds: some readers know no fractions
)

// Header returns h with times in the form of l. An interval of whole seconds includes that
// of h.
func (l Lastmod) Header(h *resourcesync.Header) *resourcesync.Header {
	if l != LastmodInSeconds {
		return h
	}
	c := *h
	c.At, c.From = l.Down(h.At), l.Down(h.From)
	c.Completed, c.Until = l.Up(h.Completed), l.Up(h.Until)
	return &c
}

// Down returns a time in the form of l, not later than t.
func (l Lastmod) Down(t time.Time) time.Time {
	if l != LastmodInSeconds {
		return t
	}
	return t.Truncate(time.Second)
}

// Up returns a time in the form of l, not earlier than t. The zero time stays.
func (l Lastmod) Up(t time.Time) time.Time {
	if down := l.Down(t); down.Equal(t) {
		return down
	}
	return l.Down(t).Add(time.Second)
}

// Namespaces returns the namespaces of an index of the set's documents.
func (l Lastmod) Namespaces() *resourcesync.Namespaces {
	ns := resourcesync.NewNamespaces("h", resourcesync.Terms)
	ns.Micros = l != LastmodInSeconds
	return ns
}
