package mirror

import (
	"context"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// A Sink receives the changes of a source's resources.
type Sink interface {
	// Apply applies entries in order: each creates, updates or deletes a resource. It blocks
	// until that is done or is stored for Retry. After an error the caller passes the entries
	// again. Entries may also repeat after a crash or because the source repeats them; applying
	// them twice must be harmless.
	Apply(ctx context.Context, entries []feed.Entry) error

	// Retry does the stored work that is due, or with all, all of it. It returns the remaining
	// backlog. Apply may be called at the same time.
	Retry(ctx context.Context, all bool) (Backlog, error)
}

// A Backlog is the work that a Sink has stored for Retry.
type Backlog struct {
	Resources int64
	Next      time.Time // when the next work is due; zero if there is none
}

// splitNewest returns the last entry of each resource, split into resources to fetch and
// resources to remove.
func splitNewest(entries []feed.Entry) (updated, deleted []feed.Entry) {
	last := make(map[string]int, len(entries))
	for i := range entries {
		last[entries[i].Change.Loc] = i
	}
	for i := range entries {
		switch {
		case last[entries[i].Change.Loc] != i:
		case entries[i].Change.Change == resourcesync.Deleted:
			deleted = append(deleted, entries[i])
		default:
			updated = append(updated, entries[i])
		}
	}
	return updated, deleted
}
