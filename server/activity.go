package server

import (
	"net/http"
	"net/url"
	"time"

	"github.com/rshub/rshub/access"
	"github.com/rshub/rshub/activity"
	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/problem"
	"github.com/rshub/rshub/resourcesync"
)

// following says who follows each set at this hub: by a connection, and by a callback.
func (p *parts) following() map[string]activity.Following {
	connected, called := p.subscribe.Following(), p.engine.Following()
	all := make(map[string]activity.Following, len(connected)+len(called))
	for set, f := range connected {
		all[set] = activity.Following{Followers: f.Followers, Behind: f.Changes, Lag: f.Lag}
	}
	for set, f := range called {
		was := all[set]
		all[set] = activity.Following{Followers: was.Followers + f.Subscriptions, Behind: max(was.Behind, f.Changes), Lag: max(was.Lag, f.Lag)}
	}
	return all
}

// sourceFailure is the kind of a failed look at a source.
const sourceFailure = "source"

// called notes what came of a request to a callback.
func (p *parts) called(o callback.Outcome) {
	if o.Error == "" {
		p.activity.Right(o.Kind, o.Set, o.ID.String())
		return
	}
	p.activity.Went(activity.Failure{Kind: o.Kind, Set: o.Set, About: o.ID.String(), By: o.By, Where: o.Callback, Status: o.Status, Text: o.Error, Final: o.Final})
}

// looked notes what came of a look at the source of a set.
func (p *parts) looked(set, source string, err error) {
	if err == nil {
		p.activity.Right(sourceFailure, set, "")
		return
	}
	p.activity.Went(activity.Failure{Kind: sourceFailure, Set: set, Where: source, Text: err.Error()})
}

// An hourView is what happened in the last hour, as the API shows it.
type hourView struct {
	Set        string    `json:"set,omitempty"` // empty: all sets
	From       string    `json:"from"`          // when the first step began
	Step       float64   `json:"step"`          // seconds
	Changes    []uint32  `json:"changes"`       // that the memory took, from whatever hub
	Deliveries []uint32  `json:"deliveries"`    // changes that this hub delivered
	Lag        []float32 `json:"lag"`           // the greatest of a follower of this hub, in seconds
}

// serveActivity serves the last hour of a set, to whoever may follow it, or of all sets,
// to operators.
func (p *pages) serveActivity(w http.ResponseWriter, r *http.Request) error {
	set := r.PathValue("set")
	if set == "" {
		if err := access.MayOperate(r.Context()); err != nil {
			return err
		}
	} else {
		if err := feed.CheckSet(set); err != nil {
			return err
		}
		if err := access.MayFollow(r.Context(), set); err != nil {
			return err
		}
	}
	if err := problem.OnlyRead(r, "GET, HEAD"); err != nil {
		return err
	}
	if set != "" {
		if _, err := p.memory.State(r.Context(), set); err != nil {
			return err // nobody has charts of sets that are not there
		}
	}
	h := p.activity.Hour(set)
	problem.WriteJSON(w, http.StatusOK, hourView{set, string(resourcesync.AppendTime(nil, h.From)), activity.Step.Seconds(), h.Changes, h.Deliveries, h.Lag})
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

// serveFailures serves operators what went wrong in the last day at this hub, with all
// sets or with one.
func (p *pages) serveFailures(w http.ResponseWriter, r *http.Request) error {
	if err := access.MayOperate(r.Context()); err != nil {
		return err
	}
	if err := problem.OnlyRead(r, "GET, HEAD"); err != nil {
		return err
	}
	answer := struct {
		Failures []failureView `json:"failures"` // the newest first
	}{[]failureView{}}
	for _, f := range p.activity.Failures(r.PathValue("set")) {
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
