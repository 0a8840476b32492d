package server

import (
	"net/http"

	"github.com/rshub/rshub/activity"
	"github.com/rshub/rshub/callback"
	"github.com/rshub/rshub/callback/websub"
	"github.com/rshub/rshub/inventory/audit"
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

// Proved notes that a destination holds the same as the hub.
func (p *parts) Proved(r *http.Request, name string, proof audit.Proof) {
	p.activity.Proved(activity.Proof{
		Set: proof.Set, Name: name, By: websub.Requester(r), Prefix: proof.Prefix, Compared: string(proof.By), Cursor: proof.Cursor, Count: proof.Count,
	})
}
