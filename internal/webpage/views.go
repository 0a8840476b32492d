package webpage

import (
	"context"
	"errors"
	"net/http"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/resourcesync"
)

// Sets are the sets that the page shows. They are a *sets.Server.
type Sets interface {
	// Visible returns the states of the sets that the caller of ctx may follow, sorted by name.
	Visible(ctx context.Context) ([]feed.State, error)
	// State returns the state of a set, or feed.ErrNoSet.
	State(ctx context.Context, set string) (feed.State, error)
}

// MaxShown bounds how many sets the page shows without JavaScript.
const MaxShown = 200

// Overview answers with the view of the whole hub.
func (s *Server) Overview(w http.ResponseWriter, r *http.Request) error {
	if err := problem.OnlyRead(r, "GET, HEAD"); err != nil {
		return err
	}
	states, err := s.sets.Visible(r.Context())
	if err != nil {
		return err
	}
	shown := make([]Set, min(len(states), MaxShown))
	for i := range shown {
		shown[i] = s.shown(states[i])
	}
	w.Header().Add("Vary", "Authorization")
	s.serveOverview(w, r, shown, len(states)-len(shown))
	return nil
}

// shown returns a set as the page shows it without JavaScript.
func (s *Server) shown(st feed.State) Set {
	shown := Set{Name: st.Set, Title: st.Title, DescribedBy: st.DescribedBy, Changes: st.Head.Position - st.Floor.Position, Held: s.opts.Holds && !st.NoInventory}
	if shown.Changes > 0 {
		shown.Updated = string(resourcesync.AppendTimeMicro(nil, st.Head.Micros))
	}
	return shown
}

// OneSet answers with the view of a set, whether or not the caller may follow it.
func (s *Server) OneSet(w http.ResponseWriter, r *http.Request, name string) error {
	if err := feed.CheckSet(name); err != nil {
		return err
	}
	w.Header().Add("Vary", "Authorization")
	st, err := feed.State{}, access.MayFollow(r.Context(), name)
	if err == nil {
		st, err = s.sets.State(r.Context(), name)
	}
	if err != nil {
		status := problem.From(err).Status
		if status != http.StatusUnauthorized && status != http.StatusForbidden && !errors.Is(err, feed.ErrNoSet) {
			return err
		}
		s.serveSet(w, r, name, nil, status)
		return nil
	}
	shown := s.shown(st)
	s.serveSet(w, r, name, &shown, http.StatusOK)
	return nil
}

// Caller tells a caller who the hub takes it for, so that a person who signs in knows that the
// token is good.
func (s *Server) Caller(w http.ResponseWriter, r *http.Request) error {
	if err := problem.OnlyRead(r, "GET, HEAD"); err != nil {
		return err
	}
	c := access.FromContext(r.Context())
	answer := struct {
		Name    string `json:"name,omitempty"` // of the token
		Operate bool   `json:"operate"`
		Tokens  bool   `json:"tokens"`            // there are tokens
		Expires string `json:"expires,omitempty"` // when the token does
	}{Name: c.Name, Operate: c.Rights.Operate(), Tokens: s.opts.Tokens}
	if !c.Expires.IsZero() {
		answer.Expires = string(resourcesync.AppendTime(nil, c.Expires))
	}
	w.Header().Add("Vary", "Authorization")
	problem.WriteJSON(w, http.StatusOK, answer)
	return nil
}
