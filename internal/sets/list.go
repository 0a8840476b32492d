package sets

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/access"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/resourcesync"
)

// State returns the state of a set, or feed.ErrNoSet.
func (s *Server) State(ctx context.Context, set string) (feed.State, error) {
	return s.memory.State(ctx, set)
}

// Visible returns the states of the sets that the caller of ctx may follow, sorted by name.
func (s *Server) Visible(ctx context.Context) ([]feed.State, error) {
	states, err := s.memory.Sets(ctx)
	if err != nil {
		return nil, err
	}
	rights := access.FromContext(ctx).Rights
	return slices.DeleteFunc(states, func(st feed.State) bool { return !rights.MaySee(st) }), nil
}

// maxList is the maximum size of a list of sets in bytes. It suffices for 10,000 ordinary sets.
const maxList = 4 << 20

// Default and maximum numbers of sets in a list.
const (
	defaultSets = 100
	maxSets     = 10_000
	maxDetails  = 200 // with details, which are determined for each set separately
)

// parseLimit returns the limit in the parameter of a request, or its default.
func parseLimit(r *http.Request) (int, error) {
	text := r.URL.Query().Get("limit")
	if text == "" {
		return defaultSets, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxSets {
		return 0, resourcesync.Invalidf("limit: got %.20q, want a number from 1 to %d", text, maxSets)
	}
	return n, nil
}

// ServeAll lists the sets that the caller may follow, sorted by name. The parameter after is the
// name after which the list starts, limit is its maximum length, and prefix selects names. With
// details=1, the list includes activity, followers and the number of resources. A truncated list
// has the URL of the next one.
func (s *Server) ServeAll(w http.ResponseWriter, r *http.Request) error {
	if err := problem.RequireRead(r, "GET, HEAD"); err != nil {
		return err
	}
	limit, err := parseLimit(r)
	if err != nil {
		return err
	}
	share, err := s.opts.Streams.Acquire(r.Context(), maxList)
	if err != nil {
		return err
	}
	defer share.Release()
	body, next, err := s.list(r, limit)
	if err != nil {
		return err
	}
	share.Shrink(int64(len(body)))
	h := w.Header()
	h.Add("Vary", "Authorization")
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if next != "" {
		h.Add("Link", "<"+next+`>; rel="next"`)
	}
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client may have disconnected
	}
	return nil
}

// list returns a list of at most limit sets as JSON, and the URL of the next one, or "" if there is
// none.
func (s *Server) list(r *http.Request, limit int) (body []byte, next string, err error) {
	q := r.URL.Query()
	after, prefix := q.Get("after"), q.Get("prefix")
	states, err := s.Visible(r.Context())
	if err != nil {
		return nil, "", err
	}
	rights, last, n, details := access.FromContext(r.Context()).Rights, "", 0, q.Get("details") == "1"
	if details {
		limit = min(limit, maxDetails)
	}
	body = append(body, `{"sets":[`...)
	for _, st := range states {
		if st.Set <= after || !strings.HasPrefix(st.Set, prefix) {
			continue
		}
		v := s.view(st, rights)
		if details && n < limit {
			s.addDetails(r.Context(), &v, st.NoInventory)
		}
		view, err := json.Marshal(v)
		if err != nil {
			return nil, "", err
		}
		if n == limit || last != "" && len(body)+len(view) > maxList {
			rest := url.Values{"after": {last}}
			for _, name := range []string{"details", "limit", "prefix"} {
				if q.Has(name) {
					rest.Set(name, q.Get(name))
				}
			}
			next = s.base.Sets() + "?" + rest.Encode()
			break
		}
		n++
		if last != "" {
			body = append(body, ',')
		}
		body, last = append(body, view...), st.Set
	}
	body = append(body, ']')
	if next != "" {
		body = append(body, `,"next":"`+next+`"`...)
	}
	return append(body, "}\n"...), next, nil
}
