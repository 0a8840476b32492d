package subscribe

import (
	"iter"

	"github.com/rshub/rshub/feed"
)

// An audience has the connections of a group with the same filter.
type audience = feed.Audience[members]

// members are the connections of an audience.
type members struct {
	conns  []*conn      // live connections, and those detached since the last delivery
	passed []feed.Entry // scratch space of wanting
}

// audiences has the connections of a group by filter. The group's mutex guards it.
type audiences struct {
	feed.Audiences[members]
	matched []*audience // scratch space of wanting
}

// add adds a connection to the audience of its filter.
func (as *audiences) add(c *conn) {
	a := as.Join(c.filter)
	c.audience, c.index = a, len(a.Members.conns)
	a.Members.conns = append(a.Members.conns, c)
}

// remove removes a connection from its audience.
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

// matching yields each audience whose filter matches entries of a batch, with these entries. If
// the batch diverged, it yields all filtered audiences. The result equals Filter.Apply for each
// audience, but each entry is matched against all filters at once.
func (as *audiences) matching(b *feed.Batch) iter.Seq2[*audience, []feed.Entry] {
	return func(yield func(*audience, []feed.Entry) bool) {
		for i := range b.Entries {
			for a := range as.Matching(&b.Entries[i].Change, nil) {
				if len(a.Members.passed) == 0 {
					as.matched = append(as.matched, a)
				}
				a.Members.passed = append(a.Members.passed, b.Entries[i])
			}
		}
		if b.Diverged {
			as.matched = as.matched[:0]
			for a := range as.All() {
				if a.Key != "" {
					as.matched = append(as.matched, a)
				}
			}
		}
		wants := as.matched
		as.matched = nil // yield may remove audiences
		for _, a := range wants {
			entries := a.Members.passed
			if a.Members.passed = nil; !yield(a, entries) {
				return
			}
		}
		clear(wants)
		as.matched = wants[:0]
	}
}
