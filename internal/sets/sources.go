package sets

import (
	"net/http"

	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/problem"
)

// A LastPoll is the result of the last poll of a source, as shown by the API.
type LastPoll struct {
	Time    string  `json:"time"`
	Seconds float64 `json:"seconds"` // duration
	Result  string  `json:"result"`  // ok, unchanged or failed
	Error   string  `json:"error,omitempty"`
	Listed  uint64  `json:"listed,omitempty"`  // number of resources of the source, if it was compared as a whole
	Gaps    int     `json:"gaps,omitempty"`    // number of parts of the source that could not be read
	Created int     `json:"created,omitempty"` // number of published changes
	Updated int     `json:"updated,omitempty"`
	Deleted int     `json:"deleted,omitempty"`
	Next    string  `json:"next"` // due time of the next poll
}

// A sourceView is a set with a polled source, as shown by the API.
type sourceView struct {
	Set      string    `json:"set"`
	Source   string    `json:"source"`
	Every    string    `json:"every"`
	LastPoll *LastPoll `json:"looked,omitempty"` // nil before the first poll
}

// maxSources is the maximum number of sources in a list.
const maxSources = 100

// ServeSources lists the sets whose sources the hub polls, for operators. The parameter after is
// the name after which the list starts.
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
		if len(answer.Sources) == maxSources {
			answer.Next = string(s.base) + "/sources?after=" + answer.Sources[maxSources-1].Set
			break
		}
		v := sourceView{Set: st.Set, Source: st.Source, Every: st.Every.String()}
		if v.LastPoll, err = s.opts.Sources.LastPoll(r.Context(), st); err != nil {
			return err
		}
		answer.Sources = append(answer.Sources, v)
	}
	problem.WriteJSON(w, http.StatusOK, answer)
	return nil
}
