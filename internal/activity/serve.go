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

// An HourView is an Hour as the API represents it.
type HourView struct {
	Set        string    `json:"set,omitempty"` // empty for all sets
	From       string    `json:"from"`          // start of the first step
	Step       float64   `json:"step"`          // seconds
	Changes    []uint32  `json:"changes"`       // changes that the change memory accepted from all hubs
	Deliveries []uint32  `json:"deliveries"`    // changes that this hub delivered
	Lag        []float32 `json:"lag"`           // maximum lag of this hub's followers, in seconds
}

// ServeHour serves the last hour of a set to callers that may follow it. With an empty set it
// serves the last hour of all sets to operators.
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
	if err := problem.RequireRead(req, "GET, HEAD"); err != nil {
		return err
	}
	var now *feed.State
	if set != "" {
		st, err := r.state(req.Context(), set)
		if err != nil {
			return err // nonexistent sets must not get charts
		}
		now = &st
	}
	h := r.hourNow(req.Context(), now)
	problem.WriteJSON(w, http.StatusOK, HourView{set, string(resourcesync.AppendTime(nil, h.From)), Step.Seconds(), h.Changes, h.Deliveries, h.Lag})
	return nil
}

// A failureView is a Failure as the API represents it.
type failureView struct {
	Kind   string    `json:"kind"` // deliver, subscribe, unsubscribe or source
	Set    string    `json:"set"`
	ID     string    `json:"id,omitempty"` // ID of the subscription
	URL    string    `json:"url"`          // URL of the callback or the source
	Status int       `json:"status,omitempty"`
	Error  string    `json:"error"`
	Final  bool      `json:"final,omitempty"` // whether it is not retried
	First  time.Time `json:"first"`
	Last   time.Time `json:"last"`
	Times  int       `json:"times"`
}

// state returns the state of a set. The error is feed.ErrNoSet if it does not exist.
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

// ServeFailures serves operators the failures of the last day at this hub, of one set, or of all
// sets if set is empty.
func (r *Recorder) ServeFailures(w http.ResponseWriter, req *http.Request, set string) error {
	if set != "" {
		if err := feed.CheckSet(set); err != nil {
			return err
		}
	}
	if err := access.MayOperate(req.Context()); err != nil {
		return err
	}
	if err := problem.RequireRead(req, "GET, HEAD"); err != nil {
		return err
	}
	answer := struct {
		Failures []failureView `json:"failures"` // newest first
	}{[]failureView{}}
	for _, f := range r.Failures(set) {
		answer.Failures = append(answer.Failures, failureView{f.Kind, f.Set, f.About, withoutSecrets(f.Where), f.Status, f.Text, f.Final, f.First, f.Last, f.Times})
	}
	problem.WriteJSON(w, http.StatusOK, answer)
	return nil
}

// withoutSecrets returns a URL without the parts that may be secret.
func withoutSecrets(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}

// A ProofView is a Proof as the API represents it.
type ProofView struct {
	Name     string    `json:"name"`
	By       string    `json:"by,omitempty"` // who reported the proof: a token or an address
	Prefix   string    `json:"prefix,omitempty"`
	Compared string    `json:"compared"` // position or content
	Cursor   string    `json:"cursor"`
	Count    uint64    `json:"count"`
	At       time.Time `json:"at"`
}

// ServeProofs serves the newest proof of each destination of a set. Operators receive all proofs,
// other callers those that were reported by by, which is the caller itself.
func (r *Recorder) ServeProofs(w http.ResponseWriter, req *http.Request, set, by string) error {
	if err := feed.CheckSet(set); err != nil {
		return err
	}
	if err := access.MayFollow(req.Context(), set); err != nil {
		return err
	}
	if err := problem.RequireRead(req, "GET, HEAD"); err != nil {
		return err
	}
	st, err := r.state(req.Context(), set)
	if err != nil {
		return err
	}
	all := access.FromContext(req.Context()).Rights.Operate()
	answer := struct {
		Proofs []ProofView `json:"proofs"` // newest first
	}{[]ProofView{}}
	for _, f := range r.Proofs(set) {
		if f.Cursor.Micros < st.Begin { // of an earlier set with this name
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
