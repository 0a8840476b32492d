package feed

import (
	"iter"
	"slices"

	"github.com/rshub/rshub/resourcesync"
)

// An Audience is the group of followers of a set that have the same filter.
type Audience[M any] struct {
	Filter  Filter // must not be modified
	Key     string // Filter.Key(); must not be modified
	Members M      // for the owner of the Audiences, which stores the followers here

	size int
}

// Audiences groups the followers of a set by their filters. It finds the audiences of a change by
// the loc of the change, so that the cost of a change does not depend on the number of other
// audiences. The zero value is empty. It is not safe for concurrent use.
type Audiences[M any] struct {
	byKey       map[string]*Audience[M]   // audiences by Filter.Key; each has at least one member
	byPrefix    map[string][]*Audience[M] // audiences with a filter, by the filter's prefix
	lengths     []int                     // distinct prefix lengths, ascending
	lengthCount map[int]int               // number of distinct prefixes of each length
}

// Join returns the audience with filter f after adding a member to it. It creates the audience if
// necessary.
func (as *Audiences[M]) Join(f Filter) *Audience[M] {
	key := f.Key()
	a := as.byKey[key]
	if a == nil {
		if as.byKey == nil {
			as.byKey, as.byPrefix, as.lengthCount = map[string]*Audience[M]{}, map[string][]*Audience[M]{}, map[int]int{}
		}
		a = &Audience[M]{Filter: f, Key: key}
		as.byKey[key] = a
		if key != "" {
			as.index(a)
		}
	}
	a.size++
	return a
}

// Leave removes a member from a. An audience without members is removed.
func (as *Audiences[M]) Leave(a *Audience[M]) {
	if a.size--; a.size > 0 {
		return
	}
	delete(as.byKey, a.Key)
	if a.Key != "" {
		as.unindex(a)
	}
}

// index adds a to byPrefix and lengths.
func (as *Audiences[M]) index(a *Audience[M]) {
	prefix := a.Filter.Prefix
	as.byPrefix[prefix] = append(as.byPrefix[prefix], a)
	if len(as.byPrefix[prefix]) > 1 {
		return
	}
	n := len(prefix)
	if as.lengthCount[n]++; as.lengthCount[n] == 1 {
		i, _ := slices.BinarySearch(as.lengths, n)
		as.lengths = slices.Insert(as.lengths, i, n)
	}
}

// unindex removes a from byPrefix and lengths.
func (as *Audiences[M]) unindex(a *Audience[M]) {
	prefix := a.Filter.Prefix
	rest := slices.DeleteFunc(as.byPrefix[prefix], func(o *Audience[M]) bool { return o == a })
	if len(rest) > 0 {
		as.byPrefix[prefix] = rest
		return
	}
	delete(as.byPrefix, prefix)
	n := len(prefix)
	if as.lengthCount[n]--; as.lengthCount[n] == 0 {
		delete(as.lengthCount, n)
		i, _ := slices.BinarySearch(as.lengths, n)
		as.lengths = slices.Delete(as.lengths, i, i+1)
	}
}

// All yields all audiences, in no order.
func (as *Audiences[M]) All() iter.Seq[*Audience[M]] {
	return func(yield func(*Audience[M]) bool) {
		for _, a := range as.byKey {
			if !yield(a) {
				return
			}
		}
	}
}

// Unfiltered returns the audience without a filter, or nil if it does not exist.
func (as *Audiences[M]) Unfiltered() *Audience[M] { return as.byKey[""] }

// HasFiltered reports whether an audience with a filter exists.
func (as *Audiences[M]) HasFiltered() bool { return len(as.byPrefix) > 0 }

// Matching yields the audiences with a filter that matches c. If include is not nil, Matching skips
// audiences for which it returns false, without evaluating their filters.
func (as *Audiences[M]) Matching(c *resourcesync.Change, include func(*Audience[M]) bool) iter.Seq[*Audience[M]] {
	return func(yield func(*Audience[M]) bool) {
		for _, n := range as.lengths {
			if n > len(c.Loc) {
				return
			}
			for _, a := range as.byPrefix[c.Loc[:n]] {
				if (include == nil || include(a)) && a.Filter.Match(c) && !yield(a) {
					return
				}
			}
		}
	}
}
