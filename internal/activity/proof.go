package activity

import (
	"slices"
	"time"

	"github.com/rshub/rshub/feed"
)

// Maximum numbers of recorded proofs: of all callers and of one caller.
const (
	maxProofs       = 1_000
	maxCallerProofs = 50
)

// A Proof records that a destination had the same content as the hub.
type Proof struct {
	Set      string
	Name     string // name that the destination gave itself
	By       string // caller who reported the proof; empty if unknown
	Prefix   string // if not empty, only resources whose loc has this prefix were compared
	Compared string // "position" or "content"
	Cursor   feed.Cursor
	Count    uint64 // number of resources
	At       time.Time
}

// AddProof records a proof. It replaces an earlier one of the same destination: with the same set,
// name and caller. AddProof sets At. If there are too many proofs, it drops the oldest one of the
// caller, if the caller has too many, or else the oldest of all.
func (r *Recorder) AddProof(p Proof) {
	p.At = r.opts.Now().UTC()
	r.mu.Lock()
	defer r.mu.Unlock()
	of := func(old Proof) bool { return old.By == p.By }
	out := slices.IndexFunc(r.proofs, func(old Proof) bool { return of(old) && old.Set == p.Set && old.Name == p.Name })
	if out < 0 && count(r.proofs, of) >= maxCallerProofs {
		out = slices.IndexFunc(r.proofs, of)
	}
	if out < 0 && len(r.proofs) == maxProofs {
		out = 0
	}
	if out >= 0 {
		r.proofs = slices.Delete(r.proofs, out, out+1)
	}
	r.proofs = append(r.proofs, p)
}

// Proofs returns the newest proof of each destination of a set, newest first.
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

// count returns the number of proofs for which is returns true.
func count(all []Proof, is func(Proof) bool) (n int) {
	for _, p := range all {
		if is(p) {
			n++
		}
	}
	return n
}
