package websub

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/rshub/rshub/callback/subscription"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/problem"
)

// A shown is a subscription as operators and its subscriber see it. It has no
// secret and no token.
type shown struct {
	ID       string     `json:"id"`
	Topic    string     `json:"topic"`
	Callback string     `json:"callback"`
	State    string     `json:"state"`         // current, delivering, failing, waiting (for its next attempt), "no set" (the set was removed, or is not made yet), locked (a key is missing) or ended
	Why      string     `json:"why,omitempty"` // with locked and ended
	Ended    *time.Time `json:"ended,omitempty"`
	By       string     `json:"by,omitempty"` // who made it; only operators see it
	Cursor   string     `json:"cursor"`       // of the last change that was delivered
	Lag      lag        `json:"lag"`
	shownTerms
	Failed   int        `json:"failed,omitempty"` // number of attempts since the last success
	Next     *time.Time `json:"next,omitempty"`   // time of the next attempt
	Gaps     int        `json:"gaps,omitempty"`   // how often the change memory overran it
	Made     time.Time  `json:"made"`
	Renewed  *time.Time `json:"renewed,omitempty"`
	LeaseEnd time.Time  `json:"leaseEnd"`
	Attempts []tried    `json:"attempts"` // the newest first
}

// A lag is what is still to be delivered. A filter may leave out some of it.
type lag struct {
	Changes uint64  `json:"changes"`
	Seconds float64 `json:"seconds"` // since the oldest of these changes was accepted
}

// A tried is a subscription.Attempt as it is shown.
type tried struct {
	At      time.Time `json:"at"`
	Kind    string    `json:"kind"`
	Status  int       `json:"status,omitempty"`
	Seconds float64   `json:"seconds"`
	Changes int       `json:"changes,omitempty"`
	Error   string    `json:"error,omitempty"`
}

// view returns a record as it is shown.
func (s *Server) view(ctx context.Context, r *subscription.Record) (shown, error) {
	id := r.ID()
	v := shown{
		ID: id.String(), Topic: s.base.TopicIn(r.Set, r.Form), Callback: r.Callback, Cursor: r.Cursor.String(),
		shownTerms: showTerms(&r.Terms),
		Failed:     r.Failed, Gaps: r.Gaps, Made: r.Made, LeaseEnd: r.LeaseEnd, Attempts: []tried{},
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
	case errors.Is(err, feed.ErrNoSet):
		err = nil
	}
	switch {
	case !r.Ended.IsZero():
		v.State, v.Why, v.Ended, v.Lag = "ended", r.Why, &r.Ended, lag{}
	case r.Sealed != "":
		v.State, v.Why = "locked", "the secret is encrypted with the key "+r.Sealed+", which is missing from RSHUB_SECRET_KEYS"
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

// viewAll returns a record as operators see it.
func (s *Server) viewAll(ctx context.Context, r *subscription.Record) (shown, error) {
	v, err := s.view(ctx, r)
	v.By = r.By
	return v, err
}

// lag returns what follows a cursor in a set's log.
func (s *Server) lag(ctx context.Context, state *feed.State, c feed.Cursor) (l lag, err error) {
	from := max(c.Position, state.Floor.Position)
	if from >= state.Head.Position {
		return l, nil
	}
	l.Changes = state.Head.Position - from
	first, err := s.log.At(ctx, state.Set, from+1)
	if errors.Is(err, feed.ErrGone) || errors.Is(err, feed.ErrNoSet) {
		first, err = state.Head, nil // retention has just removed it
	}
	l.Seconds = max(s.opts.Now().Sub(first.Time()).Seconds(), 0)
	return l, err
}

// ServeStatus answers a GET of a subscription's status. The subscriber got the
// URL when the subscription was verified. name is the end of that URL, as
// statusName makes it. It is the right to read the status: every wrong name is
// answered in the same way.
func (s *Server) ServeStatus(w http.ResponseWriter, r *http.Request, name string) error {
	if err := problem.RequireRead(r, "GET, HEAD"); err != nil {
		return err
	}
	none := problem.New(http.StatusNotFound, "no-such-subscription", "no subscription at this URL; it ended, or was never confirmed")
	text, token, _ := strings.Cut(name, ".")
	id, err := subscription.ParseID(text)
	if err != nil {
		return none
	}
	record, err := s.registry.Find(r.Context(), id)
	if errors.Is(err, subscription.ErrNoSubscription) || err == nil && subtle.ConstantTimeCompare([]byte(record.Token), []byte(token)) != 1 {
		return none
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

// statusName returns the end of the URL of a subscription's status. It contains
// the subscription's token, because whoever knows the URL may read the status.
func statusName(id subscription.ID, token string) string { return id.String() + "." + token }
