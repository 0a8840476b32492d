package poll

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// An Outcome is the result of the last look at the source of a set.
type Outcome struct {
	Begin  int64  `json:"begin"`  // when the set's log began; it shows whether the set was made anew since
	Source string `json:"source"` // the URL that was looked at

	ChangeList bool `json:"changelist,omitempty"` // Source is a Change List, which is looked at when the source pings

	Time time.Time     `json:"time"` // when the look began
	Took time.Duration `json:"took"`
	Next time.Time     `json:"next"` // when the next look is due

	Unchanged bool   `json:"unchanged,omitempty"` // the source said that nothing changed, so nothing was compared
	Listed    uint64 `json:"listed,omitempty"`    // resources that the source has, if it was compared with the hub as a whole
	Created   int    `json:"created,omitempty"`   // changes that were published
	Updated   int    `json:"updated,omitempty"`
	Deleted   int    `json:"deleted,omitempty"`
	Gaps      int    `json:"gaps,omitempty"` // parts of the source that could not be read

	Error    string `json:"error,omitempty"`    // why the look failed; changes that were published before stay
	Failures int    `json:"failures,omitempty"` // failed looks since the last successful one
	Ping     string `json:"ping,omitempty"`     // the last ping before the last successful look, see pingOf
}

// Outcomes store the last Outcome of each set, and the states of a Look, by name. Their
// methods block until the store has answered or ctx is done. Their errors are those of
// the change memory.
type Outcomes interface {
	// Get returns the text that Put stored under a name, or nil.
	Get(ctx context.Context, set string) ([]byte, error)

	// Put stores a text under a name, and replaces an earlier one. A nil text
	// removes it.
	Put(ctx context.Context, set string, text []byte) error
}

// Last returns the outcome of the last look at the source of a set, by any hub. It
// returns nil if there was none since the set was made or described with this source.
func Last(ctx context.Context, o Outcomes, set string, begin int64, source string) (*Outcome, error) {
	text, err := o.Get(ctx, set)
	if err != nil || text == nil {
		return nil, err
	}
	out := new(Outcome)
	if err := json.Unmarshal(text, out); err != nil {
		return nil, fmt.Errorf("set %q: read the outcome of the last poll of its source: %w", set, err)
	}
	if out.Begin != begin || out.Source != source {
		return nil, nil
	}
	return out, nil
}
