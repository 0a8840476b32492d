package subscribe

import (
	"iter"

	"github.com/rshub/rshub/feed"
)

// An audience is the connections of a group that have the same filter.
type audience = feed.Audience[members]

type members struct {
	conns  []*conn      // the live ones, and those that were detached since the last delivery
	passed []feed.Entry // scratch space of wanting
}

// audiences are the connections of a group. The group guards them.
type audiences struct {
	feed.Audiences[members]
	wants []*audience // scratch space of wanting
}

// add adds a connection.
func (as *audiences) add(c *conn) {
	a := as.Join(c.filter)
	c.audience, c.index = a, len(a.Members.conns)
	a.Members.conns = append(a.Members.conns, c)
}

// remove removes a connection.
func (as *audiences) remove(c *conn) {
	m := &c.audience.Members
	n := len(m.conns) - 1
	last := m.conns[n]
	m.conns[c.index], last.index = last, c.index
	m.conns[n] = nil
	m.conns = m.conns[:n]
	as.Leave(c.audience)
	c.audience = nil
}

// wanting yields the audiences with a filter that something of a batch passes, with the
// entries that pass. If the batch diverged, it yields all of them. The batch is what
// Filter.Apply makes of it; but all filters together are found by one look at each entry.
func (as *audiences) wanting(b *feed.Batch) iter.Seq2[*audience, []feed.Entry] {
	return func(yield func(*audience, []feed.Entry) bool) {
		for i := range b.Entries {
			for a := range as.Matching(&b.Entries[i].Change, nil) {
				if len(a.Members.passed) == 0 {
					as.wants = append(as.wants, a)
				}
				a.Members.passed = append(a.Members.passed, b.Entries[i])
			}
		}
		if b.Diverged {
			as.wants = as.wants[:0]
			for a := range as.All() {
				if a.Key != "" {
					as.wants = append(as.wants, a)
				}
			}
		}
		wants := as.wants
		as.wants = nil // an audience may leave meanwhile
		for _, a := range wants {
			entries := a.Members.passed
			if a.Members.passed = nil; !yield(a, entries) {
				return
			}
		}
		clear(wants)
		as.wants = wants[:0]
	}
}
