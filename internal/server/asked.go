package server

import (
	"net/http"
	"slices"
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/callback/websub"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/activity"
	"github.com/rshub/rshub/internal/problem"
)

// A requestView is a pending or refused request of a subscriber in the API.
type requestView struct {
	ID       string     `json:"id"`   // ID of the subscription
	Mode     string     `json:"mode"` // subscribe or unsubscribe
	Callback string     `json:"callback"`
	State    string     `json:"state"`            // waiting or refused
	Asked    *time.Time `json:"asked,omitempty"`  // time of the request; nil if it was refused
	Status   int        `json:"status,omitempty"` // status of the callback's last response
	Error    string     `json:"error,omitempty"`  // why the callback did not confirm; empty if it was not called yet
	Last     *time.Time `json:"last,omitempty"`   // time of the last verification
	Times    int        `json:"times,omitempty"`  // number of failed verifications, including those of earlier requests
}

// serveRequests serves the pending requests of subscribers to a set, and those refused within a day.
// Operators see all of them, others their own. Refused requests are known only to the hub that
// verified them.
func (s *site) serveRequests(w http.ResponseWriter, r *http.Request) error {
	set, by := r.PathValue("set"), websub.Requester(r)
	if err := feed.CheckSet(set); err != nil {
		return err
	}
	if err := access.MayFollow(r.Context(), set); err != nil {
		return err
	}
	if err := problem.RequireRead(r, "GET, HEAD"); err != nil {
		return err
	}
	if access.FromContext(r.Context()).Rights.Operate() {
		by = ""
	} else if by == "" {
		by = "nobody" // an unknown caller has no requests
	}
	waiting, err := s.websub.Waiting(r.Context(), set, by)
	if err != nil {
		return err
	}
	failures := slices.DeleteFunc(s.activity.Failures(set), func(f activity.Failure) bool {
		return f.Kind != string(subscription.Subscribe) && f.Kind != string(subscription.Unsubscribe) || by != "" && f.By != by
	})
	answer := struct {
		Requests []requestView `json:"requests"` // pending ones first
	}{[]requestView{}}
	for i := range waiting {
		q := &waiting[i]
		v := requestView{ID: q.ID().String(), Mode: string(q.Mode), Callback: q.Callback, State: "waiting", Asked: &q.At}
		for i := range failures {
			if f := &failures[i]; f.About == v.ID && f.Kind == v.Mode && f.Last.After(q.At) {
				v.Status, v.Error, v.Last, v.Times = f.Status, f.Text, &f.Last, f.Times
			}
		}
		answer.Requests = append(answer.Requests, v)
	}
	for i := range failures {
		if f := &failures[i]; f.Final {
			answer.Requests = append(answer.Requests, requestView{ID: f.About, Mode: f.Kind, Callback: f.Where, State: "refused", Status: f.Status, Error: f.Text, Last: &f.Last, Times: f.Times})
		}
	}
	problem.WriteJSON(w, http.StatusOK, answer)
	return nil
}
