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
	return slices.DeleteFunc(states, func(st feed.State) bool { return !rights.Sees(st) }), nil
}

// maxList bounds the text of a list of sets in bytes. It leaves room for 10,000
// ordinary sets.
const maxList = 4 << 20

// How many sets a list has, if the parameter limit does not say, and at most.
const (
	defaultSets = 100
	mostSets    = 10_000
	mostDetails = 200 // with details, because each set has to be looked at
)

// listLimit returns how many sets a request asks for.
func listLimit(r *http.Request) (int, error) {
	text := r.URL.Query().Get("limit")
	if text == "" {
		return defaultSets, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > mostSets {
		return 0, resourcesync.Invalidf("limit=%.20s: a limit is a number from 1 to %d", text, mostSets)
	}
	return n, nil
}

// ServeAll lists the sets that the caller may follow, from the one behind the parameter
// after on, as many as the parameter limit says, and only those whose names begin with the
// parameter prefix. With details=1 it says of each what the hub knows besides. A list that
// has not all of them says where the next begins.
func (s *Server) ServeAll(w http.ResponseWriter, r *http.Request) error {
	if err := problem.RequireRead(r, "GET, HEAD"); err != nil {
		return err
	}
	most, err := listLimit(r)
	if err != nil {
		return err
	}
	share, err := s.opts.Streams.Take(r.Context(), maxList)
	if err != nil {
		return err
	}
	defer share.Release()
	body, next, err := s.list(r, most)
	if err != nil {
		return err
	}
	share.Keep(int64(len(body)))
	h := w.Header()
	h.Add("Vary", "Authorization")
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if next != "" {
		h.Add("Link", "<"+next+`>; rel="next"`)
	}
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client may be gone
	}
	return nil
}

// list returns the list of at most so many sets that r asks for, as JSON, and the URL of the rest,
// which is empty if there is none.
func (s *Server) list(r *http.Request, most int) (body []byte, next string, err error) {
	q := r.URL.Query()
	after, prefix := q.Get("after"), q.Get("prefix")
	states, err := s.Visible(r.Context())
	if err != nil {
		return nil, "", err
	}
	rights, last, n, details := access.FromContext(r.Context()).Rights, "", 0, q.Get("details") == "1"
	if details {
		most = min(most, mostDetails)
	}
	body = append(body, `{"sets":[`...)
	for _, st := range states {
		if st.Set <= after || !strings.HasPrefix(st.Set, prefix) {
			continue
		}
		v := s.view(st, rights)
		if details && n < most {
			s.details(r.Context(), &v, st.NoInventory)
		}
		view, err := json.Marshal(v)
		if err != nil {
			return nil, "", err
		}
		if n == most || last != "" && len(body)+len(view) > maxList {
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
