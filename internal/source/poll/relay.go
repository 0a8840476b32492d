package poll

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/rshub/rshub/internal/source/harvest"
	"github.com/rshub/rshub/internal/source/reconcile"
	"github.com/rshub/rshub/internal/source/relay"
	"github.com/rshub/rshub/resourcesync"
)

// A Func polls the source out.Source of a set whose log began at out.Begin. It publishes what is
// new and stores its findings in out. After an error, the set and its source may still differ.
type Func func(ctx context.Context, set string, out *Outcome) error

// FuncOptions are the options of NewFunc. All must be set.
type FuncOptions struct {
	Dir           string                                                   // directory of temporary directories, used by nothing else; empty means os.TempDir
	Total         resourcesync.Limits                                      // limits of all documents of a source together
	ReserveDisk   func(ctx context.Context, set string, bytes int64) error // see reconcile.Options
	ReserveMemory func(ctx context.Context) (release func(), err error)    // see reconcile.Options
	Note          func(set, text string)                                   // called with oddities of a source, without the paths and queries of URLs
}

// maxNotedGaps is the maximum number of gaps that a poll passes to Note one by one. Every poll
// finds the same gaps again.
const maxNotedGaps = 20

// NewFunc returns a Func that uses package relay. hub returns a client of the hub itself. The Func
// stores in outcomes the state that it needs to detect changes since the last poll. The first poll
// removes what a killed hub left in Dir; if that fails, the next poll tries again.
func NewFunc(getter *harvest.Getter, hub func(set string) reconcile.Hub, outcomes Outcomes, o FuncOptions) Func {
	var mu sync.Mutex
	swept := o.Dir == "" // from then on, Dir has only directories in use
	sweep := func() error {
		mu.Lock()
		defer mu.Unlock()
		if swept {
			return nil
		}
		err := reconcile.Sweep(o.Dir)
		swept = err == nil
		return err
	}
	return func(ctx context.Context, set string, out *Outcome) error {
		if err := sweep(); err != nil {
			return err
		}
		stored, err := readState(ctx, outcomes, set, out)
		if err != nil {
			return err
		}
		find := func(ctx context.Context) (relay.Source, error) {
			if out.ChangeList {
				return relay.Source{ChangeList: out.Source}, nil
			}
			return relay.Find(ctx, getter, out.Source)
		}
		note := func(text string) { o.Note(set, redactURLs(text)) }
		gaps := 0
		r := relay.New(hub(set), getter, &stored.State, relay.Options{
			Dir:           o.Dir,
			Total:         o.Total,
			ReserveMemory: o.ReserveMemory,
			ReserveDisk:   func(bytes int64) error { return o.ReserveDisk(ctx, set, bytes) },
			Find:          find,
			Note:          note,
			Gap: func(gap error) {
				if gaps++; gaps <= maxNotedGaps {
					note(gap.Error())
				}
			},
			Save: func(st *relay.State) error {
				text, err := json.Marshal(storedState{out.Begin, out.Source, *st})
				if err == nil {
					err = outcomes.Put(ctx, stateName(set), text)
				}
				return err
			},
		})
		found, err := r.Poll(ctx)
		if gaps > maxNotedGaps {
			note(fmt.Sprintf("and %d more parts of the source could not be read", gaps-maxNotedGaps))
		}
		if many, ok := errors.AsType[*reconcile.TooManyDeletions](err); ok {
			twice := ""
			if stored.State.Source.Repository != nil {
				twice = ", and again a day later: it deletes nothing that is missing for the first time"
			}
			err = fmt.Errorf("%w; nothing of it was published: if they are really gone, run rspublish relay with -once and -max-delete %d%s", err, many.Total(), twice)
		}
		out.Unchanged = err == nil && found.Method == relay.Unchanged
		out.Created, out.Updated, out.Deleted = found.Created, found.Updated, found.Deleted
		out.Listed, out.Gaps = found.Listed, found.Gaps
		return err
	}
}

// A storedState is what a Func stores between two polls of a source.
type storedState struct {
	Begin  int64       `json:"begin"`
	Source string      `json:"source"`
	State  relay.State `json:"state"`
}

// stateName returns the name in Outcomes of the state of a set. It is not a valid name of a set.
func stateName(set string) string { return set + "~state" }

// readState reads the state of a set. It returns the zero state if the set was recreated or has had
// another source since, or if the stored state is unreadable.
func readState(ctx context.Context, outcomes Outcomes, set string, out *Outcome) (stored storedState, err error) {
	text, err := outcomes.Get(ctx, stateName(set))
	if err != nil || text == nil {
		return storedState{}, err
	}
	if err := json.Unmarshal(text, &stored); err != nil || stored.Begin != out.Begin || stored.Source != out.Source || stored.State.Version != relay.StateVersion {
		return storedState{}, nil // compare everything, as in the first poll
	}
	return stored, nil
}
