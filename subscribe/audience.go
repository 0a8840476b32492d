package subscribe

import (
	"iter"
	"slices"

	"github.com/rshub/rshub/feed"
)

// An audience is the connections of a group that have the same filter.
type audience struct {
	filter feed.Filter
	key    string  // of the filter; empty: there is none
	conns  []*conn // the live ones, and those that were detached since the last delivery

	passed []feed.Entry // scratch space of wanting
}

// audiences are the connections of a group, by their filters. They find those that want a
// change by its loc, so that a change costs nothing for the others. A group guards them.
type audiences struct {
	byFilter map[string]*audience   // by Filter.Key; none is empty
	byPrefix map[string][]*audience // those with a filter, by the prefix of the filter
	lengths  []int                  // of the prefixes, ascending
	ofLength map[int]int            // how many prefixes have a length
	wants    []*audience            // scratch space of wanting
}

// kinds reports whether there are connections without a filter, and with one.
func (as *audiences) kinds() (all, filtered bool) {
	return as.byFilter[""] != nil, len(as.byPrefix) > 0
}

// add adds a connection.
func (as *audiences) add(c *conn) {
	key := c.filter.Key()
	a := as.byFilter[key]
	if a == nil {
		if as.byFilter == nil {
			as.byFilter, as.byPrefix, as.ofLength = map[string]*audience{}, map[string][]*audience{}, map[int]int{}
		}
		a = &audience{filter: c.filter, key: key}
		as.byFilter[key] = a
		if key != "" {
			as.index(a)
		}
	}
	c.audience, c.index = a, len(a.conns)
	a.conns = append(a.conns, c)
}

// remove removes a connection.
func (as *audiences) remove(c *conn) {
	a, n := c.audience, len(c.audience.conns)-1
	last := a.conns[n]
	a.conns[c.index], last.index = last, c.index
	a.conns[n] = nil
	a.conns, c.audience = a.conns[:n], nil
	if n > 0 {
		return
	}
	delete(as.byFilter, a.key)
	if a.key != "" {
		as.unindex(a)
	}
}

func (as *audiences) index(a *audience) {
	prefix := a.filter.Prefix
	as.byPrefix[prefix] = append(as.byPrefix[prefix], a)
	if len(as.byPrefix[prefix]) > 1 {
		return
	}
	n := len(prefix)
	if as.ofLength[n]++; as.ofLength[n] == 1 {
		i, _ := slices.BinarySearch(as.lengths, n)
		as.lengths = slices.Insert(as.lengths, i, n)
	}
}

func (as *audiences) unindex(a *audience) {
	prefix := a.filter.Prefix
	rest := slices.DeleteFunc(as.byPrefix[prefix], func(o *audience) bool { return o == a })
	if len(rest) > 0 {
		as.byPrefix[prefix] = rest
		return
	}
	delete(as.byPrefix, prefix)
	n := len(prefix)
	if as.ofLength[n]--; as.ofLength[n] == 0 {
		delete(as.ofLength, n)
		i, _ := slices.BinarySearch(as.lengths, n)
		as.lengths = slices.Delete(as.lengths, i, i+1)
	}
}

// wanting yields the audiences with a filter that something of a batch passes, with the
// entries that pass. If the batch diverged, it yields all of them. The batch is what
// Filter.Apply makes of it; but all filters together are found by one look at each entry.
func (as *audiences) wanting(b *feed.Batch) iter.Seq2[*audience, []feed.Entry] {
	return func(yield func(*audience, []feed.Entry) bool) {
		for i := range b.Entries {
			as.offer(&b.Entries[i])
		}
		if b.Diverged {
			as.wants = as.wants[:0]
			for _, same := range as.byPrefix {
				as.wants = append(as.wants, same...)
			}
		}
		wants := as.wants
		as.wants = nil // an audience may leave meanwhile
		for _, a := range wants {
			entries := a.passed
			if a.passed = nil; !yield(a, entries) {
				return
			}
		}
		clear(wants)
		as.wants = wants[:0]
	}
}

// offer notes an entry for the audiences whose filter it passes.
func (as *audiences) offer(e *feed.Entry) {
	for _, n := range as.lengths {
		if n > len(e.Change.Loc) {
			return
		}
		for _, a := range as.byPrefix[e.Change.Loc[:n]] {
			if a.filter.Match(&e.Change) {
				if len(a.passed) == 0 {
					as.wants = append(as.wants, a)
				}
				a.passed = append(a.passed, *e)
			}
		}
	}
}
