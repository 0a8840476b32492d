package sets

import (
	"net/http"

	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/problem"
)

// Looked is the result of the last look at a source, as the API shows it.
type Looked struct {
	Time    string  `json:"time"`
	Seconds float64 `json:"seconds"` // that it took
	Result  string  `json:"result"`  // ok, unchanged or failed
	Error   string  `json:"error,omitempty"`
	Listed  uint64  `json:"listed,omitempty"`  // resources of the source, if it was compared with the hub as a whole
	Gaps    int     `json:"gaps,omitempty"`    // parts of the source that could not be read
	Created int     `json:"created,omitempty"` // changes that were published
	Updated int     `json:"updated,omitempty"`
	Deleted int     `json:"deleted,omitempty"`
	Next    string  `json:"next"` // when the next look is due
}

// A sourceView is a set whose source the hub polls, as the API shows it.
type sourceView struct {
	Set    string  `json:"set"`
	Source string  `json:"source"`
	Every  string  `json:"every"`
	Looked *Looked `json:"looked,omitempty"` // nil: there was no look yet
}

// mostSources is how many sources a list has at most.
const mostSources = 100

// ServeSources lists, for operators, the sets whose sources the hub polls, from the one behind
// the parameter after on.
func (s *Server) ServeSources(w http.ResponseWriter, r *http.Request) error {
	if err := access.MayOperate(r.Context()); err != nil {
		return err
	}
	if err := problem.RequireRead(r, "GET, HEAD"); err != nil {
		return err
	}
	states, err := s.memory.Sets(r.Context())
	if err != nil {
		return err
	}
	answer := struct {
		Sources []sourceView `json:"sources"`
		Next    string       `json:"next,omitempty"`
	}{Sources: []sourceView{}}
	after := r.URL.Query().Get("after")
	for _, st := range states {
		if st.Source == "" || st.Set <= after || s.opts.Sources == nil {
			continue
		}
		if len(answer.Sources) == mostSources {
			answer.Next = string(s.base) + "/sources?after=" + answer.Sources[mostSources-1].Set
			break
		}
		v := sourceView{Set: st.Set, Source: st.Source, Every: st.Every.String()}
		if v.Looked, err = s.opts.Sources.Looked(r.Context(), st); err != nil {
			return err
		}
		answer.Sources = append(answer.Sources, v)
	}
	problem.WriteJSON(w, http.StatusOK, answer)
	return nil
}
