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

// An askedView is a request of a subscriber that waits or was refused, as the API shows it.
type askedView struct {
	ID       string     `json:"id"`   // of the subscription
	Mode     string     `json:"mode"` // subscribe or unsubscribe
	Callback string     `json:"callback"`
	State    string     `json:"state"`            // waiting or refused
	Asked    *time.Time `json:"asked,omitempty"`  // when the request came; it is not kept of one that was refused
	Status   int        `json:"status,omitempty"` // of the callback's last answer
	Error    string     `json:"error,omitempty"`  // why the callback did not confirm it; empty: it was not asked yet
	Last     *time.Time `json:"last,omitempty"`   // when the callback was asked last
	Times    int        `json:"times,omitempty"`  // how often it was asked in vain, also for earlier requests
}

// serveRequests shows requests of subscribers to a set that wait, and those that were
// refused within a day. Operators see all of them, others those that they made. Requests
// that were refused are known only to the hub that has asked the callback.
func (s *site) serveRequests(w http.ResponseWriter, r *http.Request) error {
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
	if access.FromContext(r.Context()).Rights.Operate() {
		by = ""
	} else if by == "" {
		by = "nobody" // who is not known has made nothing
	}
	waiting, err := s.websub.Waiting(r.Context(), set, by)
	if err != nil {
		return err
	}
	failures := slices.DeleteFunc(s.activity.Failures(set), func(f activity.Failure) bool {
		return f.Kind != string(subscription.Subscribe) && f.Kind != string(subscription.Unsubscribe) || by != "" && f.By != by
	})
	answer := struct {
		Requests []askedView `json:"requests"` // those that wait first
	}{[]askedView{}}
	for i := range waiting {
		q := &waiting[i]
		v := askedView{ID: q.ID().String(), Mode: string(q.Mode), Callback: q.Callback, State: "waiting", Asked: &q.At}
		for i := range failures {
			if f := &failures[i]; f.About == v.ID && f.Kind == v.Mode && f.Last.After(q.At) {
				v.Status, v.Error, v.Last, v.Times = f.Status, f.Text, &f.Last, f.Times
			}
		}
		answer.Requests = append(answer.Requests, v)
	}
	for i := range failures {
		if f := &failures[i]; f.Final {
			answer.Requests = append(answer.Requests, askedView{ID: f.About, Mode: f.Kind, Callback: f.Where, State: "refused", Status: f.Status, Error: f.Text, Last: &f.Last, Times: f.Times})
		}
	}
	problem.WriteJSON(w, http.StatusOK, answer)
	return nil
}
