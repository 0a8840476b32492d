package activity

import (
	"slices"
	"time"
)

// mostFailures bounds how many failures are kept.
const mostFailures = 200

// A Failure is something that went wrong, mostly at a callback or a source. Repeated
// failures of one kind about one thing are one Failure, which describes the newest.
type Failure struct {
	Kind  string // deliver, subscribe, unsubscribe or source
	Set   string
	About string // ID of the subscription that failed, or empty
	By    string // the caller whose request was refused; empty: nobody
	Where string // URL of the callback or the source
	Text  string // what went wrong, for people; without secrets
	Final bool   // nothing will be tried again, because a subscriber's request was refused

	Status int       // HTTP status of the answer; 0: no answer
	First  time.Time // when it failed first
	Last   time.Time
	Times  int
}

// failures are sorted by Last.
type failures []*Failure

// Went notes a failure. The Recorder sets First and Times.
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

// Right notes that something which failed has now succeeded. The Recorder
// forgets the failure.
func (r *Recorder) Right(kind, set, about string) {
	r.mu.RLock()
	i := r.failed.find(&Failure{Kind: kind, Set: set, About: about})
	r.mu.RUnlock()
	if i < 0 {
		return // the usual case
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

// Failures returns the failures of the last day that Right has not ended, the newest
// first: of one set, or of all sets if set is empty.
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
