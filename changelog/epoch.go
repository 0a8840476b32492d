package changelog

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"

	"github.com/rshub/rshub/feed"
)

// NewEpoch returns the name of a new epoch: 40 random bits. Two copies of one memory
// must not choose the same name for the same list, so it is neither counted nor taken
// from the clock.
func NewEpoch() string { return strings.ToLower(rand.Text()[:8]) }

// BeginEpochs begins a new epoch of every set of a memory, with the list that is open.
// It returns the number of sets.
func BeginEpochs(ctx context.Context, log Log) (sets int, err error) {
	states, err := log.Sets(ctx)
	if err != nil {
		return 0, err
	}
	for _, s := range states {
		if _, err := log.BeginEpoch(ctx, s.Set, feed.Cursor{}); err == nil {
			sets++
		} else if !errors.Is(err, feed.ErrNoSet) { // else it was deleted meanwhile
			return sets, err
		}
	}
	return sets, nil
}
