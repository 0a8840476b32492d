package server

import (
	"net/http"

	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/websub"
	"github.com/rshub/rshub/internal/activity"
	"github.com/rshub/rshub/internal/inventory/audit"
	"github.com/rshub/rshub/internal/inventory/web"
)

// Following says who follows each set at this hub: by a connection, and by a callback.
func (p *parts) Following() map[string]activity.Following {
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

// happened notes for the page what happens at callbacks, at sources and at destinations.
type happened struct{ *activity.Recorder }

var (
	_ callback.Activity = happened{}
	_ web.Proofs        = happened{}
)

// Called notes the result of a request to a callback.
func (r happened) Called(o callback.Outcome) {
	if o.Error == "" {
		r.Right(o.Kind, o.Set, o.ID.String())
		return
	}
	r.Went(activity.Failure{Kind: o.Kind, Set: o.Set, About: o.ID.String(), By: o.By, Where: o.Callback, Status: o.Status, Text: o.Error, Final: o.Final})
}

// looked notes the result of a look at the source of a set.
func (r happened) looked(set, source string, err error) {
	if err == nil {
		r.Right(sourceFailure, set, "")
		return
	}
	r.Went(activity.Failure{Kind: sourceFailure, Set: set, Where: source, Text: err.Error()})
}

// Proved notes that a destination holds the same as the hub.
func (r happened) Proved(req *http.Request, name string, proof audit.Proof) {
	r.Recorder.Proved(activity.Proof{
		Set: proof.Set, Name: name, By: websub.Requester(req), Prefix: proof.Prefix, Compared: string(proof.By), Cursor: proof.Cursor, Count: proof.Count,
	})
}
