package reconcile

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rshub/rshub/feed"
)

// A Bound limits how many resources may be deleted within a day. The zero Bound allows ten
// resources, or a tenth of those that the hub knows if that is more. It allows no deletion if the
// list is empty, because that is probably a mistake.
type Bound struct {
	given   bool
	all     bool
	percent bool
	n       float64
}

// ParseBound parses a bound: a number of resources, such as 500; a share of those that the hub
// knows, such as 20%; or all.
func ParseBound(s string) (Bound, error) {
	if s == "all" {
		return Bound{given: true, all: true}, nil
	}
	digits, percent := strings.CutSuffix(s, "%")
	if percent {
		n, err := strconv.ParseFloat(digits, 64)
		if err != nil || !(n >= 0 && n <= 100) {
			return Bound{}, fmt.Errorf("invalid share %q: want 0%% to 100%%", s)
		}
		return Bound{given: true, percent: true, n: n}, nil
	}
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return Bound{}, fmt.Errorf("invalid limit %q: want a number of resources, a share such as 20%%, or all", s)
	}
	return Bound{given: true, n: float64(n)}, nil
}

// Allows reports whether deleted of the held resources of the hub may be deleted, if the source
// lists listed resources.
func (b Bound) Allows(deleted, held, listed uint64) bool {
	d := float64(deleted)
	switch {
	case deleted == 0 || b.all:
		return true
	case b.percent:
		return 100*d <= b.n*float64(held)
	case b.given:
		return d <= b.n
	case listed == 0:
		return false
	}
	return deleted <= 10 || 10*deleted <= held
}

// Deletions counts the deletions of a day, so that a Bound applies to all runs of a day together.
// The zero value has counted nothing.
type Deletions struct {
	Since       time.Time             `json:"since"`             // time of the first deletion
	Held        uint64                `json:"held"`              // number of resources that the hub had then
	Deleted     uint64                `json:"deleted"`           // number of deletions since then
	Allowed     bool                  `json:"allowed,omitempty"` // whether an operator has allowed more than the zero Bound
	Unconfirmed *UnconfirmedDeletions `json:"unsure,omitempty"`  // counted deletions that may not have been published, or nil
}

// UnconfirmedDeletions are deletions that were counted before they were published. If the publisher
// crashes in between, the log of the hub shows whether it has them.
type UnconfirmedDeletions struct {
	After string    `json:"after"` // cursor of the log before them
	Toll  Deletions `json:"toll"`  // the count without them
}

// countedAt returns the deletions that count for a Bound at a time. Deletions that an operator has
// allowed do not count for the zero Bound.
func (t Deletions) countedAt(now time.Time, b Bound) Deletions {
	if age := now.Sub(t.Since); age < 0 || age > 24*time.Hour || t.Allowed && !b.given {
		return Deletions{}
	}
	return t
}

// Check returns a *TooManyDeletions if deleted further deletions are too many. held is the number
// of resources that the hub has now, and listed the number that the source has.
func (t Deletions) Check(b Bound, deleted, held, listed uint64, now time.Time) error {
	t = t.countedAt(now, b)
	if before := max(t.Held, held+t.Deleted); deleted > 0 && !b.Allows(t.Deleted+deleted, before, listed) {
		if listed == 0 {
			before = held
		}
		return &TooManyDeletions{Deleted: deleted, Before: t.Deleted, Held: before, Listed: listed}
	}
	return nil
}

// Add adds deletions. held is the number of resources that the hub had before them.
func (t *Deletions) Add(b Bound, deleted, held uint64, now time.Time) {
	if deleted == 0 {
		return
	}
	if *t = t.countedAt(now, b); t.Since.IsZero() {
		*t = Deletions{Since: now.UTC(), Held: held}
	}
	before := max(t.Held, held+t.Deleted)
	t.Deleted, t.Unconfirmed = t.Deleted+deleted, nil
	t.Allowed = t.Allowed || !Bound{}.Allows(t.Deleted, before, 1)
}

// addUnconfirmed is Add, but for deletions that will be published after a cursor.
func (t *Deletions) addUnconfirmed(b Bound, deleted, held uint64, now time.Time, after feed.Cursor) {
	was := *t
	was.Unconfirmed = nil
	t.Add(b, deleted, held, now)
	t.Unconfirmed = &UnconfirmedDeletions{After: after.String(), Toll: was}
}

// settle resolves unconfirmed deletions. at is the cursor of the hub's log: if it has not moved
// since before the deletions, they were not published and no longer count. settle reports whether
// that is so.
func (t *Deletions) settle(at feed.Cursor) bool {
	u := t.Unconfirmed
	t.Unconfirmed = nil
	if u == nil || u.After != at.String() {
		return false
	}
	*t = u.Toll
	return true
}

// TooManyDeletions is the error for more deletions than the Bound allows. Nothing was published.
type TooManyDeletions struct {
	Deleted uint64 // number of resources that would be deleted
	Before  uint64 // number of resources that were already deleted that day
	Held    uint64 // number of resources that the hub had at the start of that day; if the source has none, that it has now
	Listed  uint64 // number of resources that the source has

	Moved string // origin that the source redirects to; empty if unknown or the same
}

// Total returns the number for a Bound that would allow the deletions.
func (e *TooManyDeletions) Total() uint64 { return e.Deleted + e.Before }

// Error returns the numbers, and the origin that the source redirects to.
func (e *TooManyDeletions) Error() string {
	if e.Moved != "" {
		return fmt.Sprintf("%s: the source redirects to %s, which may give all resources new URLs", e.numbers(), e.Moved)
	}
	return e.numbers()
}

func (e *TooManyDeletions) numbers() string {
	switch {
	case e.Listed == 0:
		return fmt.Sprintf("the source lists no resources, and %d are known", e.Held)
	case e.Before > 0:
		return fmt.Sprintf("%d more of the %d known resources would be deleted, after %d within a day", e.Deleted, e.Held, e.Before)
	}
	return fmt.Sprintf("%d of the %d known resources would be deleted", e.Deleted, e.Held)
}
