package rdm

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rshub/rshub/rdm/soif"
	"github.com/rshub/rshub/resourcesync"
)

// freshFor is how long a server description is good.
const freshFor = time.Hour

// describe answers a request for the description of the server.
func (s *Server) describe(ctx context.Context, w http.ResponseWriter, r *http.Request, m *message, set string) error {
	states, err := s.sets(ctx, set)
	if err != nil {
		return err
	}
	if len(states) > maxSets {
		return &resourcesync.Error{Err: resourcesync.ErrTooLarge, Rule: "the hub has more than " + strconv.Itoa(maxSets) + " sets: name one with Catalog-Service-ID"}
	}
	share, err := s.opts.Streams.Take(ctx, int64(len(states))*setRoom)
	if err != nil {
		return err
	}
	defer share.Release()
	var ids []string
	for i := range states {
		ids = append(ids, s.csid(states[i].Set))
	}
	description := "An rshub, which tells followers what changed: " + string(s.base)
	if set != "" && states[0].Title != "" {
		description = states[0].Title
	}
	now := time.Now()
	o := &soif.Object{Type: "RDMSERVER", URL: s.csid(set)}
	o.Add("Description", description)
	o.Add("Supported-RDM-Type", strings.Join(slices.Sorted(maps.Keys(replies)), ","))
	o.Add("Supported-RDM-Query-Language", strings.Join(slices.Compact(slices.Sorted(maps.Values(languages))), ","))
	o.Add("Supported-Catalog-Service-ID", strings.Join(ids, ","))
	o.Add("SD-Last-Modified", date(now))
	o.Add("SD-Expires", date(now.Add(freshFor)))
	w.Header().Set("Expires", date(now.Add(freshFor)))
	send(w, r, http.StatusOK, write(write(nil, newHeader(replies[m.kind])), o))
	return nil
}

// status answers that the hub is there, and a set if the request names one.
func (s *Server) status(ctx context.Context, w http.ResponseWriter, r *http.Request, m *message, set string) error {
	h := newHeader(replies[m.kind])
	text := "This rshub takes and answers Resource Description Messages " + version + "."
	if set != "" {
		st, err := s.hub.State(ctx, set)
		if err != nil {
			return err
		}
		h.Add("Catalog-Service-ID", s.csid(set))
		h.Add("RS-Cursor", st.Head.String())
		text += fmt.Sprintf(" The set %s is there.", set)
	}
	if s.opts.Version != "" {
		text += " Its version is " + s.opts.Version + "."
	}
	w.Header().Set("Expires", date(time.Now()))
	send(w, r, http.StatusOK, append(write(nil, h), page("Status", text)...))
	return nil
}
