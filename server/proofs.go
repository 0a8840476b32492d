package server

import (
	"net/http"
	"time"

	"github.com/rshub/rshub/access"
	"github.com/rshub/rshub/activity"
	"github.com/rshub/rshub/callback/websub"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/inventory/audit"
	"github.com/rshub/rshub/problem"
)

// Proved notes that a destination holds the same as the hub.
func (p *parts) Proved(r *http.Request, name string, proof audit.Proof) {
	p.activity.Proved(activity.Proof{
		Set: proof.Set, Name: name, By: websub.Requester(r), Prefix: proof.Prefix, Compared: string(proof.By), Cursor: proof.Cursor, Count: proof.Count,
	})
}

// A proofView is when a destination last held the same as the hub, as the API shows it.
type proofView struct {
	Name     string    `json:"name"`
	By       string    `json:"by,omitempty"` // who told the hub: a token or an address
	Prefix   string    `json:"prefix,omitempty"`
	Compared string    `json:"compared"` // position or content
	Cursor   string    `json:"cursor"`
	Count    uint64    `json:"count"`
	At       time.Time `json:"at"`
}

// serveProofs shows when each destination of a set last held the same as the hub. Operators
// see all of them, others their own.
func (p *pages) serveProofs(w http.ResponseWriter, r *http.Request) error {
	set, by := r.PathValue("set"), websub.Requester(r)
	if err := feed.CheckSet(set); err != nil {
		return err
	}
	if err := access.MayFollow(r.Context(), set); err != nil {
		return err
	}
	if err := problem.OnlyRead(r, "GET, HEAD"); err != nil {
		return err
	}
	st, err := p.memory.State(r.Context(), set)
	if err != nil {
		return err
	}
	all := access.FromContext(r.Context()).Rights.Operate()
	answer := struct {
		Proofs []proofView `json:"proofs"` // the newest first
	}{[]proofView{}}
	for _, f := range p.activity.Proofs(set) {
		if f.Cursor.Micros < st.Begin { // it is of another set of this name
			continue
		}
		if !all && (by == "" || f.By != by) {
			continue
		}
		answer.Proofs = append(answer.Proofs, proofView{f.Name, f.By, f.Prefix, f.Compared, f.Cursor.String(), f.Count, f.At})
	}
	problem.WriteJSON(w, http.StatusOK, answer)
	return nil
}
