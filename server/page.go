package server

import (
	"errors"
	"net/http"

	"github.com/rshub/rshub/access"
	"github.com/rshub/rshub/activity"
	"github.com/rshub/rshub/callback/websub"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/jsonbody"
	"github.com/rshub/rshub/openapi"
	"github.com/rshub/rshub/page"
	"github.com/rshub/rshub/problem"
	"github.com/rshub/rshub/resourcesync"
)

// maxShown bounds how many sets the page shows without JavaScript.
const maxShown = 200

// A pages serves the web page that shows people what runs here, and what only the page
// asks for.
type pages struct {
	*page.Server
	sets   *sets
	tokens bool // there are tokens
	holds  bool // the hub keeps what sets hold

	activity *activity.Recorder
	websub   *websub.Server
}

// serveOverview serves the view of the whole hub.
func (p *pages) serveOverview(w http.ResponseWriter, r *http.Request) error {
	if err := problem.OnlyRead(r, "GET, HEAD"); err != nil {
		return err
	}
	states, err := p.sets.visible(r.Context())
	if err != nil {
		return err
	}
	shown := make([]page.Set, min(len(states), maxShown))
	for i := range shown {
		shown[i] = p.shown(states[i])
	}
	w.Header().Add("Vary", "Authorization")
	w.Header().Add("Link", "<"+string(p.sets.base)+openapi.Path+`>; rel="service-desc"; type="application/json"`) // RFC 8631
	p.ServeOverview(w, shown, len(states)-len(shown))
	return nil
}

// shown returns a set as the page shows it without JavaScript.
func (p *pages) shown(st feed.State) page.Set {
	s := page.Set{Name: st.Set, Title: st.Title, DescribedBy: st.DescribedBy, Changes: st.Len(), Held: p.holds && !st.NoInventory}
	if s.Changes > 0 {
		s.Updated = string(resourcesync.AppendTimeMicro(nil, st.Head.Micros))
	}
	return s
}

// serveSet serves the view of a set if r asks for HTML, and the set as JSON if not.
func (p *pages) serveSet(w http.ResponseWriter, r *http.Request) error {
	w.Header().Add("Vary", "Accept")
	if !page.Wants(r) {
		return p.sets.serveOne(w, r)
	}
	name := r.PathValue("set")
	if err := feed.CheckSet(name); err != nil {
		return err
	}
	w.Header().Add("Vary", "Authorization")
	st, err := feed.State{}, access.MayFollow(r.Context(), name)
	if err == nil {
		st, err = p.sets.memory.State(r.Context(), name)
	}
	if err != nil {
		status := problem.From(err).Status
		if status != http.StatusUnauthorized && status != http.StatusForbidden && !errors.Is(err, feed.ErrNoSet) {
			return err
		}
		p.ServeSet(w, name, nil, status)
		return nil
	}
	shown := p.shown(st)
	p.ServeSet(w, name, &shown, http.StatusOK)
	return nil
}

func (p *pages) serveAsset(w http.ResponseWriter, r *http.Request) error {
	return p.ServeAsset(w, r, r.PathValue("version"), r.PathValue("name"))
}

// serveCaller tells a caller who the hub takes it for, so that a person who signs in
// knows that the token is good.
func (p *pages) serveCaller(w http.ResponseWriter, r *http.Request) error {
	if err := problem.OnlyRead(r, "GET, HEAD"); err != nil {
		return err
	}
	c := access.FromContext(r.Context())
	answer := struct {
		Name    string `json:"name,omitempty"` // of the token
		Operate bool   `json:"operate"`
		Tokens  bool   `json:"tokens"`            // there are tokens
		Expires string `json:"expires,omitempty"` // when the token does
	}{Name: c.Name, Operate: c.Rights.Operate(), Tokens: p.tokens}
	if !c.Expires.IsZero() {
		answer.Expires = string(resourcesync.AppendTime(nil, c.Expires))
	}
	w.Header().Add("Vary", "Authorization")
	jsonbody.Write(w, http.StatusOK, answer)
	return nil
}
