package server

import (
	"errors"
	"net/http"

	"github.com/rshub/rshub/access"
	"github.com/rshub/rshub/activity"
	"github.com/rshub/rshub/callback/websub"
	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/page"
	"github.com/rshub/rshub/problem"
	"github.com/rshub/rshub/resourcesync"
	"github.com/rshub/rshub/sets"
)

// maxShown bounds how many sets the page shows without JavaScript.
const maxShown = 200

// A pages serves the web page that shows people what runs here, and what only the page
// asks for.
type pages struct {
	*page.Server
	sets   *sets.Server
	memory changelog.Log
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
	states, err := p.sets.Visible(r)
	if err != nil {
		return err
	}
	shown := make([]page.Set, min(len(states), maxShown))
	for i := range shown {
		shown[i] = p.shown(states[i])
	}
	w.Header().Add("Vary", "Authorization")
	p.ServeOverview(w, r, shown, len(states)-len(shown))
	return nil
}

// shown returns a set as the page shows it without JavaScript.
func (p *pages) shown(st feed.State) page.Set {
	s := page.Set{Name: st.Set, Title: st.Title, DescribedBy: st.DescribedBy, Changes: st.Head.Position - st.Floor.Position, Held: p.holds && !st.NoInventory}
	if s.Changes > 0 {
		s.Updated = string(resourcesync.AppendTimeMicro(nil, st.Head.Micros))
	}
	return s
}

// wantsPage reports whether r reads, and asks for HTML.
func wantsPage(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && page.Wants(r)
}

// visits reports whether r comes from a person in a browser, who gets a document of the
// standard as a page. That page is the same for a document that is private, and for one
// that is not there.
func (p *pages) visits(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && page.Visits(r)
}

// serveSet serves the view of a set if r asks for HTML, and the set as JSON if not.
func (p *pages) serveSet(w http.ResponseWriter, r *http.Request) error {
	w.Header().Add("Vary", "Accept")
	if !wantsPage(r) {
		return p.sets.ServeOne(w, r, r.PathValue("set"))
	}
	name := r.PathValue("set")
	if err := feed.CheckSet(name); err != nil {
		return err
	}
	w.Header().Add("Vary", "Authorization")
	st, err := feed.State{}, access.MayFollow(r.Context(), name)
	if err == nil {
		st, err = p.memory.State(r.Context(), name)
	}
	if err != nil {
		status := problem.From(err).Status
		if status != http.StatusUnauthorized && status != http.StatusForbidden && !errors.Is(err, feed.ErrNoSet) {
			return err
		}
		p.ServeSet(w, r, name, nil, status)
		return nil
	}
	shown := p.shown(st)
	p.ServeSet(w, r, name, &shown, http.StatusOK)
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
	problem.WriteJSON(w, http.StatusOK, answer)
	return nil
}
