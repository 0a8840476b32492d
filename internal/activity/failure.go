package activity

import (
	"slices"
	"time"
)

// maxFailures is the maximum number of recorded failures.
const maxFailures = 200

// A Failure is a failed request, usually to a callback or a source. Repeated failures of one kind
// with one subject are one Failure, which describes the newest.
type Failure struct {
	Kind  string // deliver, subscribe, unsubscribe or source
	Set   string
	About string // ID of the subscription that failed, or empty
	By    string // caller whose request was refused; empty if none
	Where string // URL of the callback or the source
	Text  string // message for people, without secrets
	Final bool   // whether it is not retried, because a subscriber's request was refused

	Status int       // HTTP status of the response; zero if there was none
	First  time.Time // time of the first failure
	Last   time.Time
	Times  int
}

// failures is a list of failures, sorted by Last.
type failures []*Failure

// AddFailure records a failure. It sets First, Last and Times.
func (r *Recorder) AddFailure(t Failure) {
	t.Last = r.opts.Now().UTC()
	t.First, t.Times = t.Last, 1
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.failures.find(&t); i >= 0 {
		t.First, t.Times = r.failures[i].First, r.failures[i].Times+1
		r.failures = slices.Delete(r.failures, i, i+1)
	} else if len(r.failures) == maxFailures {
		r.failures = slices.Delete(r.failures, 0, 1)
	}
	r.failures = append(r.failures, &t)
}

// ClearFailure removes the failure of a request that has now succeeded, if there is one.
func (r *Recorder) ClearFailure(kind, set, about string) {
	r.mu.RLock()
	i := r.failures.find(&Failure{Kind: kind, Set: set, About: about})
	r.mu.RUnlock()
	if i < 0 {
		return // common case
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.failures.find(&Failure{Kind: kind, Set: set, About: about}); i >= 0 {
		r.failures = slices.Delete(r.failures, i, i+1)
	}
}

// find returns the index of the failure with the kind, set and subject of t, or -1.
func (all failures) find(t *Failure) int {
	return slices.IndexFunc(all, func(x *Failure) bool { return x.Kind == t.Kind && x.Set == t.Set && x.About == t.About })
}

// Failures returns the uncleared failures of the last day, newest first, of one set, or of all sets
// if set is empty.
func (r *Recorder) Failures(set string) []Failure {
	r.mu.RLock()
	defer r.mu.RUnlock()
	all := []Failure{}
	for _, t := range slices.Backward(r.failures) {
		if (set == "" || t.Set == set) && r.opts.Now().Sub(t.Last) < 24*time.Hour {
			all = append(all, *t)
		}
	}
	return all
}
