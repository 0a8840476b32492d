package reconcile

import (
	"fmt"
	"strconv"
	"strings"
)

// A Bound says how many resources may be deleted at once. The zero Bound allows ten
// resources, or a tenth of those that the hub knows if that is more, but never because of
// a list without any resource: an empty list is more likely broken than true.
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

// Allows reports whether so many resources may be deleted of those that the hub held, if
// the source has so many.
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

// A TooMany is the error for more deletions than the Bound allows. Nothing was published.
type TooMany struct {
	Deleted uint64 // resources that would be deleted
	Held    uint64 // resources that the hub knew
	Listed  uint64 // resources that the source has
}

// Error returns the numbers.
func (e *TooMany) Error() string {
	if e.Listed == 0 {
		return fmt.Sprintf("the source has no resource at all, and the hub knows %d", e.Held)
	}
	return fmt.Sprintf("%d of the %d resources that the hub knows would be deleted", e.Deleted, e.Held)
}
