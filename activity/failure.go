package activity

import (
	"slices"
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

// failures are in the order of Last.
type failures []*Failure

// Went notes a failure. First and Times are the Recorder's.
func (r *Recorder) Went(t Failure) {
	t.Last = r.opts.Now().UTC()
	t.First, t.Times = t.Last, 1
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.failed.find(&t); i >= 0 {
		t.First, t.Times = r.failed[i].First, r.failed[i].Times+1
		r.failed = slices.Delete(r.failed, i, i+1)
	} else if len(r.failed) == mostFailures {
		r.failed = slices.Delete(r.failed, 0, 1)
	}
	r.failed = append(r.failed, &t)
}

// Right notes that what a failure was about went right. Then it is forgotten.
func (r *Recorder) Right(kind, set, about string) {
	r.mu.RLock()
	i := r.failed.find(&Failure{Kind: kind, Set: set, About: about})
	r.mu.RUnlock()
	if i < 0 {
		return // as nearly always
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.failed.find(&Failure{Kind: kind, Set: set, About: about}); i >= 0 {
		r.failed = slices.Delete(r.failed, i, i+1)
	}
}

func (all failures) find(t *Failure) int {
	return slices.IndexFunc(all, func(x *Failure) bool { return x.Kind == t.Kind && x.Set == t.Set && x.About == t.About })
}

// Failures returns what went wrong within a day and has not gone right since, the newest
// first: of one set, or of all if set is empty.
func (r *Recorder) Failures(set string) []Failure {
	r.mu.RLock()
	defer r.mu.RUnlock()
	all := []Failure{}
	for _, t := range slices.Backward(r.failed) {
		if (set == "" || t.Set == set) && r.opts.Now().Sub(t.Last) < 24*time.Hour {
			all = append(all, *t)
		}
	}
	return all
}
