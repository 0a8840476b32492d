package websub

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/internal/trail"
	"github.com/rshub/rshub/resourcesync"
)

// Number of subscriptions on a page. If their text exceeds pageBytes, a page has fewer, but at least one.
const (
	defaultPage = 100
	maxPage     = 1000
	pageBytes   = 1 << 20
)

// ServeSubscriptions responds to an operator's GET of a set's subscriptions, one page at a time (?limit=, ?after= an
// ID). The caller must have checked that the client is an operator.
func (s *Server) ServeSubscriptions(w http.ResponseWriter, r *http.Request, set string) error {
	if err := problem.RequireRead(r, "GET, HEAD"); err != nil {
		return err
	}
	q := r.URL.Query()
	limit, after := defaultPage, subscription.ID{}
	var err error
	if v := q.Get("limit"); v != "" {
		if limit, err = strconv.Atoi(v); err != nil || limit < 1 || limit > maxPage {
			return resourcesync.Invalidf("limit: got %.20q, want 1 to %d", v, maxPage)
		}
	}
	if v := q.Get("after"); v != "" {
		if after, err = subscription.ParseID(v); err != nil {
			return resourcesync.Wrap("after", err)
		}
	}
	records, more, err := s.registry.List(r.Context(), set, after, limit)
	if err != nil {
		return fmt.Errorf("list subscriptions of set %q: %w", set, err)
	}
	if len(records) == 0 { // subscriptions may outlive their set
		if _, err := s.log.State(r.Context(), set); errors.Is(err, feed.ErrNoSet) {
			return err
		}
	}
	page := struct {
		Subscriptions []json.RawMessage `json:"subscriptions"`
		Next          string            `json:"next,omitempty"`
	}{Subscriptions: []json.RawMessage{}}
	size := 0
	for i := range records {
		v, err := s.view(r.Context(), &records[i])
		if err != nil {
			return err
		}
		v.By = records[i].By
		text, err := json.Marshal(v)
		if err != nil {
			return err
		}
		if size += len(text); i > 0 && size > pageBytes {
			records, more = records[:i], true
			break
		}
		page.Subscriptions = append(page.Subscriptions, text)
	}
	if more && len(records) > 0 {
		next := url.Values{"after": {records[len(records)-1].ID().String()}, "limit": {strconv.Itoa(limit)}}
		page.Next = s.base.Subscriptions(set) + "?" + next.Encode()
	}
	problem.WriteJSON(w, http.StatusOK, page)
	return nil
}

// ServeSubscription responds to an operator's request about one subscription of a set: GET views it, DELETE ends it,
// POST of its part "retry" delivers now, and PUT of its part "cursor" moves it. The response to a change is 202 once
// the change is durable. The caller must have checked that the client is an operator.
func (s *Server) ServeSubscription(w http.ResponseWriter, r *http.Request, set, id, part string) error {
	parsed, err := subscription.ParseID(id)
	if err != nil {
		return err
	}
	record, err := s.registry.Find(r.Context(), parsed)
	if errors.Is(err, subscription.ErrNoSubscription) || err == nil && record.Set != set {
		return problem.New(http.StatusNotFound, "no-such-subscription", "the set has no subscription with this ID; GET /sets/"+set+"/subscriptions lists them")
	}
	if err != nil {
		return fmt.Errorf("find subscription %s: %w", id, err)
	}
	if !record.Ended.IsZero() && (part == "retry" || part == "cursor") {
		return problem.New(http.StatusConflict, "subscription-ended", "the subscription has ended: "+record.Why)
	}
	request := subscription.Request{Set: set, Form: record.Form, Callback: record.Callback, At: s.opts.Now().UTC()}
	switch r.Method + " " + part {
	case "GET ", "HEAD ":
		v, err := s.view(r.Context(), &record)
		if err != nil {
			return err
		}
		v.By = record.By
		problem.WriteJSON(w, http.StatusOK, v)
		return nil
	case "DELETE ":
		request.Mode = subscription.Remove
	case "POST retry":
		request.Mode = subscription.Retry
	case "PUT cursor":
		request.Mode = subscription.Move
	default:
		allow, ok := map[string]string{"": "DELETE, GET, HEAD", "retry": "POST", "cursor": "PUT"}[part]
		if !ok {
			return problem.New(http.StatusNotFound, "not-found", "unknown path below a subscription; want /retry (POST) or /cursor (PUT)")
		}
		return problem.NotAllowed(r, allow)
	}
	audit := trail.FromContext(r.Context())
	audit.SetAction(trail.Action(request.Mode), set) // actions have the names of modes
	if request.Mode == subscription.Move {
		start, err := s.readCursor(w, r, set)
		if err != nil {
			return err
		}
		request.Start, request.Diverged = start.Cursor, start.Diverged
		audit.SetCursor(start.Cursor)
	}
	audit.SetSubscription(id, hostOf(record.Callback))
	if err := s.send(r.Context(), request); err != nil {
		return err
	}
	problem.WriteJSON(w, http.StatusAccepted, map[string]string{"id": id, "accepted": string(request.Mode)})
	return nil
}

// readCursor reads {"cursor": …} with a cursor, a datetime, start or now, and returns the result of find.
func (s *Server) readCursor(w http.ResponseWriter, r *http.Request, set string) (*feed.Batch, error) {
	var body struct {
		Cursor string `json:"cursor"`
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<10))
	if err != nil {
		return nil, problem.BodyError(err)
	}
	if err = resourcesync.DecodeJSON(text, &body); err == nil && body.Cursor == "" {
		err = errors.New("cursor is missing")
	}
	if err != nil {
		return nil, resourcesync.Invalidf(`invalid body: %v; want {"cursor": "a cursor, a datetime, start or now"}`, err)
	}
	return s.find(r.Context(), "cursor", set, body.Cursor)
}
