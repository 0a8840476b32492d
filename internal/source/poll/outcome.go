package poll

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// An Outcome is the result of the last poll of the source of a set.
type Outcome struct {
	Begin  int64  `json:"begin"`  // start of the set's log; another one means that the set was recreated
	Source string `json:"source"` // URL that was polled

	ChangeList bool `json:"changelist,omitempty"` // whether Source is a Change List, which is polled when the source pings

	Time time.Time     `json:"time"` // start of the poll
	Took time.Duration `json:"took"`
	Next time.Time     `json:"next"` // when the next poll is due

	Unchanged bool   `json:"unchanged,omitempty"` // whether the source reported no change, so nothing was compared
	Listed    uint64 `json:"listed,omitempty"`    // number of resources of the source, if it was compared with the hub as a whole
	Created   int    `json:"created,omitempty"`   // number of published changes
	Updated   int    `json:"updated,omitempty"`
	Deleted   int    `json:"deleted,omitempty"`
	Gaps      int    `json:"gaps,omitempty"` // number of parts of the source that could not be read

	Error    string `json:"error,omitempty"`    // why the poll failed; changes published before the failure remain
	Failures int    `json:"failures,omitempty"` // number of failed polls since the last successful one
	Ping     string `json:"ping,omitempty"`     // last ping before the last successful poll, see pingName
}

// Outcomes stores the last Outcome of each set, and the states of a Func, by name. Its methods
// block until the store has answered or ctx is done. Their errors are those of the change memory.
type Outcomes interface {
	// Get returns the text that Put stored under a name, or nil.
	Get(ctx context.Context, set string) ([]byte, error)

	// Put stores a text under a name and replaces an earlier one. A nil text removes it.
	Put(ctx context.Context, set string, text []byte) error
}

// Last returns the outcome of the last poll of the source of a set, by any hub. It returns nil if
// there was none since the set was created or described with this source.
func Last(ctx context.Context, o Outcomes, set string, begin int64, source string) (*Outcome, error) {
	text, err := o.Get(ctx, set)
	if err != nil || text == nil {
		return nil, err
	}
	out := new(Outcome)
	if err := json.Unmarshal(text, out); err != nil {
		return nil, fmt.Errorf("set %q: read the outcome of the last poll: %w", set, err)
	}
	if out.Begin != begin || out.Source != source {
		return nil, nil
	}
	return out, nil
}
