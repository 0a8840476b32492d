package changelog

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"

	"github.com/rshub/rshub/feed"
)

// NewEpoch returns the name of a new epoch: 40 random bits. Two copies of one memory
// must not choose the same name for the same list, so the name is random, not a
// counter or a time.
func NewEpoch() string { return strings.ToLower(rand.Text()[:8]) }

// BeginEpochs begins a new epoch of every set of a memory, from the open list on. It
// returns the number of sets. A damaged set does not stop the others; the error names it.
func BeginEpochs(ctx context.Context, log Log) (sets int, err error) {
	states, err := log.Sets(ctx)
	if err != nil && !errors.Is(err, ErrCorrupt) {
		return 0, err
	}
	errs := []error{err}
	for _, s := range states {
		err := log.BeginEpoch(ctx, s.Set, feed.MaxNumber)
		switch {
		case err == nil:
			sets++
		case errors.Is(err, feed.ErrNoSet): // it was deleted meanwhile
		case errors.Is(err, ErrCorrupt):
			errs = append(errs, err)
		default:
			return sets, errors.Join(append(errs, err)...)
		}
	}
	return sets, errors.Join(errs...)
}
