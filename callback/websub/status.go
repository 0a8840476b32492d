package websub

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/problem"
)

// A subscriptionView is a subscription in the API, for operators and its subscriber. It has no secret and no token.
type subscriptionView struct {
	ID       string `json:"id"`
	Topic    string `json:"topic"`
	Callback string `json:"callback"`

	// current, delivering, failing, waiting (for the next attempt), "no set" (deleted, or not made yet), locked (a key
	// is missing) or ended
	State  string    `json:"state"`
	Why    string    `json:"why,omitempty"` // reason for locked and ended
	Ended  time.Time `json:"ended,omitzero"`
	By     string    `json:"by,omitempty"` // who made it; only for operators
	Cursor string    `json:"cursor"`       // cursor of the last delivered change
	Lag    lagView   `json:"lag"`
	termsView
	Failed   int           `json:"failed,omitempty"` // number of attempts since the last success
	Next     time.Time     `json:"next,omitzero"`    // time of the next attempt
	Gaps     int           `json:"gaps,omitempty"`   // number of times that the change memory overran it
	Made     time.Time     `json:"made"`
	Renewed  time.Time     `json:"renewed,omitzero"`
	LeaseEnd time.Time     `json:"leaseEnd"`
	Attempts []attemptView `json:"attempts"` // newest first
}

// A termsView is a subscription.Terms in the API.
type termsView struct {
	Prefix     string   `json:"rs.prefix,omitempty"`
	Change     []string `json:"rs.change,omitempty"`
	Type       []string `json:"rs.type,omitempty"`
	Collection string   `json:"rs.collection,omitempty"`
	Every      string   `json:"rs.every,omitempty"`
	Signed     bool     `json:"signed"` // whether there is a secret
}

// A lagView is what remains to be delivered, including changes that a filter will skip.
type lagView struct {
	Changes uint64  `json:"changes"`
	Seconds float64 `json:"seconds"` // age of the oldest of these changes
}

// An attemptView is a subscription.Attempt in the API.
type attemptView struct {
	At      time.Time `json:"at"`
	Kind    string    `json:"kind"`
	Status  int       `json:"status,omitempty"`
	Seconds float64   `json:"seconds"`
	Changes int       `json:"changes,omitempty"`
	Error   string    `json:"error,omitempty"`
}

// view returns the view of a record, without By.
func (s *Server) view(ctx context.Context, r *subscription.Record) (v subscriptionView, err error) {
	v = subscriptionView{
		ID: r.ID().String(), Topic: s.base.TopicIn(r.Set, r.Form), Callback: r.Callback, Cursor: r.Cursor.String(),
		termsView: viewTerms(&r.Terms), Failed: r.Failed, Gaps: r.Gaps, Made: r.Made, Renewed: r.Renewed, LeaseEnd: r.LeaseEnd,
		Attempts: []attemptView{},
	}
	for _, a := range slices.Backward(r.Last) {
		v.Attempts = append(v.Attempts, attemptView{a.At, a.Kind, a.Status, a.Took.Seconds(), a.Changes, a.Error})
	}
	state, err := s.log.State(ctx, r.Set)
	made := !errors.Is(err, feed.ErrNoSet)
	if err == nil {
		v.Lag, err = s.lag(ctx, &state, r.Cursor)
	}
	if err != nil && made {
		return v, err
	}
	switch {
	case !r.Ended.IsZero():
		v.State, v.Why, v.Ended, v.Lag = "ended", r.Why, r.Ended, lagView{}
	case r.Sealed != "":
		v.State, v.Why = "locked", "the secret is encrypted with the key "+r.Sealed+", which is missing from RSHUB_SECRET_KEYS"
	case !made:
		v.State = "no set"
	case r.Failed > 0 && r.Next.After(s.opts.Now()):
		v.State, v.Next = "waiting", r.Next
	case r.Failed > 0:
		v.State = "failing"
	case v.Lag.Changes > 0:
		v.State = "delivering"
	default:
		v.State = "current"
	}
	return v, nil
}

func viewTerms(t *subscription.Terms) termsView {
	filter := t.Filter.Values()
	v := termsView{
		Prefix: filter.Get("prefix"), Change: filter["change"], Type: filter["type"], Collection: filter.Get("collection"),
		Signed: t.Secret != "",
	}
	if t.Every > 0 {
		v.Every = t.Every.String()
	}
	return v
}

// lag returns the lag of a cursor in a set's log.
func (s *Server) lag(ctx context.Context, state *feed.State, c feed.Cursor) (lag lagView, err error) {
	from := max(c.Position, state.Floor.Position)
	if from >= state.Head.Position {
		return lag, nil
	}
	lag.Changes = state.Head.Position - from
	first, err := s.log.At(ctx, state.Set, from+1)
	if errors.Is(err, feed.ErrGone) || errors.Is(err, feed.ErrNoSet) {
		first, err = state.Head, nil // retention has just removed it
	}
	lag.Seconds = max(s.opts.Now().Sub(first.Time()).Seconds(), 0)
	return lag, err
}

// ServeStatus responds to a GET of a subscription's status. name is the end of its URL, from statusName, which the
// subscriber received in the verification. The URL authorizes its holder. All wrong ones get the same response.
func (s *Server) ServeStatus(w http.ResponseWriter, r *http.Request, name string) error {
	if err := problem.RequireRead(r, "GET, HEAD"); err != nil {
		return err
	}
	notFound := problem.New(http.StatusNotFound, "no-such-subscription", "no subscription at this URL; it ended, or was never confirmed")
	text, token, _ := strings.Cut(name, ".")
	id, err := subscription.ParseID(text)
	if err != nil {
		return notFound
	}
	record, err := s.registry.Find(r.Context(), id)
	if errors.Is(err, subscription.ErrNoSubscription) || err == nil && subtle.ConstantTimeCompare([]byte(record.Token), []byte(token)) != 1 {
		return notFound
	}
	if err != nil {
		return fmt.Errorf("find subscription: %w", err)
	}
	v, err := s.view(r.Context(), &record)
	if err != nil {
		return err
	}
	problem.WriteJSON(w, http.StatusOK, v)
	return nil
}

// statusName returns the end of the URL of a subscription's status. It has the token, so that only those who got the
// URL can read the status.
func statusName(id subscription.ID, token string) string { return id.String() + "." + token }
