package changelog_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
)

// A partlyBad log has sets, of which some are damaged and one is just deleted.
type partlyBad struct {
	changelog.Log
	sets, begun []string
}

var errDamage = fmt.Errorf("set %q: %w", "unreadable", changelog.ErrCorrupt)

func (p *partlyBad) Sets(context.Context, ...string) (states []feed.State, err error) {
	for _, set := range p.sets {
		states = append(states, feed.State{Set: set})
	}
	return states, errDamage
}

func (p *partlyBad) BeginEpoch(_ context.Context, set string, _ uint64) error {
	switch set {
	case "bad":
		return fmt.Errorf("set %q: %w", set, changelog.ErrCorrupt)
	case "deleted":
		return feed.ErrNoSet
	case "away":
		return feed.ErrUnavailable
	}
	p.begun = append(p.begun, set)
	return nil
}

// Damaged sets keep no other set from its new epoch, and are named. A memory that is away
// ends it.
func TestBeginEpochs(t *testing.T) {
	p := &partlyBad{sets: []string{"a", "bad", "deleted", "z"}}
	n, err := changelog.BeginEpochs(t.Context(), p)
	if n != 2 || !slices.Equal(p.begun, []string{"a", "z"}) {
		t.Errorf("%d sets, %q", n, p.begun)
	}
	if want := errDamage.Error() + "\nset \"bad\": " + changelog.ErrCorrupt.Error(); !errors.Is(err, changelog.ErrCorrupt) || err.Error() != want {
		t.Errorf("error is %v, want %s", err, want)
	}
	p = &partlyBad{sets: []string{"a", "away", "z"}}
	if n, err := changelog.BeginEpochs(t.Context(), p); n != 1 || !errors.Is(err, feed.ErrUnavailable) {
		t.Errorf("%d sets, %v", n, err)
	}
}
