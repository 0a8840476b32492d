package activity

import (
	"slices"
	"sync"
	"time"
)

// mostFailures bounds how many failures are kept.
const mostFailures = 200

// A Failure is something that went wrong, mostly on the other side. Failures of one kind
// about one thing count as one, which the newest describes.
type Failure struct {
	Kind  string // deliver, subscribe, unsubscribe or source
	Set   string
	About string // what it is about: the ID of a subscription, or empty
	By    string // who asked for what was refused; empty: nobody
	Where string // URL of the callback or the source
	Text  string // what went wrong, for people; without secrets
	Final bool   // it is not tried again: a request of a subscriber was refused

	Status int       // of the answer; 0: there was none
	First  time.Time // when this failure began
	Last   time.Time
	Times  int
}

// failures are those of a Recorder. They have a lock of their own, because each delivery
// asks for it.
type failures struct {
	mu  sync.RWMutex
	all []*Failure // in the order of Last
}

// Went notes a failure. First and Times are the Recorder's.
func (r *Recorder) Went(t Failure) {
	t.Last = r.opts.Now().UTC()
	t.First, t.Times = t.Last, 1
	f := &r.failures
	f.mu.Lock()
	defer f.mu.Unlock()
	if i := f.findLocked(&t); i >= 0 {
		t.First, t.Times = f.all[i].First, f.all[i].Times+1
		f.all = slices.Delete(f.all, i, i+1)
	} else if len(f.all) == mostFailures {
		f.all = slices.Delete(f.all, 0, 1)
	}
	f.all = append(f.all, &t)
}

// Right notes that what a failure was about went right. Then it is forgotten.
func (r *Recorder) Right(kind, set, about string) {
	f, right := &r.failures, &Failure{Kind: kind, Set: set, About: about}
	f.mu.RLock()
	i := f.findLocked(right)
	f.mu.RUnlock()
	if i < 0 {
		return // as nearly always
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if i := f.findLocked(right); i >= 0 {
		f.all = slices.Delete(f.all, i, i+1)
	}
}

func (f *failures) findLocked(t *Failure) int {
	return slices.IndexFunc(f.all, func(x *Failure) bool { return x.Kind == t.Kind && x.Set == t.Set && x.About == t.About })
}

// Failures returns what went wrong within a day and has not gone right since, the newest
// first: of one set, or of all if set is empty.
func (r *Recorder) Failures(set string) []Failure {
	r.failures.mu.RLock()
	defer r.failures.mu.RUnlock()
	all := []Failure{}
	for _, t := range slices.Backward(r.failures.all) {
		if (set == "" || t.Set == set) && r.opts.Now().Sub(t.Last) < 24*time.Hour {
			all = append(all, *t)
		}
	}
	return all
}
