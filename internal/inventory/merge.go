package inventory

import (
	"container/heap"
	"iter"

	"github.com/rshub/rshub/feed"
)

// A merging merges sorted runs of changes. If two runs change the same resource, it yields the change of the later
// run first.
type merging struct {
	runs []*mergingRun // a heap
	err  error         // why it ended early
}

type mergingRun struct {
	age   int                         // number of earlier runs
	entry *feed.Entry                 // next change
	next  func() (*feed.Entry, error) // returns the change after entry, or nil at the end
}

// add adds a run that is newer than all others.
func (m *merging) add(next func() (*feed.Entry, error)) {
	r := &mergingRun{age: len(m.runs), next: next}
	m.runs = append(m.runs, r)
}

// all yields all changes in the order of loc. A change is valid until the next one is yielded.
func (m *merging) all() iter.Seq[*feed.Entry] {
	return func(yield func(*feed.Entry) bool) {
		live := m.runs[:0]
		for _, r := range m.runs {
			if m.advance(r) {
				live = append(live, r)
			}
		}
		m.runs = live
		heap.Init(m)
		for len(m.runs) > 0 && m.err == nil {
			r := m.runs[0]
			if !yield(r.entry) {
				return
			}
			if m.advance(r) {
				heap.Fix(m, 0)
			} else {
				heap.Pop(m)
			}
		}
	}
}

// advance reads the next change of a run. It returns false at the end and after an error.
func (m *merging) advance(r *mergingRun) bool {
	var err error
	if r.entry, err = r.next(); err != nil {
		m.err = err
	}
	return r.entry != nil && err == nil
}

func (m *merging) Len() int      { return len(m.runs) }
func (m *merging) Swap(i, j int) { m.runs[i], m.runs[j] = m.runs[j], m.runs[i] }
func (m *merging) Push(any)      {} // never called

func (m *merging) Pop() any {
	last := m.runs[len(m.runs)-1]
	m.runs = m.runs[:len(m.runs)-1]
	return last
}

func (m *merging) Less(i, j int) bool {
	a, b := m.runs[i], m.runs[j]
	if a.entry.Change.Loc != b.entry.Change.Loc {
		return a.entry.Change.Loc < b.entry.Change.Loc
	}
	return a.age > b.age
}
