package server

import (
	"net/http"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/websub"
	"github.com/rshub/rshub/internal/activity"
	"github.com/rshub/rshub/internal/inventory/audit"
	"github.com/rshub/rshub/internal/inventory/web"
)

// Following returns the followers of each set at this hub, with connections and callbacks.
func (p *parts) Following() map[string]activity.Following {
	connected, called := p.subscribe.Following(), p.engine.Following()
	all := make(map[string]activity.Following, len(connected)+len(called))
	for set, f := range connected {
		all[set] = activity.Following{Followers: f.Followers, Behind: f.Changes, Lag: f.Lag}
	}
	for set, f := range called {
		connections := all[set]
		all[set] = activity.Following{Followers: connections.Followers + f.Subscriptions, Behind: max(connections.Behind, f.Changes), Lag: max(connections.Lag, f.Lag)}
	}
	return all
}

// sourceFailure is the kind of a failed poll.
const sourceFailure = "source"

// An activityRecorder records the results of callbacks, polls and audits for the page.
type activityRecorder struct{ *activity.Recorder }

var (
	_ callback.Activity = activityRecorder{}
	_ web.Proofs        = activityRecorder{}
)

// Called records the result of a request to a callback.
func (r activityRecorder) Called(o callback.Outcome) {
	if o.Error == "" {
		r.ClearFailure(o.Kind, o.Set, o.ID.String())
		return
	}
	r.AddFailure(activity.Failure{Kind: o.Kind, Set: o.Set, About: o.ID.String(), By: o.By, Where: o.Callback, Status: o.Status, Text: o.Error, Final: o.Final})
}

// polled records the result of a poll of the source of a set.
func (r activityRecorder) polled(set, source string, err error) {
	if err == nil {
		r.ClearFailure(sourceFailure, set, "")
		return
	}
	r.AddFailure(activity.Failure{Kind: sourceFailure, Set: set, Where: source, Text: err.Error()})
}

// RecordProof records a proof of a destination.
func (r activityRecorder) RecordProof(req *http.Request, name string, proof audit.Proof) {
	r.Recorder.AddProof(activity.Proof{
		Set: proof.Set, Name: name, By: websub.Requester(req), Prefix: proof.Prefix, Compared: string(proof.By), Cursor: proof.Cursor, Count: proof.Count,
	})
}
