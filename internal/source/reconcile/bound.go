package reconcile

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rshub/rshub/feed"
)

// A Bound says how many resources may be deleted at once. The zero Bound allows ten
// resources, or a tenth of those that the hub knows if that is more. It allows no
// deletion if the list has no resource at all, because an empty list is probably a
// mistake.
type Bound struct {
	given   bool
	all     bool
	percent bool
	n       float64
}

// ParseBound reads a bound: a number of resources, such as 500; a share of those that the
// hub knows, such as 20%; or all.
func ParseBound(s string) (Bound, error) {
	if s == "all" {
		return Bound{given: true, all: true}, nil
	}
	digits, percent := strings.CutSuffix(s, "%")
	if percent {
		n, err := strconv.ParseFloat(digits, 64)
		if err != nil || !(n >= 0 && n <= 100) {
			return Bound{}, fmt.Errorf("%q is not a share: write one from 0%% to 100%%", s)
		}
		return Bound{given: true, percent: true, n: n}, nil
	}
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return Bound{}, fmt.Errorf("%q is not a number of resources, a share such as 20%%, or all", s)
	}
	return Bound{given: true, n: float64(n)}, nil
}

// Allows reports whether deleted of the held resources of the hub may be deleted, if the
// source lists listed resources.
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

// A Toll counts the deletions of a day, so that a Bound holds for all runs of a day
// together. The zero Toll has counted nothing.
type Toll struct {
	Since   time.Time `json:"since"`             // when the first deletion was
	Held    uint64    `json:"held"`              // resources that the hub had then
	Deleted uint64    `json:"deleted"`           // deletions since then
	Allowed bool      `json:"allowed,omitempty"` // an operator has allowed more than the zero Bound
	Unsure  *Unsure   `json:"unsure,omitempty"`  // deletions among those that may not be published; nil if there are none
}

// Unsure are deletions that were counted before they were published. If the publisher crashes
// at that moment, the log of the hub tells whether it has them.
type Unsure struct {
	After string `json:"after"` // cursor of the log before them
	Toll  Toll   `json:"toll"`  // the Toll without them
}

// at returns the toll that counts for a Bound at a time. Deletions that an operator has
// allowed do not count for the zero Bound.
func (t Toll) at(now time.Time, b Bound) Toll {
	if age := now.Sub(t.Since); age < 0 || age > 24*time.Hour || t.Allowed && !b.given {
		return Toll{}
	}
	return t
}

// Check returns a *TooMany if deleted further deletions are too many. held is how many
// resources the hub has now, and listed how many the source has.
func (t Toll) Check(b Bound, deleted, held, listed uint64, now time.Time) error {
	t = t.at(now, b)
	if before := max(t.Held, held+t.Deleted); deleted > 0 && !b.Allows(t.Deleted+deleted, before, listed) {
		if listed == 0 {
			before = held
		}
		return &TooMany{Deleted: deleted, Before: t.Deleted, Held: before, Listed: listed}
	}
	return nil
}

// Count counts deletions. held is how many resources the hub had before them.
func (t *Toll) Count(b Bound, deleted, held uint64, now time.Time) {
	if deleted == 0 {
		return
	}
	if *t = t.at(now, b); t.Since.IsZero() {
		*t = Toll{Since: now.UTC(), Held: held}
	}
	before := max(t.Held, held+t.Deleted)
	t.Deleted, t.Unsure = t.Deleted+deleted, nil
	t.Allowed = t.Allowed || !Bound{}.Allows(t.Deleted, before, 1)
}

// countUnsure is Count before the deletions are published after a cursor.
func (t *Toll) countUnsure(b Bound, deleted, held uint64, now time.Time, after feed.Cursor) {
	was := *t
	was.Unsure = nil
	t.Count(b, deleted, held, now)
	t.Unsure = &Unsure{After: after.String(), Toll: was}
}

// settle says that the hub's log is at a cursor. If it is where it was before deletions that
// are unsure, these were not published, and no longer count. It reports whether that is so.
func (t *Toll) settle(at feed.Cursor) bool {
	u := t.Unsure
	t.Unsure = nil
	if u == nil || u.After != at.String() {
		return false
	}
	*t = u.Toll
	return true
}

// A TooMany is the error for more deletions than the Bound allows. Nothing was published.
type TooMany struct {
	Deleted uint64 // resources that would be deleted
	Before  uint64 // resources that were already deleted that day
	Held    uint64 // resources that the hub had at the beginning of that day; or has now, if the source has none
	Listed  uint64 // resources that the source has

	Moved string // origin that the source redirects to; empty if unknown or the same
}

// Most returns the number for a Bound that would allow the deletions.
func (e *TooMany) Most() uint64 { return e.Deleted + e.Before }

// Error returns the numbers, and where the source has moved.
func (e *TooMany) Error() string {
	if e.Moved != "" {
		return fmt.Sprintf("%s: the source redirects to %s, which may name all resources anew", e.numbers(), e.Moved)
	}
	return e.numbers()
}

func (e *TooMany) numbers() string {
	switch {
	case e.Listed == 0:
		return fmt.Sprintf("the source has no resource at all, and %d are known", e.Held)
	case e.Before > 0:
		return fmt.Sprintf("%d more of the %d known resources would be deleted, after %d within a day", e.Deleted, e.Held, e.Before)
	}
	return fmt.Sprintf("%d of the %d known resources would be deleted", e.Deleted, e.Held)
}
