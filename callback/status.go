package callback

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/rshub/rshub/changelog"
)

// Of a page of subscriptions.
const (
	defaultPage = 100
	maxPage     = 1000
)

// A shown is a subscription as its operator and its subscriber see it: without
// its secret.
type shown struct {
	ID       string     `json:"id"`
	Topic    string     `json:"topic"`
	Callback string     `json:"callback"`
	State    string     `json:"state"`  // current, delivering, failing, waiting (for its next try) or no set (it was removed, or is not made yet)
	Cursor   string     `json:"cursor"` // behind the last change that was delivered
	Lag      lag        `json:"lag"`
	Prefix   string     `json:"rs.prefix,omitempty"`
	Change   []string   `json:"rs.change,omitempty"`
	Type     []string   `json:"rs.type,omitempty"`
	Signed   bool       `json:"signed"`           // it has a secret
	Failed   int        `json:"failed,omitempty"` // attempts since the last success
	Next     *time.Time `json:"next,omitempty"`   // the next try
	Gaps     int        `json:"gaps,omitempty"`   // times that the change memory overran it
	Made     time.Time  `json:"made"`
	Renewed  *time.Time `json:"renewed,omitempty"`
	LeaseEnd time.Time  `json:"leaseEnd"`
	Attempts []tried    `json:"attempts"` // the last, newest first
}

// lag is what is still to be delivered, before a filter.
type lag struct {
	Changes uint64  `json:"changes"`
	Seconds float64 `json:"seconds"` // since the first of them was accepted
}

// tried is an Attempt as it is shown.
type tried struct {
	At      time.Time `json:"at"`
	Kind    string    `json:"kind"`
	Status  int       `json:"status,omitempty"`
	Seconds float64   `json:"seconds"`
	Changes int       `json:"changes,omitempty"`
	Error   string    `json:"error,omitempty"`
}

// view shows a record.
func (s *Server) view(ctx context.Context, r *Record) (shown, error) {
	id := r.ID()
	v := shown{
		ID: id.String(), Topic: s.engine.topicURL(r.Set), Callback: r.Callback, Cursor: r.Cursor.String(),
		Prefix: r.Filter.Prefix, Type: r.Filter.Types, Signed: r.Secret != "",
		Failed: r.Failed, Gaps: r.Gaps, Made: r.Made, LeaseEnd: r.LeaseEnd, Attempts: []tried{},
	}
	for _, c := range r.Filter.Changes {
		v.Change = append(v.Change, string(c))
	}
	if !r.Renewed.IsZero() {
		v.Renewed = &r.Renewed
	}
	for i := len(r.Last) - 1; i >= 0; i-- {
		a := r.Last[i]
		v.Attempts = append(v.Attempts, tried{a.At, a.Kind, a.Status, a.Took.Seconds(), a.Changes, a.Error})
	}
	state, err := s.log.State(ctx, r.Set)
	made := err == nil
	switch {
	case made:
		v.Lag, err = s.lag(ctx, &state, r.Cursor)
	case errors.Is(err, changelog.ErrNoSet):
		err = nil
	}
	switch {
	case !made:
		v.State = "no set"
	case r.Failed > 0 && r.Next.After(s.opts.Now()):
		v.State, v.Next = "waiting", &r.Next
	case r.Failed > 0:
		v.State = "failing"
	case v.Lag.Changes > 0:
		v.State = "delivering"
	default:
		v.State = "current"
	}
	return v, err
}

// lag returns what follows a cursor in a set's log.
func (s *Server) lag(ctx context.Context, state *changelog.State, c changelog.Cursor) (l lag, err error) {
	from := max(c.Position, state.Floor.Position)
	if from >= state.Head.Position {
		return l, nil
	}
	l.Changes = state.Head.Position - from
	first, err := s.log.At(ctx, state.Set, from+1)
	if errors.Is(err, changelog.ErrGone) || errors.Is(err, changelog.ErrNoSet) {
		first, err = state.Head, nil // it was removed just now
	}
	l.Seconds = max(s.opts.Now().Sub(first.Time()).Seconds(), 0)
	return l, err
}

// ServeSubscriptions answers an operator: GET lists the subscriptions of a set,
// page by page (?limit=, ?after= an id).
func (s *Server) ServeSubscriptions(w http.ResponseWriter, r *http.Request, set string) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		changelog.NotAllowed(w, r, "GET, HEAD")
		return nil
	}
	q := r.URL.Query()
	limit, after := defaultPage, ID{}
	var err error
	if v := q.Get("limit"); v != "" {
		if limit, err = strconv.Atoi(v); err != nil || limit < 1 || limit > maxPage {
			return changelog.Invalid("limit=%.20s: a limit is a number from 1 to %d", v, maxPage)
		}
	}
	if v := q.Get("after"); v != "" {
		if after, err = ParseID(v); err != nil {
			return named("after", err)
		}
	}
	records, more, err := s.registry.List(r.Context(), set, after, limit)
	if err != nil {
		return fmt.Errorf("list the subscriptions of set %q: %w", set, err)
	}
	if len(records) == 0 {
		if _, err := s.log.State(r.Context(), set); errors.Is(err, changelog.ErrNoSet) {
			return err // subscriptions may outlive a set, so only now
		}
	}
	page := struct {
		Subscriptions []shown `json:"subscriptions"`
		Next          string  `json:"next,omitempty"`
	}{Subscriptions: []shown{}}
	for i := range records {
		v, err := s.view(r.Context(), &records[i])
		if err != nil {
			return err
		}
		page.Subscriptions = append(page.Subscriptions, v)
	}
	if more && len(records) > 0 {
		next := url.Values{"after": {records[len(records)-1].ID().String()}, "limit": {strconv.Itoa(limit)}}
		page.Next = s.base + "/sets/" + set + "/subscriptions?" + next.Encode()
	}
	return writeJSON(w, http.StatusOK, page)
}

// ServeSubscription answers an operator about one subscription of a set: GET
// shows it, DELETE ends it, POST of its retry delivers now, and PUT of its cursor
// moves it. What changes something is answered 202 when it is sure to be done.
func (s *Server) ServeSubscription(w http.ResponseWriter, r *http.Request, set, id, part string) error {
	parsed, err := ParseID(id)
	if err != nil {
		return err
	}
	record, err := s.registry.Find(r.Context(), parsed)
	if errors.Is(err, ErrNoSubscription) || err == nil && record.Set != set {
		return changelog.NewStatus(http.StatusNotFound, "no-such-subscription", "this set has no subscription of that id; GET /sets/"+set+"/subscriptions lists them")
	}
	if err != nil {
		return fmt.Errorf("find subscription %s: %w", id, err)
	}
	request := Request{Set: set, Callback: record.Callback, At: s.opts.Now().UTC()}
	switch {
	case part == "" && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		v, err := s.view(r.Context(), &record)
		if err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, v)
	case part == "" && r.Method == http.MethodDelete:
		request.Mode = Remove
	case part == "retry" && r.Method == http.MethodPost:
		request.Mode = Retry
	case part == "cursor" && r.Method == http.MethodPut:
		request.Mode = Move
		begin, err := s.readCursor(w, r, set)
		if err != nil {
			return err
		}
		request.Start, request.Diverged = begin.Cursor, begin.Diverged
	default:
		allow, ok := map[string]string{"": "DELETE, GET, HEAD", "retry": "POST", "cursor": "PUT"}[part]
		if !ok {
			return changelog.NewStatus(http.StatusNotFound, "not-found", "a subscription has /retry (POST) and /cursor (PUT)")
		}
		changelog.NotAllowed(w, r, allow)
		return nil
	}
	if err := s.send(r.Context(), request); err != nil {
		return err
	}
	return writeJSON(w, http.StatusAccepted, map[string]string{"id": id, "accepted": string(request.Mode)})
}

// readCursor reads {"cursor": …}: a cursor, a datetime, start or now. It returns
// what find does.
func (s *Server) readCursor(w http.ResponseWriter, r *http.Request, set string) (*changelog.Batch, error) {
	var body struct {
		Cursor string `json:"cursor"`
	}
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<10))
	d.DisallowUnknownFields()
	err := d.Decode(&body)
	if err == nil {
		if _, more := d.Token(); more != io.EOF {
			err = errors.New("something follows it")
		}
	}
	if err == nil && body.Cursor == "" {
		err = errors.New("there is no cursor in it")
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, err
	}
	if err != nil {
		return nil, changelog.Invalid(`the body is not {"cursor": "a cursor, a datetime, start or now"}: %v`, err)
	}
	return s.find(r.Context(), "cursor", set, body.Cursor)
}

// ServeStatus answers a subscriber, who was given the URL of its subscription's
// status when it was verified. name is what the URL ends with, see statusName.
func (s *Server) ServeStatus(w http.ResponseWriter, r *http.Request, name string) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		changelog.NotAllowed(w, r, "GET, HEAD")
		return nil
	}
	none := changelog.NewStatus(http.StatusNotFound, "no-such-subscription", "there is no subscription at this URL: it ended, or was never confirmed")
	text, token, _ := strings.Cut(name, ".")
	id, err := ParseID(text)
	if err != nil {
		return none
	}
	record, err := s.registry.Find(r.Context(), id)
	if errors.Is(err, ErrNoSubscription) || err == nil && subtle.ConstantTimeCompare([]byte(record.Token), []byte(token)) != 1 {
		return none
	}
	if err != nil {
		return fmt.Errorf("find a subscription: %w", err)
	}
	v, err := s.view(r.Context(), &record)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, v)
}

// statusName ends the URL of a subscription's status: whoever knows it may read
// that, so it has the subscription's token.
func statusName(id ID, token string) string { return id.String() + "." + token }

func writeJSON(w http.ResponseWriter, status int, v any) error {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may be gone
	return nil
}
