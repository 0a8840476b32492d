package activity

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/resourcesync"
)

// An HourView is what happened in the last hour, as the API shows it.
type HourView struct {
	Set        string    `json:"set,omitempty"` // empty: all sets
	From       string    `json:"from"`          // when the first step began
	Step       float64   `json:"step"`          // seconds
	Changes    []uint32  `json:"changes"`       // that the memory took, from whatever hub
	Deliveries []uint32  `json:"deliveries"`    // changes that this hub delivered
	Lag        []float32 `json:"lag"`           // the greatest of a follower of this hub, in seconds
}

// ServeHour serves the last hour of a set, to callers that may follow it. With the empty set it
// serves that of all sets, to operators.
func (r *Recorder) ServeHour(w http.ResponseWriter, req *http.Request, set string) error {
	if set == "" {
		if err := access.MayOperate(req.Context()); err != nil {
			return err
		}
	} else {
		if err := feed.CheckSet(set); err != nil {
			return err
		}
		if err := access.MayFollow(req.Context(), set); err != nil {
			return err
		}
	}
	if err := problem.OnlyRead(req, "GET, HEAD"); err != nil {
		return err
	}
	var now *feed.State
	if set != "" {
		st, err := r.state(req.Context(), set)
		if err != nil {
			return err // there are no charts of sets that do not exist
		}
		now = &st
	}
	h := r.hourNow(req.Context(), now)
	problem.WriteJSON(w, http.StatusOK, HourView{set, string(resourcesync.AppendTime(nil, h.From)), Step.Seconds(), h.Changes, h.Deliveries, h.Lag})
	return nil
}

// A failureView is something that went wrong, as the API shows it.
type failureView struct {
	Kind   string    `json:"kind"` // deliver, subscribe, unsubscribe or source
	Set    string    `json:"set"`
	ID     string    `json:"id,omitempty"` // of the subscription
	URL    string    `json:"url"`          // of the callback or of the source
	Status int       `json:"status,omitempty"`
	Error  string    `json:"error"`
	Final  bool      `json:"final,omitempty"` // it is not tried again
	First  time.Time `json:"first"`
	Last   time.Time `json:"last"`
	Times  int       `json:"times"`
}

// state returns the state of a set, or feed.ErrNoSet.
func (r *Recorder) state(ctx context.Context, set string) (feed.State, error) {
	states, err := r.log.Sets(ctx, set)
	if err == nil && len(states) == 0 {
		err = feed.ErrNoSet
	}
	if err != nil {
		return feed.State{}, err
	}
	return states[0], nil
}

// ServeFailures serves operators what went wrong in the last day at this hub, with one set or,
// with the empty set, with all of them.
func (r *Recorder) ServeFailures(w http.ResponseWriter, req *http.Request, set string) error {
	if set != "" {
		if err := feed.CheckSet(set); err != nil {
			return err
		}
	}
	if err := access.MayOperate(req.Context()); err != nil {
		return err
	}
	if err := problem.OnlyRead(req, "GET, HEAD"); err != nil {
		return err
	}
	answer := struct {
		Failures []failureView `json:"failures"` // the newest first
	}{[]failureView{}}
	for _, f := range r.Failures(set) {
		answer.Failures = append(answer.Failures, failureView{f.Kind, f.Set, f.About, withoutSecrets(f.Where), f.Status, f.Text, f.Final, f.First, f.Last, f.Times})
	}
	problem.WriteJSON(w, http.StatusOK, answer)
	return nil
}

// withoutSecrets returns a URL without what may be a secret for others.
func withoutSecrets(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}

// A ProofView is when a destination last held the same as the hub, as the API shows it.
type ProofView struct {
	Name     string    `json:"name"`
	By       string    `json:"by,omitempty"` // who told the hub: a token or an address
	Prefix   string    `json:"prefix,omitempty"`
	Compared string    `json:"compared"` // position or content
	Cursor   string    `json:"cursor"`
	Count    uint64    `json:"count"`
	At       time.Time `json:"at"`
}

// ServeProofs shows when each destination of a set last held the same as the hub. Operators
// see all of them, others those that by, which is who asks, has told the hub.
func (r *Recorder) ServeProofs(w http.ResponseWriter, req *http.Request, set, by string) error {
	if err := feed.CheckSet(set); err != nil {
		return err
	}
	if err := access.MayFollow(req.Context(), set); err != nil {
		return err
	}
	if err := problem.OnlyRead(req, "GET, HEAD"); err != nil {
		return err
	}
	st, err := r.state(req.Context(), set)
	if err != nil {
		return err
	}
	all := access.FromContext(req.Context()).Rights.Operate()
	answer := struct {
		Proofs []ProofView `json:"proofs"` // the newest first
	}{[]ProofView{}}
	for _, f := range r.Proofs(set) {
		if f.Cursor.Micros < st.Begin { // it is of another set of this name
			continue
		}
		if !all && (by == "" || f.By != by) {
			continue
		}
		answer.Proofs = append(answer.Proofs, ProofView{f.Name, f.By, f.Prefix, f.Compared, f.Cursor.String(), f.Count, f.At})
	}
	problem.WriteJSON(w, http.StatusOK, answer)
	return nil
}
