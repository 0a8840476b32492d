package poll

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// An Outcome is what came of the last look at the source of a set.
type Outcome struct {
	Begin  int64  `json:"begin"`  // when the set's log began; a set that was made anew has had no look yet
	Source string `json:"source"` // what was looked at

	ChangeList bool `json:"changelist,omitempty"` // it is the source's Change List, and is looked at when the source pings

	Time time.Time     `json:"time"` // when the look began
	Took time.Duration `json:"took"`
	Next time.Time     `json:"next"` // when the next look is due

	Unchanged bool   `json:"unchanged,omitempty"` // the source said that nothing changed, so nothing was compared
	Listed    uint64 `json:"listed,omitempty"`    // resources that the source has, if it was compared with the hub as a whole
	Created   int    `json:"created,omitempty"`   // changes that were published
	Updated   int    `json:"updated,omitempty"`
	Deleted   int    `json:"deleted,omitempty"`
	Unknown   int    `json:"unknown,omitempty"` // resources that hub and source know nothing of that can be compared
	Gaps      int    `json:"gaps,omitempty"`    // parts of the source that could not be read

	Error    string `json:"error,omitempty"`    // why the look failed; what was published before it failed stays
	Failures int    `json:"failures,omitempty"` // looks that failed since the last one that did not
}

// Outcomes keep the last Outcome of each set, and what a Look keeps, by name. Their methods block until the store has
// answered or ctx is done. Their errors are those of the change memory.
type Outcomes interface {
	// Get returns what Put has put for a set, or nil.
	Get(ctx context.Context, set string) ([]byte, error)

	// Put replaces it. A nil text removes it.
	Put(ctx context.Context, set string, text []byte) error
}

// Last returns the outcome of the last look at the source of a set, from whatever hub. It
// is nil if there was none since the set began or was described with this source.
func Last(ctx context.Context, o Outcomes, set string, begin int64, source string) (*Outcome, error) {
	text, err := o.Get(ctx, set)
	if err != nil || text == nil {
		return nil, err
	}
	out := new(Outcome)
	if err := json.Unmarshal(text, out); err != nil {
		return nil, fmt.Errorf("set %q: the outcome of the last look at its source cannot be read: %w", set, err)
	}
	if out.Begin != begin || out.Source != source {
		return nil, nil
	}
	return out, nil
}
