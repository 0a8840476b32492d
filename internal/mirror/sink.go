package mirror

import (
	"context"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// A Sink receives the changes of a source's resources.
type Sink interface {
	// Apply applies entries in their order: a resource was created, updated or deleted.
	// It blocks until that is done, or is stored for Retry. After an error the entries
	// come again. Entries may also come again after a crash, or because the source
	// repeats them in another way; they must then do no harm.
	Apply(ctx context.Context, entries []feed.Entry) error

	// Retry does the stored work that is due; with all, it does all stored work. It
	// returns what is left. Apply may be called meanwhile.
	Retry(ctx context.Context, all bool) (Left, error)
}

// A Left is what a Sink still has to do.
type Left struct {
	Resources int64
	Next      time.Time // when the next work is due; zero: nothing is left
}

// newest returns the last entry of each resource, divided into resources to
// fetch and resources to remove.
func newest(entries []feed.Entry) (wanted, gone []feed.Entry) {
	last := make(map[string]int, len(entries))
	for i := range entries {
		last[entries[i].Change.Loc] = i
	}
	for i := range entries {
		switch {
		case last[entries[i].Change.Loc] != i:
		case entries[i].Change.Change == resourcesync.Deleted:
			gone = append(gone, entries[i])
		default:
			wanted = append(wanted, entries[i])
		}
	}
	return wanted, gone
}
