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

// A Look looks once at the source out.Source of a set whose log began at out.Begin. It
// publishes what is new, and notes its findings in out. After an error, the set and its
// source may still differ.
type Look func(ctx context.Context, set string, out *Outcome) error

// RelayOptions are the options of Relayed. All must be set.
type RelayOptions struct {
	Dir    string                                                   // where temporary directories are made, and nobody else makes any; empty: os.TempDir
	Total  resourcesync.Limits                                      // of all documents of a source together
	Room   func(ctx context.Context, set string, bytes int64) error // see reconcile.Options
	Memory func(ctx context.Context) (release func(), err error)    // see reconcile.Options
	Note   func(set, text string)                                   // called with oddities of a source, without the paths and queries of URLs
}

// maxNotedGaps is how many gaps of one look are noted one by one: every look finds them again.
const maxNotedGaps = 20

// Relayed returns a Look that uses package relay. hub returns a client of the hub itself.
// Relayed also stores in outcomes what it needs to see changes since the last look. The first
// look removes what a hub that was killed has left in Dir. If it cannot, the next one tries.
func Relayed(getter *harvest.Getter, hub func(set string) reconcile.Hub, outcomes Outcomes, o RelayOptions) Look {
	var mu sync.Mutex
	swept := o.Dir == "" // afterwards Dir has what the looks are making
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
		kept, err := readState(ctx, outcomes, set, out)
		if err != nil {
			return err
		}
		find := func(ctx context.Context) (relay.Source, error) {
			if out.ChangeList {
				return relay.Source{ChangeList: out.Source}, nil
			}
			return relay.Find(ctx, getter, out.Source)
		}
		gaps := 0
		r := relay.New(hub(set), getter, &kept.State, relay.Options{
			Dir:    o.Dir,
			Total:  o.Total,
			Memory: o.Memory,
			Room:   func(bytes int64) error { return o.Room(ctx, set, bytes) },
			Find:   find,
			Note:   func(text string) { o.Note(set, redactURLs(text)) },
			Gap: func(gap error) {
				if gaps++; gaps <= maxNotedGaps {
					o.Note(set, redactURLs(gap.Error()))
				}
			},
			Save: func(st *relay.State) error {
				text, err := json.Marshal(state{out.Begin, out.Source, *st})
				if err == nil {
					err = outcomes.Put(ctx, stateOf(set), text)
				}
				return err
			},
		})
		found, err := r.Look(ctx)
		if gaps > maxNotedGaps {
			o.Note(set, fmt.Sprintf("and %d more parts of the source could not be read", gaps-maxNotedGaps))
		}
		if many, ok := errors.AsType[*reconcile.TooMany](err); ok {
			twice := ""
			if kept.State.Source.Repository != nil {
				twice = ", and again a day later: it deletes nothing that is missing for the first time"
			}
			err = fmt.Errorf("%w; nothing of it was published: if they are really gone, run rspublish relay with -once and -max-delete %d%s", err, many.Most(), twice)
		}
		out.Unchanged = err == nil && found.How == relay.Unchanged
		out.Created, out.Updated, out.Deleted = found.Created, found.Updated, found.Deleted
		out.Listed, out.Gaps = found.Listed, found.Gaps
		return err
	}
}

// A state is what Relayed stores between two looks at a source.
type state struct {
	Begin  int64       `json:"begin"`
	Source string      `json:"source"`
	State  relay.State `json:"state"`
}

// stateOf returns the name in Outcomes of the state of a set. No set has such a name.
func stateOf(set string) string { return set + "~state" }

// readState reads the state of a set. It returns the zero state if the set was made anew
// or has another source since, or if the stored state cannot be read.
func readState(ctx context.Context, outcomes Outcomes, set string, out *Outcome) (kept state, err error) {
	text, err := outcomes.Get(ctx, stateOf(set))
	if err != nil || text == nil {
		return state{}, err
	}
	if err := json.Unmarshal(text, &kept); err != nil || kept.Begin != out.Begin || kept.Source != out.Source || kept.State.Version != relay.StateVersion {
		return state{}, nil // everything is compared, as at the first look
	}
	return kept, nil
}
