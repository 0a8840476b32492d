package activity

import (
	"slices"
	"time"

	"github.com/rshub/rshub/feed"
)

// How many proofs are kept: of all destinations, and of those of one caller.
const (
	mostProofs   = 1_000
	mostOfCaller = 50
)

// A Proof says when a destination last held the same as the hub.
type Proof struct {
	Set      string
	Name     string // of the destination, as it says
	By       string // the caller who told the hub; empty: nobody knows
	Prefix   string // only of resources whose loc begins with it
	Compared string // position or content
	Cursor   feed.Cursor
	Count    uint64 // resources
	At       time.Time
}

// Proved notes a proof instead of an earlier one of the same destination: the same set,
// name and caller. The Recorder sets At. If there are too many, the oldest is forgotten,
// of the caller who has too many or else of all.
func (r *Recorder) Proved(p Proof) {
	p.At = r.opts.Now().UTC()
	r.mu.Lock()
	defer r.mu.Unlock()
	of := func(old Proof) bool { return old.By == p.By }
	out := slices.IndexFunc(r.proofs, func(old Proof) bool { return of(old) && old.Set == p.Set && old.Name == p.Name })
	if out < 0 && count(r.proofs, of) >= mostOfCaller {
		out = slices.IndexFunc(r.proofs, of)
	}
	if out < 0 && len(r.proofs) == mostProofs {
		out = 0
	}
	if out >= 0 {
		r.proofs = slices.Delete(r.proofs, out, out+1)
	}
	r.proofs = append(r.proofs, p)
}

// Proofs returns the newest proof of each destination of a set, the newest first.
func (r *Recorder) Proofs(set string) []Proof {
	r.mu.RLock()
	defer r.mu.RUnlock()
	all := []Proof{}
	for _, p := range slices.Backward(r.proofs) {
		if p.Set == set {
			all = append(all, p)
		}
	}
	return all
}

func count(all []Proof, is func(Proof) bool) (n int) {
	for _, p := range all {
		if is(p) {
			n++
		}
	}
	return n
}
