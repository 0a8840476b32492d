package feed

import (
	"iter"
	"slices"

	"github.com/rshub/rshub/resourcesync"
)

// An Audience is those who have the same filter.
type Audience[M any] struct {
	Filter  Filter // never changed
	Key     string // Filter.Key, never changed
	Members M      // the owner of the Audiences keeps them here

	size int
}

// Audiences are all who wait for the changes of a set, by their filters. They find those who
// want a change by its loc, so that a change costs nothing for the others. The zero value is
// empty. The owner guards them.
type Audiences[M any] struct {
	byKey    map[string]*Audience[M]   // by Filter.Key; none is empty
	byPrefix map[string][]*Audience[M] // those with a filter, by the prefix of the filter
	lengths  []int                     // of the prefixes, ascending
	ofLength map[int]int               // how many prefixes have a length
}

// Join returns the audience of a filter, which gets one more member.
func (as *Audiences[M]) Join(f Filter) *Audience[M] {
	key := f.Key()
	a := as.byKey[key]
	if a == nil {
		if as.byKey == nil {
			as.byKey, as.byPrefix, as.ofLength = map[string]*Audience[M]{}, map[string][]*Audience[M]{}, map[int]int{}
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

// Leave takes a member from an audience. An audience without members is forgotten.
func (as *Audiences[M]) Leave(a *Audience[M]) {
	if a.size--; a.size > 0 {
		return
	}
	delete(as.byKey, a.Key)
	if a.Key != "" {
		as.unindex(a)
	}
}

func (as *Audiences[M]) index(a *Audience[M]) {
	prefix := a.Filter.Prefix
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

func (as *Audiences[M]) unindex(a *Audience[M]) {
	prefix := a.Filter.Prefix
	rest := slices.DeleteFunc(as.byPrefix[prefix], func(o *Audience[M]) bool { return o == a })
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

// All yields all audiences.
func (as *Audiences[M]) All() iter.Seq[*Audience[M]] {
	return func(yield func(*Audience[M]) bool) {
		for _, a := range as.byKey {
			if !yield(a) {
				return
			}
		}
	}
}

// Everybody returns the audience without a filter; nil: there is none.
func (as *Audiences[M]) Everybody() *Audience[M] { return as.byKey[""] }

// Filtered reports whether there are audiences with a filter.
func (as *Audiences[M]) Filtered() bool { return len(as.byPrefix) > 0 }

// Wanting yields the audiences with a filter that a change passes, of those that matter: it tries
// no filter of another one. nil: all matter.
func (as *Audiences[M]) Wanting(c *resourcesync.Change, matters func(*Audience[M]) bool) iter.Seq[*Audience[M]] {
	return func(yield func(*Audience[M]) bool) {
		for _, n := range as.lengths {
			if n > len(c.Loc) {
				return
			}
			for _, a := range as.byPrefix[c.Loc[:n]] {
				if (matters == nil || matters(a)) && a.Filter.Match(c) && !yield(a) {
					return
				}
			}
		}
	}
}
