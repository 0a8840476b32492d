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

// Sets provides the sets of the hub. *sets.Server implements it.
type Sets interface {
	// Visible returns the states of the sets that the caller of ctx may follow, sorted by name.
	Visible(ctx context.Context) ([]feed.State, error)
	// State returns the state of a set, or feed.ErrNoSet.
	State(ctx context.Context, set string) (feed.State, error)
}

// MaxShown is the maximum number of sets that the page lists without JavaScript.
const MaxShown = 200

// Overview serves the view of the whole hub.
func (s *Server) Overview(w http.ResponseWriter, r *http.Request) error {
	if err := problem.RequireRead(r, "GET, HEAD"); err != nil {
		return err
	}
	states, err := s.sets.Visible(r.Context())
	if err != nil {
		return err
	}
	rows := make([]Set, min(len(states), MaxShown))
	for i := range rows {
		rows[i] = s.row(states[i])
	}
	w.Header().Add("Vary", "Authorization")
	s.serveOverview(w, r, rows, len(states)-len(rows))
	return nil
}

// row returns the row of a set in the list.
func (s *Server) row(st feed.State) Set {
	row := Set{Name: st.Set, Title: st.Title, DescribedBy: st.DescribedBy, Changes: st.Head.Position - st.Floor.Position, Held: s.opts.Holds && !st.NoInventory}
	if row.Changes > 0 {
		row.Updated = string(resourcesync.AppendTimeMicro(nil, st.Head.Micros))
	}
	return row
}

// ServeSet serves the view of a set, whether or not the caller may follow it.
func (s *Server) ServeSet(w http.ResponseWriter, r *http.Request, name string) error {
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
	row := s.row(st)
	s.serveSet(w, r, name, &row, http.StatusOK)
	return nil
}

// ServeCaller serves the identity and rights of the caller, so that a person who signs in knows that
// the token is valid.
func (s *Server) ServeCaller(w http.ResponseWriter, r *http.Request) error {
	if err := problem.RequireRead(r, "GET, HEAD"); err != nil {
		return err
	}
	c := access.FromContext(r.Context())
	answer := struct {
		Name    string `json:"name,omitempty"` // name of the token
		Operate bool   `json:"operate"`
		Tokens  bool   `json:"tokens"`            // whether the hub has tokens
		Expires string `json:"expires,omitempty"` // expiry of the token
	}{Name: c.Name, Operate: c.Rights.Operate(), Tokens: s.opts.Tokens}
	if !c.Expires.IsZero() {
		answer.Expires = string(resourcesync.AppendTime(nil, c.Expires))
	}
	w.Header().Add("Vary", "Authorization")
	problem.WriteJSON(w, http.StatusOK, answer)
	return nil
}
